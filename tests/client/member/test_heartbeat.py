"""Staying alive (M8)."""

from __future__ import annotations

from itertools import pairwise

from client.member.room import Room, tps
from coterie.client.member.facts import CoordinatorLost, GroupLeft, IdentityDropped, PollIntervalExceeded
from coterie.client.member.states import Stage
from coterie.errors import AuthorizationError, ConnectionLostError, ErrorCode
from coterie.facts import MemberExpired, MemberLeft
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup


def beats(room: Room, name: str = "a") -> list[int]:
    return [at_ms for at_ms, send in room.parties[name].sent if isinstance(send.request, Heartbeat)]


def test_a_heartbeat_goes_out_every_interval_whether_anybody_polls_or_not(room: Room) -> None:
    """M8, seed 004: in the background, however long the user's code takes."""
    (a,) = room.stable("a")
    a.ends_poll()
    room.advance(30_000)
    sent = beats(room)
    assert [later - earlier for earlier, later in pairwise(sent)] == [3_000] * 9
    assert a.is_in(Stage.STABLE)


def test_an_idle_heartbeat_costs_two_events_and_two_effects(room: Room) -> None:
    """M8: a thousand idle members in one process; the request is built once a generation."""
    (a,) = room.stable("a")
    room.advance(9_000)
    requests = a.requests(Heartbeat)
    assert len(requests) == 3 and all(request is requests[0] for request in requests)
    room.parties["a"].sent[-1][1].then.reply = ErrorCode.NONE
    assert a.member.handle(a.sent[-1][1].then, room.now_ms) == []


def test_a_rebalance_that_is_announced_is_joined_by_a_settled_member_alone(room: Room) -> None:
    """M8: REBALANCE_IN_PROGRESS counts as success, and is ignored by one that is on its way already."""
    a, b = room.stable("a", "b")
    b.ends_poll()
    room.party("c").joins("t")
    room.advance(8_000)
    assert a.is_in(Stage.JOINING) and b.is_in(Stage.STABLE) and b.member.wish == "group is already rebalancing"
    room.advance(11_000)
    assert b.member.has_generation and len(beats(room, "b")) >= 6, "the session lives on"
    joins = len(a.requests(JoinGroup))
    b.begins_poll()
    room.settle()
    assert len(a.requests(JoinGroup)) == joins


def test_a_user_that_does_not_poll_makes_the_member_leave_and_say_why(room: Room) -> None:
    """M8: max.poll.interval.ms; somebody else shall have the partitions."""
    a, b = room.stable("a", "b", max_poll_interval_ms=20_000)
    a.ends_poll()
    room.advance(19_000)
    assert a.is_in(Stage.STABLE)
    room.advance(1_100)
    assert a.is_in(Stage.UNJOINED) and not a.member.member_id
    (leave,) = a.requests(LeaveGroup)
    assert leave.members[0].reason == "consumer poll timeout has expired"
    left = [fact for fact in room.world.facts if isinstance(fact, MemberLeft)]
    assert left[-1].reason == "consumer poll timeout has expired"
    told = a.fact(PollIntervalExceeded)
    assert "poll was not called for max.poll.interval.ms (20000 ms)" in str(told) and told.left
    assert "max.poll.records" in str(told)
    room.advance(5_000)
    assert len(b.member.assigned) == 4
    assert "2 partitions are lost" in a.member.explain(room.now_ms)
    a.begins_poll()
    room.settle()
    assert len(a.told("lost")) == 2


def test_a_static_member_whose_user_does_not_poll_only_falls_silent(room: Room) -> None:
    """M8: it is not to lose its place before the session timeout."""
    (a,) = room.stable("a", group_instance_id="i", max_poll_interval_ms=20_000)
    a.ends_poll()
    room.advance(21_000)
    assert a.is_in(Stage.UNJOINED) and not a.requests(LeaveGroup)
    assert not a.fact(PollIntervalExceeded).left
    sent = len(beats(room))
    room.advance(30_000)
    assert len(beats(room)) == sent
    assert [fact for fact in room.world.facts if isinstance(fact, MemberExpired)]


def test_a_long_poll_is_not_a_missing_one(room: Room) -> None:
    """M8: who waits inside poll for records is there."""
    (a,) = room.stable("a", max_poll_interval_ms=20_000)
    room.advance(300_000)
    assert a.is_in(Stage.STABLE) and a.member.generation_id == 1


