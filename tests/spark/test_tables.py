"""The tables of a batch, on a few rows each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from coterie.spark.pipeline import tables
from coterie.spark.pipeline.schemas import (
    COMMITS,
    DECODED,
    FOLDED,
    GROUPS_STATE,
    HEALTH,
    LAG,
    OWNERS,
    TABLES,
    TableSchema,
)

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(200)]

NOW_MS = 1_700_000_000_000


def frame(spark: SparkSession, table: TableSchema, rows: Sequence[dict[str, Any]]) -> DataFrame:
    names = [column.name for column in table.columns]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], table.ddl)


def commit(group: str, offset: int | None, log_offset: int, **more: Any) -> dict[str, Any]:
    base = {"group_id": group, "topic": "t", "partition": 0, "offset": offset, "tombstone": offset is None}
    return base | {"log_partition": 0, "log_offset": log_offset, "log_ms": log_offset, "commit_ms": log_offset} | more


def test_the_last_commit_counts_and_a_tombstone_ends_it(spark: SparkSession) -> None:
    before = frame(spark, COMMITS, [commit("a", 5, 1), commit("b", 6, 2), commit("c", 7, 3)])
    new = frame(spark, COMMITS, [commit("a", 4, 9), commit("b", None, 8), commit("d", None, 5), commit("d", 1, 6)])
    found = tables.last_commits(before.unionByName(new)).collect()
    assert {(row["group_id"], row["offset"]) for row in found} == {("a", 4), ("b", None), ("c", 7), ("d", 1)}


def test_a_clock_that_steps_back_does_not_change_which_commit_is_the_last(spark: SparkSession) -> None:
    """Only between two partitions of the log, which has grown then, the time decides."""
    before = frame(spark, COMMITS, [commit("a", 5, 10, log_ms=900), commit("b", 5, 11, log_ms=900)])
    new = frame(
        spark,
        COMMITS,
        [
            commit("a", 8, 12, log_ms=300),
            commit("b", None, 13, log_ms=300),
            commit("grown", 5, 70, log_partition=1, log_ms=500),
            commit("grown", 7, 3, log_partition=2, log_ms=600),
            commit("grown", 9, 4, log_partition=2, log_ms=550),
        ],
    )
    found = tables.last_commits(before.unionByName(new))
    assert found.columns == [
        *tables._COMMIT_KEY,
        *(name for name in COMMITS.arrow.names if name not in tables._COMMIT_KEY),
    ]
    assert {(row["group_id"], row["offset"], row["log_offset"]) for row in found.collect()} == {
        ("a", 8, 12),
        ("b", None, 13),
        ("grown", 9, 4),
    }


def test_lag_says_how_far_how_long_and_from_what_it_knows(spark: SparkSession) -> None:
    last = frame(
        spark,
        COMMITS,
        [
            commit("done", 10, 1, commit_ms=NOW_MS - 9_000),
            commit("late", 4, 2, commit_ms=NOW_MS - 8_000),
            commit("unseen", 6, 3, commit_ms=NOW_MS - 7_000),
            commit("lost", 6, 4, topic="gone"),
            commit("ahead", 12, 5),  # the topic was created again
        ],
    )
    ends = spark.createDataFrame([("t", 0, 10)], tables.ENDS)
    waiting = [(row["committed"], row["log_end"]) for row in tables.waiting(last, ends).collect()]
    assert waiting == [(4, 10), (6, 10)], "the furthest behind first"
    times = spark.createDataFrame([("t", 0, 4, NOW_MS - 2_500), ("t", 0, 6, None)], tables.TIMES)
    owners = frame(spark, OWNERS, [{"group_id": "late", "topic": "t", "partition": 0, "member_id": "m"}])
    lag = tables.lag(last, ends, times, owners, NOW_MS)
    assert lag.columns == [column.name for column in LAG.columns]
    found = {
        row["group_id"]: (row["records_behind"], row["seconds_behind"], row["seconds_from"], row["member_id"])
        for row in lag.collect()
    }
    assert found == {
        "done": (0, 0.0, "nothing waits", None),
        "late": (6, 2.5, "record", "m"),
        "unseen": (4, 7.0, "commit", None),
        "lost": (None, None, None, None),
        "ahead": (0, 0.0, "nothing waits", None),
    }


def state(group: str, **more: Any) -> dict[str, Any]:
    base = {"group_id": group, "protocol": "classic", "state": "Stable", "generation": 3, "members": 2, "recent": []}
    return base | more


def behind(group: str, records: int, seconds: float, commit_ago_s: int = 1) -> dict[str, Any]:
    base = {"group_id": group, "topic": "t", "partition": 0, "records_behind": records, "seconds_behind": seconds}
    return base | {"commit_ms": NOW_MS - 1_000 * commit_ago_s}


def test_health_is_a_verdict_in_words(spark: SparkSession) -> None:
    rebalance_ = {"ended_ms": NOW_MS - 60_000, "unassigned_ms": 500}
    old = {"ended_ms": NOW_MS - 3_700_000, "unassigned_ms": 9_000}
    groups = frame(
        spark,
        GROUPS_STATE,
        [
            state("well", recent=[rebalance_, old]),
            state("little", recent=[]),
            state("unstable", recent=[rebalance_] * 12),
            state("churning", state="Empty", members=0, recent=[rebalance_] * 20),
            state("unknown", recent=[rebalance_ | {"unassigned_ms": None}]),
            state("partly", recent=[rebalance_ | {"unassigned_ms": None}, rebalance_]),
            state("stuck"),
            state("slow"),
            state("empty", state="Empty", members=0),
            state("moving", state="Reconciling", protocol="consumer"),
            state("gone", state="Gone", members=0),
        ],
    )
    lag = frame(
        spark,
        LAG,
        [
            behind("little", 7, 1.0),
            behind("stuck", 5, 400.0, commit_ago_s=500),
            behind("slow", 5, 400.0),
            behind("simple", 9, 10.0),
        ],
    )
    health = tables.health(groups, lag, NOW_MS)
    assert health.columns == [column.name for column in HEALTH.columns]
    found = {row["group_id"]: row for row in health.collect()}
    assert {name: row["verdict"] for name, row in found.items()} == {
        "well": "OK",
        "little": "OK, lag 7 records",
        "unstable": "unstable: 12 rebalances in the last hour",
        "churning": "unstable: 20 rebalances in the last hour, and no members now",
        "unknown": "OK",
        "partly": "OK",
        "stuck": "stuck: no commit for 500 s, lag 5 records",
        "slow": "far behind: 400 s",
        "empty": "no members, no lag",
        "moving": "partitions are being reassigned",
        "simple": "no members, lag 9 records",
    }
    assert (found["well"]["rebalances_last_hour"], found["well"]["unassigned_s_last_hour"]) == (1, 0.5)
    unassigned_s = {name: row["unassigned_s_last_hour"] for name, row in found.items()}
    assert (unassigned_s["unknown"], unassigned_s["partly"], unassigned_s["little"], unassigned_s["simple"]) == (
        None,
        0.5,
        0.0,
        0.0,
    )
    assert (found["simple"]["protocol"], found["simple"]["partitions"]) == ("simple", 1)


def test_spark_and_arrow_mean_the_same_types(spark: SparkSession) -> None:
    for table in (*TABLES.values(), DECODED, FOLDED, GROUPS_STATE):
        assert spark.createDataFrame([], table.ddl).toArrow().schema.types == table.arrow.types, table.name
