"""Finding the coordinator (M2, M11)."""

from __future__ import annotations

from itertools import pairwise

from client.member.harness import Harness
from coterie.client.member import effects, events
from coterie.client.member.effects import COORDINATOR_LANE, LEAVING_LANE
from coterie.client.member.facts import CoordinatorFound, CoordinatorLost
from coterie.client.member.states import MemberState
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import Heartbeat, JoinGroup


def test_nobody_is_looked_up_before_somebody_needs_it(harness: Harness) -> None:
    """M2: find the coordinator only if unknown, and only when poll needs it."""
    a = harness.party("a").subscribes("t")
    harness.advance(5_000)
    assert not a.facts and a.member.finding is None
    a.begins_poll()
    harness.settle()
    assert len([fact for fact in a.facts if isinstance(fact, CoordinatorFound)]) == 1
    harness.advance(60_000)
    assert len([fact for fact in a.facts if isinstance(fact, CoordinatorFound)]) == 1, "it is known: nobody asks again"


def test_a_lookup_that_fails_is_repeated_after_a_growing_back_off(harness: Harness) -> None:
    """M2: retry.backoff.ms, doubled up to retry.backoff.max.ms."""
    times: list[int] = []
    harness.lookup_error = KafkaError("no", ErrorCode.COORDINATOR_NOT_AVAILABLE)
    a = harness.party("a").subscribes("t")
    find = a.member.handle

    def spy(event: object, now_ms: int) -> effects.Effects:
        found = find(event, now_ms)
        times.extend(now_ms for effect in found if isinstance(effect, effects.FindCoordinator))
        return found

    a.member = type("Spy", (), {"handle": staticmethod(spy)})()
    a.begins_poll()
    harness.advance(5_000)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[:6] == [101, 201, 401, 801, 1_001, 1_001]
    assert not a.errors


def test_rng_spread_the_back_off_by_a_fifth(harness: Harness) -> None:
    """KIP-580: members that lost the same coordinator do not come back in the same instant."""
    few, many = harness.party("few", rng=0.0), harness.party("many", rng=1.0)
    assert [few.member.backoff_ms(n) for n in range(5)] == [80, 160, 320, 640, 800]
    assert [many.member.backoff_ms(n) for n in (0, 3, 1_000)] == [120, 960, 1_200]


def test_a_lookup_that_is_refused_reaches_the_caller_of_poll(harness: Harness) -> None:
    """M2: fatal errors are raised; the next poll tries again."""
    harness.lookup_error = KafkaError("no", ErrorCode.GROUP_AUTHORIZATION_FAILED)
    a = harness.party("a").joins("t")
    harness.advance(10_000)
    (error,) = a.errors
    assert isinstance(error, KafkaError) and error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert "READ on the group" in str(error)
    harness.lookup_error = None
    a.ends_poll().begins_poll()
    harness.settle()


def test_an_answer_that_names_no_single_coordinator_is_an_error(harness: Harness) -> None:
    """M11: the driver's look-up fails then, with an error that cannot be retried; poll raises it as it is."""
    harness.lookup_error = KafkaError("the answer names 2 coordinators, not one")
    a = harness.party("a").joins("t")
    harness.advance(1_000)
    assert "names 2 coordinators" in str(a.errors[0])


def test_group_traffic_has_a_connection_of_its_own(harness: Harness) -> None:
    """M11: all that goes to the coordinator names its lane, so that no fetch stands before a heartbeat."""
    (a,) = harness.stable("a")
    harness.advance(10_000)
    a.closes()
    harness.advance(100)
    assert {send.lane for _, send in a.sent} == {COORDINATOR_LANE}


def test_a_leave_does_not_queue_behind_a_parked_join(harness: Harness) -> None:
    """C6: on one connection it would wait for the very join it is to end."""
    harness.stable("a")
    b = harness.party("b").joins("t")
    harness.advance(50)
    assert b.is_in(MemberState.JOINING)
    b.closes()
    harness.advance(50)
    assert b.is_in(MemberState.CLOSED)
    assert b.sent[-1][1].lane == LEAVING_LANE


def test_a_member_moves_to_the_new_coordinator_and_stays_a_member(harness: Harness) -> None:
    """M2, M4: NOT_COORDINATOR to a heartbeat: look it up again; the generation lives on (C4)."""
    a, b = harness.stable("a", "b")
    calls = len(a.calls)
    harness.move_coordinator()
    harness.advance(8_000)
    harness.settle()
    assert "NOT_COORDINATOR in answer to Heartbeat" in a.fact(CoordinatorLost).cause
    assert a.fact(CoordinatorFound).node == b.fact(CoordinatorFound).node == "2"
    assert a.member.generation_id == 1 and len(a.calls) == calls, "nobody had to rebalance"
    assert [send.to for _, send in a.sent if isinstance(send.request, Heartbeat)][-1] == 2


def test_a_connection_that_is_lost_during_the_join_is_tried_again(harness: Harness) -> None:
    """M4: the coordinator is looked up again, and the join repeated with the id it had."""
    harness.stable("a")
    b = harness.party("b").joins("t")
    harness.advance(20)
    member_id = b.member.member_id
    assert b.is_in(MemberState.JOINING) and member_id
    harness.disconnect(b)
    harness.settle()
    assert b.member.member_id == member_id
    assert [join.member_id for join in b.requests(JoinGroup)] == ["", member_id, member_id]


def test_a_late_answer_to_an_old_lookup_changes_nothing(harness: Harness) -> None:
    """KAFKA-9823 in spirit: only the answer that is waited for counts."""
    (a,) = harness.stable("a")
    a.handle(events.CoordinatorAnswered(reply=99))
    assert a.member.coordinator == 1
