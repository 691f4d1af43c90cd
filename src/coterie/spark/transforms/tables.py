"""The tables of the pipeline that are selected from what was decoded and folded: one function each."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.decoding.decode import FACT, GROUP, OFFSETS_TOPIC
from coterie.spark.schemas import COMMITS, SKIPPED

__all__ = ["commits", "generations", "last_commits", "owners", "ownership", "rebalances", "skipped"]


# What was passed over, counted: types that are not of our concern, and garbage.


def skipped(decoded: DataFrame, folded: DataFrame | None) -> DataFrame:
    """At the first reading, and those of groups, whose values are read later; None if there are none."""
    kind = F.col("other.kind")
    at_once = decoded.where(kind.isNotNull() & ~kind.isin(GROUP, FACT)).select(
        kind.alias("kind"),
        F.col("other.reason").alias("reason"),
        F.lit(1).cast("bigint").alias("records"),
        F.lit(OFFSETS_TOPIC).alias("log_topic"),  # facts are read later
        "log_partition",
        F.col("log_offset").alias("first_offset"),
        F.col("log_offset").alias("last_offset"),
    )
    found = at_once
    if folded is not None:
        found = at_once.unionByName(folded.where(F.col("skipped").isNotNull()).select("skipped.*"))
    counted = found.groupBy("kind", "log_topic", "log_partition").agg(
        F.min_by("reason", "first_offset").alias("reason"),
        F.sum("records").alias("records"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
    )
    return counted.select(*(column.name for column in SKIPPED.columns))


# Rebalances, derived and observed.


def rebalances(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("rebalance").isNotNull()).select("rebalance.*")


# Intervals in which a member held a partition: those that ended, and those that last.


def ownership(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("interval").isNotNull()).select("interval.*")


def owners(groups: DataFrame) -> DataFrame:
    """`groups` is the state of all groups."""
    return groups.select(F.explode("owners").alias("owner")).select("owner.*")


# Groups at their generations.


def generations(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("generation").isNotNull()).select("generation.*")


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
