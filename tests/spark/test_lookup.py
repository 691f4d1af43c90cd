"""Spark's look-up of data sources on a pyspark that is too old for ours: others stay, and ours says what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from coterie.spark.required_pyspark import REQUIRED, OldPySparkError, old_pyspark

OTHER = """
from pyspark.sql.datasource import DataSource

class DefaultSource(DataSource):
    @classmethod
    def name(cls):
        return "other"
"""
LOOK_UP = """
import io, json, sys
import pyspark
from pyspark.serializers import read_int
from pyspark.sql.worker import lookup_data_sources as spark

if sys.argv[1:]:
    pyspark.__version__ = sys.argv[1]
    sys.modules["pyspark.sql.streaming.datasource"] = None   # 4.1 has no such module

found = io.BytesIO()
spark._main(io.BytesIO(), found)
found.seek(0)
names = []
for _ in range(read_int(found)):
    names.append(found.read(read_int(found)).decode())
    source = spark.pickleSer.loads(found.read(read_int(found)))
    if source.name() == "coterie":
        coterie = source
is_imported = "coterie.spark.source" in sys.modules
try:
    used = coterie(options={"includeHeaders": "false"}).schema()
except ImportError as error:
    used = str(error)
print(json.dumps([sorted(names), is_imported, used]))
"""


def look_up(folder: Path, *version: str) -> tuple[list[str], bool, str]:
    """Return the names that Spark finds, whether that imported our source, and what ours answers when it is used."""
    (folder / "pyspark_other.py").write_text(OTHER)
    (folder / "look_up.py").write_text(LOOK_UP)
    command = [sys.executable, "look_up.py", *version]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    names, is_imported, used = json.loads(ran.stdout)
    return names, is_imported, used


def test_an_old_pyspark_hides_no_other_source_and_is_named_when_ours_is_used(tmp_path: Path) -> None:
    names, is_imported, said = look_up(tmp_path, "4.1.1")
    assert (names, is_imported) == (["coterie", "other"], False)
    assert 'format("coterie") needs pyspark 4.2 or newer' in said
    assert f"{sys.executable} has pyspark 4.1.1" in said


def test_the_look_up_imports_ours_only_when_it_is_used(tmp_path: Path) -> None:
    names, is_imported, schema = look_up(tmp_path)
    assert (names, is_imported) == (["coterie", "other"], False)
    assert schema.startswith("key binary, value binary, topic string")


def test_an_import_that_fails_for_another_reason_stays_as_it_is() -> None:
    error = ImportError("no pandas")
    assert old_pyspark("4.3.0", error) is error
    assert old_pyspark("5.0.0.dev0", error) is error
    assert isinstance(old_pyspark("3.5.9", error), OldPySparkError)


def test_the_extra_asks_for_the_pyspark_that_the_source_needs() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (asked,) = (one for one in project["project"]["optional-dependencies"]["spark"] if one.startswith("pyspark"))
    assert asked == "pyspark>=" + ".".join(map(str, REQUIRED))
