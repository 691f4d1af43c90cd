"""Measures the size of the lag tables: 1 000 groups of 50 partitions, measured every minute, kept for 30 days.

    make bench-pipeline-size
    python bench/pipeline_size.py --layouts      # only the last paragraph; it needs no Spark

The offsets of a day are drawn at random. The rate of a partition is log-normal (150 records a minute in the median),
and what is written in a minute is Poisson, as is the lag. `busy` is the part of the partitions that anything is written
to. The tables of the day are written and compacted by the code of the pipeline, and their bytes are counted. Thirty
days are thirty times one day; that is the only extrapolation. Measurements of single partitions are kept for six hours:
ten of them are written, at full size, for the size of one.

What if each minute of each partition were kept for 30 days? An hour of a tenth of the groups is written with several
sets of columns, sorted so that a partition's minutes are together, in several encodings. The smallest one counts.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from coterie.spark.pipeline.groups_pipeline import COMPACTED_ORDER
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import DAY_MS, Entry, ParquetTables, day_of
from coterie.spark.pipeline.schemas import TABLES
from coterie.spark.pipeline.submit import session

GROUPS, PARTITIONS, MINUTES, HOURS, DAYS = 1_000, 50, 1_440, 24, 30
KEPT_HOURS, SAMPLED_MINUTES = 6, 10
MIDNIGHT_MS = 20_775 * DAY_MS
MIB = 1024 * 1024


def group_day(rng: Any, group: int, busy: float) -> dict[str, Any]:
    """Draw a day of one group: rows are partitions, columns are minutes."""
    is_busy = rng.random(PARTITIONS) < busy
    rate = np.where(is_busy, rng.lognormal(5, 1.2, PARTITIONS), 0)[:, None]
    log_end = rng.integers(0, 10**9, PARTITIONS)[:, None] + rng.poisson(rate, (PARTITIONS, MINUTES)).cumsum(1)
    behind = np.where(is_busy[:, None], rng.poisson(rate / 20, (PARTITIONS, MINUTES)), 0)
    seconds = np.where(behind > 0, rng.integers(0, 4_000, (PARTITIONS, MINUTES)) / 1_000, 0.0)
    at_ms = MIDNIGHT_MS + 60_000 * np.arange(MINUTES)
    idle_ms = MIDNIGHT_MS - rng.integers(0, DAY_MS, PARTITIONS)[:, None]
    commit_ms = np.where(is_busy[:, None], at_ms - rng.integers(0, 5_000, (PARTITIONS, MINUTES)), idle_ms)
    return {
        "group": group,
        "at_ms": at_ms,
        "log_end": log_end,
        "behind": behind,
        "seconds": seconds,
        "commit": commit_ms,
    }


def group_lag(day: dict[str, Any]) -> dict[str, Any]:
    """Return what `tables.group_lag` makes of it."""
    return {
        "at_ms": day["at_ms"],
        "group_id": [f"group-{day['group']}"] * MINUTES,
        "partitions": np.full(MINUTES, PARTITIONS, np.int32),
        "owned": np.full(MINUTES, PARTITIONS, np.int32),
        "committed": (day["log_end"] - day["behind"]).sum(0),
        "log_end": day["log_end"].sum(0),
        "records_behind": day["behind"].sum(0),
        "most_behind": day["behind"].max(0),
        "seconds_behind": day["seconds"].max(0).round(1),
    }


def lag_hours(day: dict[str, Any]) -> dict[str, Any]:
    """Return what `tables.lag_hours` makes of it."""
    size = PARTITIONS * HOURS
    behind = day["behind"].reshape(PARTITIONS, HOURS, 60)
    last = np.s_[:, 59::60]
    return {
        "hour_ms": np.tile(MIDNIGHT_MS + 3_600_000 * np.arange(HOURS), PARTITIONS),
        "group_id": [f"group-{day['group']}"] * size,
        "topic": [f"topic-{day['group']}"] * size,
        "partition": np.repeat(np.arange(PARTITIONS, dtype=np.int32), HOURS),
        "measurements": np.full(size, 60, np.int32),
        "committed": (day["log_end"] - day["behind"])[last].ravel(),
        "log_end": day["log_end"][last].ravel(),
        "records_behind_max": behind.max(2).ravel(),
        "records_behind_avg": behind.mean(2).round(1).ravel(),
        "seconds_behind_max": day["seconds"].reshape(PARTITIONS, HOURS, 60).max(2).round(1).ravel(),
    }


def lag(day: dict[str, Any], minute: int) -> dict[str, Any]:
    behind = day["behind"][:, minute]
    return {
        "at_ms": np.full(PARTITIONS, day["at_ms"][minute]),
        "group_id": [f"group-{day['group']}"] * PARTITIONS,
        "topic": [f"topic-{day['group']}"] * PARTITIONS,
        "partition": np.arange(PARTITIONS, dtype=np.int32),
        "member_id": [f"consumer-{day['group']}-{number // 10:032x}" for number in range(PARTITIONS)],
        "committed": day["log_end"][:, minute] - behind,
        "commit_ms": day["commit"][:, minute],
        "log_end": day["log_end"][:, minute],
        "records_behind": behind,
        "seconds_behind": day["seconds"][:, minute],
        "seconds_from": np.where(behind > 0, "record", "nothing waits"),
    }


def stored(name: str, parts: list[dict[str, Any]]) -> Any:
    schema = TABLES[name].arrow
    tables = []
    for part in parts:
        full = part | {"batch": np.full(len(part["group_id"]), 4_711)}
        tables.append(pa.table([pa.array(full[field.name], field.type) for field in schema], schema=schema))
    return pa.concat_tables(tables)


def measure(spark: SparkSession, busy: float, out: Path) -> dict[str, float]:
    files = HadoopFiles(spark, str(out))
    tables = ParquetTables(spark, files)
    rng, today = np.random.default_rng(1), day_of(MIDNIGHT_MS)
    parts: dict[str, list[Any]] = {"group_lag": [], "lag_hours": []}
    minutes: list[list[Any]] = [[] for _ in range(SAMPLED_MINUTES)]
    for group in range(GROUPS):
        day = group_day(rng, group, busy)
        parts["group_lag"].append(group_lag(day))
        parts["lag_hours"].append(lag_hours(day))
        for at, minute in enumerate(minutes):
            minute.append(lag(day, at * MINUTES // SAMPLED_MINUTES))
    found = {}
    for name, some in parts.items():
        frame = spark.createDataFrame(stored(name, some))
        tables.put(name, Entry("batch", 0, today), frame)
        order = [column for column in COMPACTED_ORDER if column in TABLES[name].arrow.names]
        tables.compact(name, today + timedelta(days=1), order, last_done=0)
        found[f"{name}_day_mib"] = files.size(name) / MIB
    for at, minute in enumerate(minutes):
        tables.put("lag", Entry("at", at, today), spark.createDataFrame(stored("lag", minute)))
    found["lag_hour_mib"] = files.size("lag") / MIB / SAMPLED_MINUTES * 60
    found["days_30_mib"] = DAYS * (found["group_lag_day_mib"] + found["lag_hours_day_mib"])
    found["total_mib"] = found["days_30_mib"] + KEPT_HOURS * found["lag_hour_mib"]
    return {name: round(size, 1) for name, size in found.items()}


LAYOUT_GROUPS, LAYOUT_MINUTES = 100, np.s_[:, 600:660]
LAYOUTS = {
    "all columns": ("log_end", "behind", "committed", "commit", "seconds"),
    "end and lag": ("log_end", "behind"),
    "lag": ("behind",),
}


def layouts(busy: float) -> dict[str, float]:
    """Return the GiB of 30 days of minutes of all partitions, for each set of columns."""
    rng = np.random.default_rng(1)
    days = [group_day(rng, group, busy) for group in range(LAYOUT_GROUPS)]
    minutes = 60 * PARTITIONS
    columns = {
        name: np.concatenate([day[name][LAYOUT_MINUTES].ravel() for day in days])
        for name in ("log_end", "behind", "commit", "seconds")
    }
    columns["committed"] = columns["log_end"] - columns["behind"]
    place = {
        "group_id": pa.array([f"group-{group}" for group in range(LAYOUT_GROUPS) for _ in range(minutes)]),
        "partition": pa.array(np.tile(np.repeat(np.arange(PARTITIONS, dtype=np.int32), 60), LAYOUT_GROUPS)),
        "at_ms": pa.array(np.tile(days[0]["at_ms"][600:660], PARTITIONS * LAYOUT_GROUPS)),
    }
    share = LAYOUT_GROUPS / GROUPS / (DAYS * HOURS) * 1024 * MIB
    found = {}
    for name, wanted in LAYOUTS.items():
        every = pa.table(place | {column: pa.array(columns[column]) for column in wanted})
        has_changed = np.zeros(len(every), bool)
        has_changed[::60] = True  # the first minute of each partition
        for column in wanted:
            has_changed[1:] |= columns[column][1:] != columns[column][:-1]
        changes = every.filter(pa.array(has_changed))
        found[name] = min(_bytes(rows, is_delta=is_delta) for rows in (every, changes) for is_delta in (False, True))
    return {name: round(size / share, 2) for name, size in found.items()}


def _bytes(rows: Any, *, is_delta: bool) -> int:
    numbers = {field.name: "DELTA_BINARY_PACKED" for field in rows.schema if pa.types.is_integer(field.type)}
    how: dict[str, Any] = {"use_dictionary": ["group_id"], "column_encoding": numbers} if is_delta else {}
    file = io.BytesIO()
    pq.write_table(rows, file, compression="zstd", **how)
    return file.tell()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path)
    options.add_argument("--layouts", action="store_true", help="only the layouts with each minute of each partition")
    asked = options.parse_args()
    found = {f"busy {busy:.0%}": layouts(busy) for busy in (0.2, 1.0)}
    print("GiB of 30 days, each minute of each partition:", found, flush=True)
    if asked.layouts:
        return
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = session("size of the lag tables", "local[2]", {"spark.driver.memory": "2g"})
    results: dict[str, Any] = {"each minute of each partition, GiB": found}
    with tempfile.TemporaryDirectory(prefix="pipeline-size-") as folder:
        for busy in (0.2, 1.0):
            results[f"busy {busy:.0%}"] = measure(spark, busy, Path(folder, str(busy)))
            print(f"busy {busy:.0%}", results[f"busy {busy:.0%}"], flush=True)
    spark.stop()
    if asked.json:
        asked.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
