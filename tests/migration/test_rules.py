"""The plan of a migration, its stored progress, and when a group can move."""

from __future__ import annotations

import pytest

from coterie.client.admin import AlterConfigOp, ConfigChange, NewTopic
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import MalformedError
from coterie.migration.clusters import Side
from coterie.migration.copier import MigrationOptions
from coterie.migration.groups import GroupStatus, is_untouched, translated, view_of
from coterie.migration.migration_plan import SourceTopic, TargetTopic, configs_for_later, make_plan
from coterie.migration.progress import (
    MOST_SEGMENTS,
    CopiedTopic,
    Entry,
    Progress,
    WrittenOffset,
    chunk_entry,
    group_entry,
    migration_entry,
    position_entry,
    read_progress,
    topic_entry,
)
from coterie.migration.translation import Chunk, Segment
from coterie.spark.checkpoint import CommitNote

TEAS = TopicPartition("teas", 0)
SECRET = "sasl.jaas.config=PlainLoginModule required username=ann password=tea-leaves;"
HERE = SourceTopic("id-1", 3, {"retention.ms": "1", "message.timestamp.type": "LogAppendTime"})
EMPTY = TargetTopic(3, is_empty=True, keeps_timestamps=True)


def test_the_limit_of_segments_is_for_all_partitions_and_not_for_the_first_ones() -> None:
    progress = Progress()
    for one in range(50):
        progress.table(TopicPartition("teas", one))
    assert {table.limit for table in progress.tables.values()} == {MOST_SEGMENTS // 50}


def test_passwords_of_a_side_are_in_no_text_about_it() -> None:
    assert "tea-leaves" not in repr(MigrationOptions(Side("here:9092", SECRET), Side("there:9092", SECRET)))


# --- the plan ---------------------------------------------------------------------------------------------------------


def test_a_new_topic_gets_partitions_and_the_configs_that_let_records_as_they_are() -> None:
    plan = make_plan({"teas": HERE}, {}, {}, replication_factor=3)
    assert plan.create == [NewTopic("teas", 3, 3, {"retention.ms": "1"})]
    assert configs_for_later(HERE.configs) == {"message.timestamp.type": "LogAppendTime"}
    assert not plan.conflicts and not plan.use


def test_an_empty_topic_with_as_many_partitions_is_used() -> None:
    assert make_plan({"teas": HERE}, {"teas": EMPTY}, {}).use == ["teas"]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        (TargetTopic(3, is_empty=False, keeps_timestamps=True), "has records that are no copy"),
        (TargetTopic(4, is_empty=True, keeps_timestamps=True), "4 partitions in place of 3"),
        (TargetTopic(3, is_empty=True, keeps_timestamps=False), "message.timestamp.type=LogAppendTime in the target"),
    ],
)
def test_another_topic_of_that_name_is_a_conflict(there: TargetTopic, why: str) -> None:
    plan = make_plan({"teas": HERE}, {"teas": there}, {})
    assert why in plan.conflicts["teas"] and not plan.use and not plan.create


def test_a_topic_that_is_being_copied_is_followed() -> None:
    known = {"teas": CopiedTopic("id-1", {"retention.ms": "2", "segment.ms": "7"})}
    there = TargetTopic(2, is_empty=False, keeps_timestamps=False)
    plan = make_plan({"teas": HERE}, {"teas": there}, known)
    assert plan.grow == {"teas": 3} and not plan.conflicts
    deleted = ConfigChange("segment.ms", None, AlterConfigOp.DELETE)
    assert plan.alter == {"teas": [ConfigChange("retention.ms", "1"), deleted]}
    same = {"teas": CopiedTopic("id-1", HERE.configs)}
    assert not make_plan({"teas": HERE}, {"teas": EMPTY}, same).alter


def test_a_topic_that_was_deleted_on_either_side_is_a_conflict() -> None:
    known = {"teas": CopiedTopic("id-0", HERE.configs)}
    assert "created again" in make_plan({"teas": HERE}, {"teas": EMPTY}, known).conflicts["teas"]
    assert "deleted in the target" in make_plan({"teas": HERE}, {}, known).conflicts["teas"]
    known = {"teas": CopiedTopic("id-1", HERE.configs, "target-1")}
    for id_, is_another in (("target-1", False), ("target-2", True)):
        there = TargetTopic(3, is_empty=False, keeps_timestamps=True, id=id_)
        assert ("teas" in make_plan({"teas": HERE}, {"teas": there}, known).conflicts) == is_another


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_read_as_it_was_written() -> None:
    loose = Segment(10, 11, 5, 20, 20)
    entries: list[Entry] = [
        migration_entry("cluster"),
        topic_entry("teas", CopiedTopic("id-1", {"a": "b"})),
        chunk_entry(TEAS, Chunk(0, (Segment.exact(0, 0, 9),))),
        chunk_entry(TEAS, Chunk(0, (Segment.exact(0, 0, 10), loose))),
        position_entry(TEAS, 25),
        group_entry("g", {TEAS: WrittenOffset(None, 4)}),
    ]
    found = read_progress(entries)
    assert found.source == "cluster" and found.topics == {"teas": CopiedTopic("id-1", {"a": "b"})}
    assert list(found.tables[TEAS]) == [Segment.exact(0, 0, 10), loose]
    assert found.position(TEAS) == 25 and found.position(TopicPartition("teas", 1)) is None
    assert found.groups == {"g": {TEAS: WrittenOffset(None, 4)}}


