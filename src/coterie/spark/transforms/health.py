"""How each group does now, in a row and in words."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.schemas import HEALTH

__all__ = ["FAR_BEHIND_S", "UNSTABLE_REBALANCES", "health"]

HOUR_MS = 3_600_000
UNSTABLE_REBALANCES = 12
"""Rebalances in an hour from which on a group is called unstable: one every five minutes."""
FAR_BEHIND_S = 300.0
"""Seconds from which on it is called far behind, or stuck if nothing was committed for as long."""


def health(groups: DataFrame, lag: DataFrame, at_ms: int) -> DataFrame:
    """`groups` is the state of all groups, `lag` that of now."""
    behind = lag.groupBy("group_id").agg(
        F.count("*").cast("int").alias("partitions"),
        F.sum("records_behind").alias("records_behind"),
        F.max("seconds_behind").alias("seconds_behind"),
        F.max("commit_ms").alias("last_commit_ms"),
    )
    since_ms = F.lit(at_ms - HOUR_MS)
    recent = F.filter("recent", lambda one: one["ended_ms"] > since_ms)
    known = groups.where(F.col("state") != "Gone").select(
        "group_id",
        "protocol",
        "state",
        "generation",
        "members",
        F.size(recent).alias("rebalances_last_hour"),
        _unassigned_s(recent).alias("unassigned_s_last_hour"),
    )
    rows = known.join(behind, "group_id", "full").fillna(
        {
            "protocol": "simple",
            "state": "Empty",
            "members": 0,
            "partitions": 0,
            "records_behind": 0,
            "rebalances_last_hour": 0,
        }
    )
    unassigned_s = F.when(F.col("rebalances_last_hour") == 0, 0.0).otherwise(F.col("unassigned_s_last_hour"))
    rows = rows.withColumn("unassigned_s_last_hour", unassigned_s)
    rows = rows.withColumn("at_ms", F.lit(at_ms).cast("bigint")).withColumn("verdict", _verdict(at_ms))
    return rows.select(*(column.name for column in HEALTH.columns))


def _unassigned_s(recent: Column) -> Column:
    """The sum of what is known; null if nothing is."""
    known = F.filter(F.transform(recent, lambda one: one["unassigned_ms"]), lambda one: one.isNotNull())
    total = F.aggregate(known, F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one) / 1000.0
    return F.when(F.size(known) > 0, total)


def _verdict(at_ms: int) -> Column:
    """The first that is true."""
    members, records, seconds = F.col("members"), F.col("records_behind"), F.col("seconds_behind")
    rebalances, silent_s = F.col("rebalances_last_hour"), (F.lit(at_ms) - F.col("last_commit_ms")) / 1000.0
    is_far = seconds >= FAR_BEHIND_S
    return (
        F.when(
            (rebalances >= UNSTABLE_REBALANCES) & (members == 0),
            F.format_string("unstable: %d rebalances in the last hour, and no members now", rebalances),
        )
        .when(
            rebalances >= UNSTABLE_REBALANCES, F.format_string("unstable: %d rebalances in the last hour", rebalances)
        )
        .when((members == 0) & (records > 0), F.format_string("no members, lag %d records", records))
        .when(members == 0, "no members, no lag")
        .when(F.col("state") == "Reconciling", "partitions are being reassigned")
        .when(
            is_far & (silent_s >= FAR_BEHIND_S),
            F.format_string("stuck: no commit for %.0f s, lag %d records", silent_s, records),
        )
        .when(is_far, F.format_string("far behind: %.0f s", seconds))
        .when(records > 0, F.format_string("OK, lag %d records", records))
        .otherwise("OK")
    )
