"""The rebalance listener (M14)."""

from __future__ import annotations

import pytest

from client.member.harness import Harness, tps
from coterie.assignors import CooperativeSticky
from coterie.client.member.events import ListenerAnswered
from coterie.client.member.facts import ListenerFailed
from coterie.client.member.states import ListenerError, MemberState


@pytest.mark.parametrize("kind", ["assigned", "revoked", "lost"])
def test_a_listener_that_raises_does_not_lose_the_assignment(harness: Harness, kind: str) -> None:
    """M14: the error reaches the caller of poll, and the rebalance goes on."""
    (a,) = harness.stable("a")

    def fails(told: str, _: object) -> None:
        if told == kind:
            raise RuntimeError("disk full")

    a.listener = fails
    if kind == "lost":
        harness.world.log.clear()
        harness.world.crash()
        harness.advance(4_000)
    a.wants_rebalance()
    harness.settle()
    (error,) = a.errors
    assert isinstance(error, ListenerError) and "disk full" in str(error) and isinstance(error.__cause__, RuntimeError)
    assert a.fact(ListenerFailed).kind == kind
    assert a.is_in(MemberState.STABLE) and a.assigned == tps("t:0-3")


def test_a_cooperative_listener_that_raises_does_not_stop_the_second_rebalance(harness: Harness) -> None:
    """M14: what was revoked is given up although the listener failed."""
    (a,) = harness.stable("a", assignors=(CooperativeSticky(),))

    def fails(told: str, _: object) -> None:
        if told == "revoked":
            raise RuntimeError("disk full")

    a.listener = fails
    (b,) = harness.stable("b", assignors=(CooperativeSticky(),))
    harness.settle()
    assert len(a.errors) == 1 and len(a.member.assigned) == len(b.member.assigned) == 2


def test_the_listener_is_called_only_while_the_user_is_there(harness: Harness) -> None:
    """M14: in poll; the harness asserts it for every call of every story."""
    (a,) = harness.stable("a")
    a.ends_poll()
    harness.party("b").joins("t")
    harness.advance(20_000)
    assert len(a.calls) == 1
    a.begins_poll()
    assert a.calls[-1][0] == "revoked"


def test_an_answer_of_a_call_that_is_over_changes_nothing(harness: Harness) -> None:
    """KAFKA-9823 in spirit."""
    (a,) = harness.stable("a")
    a.handle(ListenerAnswered("revoked", frozenset(tps("t:0-3"))))
    assert len(a.member.assigned) == 4


def test_what_is_revoked_when_the_generation_is_lost_meanwhile_is_not_called_lost_again(harness: Harness) -> None:
    """M3: calls balance, whatever happens during one."""
    (a,) = harness.stable("a")
    a.holds_listener = True
    a.wants_rebalance()
    harness.advance(10)
    assert a.waiting_call is not None and a.calls[-1][0] == "revoked"
    harness.world.log.clear()
    harness.world.crash()
    harness.advance(4_000)
    assert not a.member.has_generation
    a.holds_listener = False
    a.listener_returns()
    harness.settle()
    assert [kind for kind, _ in a.calls] == ["assigned", "revoked", "assigned"]
