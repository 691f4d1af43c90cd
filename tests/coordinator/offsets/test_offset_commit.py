"""Rules 21, 22: commits, plain and transactional, in every state."""

from __future__ import annotations

from typing import Any

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.facts import GroupCreated, GroupDied, OffsetsStored, WriteFailed
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetsCommitted, TransactionMarker
from coterie.stories import PARKED, Story, check_story


def commit(story: Story, partitions: list[CommitPartition], **fields: object) -> OffsetsCommitted:
    token = story.world.token()
    given = {"member_id": "", "instance_id": None, "generation_id": -1, **fields}
    story.world.send(OffsetCommit(token, story.group_id, partitions=partitions, **given))  # type: ignore[arg-type]
    answer = story.world.replies[token]
    assert isinstance(answer, OffsetsCommitted)
    return answer


def test_a_commit_is_answered_when_it_is_durable_and_visible_only_then() -> None:
    """Rule 22."""
    check_story("""
        at_ms | who | says                 | hears  | group
        0     | a   | commit t:0=5 gen=-1  | -      | Empty
        0     | b   | fetch                | nothing | Empty
        7     |     | (on disk)            | a: ok  | Empty
        7     | b   | fetch                | t:0=5  | Empty
    """)


def test_a_commit_without_membership_creates_a_simple_group(group: Story) -> None:
    """Rule 21: whatever the ids, as long as the generation is negative."""
    group.member("a").commits({"t:0": 5}, gen=-1, id="whoever", instance="whatever", expect="ok")
    group.expect(state=ClassicGroupState.EMPTY, generation=0)
    assert group.group.protocol_type is None
    group.emitted(GroupCreated, simple=True)
    group.emitted(OffsetsStored)


def test_a_commit_of_which_nothing_is_taken_creates_no_group(group: Story) -> None:
    """Rule 21: seen on Kafka 4.3.1; there is nothing to write down."""
    group.member("a").commits({"t:0": 5}, gen=-1, metadata="x" * 5_000, expect="OFFSET_METADATA_TOO_LARGE")
    group.expect(state=ClassicGroupState.DEAD)


def test_an_absent_group_refuses_a_generation(group: Story) -> None:
    """Rule 21: ILLEGAL_GENERATION, from version 9 GROUP_ID_NOT_FOUND; a transaction always the former (rule 22)."""
    a = group.member("a")
    a.commits({"t:0": 1}, gen=0, expect="GROUP_ID_NOT_FOUND")
    a.commits({"t:0": 1}, gen=0, v8=True, expect="ILLEGAL_GENERATION")
    a.commits({"t:0": 1}, gen=0, producer=1, expect="ILLEGAL_GENERATION")
    group.expect(state=ClassicGroupState.DEAD)


def test_an_empty_group_takes_what_has_no_generation_and_nothing_else(group: Story) -> None:
    """Rule 21."""
    (a,) = group.stable("a")
    a.leaves()
    group.expect(state=ClassicGroupState.EMPTY)
    a.commits({"t:0": 1}, gen=-1, expect="ok")
    a.commits({"t:0": 1}, gen=2, expect="UNKNOWN_MEMBER_ID")


@pytest.mark.parametrize(
    ("options", "heard"),
    [
        ({}, "ok"),
        ({"gen": -1, "id": ""}, "UNKNOWN_MEMBER_ID"),
        ({"gen": -1}, "ILLEGAL_GENERATION"),
        ({"gen": 0}, "ILLEGAL_GENERATION"),
        ({"id": "nobody"}, "UNKNOWN_MEMBER_ID"),
        ({"id": "nobody", "gen": 0}, "UNKNOWN_MEMBER_ID"),
        ({"instance": "i"}, "UNKNOWN_MEMBER_ID"),
    ],
)
def test_a_group_with_members_takes_only_theirs(group: Story, options: dict[str, Any], heard: str) -> None:
    """Rule 21: instance and member, generation, state, in this order."""
    (a,) = group.stable("a")
    a.commits({"t:0": 1}, expect=heard, **options)


