"""Small files of a pipeline, on Hadoop's file systems."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from coterie.spark.pipeline.hadoop_files import HadoopFiles

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(200)]


class NothingDeleted:
    """A file system that fails when it is to delete, as a process that is killed right after a deletion."""

    def __init__(self, system: Any) -> None:
        self._system = system

    def __getattr__(self, name: str) -> Any:
        assert name != "delete", "between a deletion and a rename there is no file"
        return getattr(self._system, name)


def test_a_small_file_is_replaced_in_one_step(spark: SparkSession, folder: Path) -> None:
    files = HadoopFiles(spark, str(folder))
    files.write_text("state/lag_hours", "1")
    files._system = NothingDeleted(files._system)
    files.write_text("state/lag_hours", "2")
    assert files.read_text("state/lag_hours") == "2"
    assert sorted(path.name for path in (folder / "state").glob("[!.]*")) == ["lag_hours"]
    assert files.names("_aside") == []