def test_a_listener_that_does_not_return_counts_as_not_polling(room: Room) -> None:
    """M8: it holds partitions nobody reads."""
    a = room.party("a", max_poll_interval_ms=20_000)
    a.holds_listener = True
    a.joins("t")
    room.advance(19_000)
    assert a.is_in(Stage.COMPLETING)
    room.advance(4_000)
    assert a.fact(PollIntervalExceeded) and a.is_in(Stage.UNJOINED)
    a.holds_listener = False
    a.listener_returns()
    room.settle()
    assert [kind for kind, _ in a.calls] == ["assigned", "lost", "assigned"], "what it was given is taken back first"


def test_a_member_that_missed_its_poll_before_the_assignment_was_taken_leaves(room: Room) -> None:
    """M8, M10: in every stage in which it has a generation."""
    a = room.party("a", max_poll_interval_ms=20_000).joins("t")
    room.advance(2)
    a.ends_poll()
    room.advance(19_000)
    assert a.is_in(Stage.COMPLETING)
    room.advance(3_000)
    assert a.is_in(Stage.UNJOINED) and not a.calls


def test_a_coordinator_that_does_not_answer_for_a_session_is_looked_up_again(room: Room) -> None:
    """M8: no answer for session.timeout.ms: coordinator unknown."""
    (a,) = room.stable("a")
    room.is_deaf = True
    room.advance(12_900)
    assert "no heartbeat was answered for session.timeout.ms (10000 ms)" in a.fact(CoordinatorLost).cause
    room.is_deaf = False
    room.node = 1
    room.advance(5_000)
    room.settle(60_000)


def test_a_heartbeat_that_fails_is_repeated_after_a_back_off(room: Room) -> None:
    """M8: sooner than the next would be due, since the session runs."""
    (a,) = room.stable("a")
    room.refusals.extend([(Heartbeat, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 3)
    room.advance(7_000)
    sent = beats(room)
    assert [later - earlier for earlier, later in pairwise(sent)][:3] == [102, 202, 402]
    assert a.is_in(Stage.STABLE) and not a.errors


def test_a_heartbeat_that_is_not_allowed_reaches_the_caller_of_poll(room: Room) -> None:
    """M2, M8: somebody has taken the right away."""
    (a,) = room.stable("a")
    room.refusals.append((Heartbeat, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    room.advance(4_000)
    assert [type(error) for error in a.errors] == [AuthorizationError]


def test_news_of_an_older_generation_resets_nothing(room: Room) -> None:
    """M4, M8, KAFKA-9823: the answer to a heartbeat that was sent before the last rebalance."""
    (a,) = room.stable("a")
    room.refusals.append((Heartbeat, None))
    room.advance(3_500)
    (old,) = [send for _, send in a.sent if isinstance(send.request, Heartbeat)]
    room.disconnect(a)
    a.wants_rebalance()
    room.settle()
    generation = a.member.generation_id
    assert generation == 2
    for code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
        old.then.reply, old.then.error = code, None
        a.handle(old.then)
    assert a.is_in(Stage.STABLE) and a.member.generation_id == generation


def test_a_generation_the_coordinator_does_not_know_is_dropped_and_the_id_kept(room: Room) -> None:
    """M4: ILLEGAL_GENERATION."""
    (a,) = room.stable("a")
    member_id = a.member.member_id
    room.refusals.append((Heartbeat, ErrorCode.ILLEGAL_GENERATION))
    room.advance(3_100)
    assert a.fact(IdentityDropped).member_id == member_id
    room.settle()
    assert a.member.member_id == member_id and a.told("lost") == tps("t:0-3")
    assert a.requests(JoinGroup)[-1].reason == "ILLEGAL_GENERATION in answer to Heartbeat"


def test_the_goodbye_of_a_late_poll_is_said_once_and_not_repeated(room: Room) -> None:
    """M8, M13: without a coordinator nobody is told; the session timeout sees to it."""
    (a,) = room.stable("a", max_poll_interval_ms=20_000)
    a.ends_poll()
    room.advance(15_000)
    room.lookup_error = ConnectionLostError("connection refused")
    room.disconnect(a)
    room.is_deaf = True
    a.member.coordinator = None
    room.advance(10_000)
    left = a.fact(GroupLeft)
    assert not left.told and not a.requests(LeaveGroup)
