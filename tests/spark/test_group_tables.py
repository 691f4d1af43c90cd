"""The tables of the groups over time: state by deltas, days, roll-up of lag, retention, and tables of version 1."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from coterie import Broker
from coterie.errors import CoterieError
from coterie.spark.pipeline import groups_pipeline, state_store
from coterie.spark.pipeline.earlier_tables import migrate
from coterie.spark.pipeline.groups_pipeline import GroupsPipeline, PipelineOptions
from coterie.spark.pipeline.hadoop_files import HadoopFiles
from coterie.spark.pipeline.parquet_tables import DAY_MS, Entry, day_of
from coterie.spark.pipeline.schemas import GROUPS_STATE, LAG, TABLES
from coterie.spark.pipeline.tables import HOUR_MS
from spark.conftest import in_the_soak
from spark.lived import LIVED
from spark.second_reading import LogRecord
from spark.tables import as_sorted, assert_as_read_again, records_of, table

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(400)]
HALF = len(LIVED) // 2


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def pipeline(spark: SparkSession, broker: Broker, out: Path, **how: Any) -> GroupsPipeline:
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    return GroupsPipeline(spark, PipelineOptions(str(out), kafka, **how), print)


@pytest.fixture(scope="module")
def half_read(spark: SparkSession, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables of the first half of Kafka's log, as batch 0. To be copied."""
    out = tmp_path_factory.mktemp("half")
    pipeline(spark, broker, out).batch(records_of(spark, LIVED[:HALF]), 0)
    return out


def commit(log_offset: int, partition: int, offset: int | None) -> LogRecord:
    key = b"\0\1\0\1g\0\1t" + partition.to_bytes(4)
    value = None if offset is None else b"\0\3" + offset.to_bytes(8) + b"\xff\xff\xff\xff\0\0" + (7).to_bytes(8)
    return LogRecord(3, log_offset, 5, key, value)


def test_a_commit_writes_one_row_of_state_and_a_full_one_has_all(
    spark: SparkSession, broker: Broker, half_read: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_store, "FULL_EVERY", 3)
    out = tmp_path / "out"
    shutil.copytree(half_read, out)
    one = pipeline(spark, broker, out)
    rows = len(one.state.load(0)["commits"].collect())
    assert rows > 5
    one.batch(records_of(spark, [commit(1, 0, 40), commit(2, 1, 9), commit(3, 0, 41)]), 1)
    written = pq.read_table(out / "state" / "delta-1" / "commits").to_pylist()
    assert [row["offset"] for row in sorted(written, key=lambda row: row["partition"])] == [41, 9]
    assert not (out / "state" / "delta-1" / "groups").exists()
    one.batch(records_of(spark, [commit(4, 1, None)]), 2)
    before = {name: as_sorted(frame.collect()) for name, frame in one.state.load(2).items()}
    assert len(before["commits"]) == rows + 1, "one has come, and a tombstone has ended the other"
    one.batch(records_of(spark, []), 3)
    assert {each.name for each in (out / "state").iterdir()} == {"full-0", "delta-1", "delta-2", "full-3"}
    one.batch(records_of(spark, [commit(5, 1, 12)]), 4)
    assert {each.name for each in (out / "state").iterdir()} == {"full-3", "delta-4"}
    assert {name: as_sorted(frame.collect()) for name, frame in one.state.load(3).items()} == before
    assert len(one.state.load(4)["commits"].collect()) == rows + 2
    with pytest.raises(CoterieError, match="does not have the state of that batch"):
        one.state.load(2)