def test_commits_are_taken_while_preparing_and_refused_while_completing(group: Story) -> None:
    """Rule 21: the last chance to commit before one's partitions go; then they may belong to others."""
    a, b = group.stable("a", "b")
    a.joins()
    b.commits({"t:0": 5}, expect="ok")
    b.joins()
    b.commits({"t:0": 6}, expect="REBALANCE_IN_PROGRESS")
    b.fetches(expect="t:0=5")


def test_what_nobody_knows_is_refused_before_the_group_is_asked(group: Story) -> None:
    """Rule 21: each for its partition; if nothing is left the group is not touched."""
    unknown = CommitPartition("ghost", 0, 1, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    answer = commit(group, [unknown], generation_id=7)
    assert answer.errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    group.expect(state=ClassicGroupState.DEAD)
    answer = commit(group, [unknown, CommitPartition("t", 0, 1)], generation_id=7)
    assert answer.errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.GROUP_ID_NOT_FOUND]
    answer = commit(group, [unknown, CommitPartition("t", 0, 1)])
    assert answer.errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_a_commit_of_nothing_is_no_sign_of_life(group: Story) -> None:
    """Rule 14: empty, or all topics unknown."""
    (a,) = group.stable("a", session=10_000)
    member = group.group.members[a.member_id]
    before_ms = member.deadline_ms
    group.advance(ms=5_000)
    unknown = CommitPartition("ghost", 0, 1, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    commit(group, [unknown], member_id=a.member_id, generation_id=1)
    commit(group, [], member_id=a.member_id, generation_id=1)
    assert member.deadline_ms == before_ms


@pytest.mark.parametrize(
    ("metadata", "error"),
    [
        (None, ErrorCode.NONE),
        ("x" * 4_096, ErrorCode.NONE),
        ("x" * 4_097, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ("é" * 4_096, ErrorCode.NONE),
        ("😀" * 2_048, ErrorCode.NONE),
        ("😀" * 2_048 + "x", ErrorCode.OFFSET_METADATA_TOO_LARGE),
    ],
)
def test_metadata_is_measured_in_utf16_units(group: Story, metadata: str | None, error: ErrorCode) -> None:
    """Rule 21: the other partitions are still taken; null is stored as the empty string."""
    answer = commit(group, [CommitPartition("t", 0, 1, metadata=metadata), CommitPartition("t", 1, 2)])
    assert answer.errors == [error, ErrorCode.NONE]
    stored = group.group.offsets["t"]
    assert set(stored) == ({1} if error else {0, 1})
    if not error:
        assert stored[0].metadata == (metadata or "")


def test_any_offset_is_taken_and_the_last_entry_wins(group: Story) -> None:
    """Rule 21: smaller or negative, too."""
    commit(group, [CommitPartition("t", 0, 9), CommitPartition("t", 0, -5, leader_epoch=3)])
    stored = group.group.offsets["t"][0]
    assert (stored.offset, stored.leader_epoch) == (-5, 3)
    assert stored.commit_timestamp_ms == group.world.now_ms


def test_the_empty_group_id_may_commit() -> None:
    """Rule 21."""
    story = Story(group_id="")
    story.member("a").commits({"t:0": 1}, gen=-1, expect="ok")
    story.member("a").fetches(expect="t:0=1")


def test_a_failed_write_changes_nothing_and_a_group_it_would_have_made_never_was(group: Story) -> None:
    """Rules 11, 22."""
    group.hold_writes()
    a = group.member("a").commits({"t:0": 1}, gen=-1, expect=PARKED)
    group.end_writes(ErrorCode.KAFKA_STORAGE_ERROR)
    assert group.steps[-1].hears == "a: NOT_COORDINATOR"
    group.expect(state=ClassicGroupState.DEAD)
    group.emitted(WriteFailed)
    group.emitted(GroupDied)
    a.commits({"t:0": 1}, gen=-1)
    group.end_writes()
    a.fetches(expect="t:0=1")


def test_a_commit_waits_no_longer_than_it_may_and_still_counts(group: Story) -> None:
    """Rule 22: offsets.commit.timeout.ms."""
    group.hold_writes()
    a = group.member("a").commits({"t:0": 1}, gen=-1)
    group.advance(ms=1_000)
    b = group.member("b").commits({"t:1": 2}, gen=-1)
    group.advance(ms=3_999)
    assert group.steps[-1].hears == PARKED
    group.advance(ms=1)
    assert group.steps[-1].hears == "a: COORDINATOR_NOT_AVAILABLE"
    group.advance(ms=1_000)
    assert group.steps[-1].hears == "b: COORDINATOR_NOT_AVAILABLE"
    group.end_writes()
    assert group.steps[-1].hears == PARKED
    b.fetches(expect="t:0=1 t:1=2")
    assert a.answer is not None


def test_many_commits_are_joined_into_one_append(group: Story) -> None:
    """Rule 22, group commit: what comes while one is under way goes together into the next."""
    group.hold_writes()
    for number in range(10):
        group.member(f"m{number}").commits({f"t:{number}": number}, gen=-1)
    assert group.world.writes_under_way == 1
    group.world.end_write()
    assert len(group.world.log) == 1
    assert group.world.writes_under_way == 1
    group.world.end_write()
    assert len(group.world.log) == 10


# --- transactions (rule 22) -------------------------------------------------------------------------------------------


def end_transaction(story: Story, producer_id: int, *, committed: bool) -> None:
    token = story.world.token()
    story.world.send(TransactionMarker(token, producer_id, 0, committed))
    assert story.world.replies[token] is ErrorCode.NONE


def test_a_transactional_commit_is_invisible_until_its_marker(group: Story) -> None:
    """Rule 22."""
    a = group.member("a").commits({"t:0": 1}, gen=-1)
    a.commits({"t:0": 5, "t:1": 6}, gen=-1, producer=7, expect="ok")
    a.fetches(expect="t:0=1")
    end_transaction(group, 7, committed=True)
    a.fetches(expect="t:0=5 t:1=6")


def test_an_aborted_transaction_leaves_nothing(group: Story) -> None:
    """Rule 22."""
    a = group.member("a").commits({"t:0": 5}, gen=-1, producer=7)
    end_transaction(group, 7, committed=False)
    a.fetches(expect="nothing")
    assert not group.group.pending_offsets


def test_a_later_plain_commit_stands_when_the_transaction_ends(group: Story) -> None:
    """Rule 22: of two commits the later one in the log counts."""
    a = group.member("a").commits({"t:0": 5, "t:1": 5}, gen=-1, producer=7)
    a.commits({"t:0": 9}, gen=-1)
    end_transaction(group, 7, committed=True)
    a.fetches(expect="t:0=9 t:1=5")


def test_a_transactional_commit_is_taken_in_completing_and_without_ids_in_any_state(group: Story) -> None:
    """Rule 22."""
    a, b = group.stable("a", "b")
    a.commits({"t:0": 1}, gen=-1, id="", producer=7, expect="ok")
    a.commits({"t:0": 1}, gen=0, producer=7, expect="ILLEGAL_GENERATION")
    a.commits({"t:0": 1}, id="nobody", producer=7, expect="UNKNOWN_MEMBER_ID")
    a.joins()
    a.commits({"t:0": 1}, gen=-1, id="", producer=7, expect="ok")
    b.joins()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE)
    a.commits({"t:0": 2}, producer=7, expect="ok")
    a.commits({"t:0": 2}, gen=-1, id="", producer=7, expect="ok")


def test_a_transactional_commit_is_no_sign_of_life(group: Story) -> None:
    """Rule 14."""
    (a,) = group.stable("a", session=10_000)
    before_ms = group.group.members[a.member_id].deadline_ms
    group.advance(ms=1_000)
    a.commits({"t:0": 1}, producer=7)
    assert group.group.members[a.member_id].deadline_ms == before_ms


def test_an_open_transaction_survives_the_coordinator(group: Story) -> None:
    """Rule 22 and C4."""
    a = group.member("a").commits({"t:0": 5}, gen=-1, producer=7)
    group.crash()
    a.fetches(expect="nothing")
    end_transaction(group, 7, committed=True)
    a.fetches(expect="t:0=5")