@pytest.mark.parametrize("entry", [(b"[]", b"1"), (b"no", b"{}"), (b'["chunk", "t", 0]', b"[]"), (None, b"1")])
def test_another_topic_is_not_taken_for_progress(entry: tuple[bytes | None, bytes | None]) -> None:
    with pytest.raises(MalformedError, match="is not the progress of a migration"):
        read_progress([entry])


# --- groups -----------------------------------------------------------------------------------------------------------


def progress() -> Progress:
    found = Progress(topics={"teas": CopiedTopic("id-1", {})})
    found.table(TEAS).add([Segment.exact(0, 0, 10), Segment.exact(12, 11, 5)])
    return found


def test_offsets_are_translated_and_those_ahead_of_the_copy_are_named() -> None:
    other = TopicPartition("not-copied", 0)
    committed = {TEAS: OffsetAndMetadata(13, "note", leader_epoch=7), other: OffsetAndMetadata(1)}
    found = translated(committed, progress(), {TEAS: 17}.get)
    assert found.offsets == {TEAS: OffsetAndMetadata(12, "note")} and not found.not_copied
    ahead = translated({TEAS: OffsetAndMetadata(20)}, progress(), {TEAS: 17}.get)
    assert ahead.offsets == {TEAS: OffsetAndMetadata(16)} and ahead.not_copied == (TEAS,)
    marker = translated({TEAS: OffsetAndMetadata(18)}, progress(), {TEAS: 18}.get)
    assert not marker.not_copied, "behind the last record there is only a marker"


def test_the_note_of_a_spark_query_is_left_out() -> None:
    """With it, the query would go on at the offsets of its checkpoint, which are those of the source."""
    committed = {TEAS: OffsetAndMetadata(13, str(CommitNote("5f0c", 7)))}
    assert translated(committed, progress(), {TEAS: 17}.get).offsets == {TEAS: OffsetAndMetadata(12, "")}


def test_offsets_that_members_have_committed_in_the_target_are_never_changed() -> None:
    wanted = translated({TEAS: OffsetAndMetadata(5)}, progress(), {TEAS: 17}.get)
    written = {TEAS: WrittenOffset(3, 4)}
    for there, is_own in [(3, True), (4, True), (2, False), (9, False)]:
        now = {TEAS: OffsetAndMetadata(there)}
        view = view_of("g", ("Empty", "Empty"), wanted, now, written)
        assert is_untouched(now, written) is is_own and view.status.has_moved is not is_own
        assert view.to_set == (wanted.offsets if is_own else {})
        if is_own:
            assert view.written() == {TEAS: WrittenOffset(there, 5)}
    running = view_of("g", ("Empty", "Stable"), wanted, {}, written)
    assert not running.to_set and running.status.next_step == "moved"
    foreign = view_of("g", ("Stable", ""), wanted, {TEAS: OffsetAndMetadata(5)}, {})
    assert not foreign.to_set and foreign.status.has_moved


def test_a_group_that_is_set_back_on_the_source_is_followed() -> None:
    wanted = translated({TEAS: OffsetAndMetadata(2)}, progress(), {TEAS: 17}.get)
    view = view_of("g", ("Empty", "Empty"), wanted, {TEAS: OffsetAndMetadata(9)}, {TEAS: WrittenOffset(8, 9)})
    assert view.to_set == {TEAS: OffsetAndMetadata(2)}


@pytest.mark.parametrize(
    ("source", "target", "not_copied", "not_set", "has_moved", "step", "is_ready"),
    [
        ("Stable", "", 0, 0, False, "stop it on the source", True),
        ("Stable", "Empty", 2, 1, False, "stop it on the source", False),
        ("Empty", "Empty", 2, 0, False, "wait: 2 offsets are ahead of the copy", False),
        ("Empty", "Empty", 0, 3, False, "wait: 3 offsets are not set in the target", False),
        ("Empty", "Empty", 0, 0, False, "start it on the target", True),
        ("Empty", "Stable", 0, 0, False, "moved", True),
        ("Empty", "Empty", 0, 0, True, "moved", True),
        ("Stable", "Stable", 0, 0, True, "stop it on the source: it runs on both", True),
    ],
)
def test_the_next_step_of_a_group(
    source: str, target: str, not_copied: int, not_set: int, has_moved: bool, step: str, is_ready: bool
) -> None:
    found = GroupStatus("g", source, target, not_copied, not_set, has_moved)
    assert (found.next_step, found.is_ready) == (step, is_ready)
