"""The pipeline on real Spark: the log of a broker to tables, in several batches, killed and started again."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from coterie import Broker
from coterie.client.admin.admin import Admin
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.ledger import fold
from coterie.spark.batch_plan import BatchPlan, Span
from coterie.spark.pipeline.earlier_tables import migrate
from coterie.spark.pipeline.group_state import observed_rebalance
from coterie.spark.pipeline.groups_pipeline import GroupsPipeline, PipelineOptions, still_to_read
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.schemas import TABLES
from soak.pipeline_kill9 import soak
from spark.busy_groups import KEEPS_ALL, live_busily
from spark.lived import LIVED
from spark.second_reading import LogRecord, log_of_broker
from spark.tables import as_sorted, assert_as_read_again, records_of, table

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(400)]
LONG = bool(os.environ.get("COTERIE_PIPELINE_SOAK"))


def pipeline(spark: SparkSession, broker: Broker, out: Path, **how: Any) -> GroupsPipeline:
    return GroupsPipeline(
        spark, PipelineOptions(str(out), {"kafka.bootstrap.servers": broker.bootstrap_servers}, **how), print
    )


def test_many_rebalances_become_tables_that_a_second_reading_agrees_with(spark: SparkSession, tmp_path: Path) -> None:
    told = live_busily(tmp_path / "data", groups=6, steps=3_500 if LONG else 1_200, seed=3)
    with Broker(data=tmp_path / "data", settings=KEEPS_ALL) as broker:
        log = log_of_broker(broker.bootstrap_servers)
        out = tmp_path / "out"
        size = (len(log) + len(told)) // 2
        pipeline(spark, broker, out, records_per_batch=size).once()
        assert_as_read_again(out, log)
        assert len(list((out / "commits").glob("date=*/batch-*"))) >= 2, "it was to be several batches"

        found = [row for row in table(out, "rebalances") if row["evidence"] == "observed"]
        expected = [observed_rebalance(one) for one in fold(told) if one.ended_ms is not None]
        names = list(expected[0])
        assert as_sorted([row[name] for name in names] for row in found) == as_sorted(
            [row[name] for name in names] for row in expected
        )
        assert len(expected) > (2_000 if LONG else 600)
        _check_lag_and_health(out, broker, log)
        _check_schemas(out)


def _check_lag_and_health(out: Path, broker: Broker, log: Sequence[LogRecord]) -> None:
    lag = {(row["group_id"], row["topic"], row["partition"]): row for row in table(out, "lag")}
    health = {row["group_id"]: row for row in table(out, "health")}
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for group in admin.list_groups():
            committed = admin.list_group_offsets(group.group_id)
            mine = {
                (topic, number): row["committed"]
                for (name, topic, number), row in lag.items()
                if name == group.group_id
            }
            assert mine == {tuple(place): one.offset for place, one in committed.items() if one is not None}  # type: ignore[union-attr]
            assert health[group.group_id]["partitions"] == len(mine)
    assert all(row["log_end"] == 0 and row["records_behind"] == 0 for row in lag.values()), "nothing was ever produced"


def _check_schemas(out: Path) -> None:
    """Every table is what `coterie.spark.pipeline.schemas` says, and there is none that it does not name."""
    there = {each.name for each in out.iterdir() if each.is_dir()} - {"checkpoint", "state", "_aside"}
    written = {"commits", "generations", "rebalances", "ownership", "owners", "lag", "group_lag", "health"}
    assert there <= set(TABLES) and written <= there
    for name in there:
        found = ds.dataset(out / name, format="parquet").schema
        assert {field.name: field.type for field in found} == {
            column.name: column.type for column in TABLES[name].columns
        }, name


def test_what_is_still_to_be_read_is_counted_as_spark_reports_it() -> None:
    """Of a busy cluster there is always something; only far from the end lag would be a matter of the past."""
    spans = {TopicPartition("a", 0): Span(0, 6), TopicPartition("a", 1): Span(5, 5)}
    read = json.dumps(BatchPlan("q", 1, spans).to_json())
    assert still_to_read(read, '{"a": {"0": 10, "1": 5}, "b": {"3": 2}}') == 4 + 2
    assert still_to_read(read, "null") == 0


# --- batches that are done over ---------------------------------------------------------------------------------------


class Killed(BaseException):
    """As kill -9: nothing after it runs. The real one is in tests/soak."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data = tmp_path_factory.mktemp("small")
    live_busily(data, groups=2, steps=60, seed=11)
    with Broker(data=data, settings=KEEPS_ALL) as broker:
        yield broker