def test_groups_that_are_gone_for_long_are_forgotten(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are used once, as those of kafka-console-consumer, would make the state larger for ever."""
    monkeypatch.setattr(state_store, "FULL_EVERY", 2)
    state = state_store.StateStore(spark, HadoopFiles(spark, str(tmp_path)))
    names = GROUPS_STATE.arrow.names

    def changed(number: int, **groups: str) -> dict[str, DataFrame]:
        rows = [{"group_id": name, "state": now, "batch": number} for name, now in groups.items()]
        full = [tuple(row.get(name) for name in names) for row in rows]
        return {"groups": spark.createDataFrame(full, GROUPS_STATE.ddl)}

    state.put(0, changed(0, old="Gone", lives="Empty", back="Gone"))
    state.put(1, changed(1, new="Gone", back="Stable"))
    state.put(2, {})
    left = {row["group_id"]: row["state"] for row in state.load(2)["groups"].collect()}
    assert left == {"lives": "Empty", "back": "Stable", "new": "Gone"}


def as_version_1(out: Path) -> None:
    """Make the directory what the release before has written: no dates, no column `batch`, the whole state."""
    for name in TABLES:
        for folder in (out / name).glob("date=*/*"):
            old = out / name / f"batch={folder.name.rpartition('-')[2]}"
            old.mkdir()
            pq.write_table(pq.read_table(folder).drop_columns("batch"), old / "part-0.parquet")
        for folder in (out / name).glob("date=*"):
            shutil.rmtree(folder)
    state = (out / "state" / "full-0").rename(out / "state" / "batch=0")
    groups = pq.read_table(state / "groups").drop_columns("batch")
    shutil.rmtree(state / "groups")
    (state / "groups").mkdir()
    pq.write_table(groups, state / "groups" / "part-0.parquet")


def test_tables_of_version_1_are_migrated_and_continued(
    spark: SparkSession, broker: Broker, half_read: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first migration is killed when a table is away and the new one not in its place."""
    out = tmp_path / "out"
    shutil.copytree(half_read, out)
    one = pipeline(spark, broker, out)
    one.measure()
    before = {name: as_sorted(table(out, name)) for name in TABLES}
    as_version_1(out)
    moves: list[str] = []
    really_move = HadoopFiles.move

    def killed_at_the_fourth(self: HadoopFiles, source: str, target: str) -> None:
        moves.append(target)
        if len(moves) == 4:
            raise KeyboardInterrupt
        really_move(self, source, target)

    files = HadoopFiles(spark, str(out))
    monkeypatch.setattr(HadoopFiles, "move", killed_at_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        migrate(spark, files, print)
    monkeypatch.undo()
    one.tables.recover()
    migrate(spark, files, print)
    after = {name: as_sorted(table(out, name)) for name in TABLES}
    measured = {"lag", "health", "group_lag"}
    assert {name: rows for name, rows in after.items() if name not in measured} == {
        name: rows for name, rows in before.items() if name not in measured
    }
    assert {row["batch"] for name in ("lag", "health") for row in table(out, name)} == {None}
    assert len(table(out, "lag")) == len(before["lag"]) > 0
    one.batch(records_of(spark, LIVED[HALF:]), 1)
    assert_as_read_again(out, LIVED)
    files.write_text("version.json", json.dumps({"version": 99}))
    with pytest.raises(CoterieError, match="tables of version 99, and this release knows version 2"):
        migrate(spark, files, print)


@in_the_soak
def test_lag_is_rolled_up_by_hours_and_old_rows_are_deleted(
    spark: SparkSession, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    midnight = 20_775 * DAY_MS
    one = pipeline(spark, broker, tmp_path, keep_days=30, keep_lag_hours=2)

    def measured(at_ms: int, *behind: int) -> None:
        names = TABLES["lag"].arrow.names
        rows = [
            {"at_ms": at_ms, "group_id": "g", "topic": "t", "partition": number, "batch": 4}
            | {"committed": 10, "log_end": 10 + lag, "records_behind": lag, "seconds_behind": lag / 2}
            for number, lag in enumerate(behind)
        ]
        frame = spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], TABLES["lag"].ddl)
        one.tables.put(LAG.name, Entry("at", at_ms, day_of(at_ms)), frame)

    def maintained_at(now_ms: int) -> list[tuple[Any, ...]]:
        monkeypatch.setattr(groups_pipeline, "clock_ms", lambda: now_ms)
        one.maintain()
        names = ("partition", "measurements", "records_behind_max", "records_behind_avg", "log_end", "batch")
        found = [((row["hour_ms"] - midnight) // HOUR_MS, *(row[name] for name in names)) for row in lag_hours()]
        return sorted(found)

    def lag_hours() -> list[dict[str, Any]]:
        return table(tmp_path, "lag_hours")

    measured(midnight - 30 * 60_000, 4, 0)
    measured(midnight - 20 * 60_000, 8, 0)
    measured(midnight + 60_000, 2, 0)
    first = [(-1, 0, 2, 8, 6.0, 18, 4), (-1, 1, 2, 0, 0.0, 10, 4)]
    assert maintained_at(midnight + 120_000) == first, "the hour that is not over is not in it"
    assert (tmp_path / "lag_hours" / f"date={day_of(midnight - 1)}" / "compacted").is_dir()
    assert maintained_at(midnight + 180_000) == first
    second = [*first, (0, 0, 1, 2, 2.0, 12, 4), (0, 1, 1, 0, 0.0, 10, 4)]
    assert maintained_at(midnight + HOUR_MS) == second
    assert maintained_at(midnight + 2 * HOUR_MS) == second
    assert {row["at_ms"] for row in table(tmp_path, "lag")} == {midnight + 60_000}
    assert maintained_at(midnight + DAY_MS) == second and not table(tmp_path, "lag")
    assert maintained_at(midnight + 30 * DAY_MS) == second[2:]
    assert maintained_at(midnight + 31 * DAY_MS) == []
