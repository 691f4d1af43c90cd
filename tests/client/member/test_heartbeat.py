"""Staying alive (M8)."""

from __future__ import annotations

from itertools import pairwise

from client.member.harness import Harness, tps
from coterie.client.member.facts import CoordinatorLost, GroupLeft, IdentityDropped, PollIntervalExceeded
from coterie.client.member.states import MemberState
from coterie.errors import AuthorizationError, ConnectionLostError, ErrorCode
from coterie.facts import MemberExpired, MemberLeft
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup


def beats(harness: Harness, name: str = "a") -> list[int]:
    return [at_ms for at_ms, send in harness.parties[name].sent if isinstance(send.request, Heartbeat)]


def test_a_heartbeat_goes_out_every_interval_whether_anybody_polls_or_not(harness: Harness) -> None:
    """M8, seed 004: in the background, however long the user's code takes."""
    (a,) = harness.stable("a")
    a.ends_poll()
    harness.advance(30_000)
    sent = beats(harness)
    assert [later - earlier for earlier, later in pairwise(sent)] == [3_000] * 9
    assert a.is_in(MemberState.STABLE)


def test_an_idle_heartbeat_costs_two_events_and_two_effects(harness: Harness) -> None:
    """M8: a thousand idle members in one process; the request is built once a generation."""
    (a,) = harness.stable("a")
    harness.advance(9_000)
    requests = a.requests(Heartbeat)
    assert len(requests) == 3 and all(request is requests[0] for request in requests)
    harness.parties["a"].sent[-1][1].then.reply = ErrorCode.NONE
    assert a.member.handle(a.sent[-1][1].then, harness.now_ms) == []


def test_a_rebalance_that_is_announced_is_joined_by_a_settled_member_alone(harness: Harness) -> None:
    """M8: REBALANCE_IN_PROGRESS counts as success, and is ignored by one that is on its way already."""
    a, b = harness.stable("a", "b")
    b.ends_poll()
    harness.party("c").joins("t")
    harness.advance(8_000)
    assert (
        a.is_in(MemberState.JOINING)
        and b.is_in(MemberState.STABLE)
        and b.member.reason_to_rejoin == "group is already rebalancing"
    )
    harness.advance(11_000)
    assert b.member.has_generation and len(beats(harness, "b")) >= 6, "the session lives on"
    joins = len(a.requests(JoinGroup))
    b.begins_poll()
    harness.settle()
    assert len(a.requests(JoinGroup)) == joins


def test_a_member_that_was_removed_is_still_who_it_was_until_it_has_joined_again(harness: Harness) -> None:
    """Offsets of records that the user still processes are sent under that generation, and refused (TO2)."""
    (a,) = harness.stable("a")
    a.ends_poll()
    had = a.member.identity
    assert had == (a.member.member_id, a.member.generation_id) and a.member.has_generation
    harness.refusals.append((Heartbeat, ErrorCode.UNKNOWN_MEMBER_ID))
    harness.advance(6_000)
    assert not a.member.has_generation and a.member.identity == had
    a.begins_poll()
    harness.advance(20_000)
    assert a.member.has_generation and a.member.identity == (a.member.member_id, a.member.generation_id) != had


def test_a_user_that_does_not_poll_makes_the_member_leave_and_say_why(harness: Harness) -> None:
    """M8: max.poll.interval.ms; somebody else shall have the partitions."""
    a, b = harness.stable("a", "b", max_poll_interval_ms=20_000)
    a.ends_poll()
    harness.advance(19_000)
    assert a.is_in(MemberState.STABLE)
    harness.advance(1_100)
    assert a.is_in(MemberState.UNJOINED) and not a.member.member_id
    (leave,) = a.requests(LeaveGroup)
    assert leave.members[0].reason == "consumer poll timeout has expired"
    left = [fact for fact in harness.world.facts if isinstance(fact, MemberLeft)]
    assert left[-1].reason == "consumer poll timeout has expired"
    told = a.fact(PollIntervalExceeded)
    assert "poll was not called for max.poll.interval.ms (20000 ms)" in str(told) and told.left
    assert "max.poll.records" in str(told)
    harness.advance(5_000)
    assert len(b.member.assigned) == 4
    assert "it has lost 2 partitions" in a.member.explain(harness.now_ms)
    a.begins_poll()
    harness.settle()
    assert len(a.told("lost")) == 2


def test_a_static_member_whose_user_does_not_poll_only_falls_silent(harness: Harness) -> None:
    """M8: it is not to lose its place before the session timeout."""
    (a,) = harness.stable("a", group_instance_id="i", max_poll_interval_ms=20_000)
    a.ends_poll()
    harness.advance(21_000)
    assert a.is_in(MemberState.UNJOINED) and not a.requests(LeaveGroup)
    assert not a.fact(PollIntervalExceeded).left
    sent = len(beats(harness))
    harness.advance(30_000)
    assert len(beats(harness)) == sent
    assert [fact for fact in harness.world.facts if isinstance(fact, MemberExpired)]