@pytest.fixture(scope="module")
def half_read(spark: SparkSession, small: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the first half of the log, as batch 0. To be copied."""
    out = tmp_path_factory.mktemp("half")
    log = log_of_broker(small.bootstrap_servers)
    pipeline(spark, small, out).batch(records_of(spark, log[: len(log) // 2]), 0)
    return out


def test_a_batch_that_ends_anywhere_is_done_over_and_no_row_is_there_twice(
    spark: SparkSession, small: Broker, half_read: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each of its renames in turn; Spark then gives the same batch again."""
    log = log_of_broker(small.bootstrap_servers)
    half = len(log) // 2
    out = tmp_path / "out"
    shutil.copytree(half_read, out)
    moved: list[str] = []
    really_move = HadoopFiles.move
    for survives in (1, 4, 99):

        def move(self: HadoopFiles, source: str, target: str, survives: int = survives) -> None:
            if len(moved) == survives:
                raise Killed
            moved.append(target)
            really_move(self, source, target)

        moved.clear()
        monkeypatch.setattr(HadoopFiles, "move", move)
        try:
            pipeline(spark, small, out).batch(records_of(spark, log[half:]), 1)
        except Killed:
            continue
        break
    assert moved[-1] == "state/delta-1", moved
    assert_as_read_again(out, log)
    before = [table(out, name) for name in TABLES]
    monkeypatch.setattr(HadoopFiles, "move", really_move)
    pipeline(spark, small, out).batch(records_of(spark, log[half:]), 1)  # done already: Spark had not noted it
    assert [table(out, name) for name in TABLES] == before


def test_kafkas_own_log_becomes_tables_and_garbage_in_it_is_counted_and_harms_nobody(
    spark: SparkSession, small: Broker, tmp_path: Path
) -> None:
    """Recorded from Apache Kafka 4.3.1, groups of both protocols; topics have ids, for nobody knows their names."""
    bad = [
        LogRecord(0, 10_000, 5, b"", b""),
        LogRecord(0, 10_001, 5, b"\0\x0a\0\1s", b"\0\0"),
        LogRecord(0, 10_002, 5, b"\0\x0a\0\1s", None),
        LogRecord(0, 10_003, 5, b"\0\2\0\1g", b"\0\3\0"),
        LogRecord(0, 10_004, 5, b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\7"),
    ]
    pipeline(spark, small, tmp_path).batch(records_of(spark, [*LIVED, *bad]), 0)
    names = ("kind", "records", "first_offset", "last_offset")
    found = {tuple(row[name] for name in names) for row in table(tmp_path, "skipped")}
    assert found == {("garbage", 3, 10_000, 10_004), ("type 10", 2, 10_001, 10_002)}
    assert {row["protocol"] for row in table(tmp_path, "rebalances")} == {"classic", "consumer"}
    assert_as_read_again(tmp_path, LIVED)


def test_tables_without_their_checkpoint_are_not_read_into(
    spark: SparkSession, small: Broker, half_read: Path, tmp_path: Path
) -> None:
    shutil.copytree(half_read, tmp_path / "out")
    one = pipeline(spark, small, tmp_path / "out")
    with pytest.raises(CoterieError, match="its checkpoint is gone"):
        one.once()
    with pytest.raises(CoterieError, match="not of the same run"):
        one.batch(records_of(spark, []), 7)


def test_tables_of_an_earlier_release_are_not_continued(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "rounds" / "batch=0").mkdir(parents=True)
    with pytest.raises(CoterieError, match=r"tables of release 0\.1\.0"):
        migrate(spark, HadoopFiles(spark, str(tmp_path)), print)


@pytest.mark.skipif(not LONG, reason="takes minutes: make pipeline-soak has it")
def test_killed_in_the_middle_of_follow_it_has_every_row_once(spark: SparkSession, tmp_path: Path) -> None:
    """Twice here; ten times by `make pipeline-soak`."""

    def finish(bootstrap: str, out: Path) -> None:
        GroupsPipeline(spark, PipelineOptions(str(out), {"kafka.bootstrap.servers": bootstrap}), print).once()

    met = soak(tmp_path, kills=2, seed=5, finish=finish, steps=240)
    assert len(met) == 2


def test_followed_it_measures_lag_even_if_nobody_commits(spark: SparkSession, small: Broker, tmp_path: Path) -> None:
    """A group that is stuck writes nothing to the log: no batch would ever tell of it."""
    one = pipeline(spark, small, tmp_path, every_s=1)
    one.follow(is_over=lambda: len({row["at_ms"] for row in table(tmp_path, "lag")}) >= 2)
    assert {row["seconds_from"] for row in table(tmp_path, "lag")} == {"nothing waits"}
    assert_as_read_again(tmp_path, log_of_broker(small.bootstrap_servers))
