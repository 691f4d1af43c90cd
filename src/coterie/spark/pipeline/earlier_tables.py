"""Bring the tables of an earlier release into the layout of this one.

Version 1 had `OUT/<table>/batch=N`, where N was a time in `lag` and `health`, and the state in `OUT/state/batch=N`. A
table is written again, aside, and then takes the place of the old one. The version is written last, so a migration that
was killed is done again, for tables that are still old.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from datetime import date

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the usual name

from coterie.errors import CoterieError
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import COMPRESSION, day_of, old_name
from coterie.spark.pipeline.schemas import SCHEMA_VERSION, TABLES, TableSchema
from coterie.spark.pipeline.state_store import FULL

VERSION_FILE = "version.json"
MIGRATED = "migrated"
_OLD_BATCH = re.compile(r"batch=(\d+)")
_MEASURED = frozenset({"lag", "health"})


def migrate(spark: SparkSession, files: HadoopFiles, say: Callable[[str], None]) -> None:
    """Bring a directory to this version; raise if it is of a version that this release does not know."""
    if files.exists("rounds"):
        raise CoterieError(
            f"{files.root} holds tables of release 0.1.0, among them `rounds`, which is called `rebalances` now. "
            "Read the log again into an empty directory"
        )
    version = json.loads(files.read_text(VERSION_FILE))["version"] if files.exists(VERSION_FILE) else 1
    if version > SCHEMA_VERSION:
        raise CoterieError(
            f"{files.root} holds tables of version {version}, and this release knows version {SCHEMA_VERSION}: use the "
            "release that wrote them, or a newer one"
        )
    if version == SCHEMA_VERSION:
        return
    for table in TABLES.values():
        if _old_batches(files, table.name):
            say(f"bringing table {table.name} to version {SCHEMA_VERSION}")
            _migrate_table(spark, files, table)
    states = _old_batches(files, "state")
    if states:
        files.move(f"state/batch={states[-1]}", f"state/{FULL}-{states[-1]}")
        for number in states[:-1]:
            files.delete(f"state/batch={number}")
    files.write_text(VERSION_FILE, json.dumps({"version": SCHEMA_VERSION}))


def _migrate_table(spark: SparkSession, files: HadoopFiles, table: TableSchema) -> None:
    """Write a table by days: the days on which its batches were written."""
    by_day: defaultdict[date, list[str]] = defaultdict(list)
    for number in _old_batches(files, table.name):
        place = f"{table.name}/batch={number}"
        by_day[day_of(files.modified_ms(place))].append(files.full(place))
    new = f"_aside/new-{table.name}"
    for day, places in by_day.items():
        read = spark.read.schema(table.ddl).option("basePath", files.full(table.name)).parquet(*places)
        rows = read.withColumn("batch", F.lit(None).cast("bigint")) if table.name in _MEASURED else read
        to_file = rows.select(*table.arrow.names).coalesce(1).write.option("compression", COMPRESSION)
        to_file.mode("overwrite").parquet(files.full(f"{new}/date={day}/{MIGRATED}"))
    old = f"_aside/{old_name(table.name)}"
    files.move(table.name, old)
    files.move(new, table.name)
    files.delete(old)


def _old_batches(files: HadoopFiles, folder: str) -> list[int]:
    found = map(_OLD_BATCH.fullmatch, files.names(folder))
    return sorted(int(one[1]) for one in found if one)
