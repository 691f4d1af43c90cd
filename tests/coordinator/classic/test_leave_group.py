"""Rules 16, 17: members leave, alone or in a batch, by id or by instance."""

from __future__ import annotations

from coterie.coordinator.classic import ClassicGroupState
from coterie.errors import ErrorCode
from coterie.facts import Cause, MemberLeft
from coterie.protocol.messages import LeaveGroup, LeavingMember, LeftGroup, LeftMember
from coterie.stories import Story


def leave(story: Story, *members: LeavingMember) -> LeftGroup:
    token = story.world.token()
    story.world.send(LeaveGroup(token, story.group_id, members))
    answer = story.world.replies[token]
    assert isinstance(answer, LeftGroup)
    return answer


def test_a_leave_starts_a_rebalance_that_names_the_member_and_its_reason(group: Story) -> None:
    """Rules 12 (causes), 16; KIP-800."""
    a, b = group.stable("a", "b")
    b.leaves(reason="the consumer is being closed", expect="ok")
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE, members=["a"])
    last = group.rebalances[-1]
    assert (last.cause, last.culprit, last.reason) == (
        Cause.MEMBER_LEFT,
        b.member_id,
        "the consumer is being closed",
    )
    group.emitted(MemberLeft, member_id="b", reason="the consumer is being closed")
    a.joins(expect="leads gen 2")


def test_a_batch_is_answered_entry_by_entry_with_one_rebalance_for_all(group: Story) -> None:
    """Rule 16: in request order, with the ids of the request; a second entry for the same member is unknown."""
    a, b, c = group.stable("a", "b", "c")
    rebalances = len(group.rebalances)
    answer = leave(
        group,
        LeavingMember(b.member_id),
        LeavingMember("nobody"),
        LeavingMember(c.member_id),
        LeavingMember(b.member_id),
        LeavingMember(""),
    )
    assert answer.error is ErrorCode.NONE
    assert answer.members == [
        LeftMember(b.member_id, None, ErrorCode.NONE),
        LeftMember("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        LeftMember(c.member_id, None, ErrorCode.NONE),
        LeftMember(b.member_id, None, ErrorCode.UNKNOWN_MEMBER_ID),
        LeftMember("", None, ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert len(group.rebalances) == rebalances + 1
    assert group.rebalances[-1].culprit == b.member_id  # the first that could leave
    group.expect(members=["a"])
    assert a.member_id == group.group.leader_id


def test_a_static_member_goes_by_its_instance_alone_or_by_its_id_alone(group: Story) -> None:
    """Rules 16, 17: an admin names the instance."""
    group.member("a").joins(instance="i")
    b = group.member("b").joins(instance="j")
    group.settle()
    answer = leave(group, LeavingMember("", "i", "admin says so"), LeavingMember(b.member_id))
    assert [one.error for one in answer.members] == [ErrorCode.NONE, ErrorCode.NONE]
    group.expect(state=ClassicGroupState.EMPTY, members=[])


def test_instance_and_id_of_a_leave_must_belong_together(group: Story) -> None:
    """Rule 16: checked as everywhere."""
    (a,) = group.stable("a", instance="i")
    answer = leave(group, LeavingMember("nobody", "i"), LeavingMember(a.member_id, "j"), LeavingMember("", "j"))
    assert [one.error for one in answer.members] == [
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    group.expect(state=ClassicGroupState.STABLE)


def test_a_static_member_that_falls_silent_goes_by_its_session(group: Story) -> None:
    """Rule 17: it does not leave by itself when it closes."""
    group.stable("a", instance="i", session=10_000)
    group.advance(ms=10_000)
    group.expect(members=[], state=ClassicGroupState.EMPTY)


def test_an_empty_list_and_an_absent_group(group: Story) -> None:
    """Rule 16, KAFKA-8221: the same errors per member, none at the top."""
    assert leave(group) == LeftGroup(ErrorCode.NONE, [])
    absent = leave(group, LeavingMember("nobody"))
    assert absent.error is ErrorCode.NONE
    assert absent.members == [LeftMember("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID)]
    group.expect(state=ClassicGroupState.DEAD)
    empty_id = Story(group_id="")
    assert leave(empty_id, LeavingMember("a")).error is ErrorCode.INVALID_GROUP_ID


def test_the_leave_of_a_pending_id_starts_a_rebalance_in_stable(group: Story) -> None:
    """Rule 3: and re-checks a join phase."""
    (a,) = group.stable("a")
    b = group.member("b").joins()
    b.leaves(expect="ok")
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    assert group.rebalances[-1].cause is Cause.PENDING_MEMBER_LEFT
    c = group.member("c").joins()
    a.joins()
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    c.leaves()
    group.expect(state=ClassicGroupState.COMPLETING_REBALANCE, members=["a"])


def test_the_last_to_leave_is_told_when_the_log_has_it(group: Story) -> None:
    """Rule 16 and section 10: else a crash would bring back a member that was told it had left."""
    a, b = group.stable("a", "b")
    group.hold_writes()
    b.leaves(expect="ok")  # others are left: nothing is written
    a.leaves(expect="-")
    group.expect(state=ClassicGroupState.EMPTY)
    group.end_writes()
    assert group.steps[-1].hears == "a: ok"
    group.crash()
    group.expect(state=ClassicGroupState.EMPTY, members=[])


def test_a_last_leave_that_is_never_written_is_not_acknowledged(group: Story) -> None:
    """C4: the member is back after the crash, and was not told otherwise."""
    (a,) = group.stable("a")
    group.hold_writes()
    a.leaves(expect="-")
    group.crash()
    group.expect(state=ClassicGroupState.STABLE, members=["a"])
