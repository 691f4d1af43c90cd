"""How each group does now, in a row and in words."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  as everybody writes it

from coterie.spark.schemas import HEALTH

__all__ = ["FAR_BEHIND_S", "RESTLESS_ROUNDS", "health"]

HOUR_MS = 3_600_000
RESTLESS_ROUNDS = 12
"""Rounds in an hour from which on a group is called restless: one every five minutes."""
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
        F.size(recent).alias("rounds_last_hour"),
        (F.aggregate(recent, F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one["unowned_ms"]) / 1000.0).alias(
            "unowned_s_last_hour"
        ),
    )
    rows = known.join(behind, "group_id", "full").fillna(
        {
            "protocol": "simple",
            "state": "Empty",
            "members": 0,
            "partitions": 0,
            "records_behind": 0,
            "rounds_last_hour": 0,
            "unowned_s_last_hour": 0.0,
        }
    )
    rows = rows.withColumn("at_ms", F.lit(at_ms).cast("bigint")).withColumn("verdict", _verdict(at_ms))
    return rows.select(*(column.name for column in HEALTH.columns))


def _verdict(at_ms: int) -> Column:
    """The first that is true."""
    members, records, seconds = F.col("members"), F.col("records_behind"), F.col("seconds_behind")
    rounds, silent_s = F.col("rounds_last_hour"), (F.lit(at_ms) - F.col("last_commit_ms")) / 1000.0
    is_far = seconds >= FAR_BEHIND_S
    return (
        F.when((members == 0) & (records > 0), F.format_string("nobody reads, and %d records wait", records))
        .when(members == 0, "nobody reads, and nothing waits")
        .when(rounds >= RESTLESS_ROUNDS, F.format_string("restless: %d rounds in the last hour", rounds))
        .when(F.col("state") == "Reconciling", "partitions are changing hands")
        .when(
            is_far & (silent_s >= FAR_BEHIND_S),
            F.format_string("stuck: no commit for %.0f s, and %d records wait", silent_s, records),
        )
        .when(is_far, F.format_string("far behind: %.0f s", seconds))
        .when(records > 0, F.format_string("well, %d records behind", records))
        .otherwise("well")
    )
