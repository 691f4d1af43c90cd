"""Tables of the pipeline, as any reader of Parquet has them, next to the second reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.pipeline.decoding import decode_batches
from coterie.spark.pipeline.schemas import DECODED
from spark.rows import generations, intervals, rebalances
from spark.second_reading import LogRecord, commits_of, read_again

__all__ = ["COMMIT_COLUMNS", "as_sorted", "assert_as_read_again", "records_of", "table"]


def table(out: Path, name: str) -> list[dict[str, Any]]:
    folder = out / name
    if not folder.exists():
        return []
    rows: list[dict[str, Any]] = ds.dataset(folder, format="parquet").to_table().to_pylist()
    return rows


COMMIT_COLUMNS = (
    "group_id", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_ms", "topic_id", "tombstone",
    "log_partition", "log_offset", "log_ms",
)  # fmt: skip


def records_of(spark: SparkSession, log: Sequence[LogRecord]) -> DataFrame:
    rows = [(one.key, one.value, "__consumer_offsets", one.partition, one.offset, one.ms) for one in log]
    frame = spark.createDataFrame(
        rows, "key binary, value binary, topic string, partition int, offset bigint, ms bigint"
    )
    timed = frame.withColumn("timestamp", F.timestamp_millis("ms")).drop("ms")
    return timed.mapInArrow(decode_batches, DECODED.ddl)


def as_sorted(rows: Iterable[Any]) -> list[str]:
    return sorted(map(repr, rows))


def assert_as_read_again(out: Path, log: Sequence[LogRecord], names: Mapping[str, str] | None = None) -> None:
    """`names` are those of the topics by id, for groups of KIP-848."""
    second = read_again(log, names)
    commits = [tuple(row[name] for name in COMMIT_COLUMNS) for row in table(out, "commits")]
    assert as_sorted(commits) == as_sorted(commits_of(log))
    lasting = [row | {"ended_ms": None} for row in table(out, "owners")]
    assert intervals([*table(out, "ownership"), *lasting]) == sorted(second.intervals, key=repr)
    filled = [row | {"members": row["members"] or []} for row in table(out, "generations")]
    assert generations(filled) == sorted(second.generations, key=repr)
    derived = [row for row in table(out, "rebalances") if row["evidence"] == "derived"]
    assert rebalances(derived) == sorted(second.rebalances)
