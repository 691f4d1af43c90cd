"""Offset commits, and the last one of each group and partition."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.schemas import COMMITS

__all__ = ["commits", "last_commits"]

_KEY = ("group_id", "topic", "partition")


def commits(decoded: DataFrame) -> DataFrame:
    rows = decoded.where(F.col("other").isNull()).withColumn("tombstone", F.col("offset").isNull())
    return rows.select(*(column.name for column in COMMITS.columns))


def last_commits(before: DataFrame, new: DataFrame) -> DataFrame:
    """Of two the later in the log counts; what ends with a tombstone is not there any more."""
    rest = [column.name for column in COMMITS.columns if column.name not in _KEY]
    # A group is in one partition of the log, unless the log has grown: then its later records are the younger ones.
    newest = F.max_by(F.struct(*rest), F.struct("log_ms", "log_partition", "log_offset"))
    last = before.unionByName(new).groupBy(*_KEY).agg(newest.alias("last"))
    return last.where(~F.col("last.tombstone")).select(*_KEY, "last.*")
