"""The tables of a batch: functions from DataFrame to DataFrame, without session, network or clock.

`folded` comes first: it applies the records of each group, in their order, to the state of the group. One group is one
call, as its records are in one partition of the log and depend on those before; Spark spreads the groups. Commits and
skipped records are selected from what was decoded, the other tables from what was folded. Lag and health are computed
from the state at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the usual name

from coterie.errors import MalformedError
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.spark.pipeline.decoding import FACT, GARBAGE, GROUP
from coterie.spark.pipeline.group_state import GroupRebuilder
from coterie.spark.pipeline.partition_owners import LogPosition
from coterie.spark.pipeline.schemas import COMMITS, FOLDED, HEALTH, LAG, SKIPPED

HOUR_MS = 3_600_000
UNSTABLE_REBALANCES = 12
"""A group with this many rebalances in an hour is called unstable: one every five minutes."""
FAR_BEHIND_S = 300.0
"""A group this many seconds behind is called far behind, or stuck if it has not committed for as long."""
ENDS = "topic string, partition int, log_end bigint"
TIMES = "topic string, partition int, committed bigint, record_ms bigint"
"""Schemas of what the cluster is asked for lag: where partitions end, and when records were written."""
_POSITION = ("log_partition", "log_offset", "log_ms")
_OTHER = ("kind", "key", "value")
_PARTITION = ["topic", "partition"]
_COMMIT_KEY = ("group_id", *_PARTITION)


def folded(decoded: DataFrame, groups: DataFrame, names: Mapping[str, str]) -> DataFrame:
    """Apply the records of a batch to the groups; return rows of `schemas.FOLDED` for groups that have records.

    Args:
        decoded: The decoded records of the batch.
        groups: The state of all groups before it.
        names: The names of topics by id.
    """
    records = decoded.where(F.col("other.kind").isin(GROUP, FACT))
    records = records.select("group_id", *_POSITION, *(F.col(f"other.{name}").alias(name) for name in _OTHER))
    concerned = groups.join(records.select("group_id").distinct(), "group_id", "left_semi").select("group_id", "memory")
    together = records.groupBy("group_id").cogroup(concerned.groupBy("group_id"))
    return together.applyInArrow(partial(fold_group, dict(names)), FOLDED.ddl)


def fold_group(names: Mapping[str, str], records: Any, before: Any) -> Any:
    """Apply the records of one group to its state before, which is empty or one row, in a worker of Spark."""
    (group_id,) = records.column("group_id").unique().to_pylist()
    memory = before.column("memory").to_pylist()
    state = GroupRebuilder.from_json(group_id, names, memory[0]) if memory else GroupRebuilder(group_id, names)
    skipped = []
    in_order = records.sort_by([("log_partition", "ascending"), ("log_offset", "ascending")])
    for row in in_order.to_pylist():
        at = LogPosition(row["log_partition"], row["log_offset"], row["log_ms"])
        try:
            if row["kind"] == FACT:
                state.fact(row["value"] or b"", at)
            else:
                state.record(row["key"], row["value"], at)
        except MalformedError as error:
            skipped.append(
                {
                    "kind": GARBAGE,
                    "reason": str(error),
                    "records": 1,
                    "log_topic": FACTS_TOPIC if row["kind"] == FACT else OFFSETS_TOPIC,
                    "log_partition": at.log_partition,
                    "first_offset": at.log_offset,
                    "last_offset": at.log_offset,
                }
            )
    found = state.rows
    rows = [
        *({"generation": row} for row in found.generations),
        *({"interval": row} for row in found.intervals),
        *({"rebalance": row} for row in found.rebalances),
        *({"skipped": row} for row in skipped),
        {"state": state.state()},
    ]
    return pa.Table.from_pylist(rows, FOLDED.arrow)


def generations(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("generation").isNotNull()).select("generation.*")


def rebalances(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("rebalance").isNotNull()).select("rebalance.*")


def ownership(folded: DataFrame) -> DataFrame:
    return folded.where(F.col("interval").isNotNull()).select("interval.*")


def owners(groups: DataFrame) -> DataFrame:
    """Return the intervals of ownership that last, from the state of all groups."""
    return groups.select(F.explode("owners").alias("owner")).select("owner.*")


def skipped(decoded: DataFrame, folded: DataFrame | None) -> DataFrame:
    """Count skipped records: those that decoding skipped and, if any group was folded, those that folding did."""
    kind = F.col("other.kind")
    found = decoded.where(kind.isNotNull() & ~kind.isin(GROUP, FACT)).select(
        kind.alias("kind"),
        F.col("other.reason").alias("reason"),
        F.lit(1).cast("bigint").alias("records"),
        F.lit(OFFSETS_TOPIC).alias("log_topic"),  # facts are read in folding
        "log_partition",
        F.col("log_offset").alias("first_offset"),
        F.col("log_offset").alias("last_offset"),
    )
    if folded is not None:
        found = found.unionByName(folded.where(F.col("skipped").isNotNull()).select("skipped.*"))
    counted = found.groupBy("kind", "log_topic", "log_partition").agg(
        F.min_by("reason", "first_offset").alias("reason"),
        F.sum("records").alias("records"),
        F.min("first_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
    )
    return counted.select(*(column.name for column in SKIPPED.columns))


def commits(decoded: DataFrame) -> DataFrame:
    rows = decoded.where(F.col("other").isNull()).withColumn("tombstone", F.col("offset").isNull())
    return rows.select(*(column.name for column in COMMITS.columns))


def last_commits(commits: DataFrame) -> DataFrame:
    """Return the last commit of each group and partition, or the tombstone that has deleted it.

    The order of the log decides, not the clocks of the brokers. A group is in one partition of the log, unless the log
    was given more partitions: then the time decides between the last records of each.
    """
    rest = [column.name for column in COMMITS.columns if column.name not in _COMMIT_KEY]
    in_log_partition = F.max_by(F.struct(*rest), "log_offset")
    last = commits.groupBy(*_COMMIT_KEY, "log_partition").agg(in_log_partition.alias("last"))
    youngest = F.max_by("last", F.struct("last.log_ms", "log_partition"))
    last = last.groupBy(*_COMMIT_KEY).agg(youngest.alias("last"))
    return last.select(*_COMMIT_KEY, "last.*")


def waiting(last_commits: DataFrame, ends: DataFrame) -> DataFrame:
    """Return the next record that each group has to read: topic, partition, committed, log_end; most lag first."""
    found = last_commits.join(ends, _PARTITION).where(F.col("offset") < F.col("log_end"))
    lagging = found.select(*_PARTITION, F.col("offset").alias("committed"), "log_end").distinct()
    return lagging.orderBy((F.col("log_end") - F.col("committed")).desc(), *_PARTITION)


def lag(last_commits: DataFrame, ends: DataFrame, times: DataFrame, owners: DataFrame, at_ms: int) -> DataFrame:
    """Return how far each group is behind in each partition.

    Args:
        last_commits: The last commit of each group and partition.
        ends: topic, partition, log_end.
        times: topic, partition, committed, record_ms, of the records that were looked up.
        owners: The intervals of ownership that last.
        at_ms: The time of all this.
    """
    committed = last_commits.withColumnRenamed("offset", "committed")
    held = owners.select("group_id", *_PARTITION, "member_id")
    joined = (
        committed.join(ends, _PARTITION, "left")
        .join(times.select(*_PARTITION, "committed", "record_ms"), [*_PARTITION, "committed"], "left")
        .join(held, ["group_id", *_PARTITION], "left")
    )
    behind = F.greatest(F.col("log_end") - F.col("committed"), F.lit(0))
    is_there, waits = F.col("log_end").isNotNull(), F.col("records_behind") > 0
    since_ms = F.coalesce("record_ms", "commit_ms")
    rows = (
        joined.withColumn("at_ms", F.lit(at_ms).cast("bigint"))
        .withColumn("records_behind", F.when(is_there, behind))
        .withColumn(
            "seconds_behind",
            F.when(~waits, F.lit(0.0)).when(waits, F.greatest(F.lit(at_ms) - since_ms, F.lit(0)) / 1000.0),
        )
        .withColumn(
            "seconds_from",
            F.when(~waits, "nothing waits").when(
                waits, F.when(F.col("record_ms").isNotNull(), "record").otherwise("commit")
            ),
        )
    )
    return rows.select(*(column.name for column in LAG.columns))


def group_lag(lag: DataFrame) -> DataFrame:
    """Return the lag of each group at the time of a measurement."""
    return lag.groupBy("at_ms", "group_id").agg(
        F.count("*").cast("int").alias("partitions"),
        F.sum("records_behind").alias("records_behind"),
        F.max("records_behind").alias("most_behind"),
        F.round(F.max("seconds_behind"), 1).alias("seconds_behind"),
        F.sum("committed").alias("committed"),
        F.sum("log_end").alias("log_end"),
        F.count("member_id").cast("int").alias("owned"),
    )


def lag_hours(lag: DataFrame) -> DataFrame:
    """Return the lag of each partition in each hour, from its measurements."""
    hour_ms = (F.floor(F.col("at_ms") / HOUR_MS) * HOUR_MS).cast("bigint").alias("hour_ms")
    return lag.groupBy(hour_ms, "group_id", "topic", "partition").agg(
        F.count("*").cast("int").alias("measurements"),
        F.max("records_behind").alias("records_behind_max"),
        F.round(F.avg("records_behind"), 1).alias("records_behind_avg"),
        F.round(F.max("seconds_behind"), 1).alias("seconds_behind_max"),
        F.max_by("committed", "at_ms").alias("committed"),
        F.max_by("log_end", "at_ms").alias("log_end"),
    )


def health(groups: DataFrame, lag: DataFrame, at_ms: int) -> DataFrame:
    """Return how each group is now, from the state of all groups and the lag at `at_ms`."""
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
    """Return the sum of what is known; null if nothing is."""
    known = F.filter(F.transform(recent, lambda one: one["unassigned_ms"]), lambda one: one.isNotNull())
    total = F.aggregate(known, F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one) / 1000.0
    return F.when(F.size(known) > 0, total)


def _verdict(at_ms: int) -> Column:
    """Return the first verdict that is true."""
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
        .when(F.col("state").isin("Assigning", "Reconciling"), "partitions are being reassigned")
        .when(
            is_far & (silent_s >= FAR_BEHIND_S),
            F.format_string("stuck: no commit for %.0f s, lag %d records", silent_s, records),
        )
        .when(is_far, F.format_string("far behind: %.0f s", seconds))
        .when(records > 0, F.format_string("OK, lag %d records", records))
        .otherwise("OK")
    )
