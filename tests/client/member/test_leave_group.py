"""Leaving (M9, M13)."""

from __future__ import annotations

import pytest

from client.member.harness import GROUP, Harness, tps
from coterie.client.member import events
from coterie.client.member.effects import CommitEnded, CommittedEnded, Ended
from coterie.client.member.facts import GroupLeft
from coterie.client.member.states import ListenerError, MemberState
from coterie.errors import ConnectionLostError, ErrorCode
from coterie.facts import MemberLeft
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, LeftGroup, OffsetCommit

T0, *_ = tps("t:0-3")


def members(harness: Harness) -> int:
    group = harness.world.group(GROUP)
    return 0 if group is None else len(group.members)


def test_closing_commits_tells_the_listener_and_leaves_with_a_reason(harness: Harness) -> None:
    """M9, M13, in this order."""
    (a,) = harness.stable("a")
    a.positions[T0] = 7
    a.closes()
    harness.advance(50)
    assert [type(send.request) for _, send in a.sent][-2:] == [OffsetCommit, LeaveGroup]
    assert a.calls[-1] == ("revoked", tps("t:0-3")) and a.assigned == []
    assert a.is_in(MemberState.CLOSED) and [ended.error for ended in a.ended] == [None]
    assert [fact.reason for fact in harness.world.facts if isinstance(fact, MemberLeft)] == [
        "the consumer is being closed"
    ]
    assert members(harness) == 0 and not a.member.member_id and a.member.generation_id == -1
    sent = len(a.sent)
    harness.advance(60_000)
    assert len(a.sent) == sent and len(a.timers) == 0


def test_unsubscribing_gives_up_and_leaves_without_waiting(harness: Harness) -> None:
    """M9, M13."""
    (a,) = harness.stable("a")
    a.unsubscribes()
    assert a.is_in(MemberState.LEAVING)
    harness.advance(0)
    assert a.is_in(MemberState.UNJOINED) and len(a.ended) == 1, "done, whatever the coordinator will say"
    assert a.calls[-1][0] == "revoked" and a.watched == frozenset()
    harness.advance(10)
    assert members(harness) == 0
    assert a.fact(GroupLeft).reason == "the consumer unsubscribed from all topics"
    beats = len(a.requests(Heartbeat))
    harness.advance(20_000)
    assert len(a.requests(Heartbeat)) == beats and len(a.requests(JoinGroup)) == 2
    a.subscribes("t")
    harness.settle()
    assert len(a.member.assigned) == 4


@pytest.mark.parametrize(
    ("instance", "leave", "leaves"),
    [(None, None, True), (None, False, False), ("i", None, False), ("i", True, True), ("i", False, False)],
)
def test_who_leaves_on_close(harness: Harness, instance: str | None, leave: bool | None, leaves: bool) -> None:
    """M9, KIP-345, KIP-1092: a static member stays unless it is told to leave, a dynamic one the other way round."""
    (a,) = harness.stable("a", group_instance_id=instance)
    a.closes(leave=leave)
    harness.advance(50)
    assert members(harness) == (0 if leaves else 1) and len(a.requests(LeaveGroup)) == leaves
    assert a.is_in(MemberState.CLOSED) and a.told("revoked") == tps("t:0-3")


def test_a_leave_that_is_refused_or_lost_ends_all_the_same(harness: Harness) -> None:
    """M13: whatever the answer."""
    a, b = harness.stable("a", "b")
    harness.refusals.append((LeaveGroup, LeftGroup(ErrorCode.UNKNOWN_MEMBER_ID)))
    a.closes()
    harness.advance(50)
    harness.refusals.append((LeaveGroup, None))
    b.closes()
    harness.advance(5)
    assert b.is_in(MemberState.LEAVING) and "the answer to LeaveGroup" in b.member.explain(harness.now_ms)
    harness.disconnect(b)
    harness.advance(5)
    assert a.is_in(MemberState.CLOSED) and b.is_in(MemberState.CLOSED)


def test_who_owns_nothing_any_more_has_lost_it(harness: Harness) -> None:
    """M3, M9: lost, if the generation is gone or a rebalance is under way."""
    a, b = harness.stable("a", "b")
    a.ends_poll()
    harness.refusals.append((Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID))
    harness.refusals.append((Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID))
    harness.advance(3_100)
    assert a.is_in(MemberState.UNJOINED)
    a.closes()
    harness.advance(50)
    assert [kind for kind, _ in a.calls] == ["assigned", "lost"]
    assert b.calls[1][0] == "lost"


