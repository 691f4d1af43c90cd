"""Tables as directories of Parquet. A batch is written to a directory aside, which is then renamed.

    OUT/commits/batch=0/*.parquet       rows of batch 0, all of them or none
    OUT/state/batch=0/groups/...        what the next batch has to know; it is written last: then the batch is done
    OUT/_aside/...                      what is being written

A batch that runs again overwrites its own directories, so no row is there twice. Paths are Hadoop's: a local directory,
hdfs:// or whatever else Spark can write to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from coterie.errors import CoterieError
from coterie.spark.pipeline.schemas import STATES, TableSchema

__all__ = ["ParquetStore"]

KEPT_STATES = 2
"""The last state, and the one before it in case the last batch has to run again."""
_BATCH = re.compile(r"batch=(\d+)")


class ParquetStore:
    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self.root = root.rstrip("/")
        self._jvm: Any = spark._jvm  # noqa: SLF001  there is no other way to Hadoop's file systems
        configuration = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._files = self._path("").getFileSystem(configuration)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.root}/{name}" if name else self.root)

    @property
    def checkpoint(self) -> str:
        return f"{self.root}/checkpoint"

    def check(self) -> None:
        """Check that tables and checkpoint belong together. If not, rows would be lost or there twice."""
        done, has_checkpoint = self.last_done(), self._files.exists(self._path("checkpoint/offsets"))
        if done is not None and not has_checkpoint:
            raise CoterieError(
                f"{self.root} holds tables up to batch {done}, but its checkpoint is gone: where to read on is not "
                "known. Read the log again into an empty directory"
            )
        if self._files.exists(self._path("rounds")):
            raise CoterieError(
                f"{self.root} holds tables of release 0.1.0, among them `rounds`, which is called `rebalances` now. "
                "Read the log again into an empty directory"
            )

    # --- tables -------------------------------------------------------------------------------------------------------

    def put(self, table: TableSchema, number: int, rows: DataFrame, *, files: int = 1) -> None:
        aside = f"_aside/{table.name}-{number}"
        self._write(rows, aside, files)
        self._move(aside, f"{table.name}/batch={number}")
        if table.is_snapshot:
            self._drop_before(table.name, number)

    def clear(self, table: TableSchema, number: int) -> None:
        """Delete the rows of an earlier attempt: the batch has none."""
        self._files.delete(self._path(f"{table.name}/batch={number}"), True)

    def _write(self, rows: DataFrame, name: str, files: int) -> None:
        rows.coalesce(files).write.mode("overwrite").parquet(f"{self.root}/{name}")

    def _move(self, source: str, target: str) -> None:
        place = self._path(target)
        self._files.delete(place, True)
        self._files.mkdirs(place.getParent())
        if not self._files.rename(self._path(source), place):
            raise CoterieError(f"{self.root}/{source} could not be renamed to {target}: is the directory writable?")

    def _batches(self, name: str) -> list[int]:
        place = self._path(name)
        if not self._files.exists(place):
            return []
        names = [each.getPath().getName() for each in self._files.listStatus(place)]
        return sorted(int(found[1]) for found in map(_BATCH.fullmatch, names) if found)

    def _drop_before(self, name: str, number: int) -> None:
        for each in self._batches(name):
            if each < number:
                self._files.delete(self._path(f"{name}/batch={each}"), True)

    # --- state --------------------------------------------------------------------------------------------------------

    def last_done(self) -> int | None:
        done = self._batches("state")
        return done[-1] if done else None

    def is_done(self, number: int) -> bool:
        return self._files.exists(self._path(f"state/batch={number}"))  # type: ignore[no-any-return]

    def state(self, number: int) -> dict[str, DataFrame]:
        """Return the state after that batch; before the first it is empty."""
        if number < 0:
            return {name: self._spark.createDataFrame([], table.ddl) for name, table in STATES.items()}
        if not self.is_done(number):
            raise CoterieError(
                f"the checkpoint goes on after batch {number}, but {self.root}/state does not have that batch: tables "
                "and checkpoint are not of the same run. Read the log again into an empty directory"
            )
        folder = f"{self.root}/state/batch={number}"
        return {name: self._spark.read.schema(table.ddl).parquet(f"{folder}/{name}") for name, table in STATES.items()}

    def put_state(self, number: int, changed: Mapping[str, DataFrame]) -> None:
        """Store the state in one rename; from then on the batch is done. Tables that have not changed are copied."""
        aside = f"_aside/state-{number}"
        self._files.delete(self._path(aside), True)
        for name in STATES:
            if name in changed or number == 0:
                rows = changed.get(name)
                self._write(rows if rows is not None else self.state(-1)[name], f"{aside}/{name}", 1)
            else:
                self._copy(f"state/batch={number - 1}/{name}", f"{aside}/{name}")
        self._move(aside, f"state/batch={number}")
        self._drop_before("state", number - KEPT_STATES + 1)

    def _copy(self, source: str, target: str) -> None:
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        copy(self._files, self._path(source), self._files, self._path(target), False, self._files.getConf())