def test_a_long_poll_is_not_a_missing_one(harness: Harness) -> None:
    """M8: who waits inside poll for records is there."""
    (a,) = harness.stable("a", max_poll_interval_ms=20_000)
    harness.advance(300_000)
    assert a.is_in(MemberState.STABLE) and a.member.generation_id == 1


def test_a_listener_that_does_not_return_counts_as_not_polling(harness: Harness) -> None:
    """M8: it holds partitions nobody reads."""
    a = harness.party("a", max_poll_interval_ms=20_000)
    a.holds_listener = True
    a.joins("t")
    harness.advance(19_000)
    assert a.is_in(MemberState.COMPLETING)
    harness.advance(4_000)
    assert a.fact(PollIntervalExceeded) and a.is_in(MemberState.UNJOINED)
    a.holds_listener = False
    a.listener_returns()
    harness.settle()
    assert [kind for kind, _ in a.calls] == ["assigned", "lost", "assigned"], "what it was given is taken back first"


def test_a_member_that_missed_its_poll_before_the_assignment_was_taken_leaves(harness: Harness) -> None:
    """M8, M10: in every stage in which it has a generation."""
    a = harness.party("a", max_poll_interval_ms=20_000).joins("t")
    harness.advance(2)
    a.ends_poll()
    harness.advance(19_000)
    assert a.is_in(MemberState.COMPLETING)
    harness.advance(3_000)
    assert a.is_in(MemberState.UNJOINED) and not a.calls


def test_a_coordinator_that_does_not_answer_for_a_session_is_looked_up_again(harness: Harness) -> None:
    """M8: no answer for session.timeout.ms: coordinator unknown."""
    (a,) = harness.stable("a")
    harness.is_deaf = True
    harness.advance(12_900)
    assert "no heartbeat was answered for session.timeout.ms (10000 ms)" in a.fact(CoordinatorLost).cause
    harness.is_deaf = False
    harness.node = 1
    harness.advance(5_000)
    harness.settle(60_000)


def test_a_heartbeat_that_fails_is_repeated_after_a_back_off(harness: Harness) -> None:
    """M8: sooner than the next would be due, since the session runs."""
    (a,) = harness.stable("a")
    harness.refusals.extend([(Heartbeat, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3)
    harness.advance(7_000)
    sent = beats(harness)
    assert [later - earlier for earlier, later in pairwise(sent)][:3] == [102, 202, 402]
    assert a.is_in(MemberState.STABLE) and not a.errors


def test_a_heartbeat_that_is_not_allowed_reaches_the_caller_of_poll(harness: Harness) -> None:
    """M2, M8: somebody has taken the right away."""
    (a,) = harness.stable("a")
    harness.refusals.append((Heartbeat, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    harness.advance(4_000)
    assert [type(error) for error in a.errors] == [AuthorizationError]


def test_news_of_an_older_generation_resets_nothing(harness: Harness) -> None:
    """M4, M8, KAFKA-9823: the answer to a heartbeat that was sent before the last rebalance."""
    (a,) = harness.stable("a")
    harness.refusals.append((Heartbeat, None))
    harness.advance(3_500)
    (old,) = [send for _, send in a.sent if isinstance(send.request, Heartbeat)]
    harness.disconnect(a)
    a.wants_rebalance()
    harness.settle()
    generation = a.member.generation_id
    assert generation == 2
    for code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
        old.then.reply, old.then.error = code, None
        a.handle(old.then)
    assert a.is_in(MemberState.STABLE) and a.member.generation_id == generation


def test_a_generation_the_coordinator_does_not_know_is_dropped_and_the_id_kept(harness: Harness) -> None:
    """M4: ILLEGAL_GENERATION."""
    (a,) = harness.stable("a")
    member_id = a.member.member_id
    harness.refusals.append((Heartbeat, ErrorCode.ILLEGAL_GENERATION))
    harness.advance(3_100)
    assert a.fact(IdentityDropped).member_id == member_id
    harness.settle()
    assert a.member.member_id == member_id and a.told("lost") == tps("t:0-3")
    assert a.requests(JoinGroup)[-1].reason == "ILLEGAL_GENERATION in answer to Heartbeat"


def test_the_goodbye_of_a_late_poll_is_said_once_and_not_repeated(harness: Harness) -> None:
    """M8, M13: without a coordinator nobody is told; the session timeout sees to it."""
    (a,) = harness.stable("a", max_poll_interval_ms=20_000)
    a.ends_poll()
    harness.advance(15_000)
    harness.lookup_error = ConnectionLostError("connection refused")
    harness.disconnect(a)
    harness.is_deaf = True
    a.member.coordinator = None
    harness.advance(10_000)
    left = a.fact(GroupLeft)
    assert not left.leave_sent and not a.requests(LeaveGroup)
