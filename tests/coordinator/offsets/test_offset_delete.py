"""Rules 23, 24: OffsetDelete, and topics that are deleted."""

from __future__ import annotations

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.facts import OffsetsDeletedFact, WriteFailed
from coterie.protocol.messages import OffsetDelete, OffsetsDeleted, Protocol, TopicsDeleted
from coterie.stories import Story


def delete(story: Story, *topics: tuple[str, list[int]]) -> OffsetsDeleted:
    token = story.world.token()
    story.world.send(OffsetDelete(token, story.group_id, topics))
    if story.world.writes_under_way:
        story.end_writes(ErrorCode.KAFKA_STORAGE_ERROR)
    answer = story.world.replies[token]
    assert isinstance(answer, OffsetsDeleted)
    return answer


def test_an_absent_group_and_the_empty_id_are_refused(group: Story) -> None:
    """Rules 21, 24."""
    assert delete(group, ("t", [0])) == OffsetsDeleted(ErrorCode.GROUP_ID_NOT_FOUND)
    assert delete(Story(group_id=""), ("t", [0])) == OffsetsDeleted(ErrorCode.INVALID_GROUP_ID)


def test_the_last_offset_may_go_and_the_group_stays(group: Story) -> None:
    """Rule 24: where there is no offset the answer is NONE, too."""
    a = group.member("a").commits({"t:0": 5}, gen=-1)
    answer = delete(group, ("t", [0, 1]))
    assert [one.error for one in answer.partitions] == [ErrorCode.NONE, ErrorCode.NONE]
    group.expect(state=ClassicGroupState.EMPTY)
    a.fetches(expect="nothing")
    group.emitted(OffsetsDeletedFact, partitions=[("t", 0)])
    assert group.world.log[-1].value is None


def test_a_subscribed_topic_is_refused_partition_by_partition(group: Story) -> None:
    """Rule 24: as of the last completed join phase."""
    (a,) = group.stable("a", topics=("t",))
    a.commits({"t:0": 5, "u:0": 6})
    answer = delete(group, ("t", [0]), ("u", [0]))
    assert [one.error for one in answer.partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE]
    a.fetches(expect="t:0=5")


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\x00\x00\x7f\xff\xff\xff", b"\xff" * 40])
def test_if_a_subscription_cannot_be_read_every_topic_counts_as_subscribed(group: Story, garbage: bytes) -> None:
    """Rule 24: and the join ends all the same, which Kafka's sometimes does not."""
    (a,) = group.stable("a", protocols=[Protocol("range", garbage)])
    a.commits({"u:0": 6})
    answer = delete(group, ("u", [0]))
    assert [one.error for one in answer.partitions] == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_group_of_another_type_must_be_empty(group: Story) -> None:
    """Rule 24."""
    (a,) = group.stable("a", type="connect")
    a.commits({"t:0": 5})
    assert delete(group, ("t", [0])).error is ErrorCode.NON_EMPTY_GROUP
    a.leaves()
    assert delete(group, ("t", [0])).error is ErrorCode.NONE
    a.fetches(expect="nothing")


def test_a_pending_transactional_offset_goes_too(group: Story) -> None:
    """Rule 24: what a tombstone means, live and replayed."""
    group.member("a").commits({"t:0": 5}, gen=-1, producer=7)
    delete(group, ("t", [0]))
    assert group.group.pending_offsets == {7: {}}


def test_a_commit_on_its_way_to_the_log_is_deleted_behind_it(group: Story) -> None:
    """Rule 24: the tombstone follows the commit in the log, so the offset must not come back."""
    group.hold_writes()
    a = group.member("a").commits({"t:0": 5}, gen=-1)
    token = group.world.token()
    group.world.send(OffsetDelete(token, "g", [("t", [0])]))
    group.end_writes()
    assert group.world.replies[token].error is ErrorCode.NONE
    a.fetches(expect="nothing")
    group.crash()
    a.fetches(expect="nothing")


def test_a_failed_write_deletes_nothing(group: Story) -> None:
    """Rule 11's mapping."""
    a = group.member("a").commits({"t:0": 5}, gen=-1)
    group.hold_writes()
    assert delete(group, ("t", [0])) == OffsetsDeleted(ErrorCode.NOT_COORDINATOR)
    group.emitted(WriteFailed)
    a.fetches(expect="t:0=5")


def test_a_deleted_topic_takes_its_offsets_along_but_not_the_group(group: Story) -> None:
    """Rule 23."""
    a = group.member("a").commits({"t:0": 5, "u:0": 6}, gen=-1)
    group.world.send(TopicsDeleted(frozenset({"t", "other"})))
    a.fetches(expect="u:0=6")
    group.world.send(TopicsDeleted(frozenset({"u"})))
    a.fetches(expect="nothing")
    group.expect(state=ClassicGroupState.EMPTY)