def test_closing_waits_for_commits_that_were_asked_for(harness: Harness) -> None:
    """M13: after the leave they would be refused."""
    (a,) = harness.stable("a", enable_auto_commit=False)
    token = a.commits_offsets({T0: 7})
    a.closes()
    harness.advance(50)
    assert a.commits == {token: None} and a.is_in(MemberState.CLOSED)
    assert [type(send.request) for _, send in a.sent][-2:] == [OffsetCommit, LeaveGroup]


@pytest.mark.parametrize("how", ["deaf", "held", "unknown"])
def test_close_always_ends_when_its_time_is_up(harness: Harness, how: str) -> None:
    """M13: with a broker that vanished, a listener that hangs, a coordinator nobody finds."""
    (a,) = harness.stable("a")
    a.positions[T0] = 7
    pending = None
    if how == "deaf":
        harness.is_deaf = True
    elif how == "held":
        a.holds_listener = True
    else:
        harness.lookup_error = ConnectionLostError("refused")
        harness.disconnect(a)
        a.member.coordinator = None
        pending = a.commits_offsets({T0: 9}, within_ms=60_000)
    a.closes(within_ms=5_000)
    harness.advance(4_999)
    assert a.is_in(MemberState.LEAVING)
    harness.advance(1)
    assert a.is_in(MemberState.CLOSED) and len(a.ended) == 1
    if pending:
        assert "is closed" in str(a.commits[pending])
    if how != "unknown":
        assert len(a.requests(LeaveGroup)) == 1, "what can still be said is said"


def test_a_listener_that_raises_on_close_is_the_closers_error(harness: Harness) -> None:
    """M14: and the member leaves all the same."""
    (a,) = harness.stable("a")

    def fails(*_: object) -> None:
        raise RuntimeError("disk full")

    a.listener = fails
    a.closes()
    harness.advance(50)
    assert isinstance(a.ended[0].error, ListenerError) and members(harness) == 0 and not a.errors


def test_close_and_unsubscribe_may_be_asked_for_at_any_time(harness: Harness) -> None:
    """M9: before anything, twice, while leaving, and after."""
    a = harness.party("a")
    a.unsubscribes()
    assert len(a.ended) == 1
    a.joins("t")
    harness.advance(3)
    a.unsubscribes()
    a.closes()
    a.closes()
    harness.advance(100)
    assert a.is_in(MemberState.CLOSED) and len(a.ended) == 4
    a.closes()
    a.unsubscribes()
    assert len(a.ended) == 6


def test_a_closed_member_leaves_nobody_waiting(harness: Harness) -> None:
    """M13: whatever still comes in."""
    (a,) = harness.stable("a")
    a.closes()
    harness.advance(50)
    member = a.member
    (commit,) = member.handle(events.CommitAsked("x", {}), 0)
    (question,) = member.handle(events.CommittedAsked("y", [], 0), 0)
    assert isinstance(commit, CommitEnded) and "open a new one" in str(commit.error)
    assert isinstance(question, CommittedEnded) and question.error is not None
    (ended,) = member.handle(events.CloseAsked(0), 0)
    assert isinstance(ended, Ended)
    assert member.handle(events.PollBegan(), 0) == [] and member.handle(events.HeartbeatDue(), 0) == []


def test_a_subscription_made_while_leaving_counts_afterwards(harness: Harness) -> None:
    """M9."""
    harness.has_topics(u=2)
    (a,) = harness.stable("a")
    a.holds_listener = True
    a.unsubscribes()
    a.subscribes("u")
    assert a.is_in(MemberState.LEAVING)
    a.holds_listener = False
    a.listener_returns()
    harness.settle()
    assert set(a.member.assigned) == set(tps("u:0-1"))


def test_a_member_that_is_leaving_goes_on_heartbeating_until_it_has_left(harness: Harness) -> None:
    """M13: a listener may take its time to save what it has."""
    (a,) = harness.stable("a")
    a.holds_listener = True
    a.closes(within_ms=60_000)
    beats = len(a.requests(Heartbeat))
    harness.advance(30_000)
    assert len(a.requests(Heartbeat)) - beats >= 9 and members(harness) == 1
    a.listener_returns()
    harness.advance(50)
    assert members(harness) == 0
