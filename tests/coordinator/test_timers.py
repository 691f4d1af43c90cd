"""Keyed timers against the simplest thing that could be right: a dict from key to time and event."""

from __future__ import annotations

from collections.abc import Hashable

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from coterie.coordinator.classic.effects import ExpiryDue
from coterie.coordinator.runtime import GROUP_TIMERS, Timers
from coterie.coordinator.runtime.shard import RULES

keys = st.sampled_from("abcdef")


class TimersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[tuple[str, int]] = Timers()
        self.model: dict[str, tuple[int, tuple[str, int]]] = {}
        self.now_ms = 0
        self.armed = 0

    @rule(key=keys, in_ms=st.integers(-5, 100))
    def arm(self, key: str, in_ms: int) -> None:
        self.armed += 1
        event = (key, self.armed)
        self.timers.arm(key, self.now_ms + in_ms, event)
        self.model[key] = (self.now_ms + in_ms, event)

    @rule(key=keys)
    def disarm(self, key: str) -> None:
        self.timers.disarm(key)
        self.model.pop(key, None)

    @rule(ms=st.integers(0, 60))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        rang = list(self.timers.due(self.now_ms))
        due = {key: when for key, when in self.model.items() if when[0] <= self.now_ms}
        assert sorted(rang) == sorted(event for _, event in due.values())
        for key in due:
            del self.model[key]

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert len(self.timers) == len(self.model)
        next_ms = self.timers.next_ms()
        if self.model:
            assert next_ms is not None, "somebody waits and nobody looks"
            assert next_ms <= min(at_ms for at_ms, _ in self.model.values()), "may be early, never late"

    @invariant()
    def the_heap_stays_bounded(self) -> None:
        assert len(self.timers._heap) <= 2 * len(self.timers) + 65


TestTimers = TimersMachine.TestCase


@given(st.lists(st.tuples(keys, st.integers(0, 1_000_000)), max_size=400))
def test_arming_again_pushes_only_what_is_earlier_and_the_heap_stays_bounded(arms: list[tuple[str, int]]) -> None:
    """A heartbeat moves a deadline: it must not cost a heap operation, nor leave garbage behind."""
    timers: Timers[None] = Timers()
    earliest: dict[str, int] = {}
    for key, at_ms in arms:
        before = len(timers._heap)
        timers.arm(key, at_ms, None)
        if key in earliest and at_ms >= earliest[key]:
            assert len(timers._heap) == before
        else:
            earliest[key] = at_ms
        assert len(timers._heap) <= 2 * len(timers) + 65


@given(st.lists(st.integers(-50, 50), min_size=1))
def test_they_ring_in_order_of_time_and_of_arming(times_ms: list[int]) -> None:
    timers: Timers[tuple[int, int]] = Timers()
    for index, at_ms in enumerate(times_ms):
        timers.arm(index, at_ms, (at_ms, index))
    assert list(timers.due(50)) == sorted((at_ms, index) for index, at_ms in enumerate(times_ms))
    assert not len(timers) and timers.next_ms() is None


def test_what_is_armed_while_others_ring_rings_too_if_its_time_has_come() -> None:
    timers: Timers[str] = Timers()
    timers.arm("a", 1, "a")
    rang = []
    for event in timers.due(10):
        rang.append(event)
        if event == "a":
            timers.arm("b", 10, "b")
            timers.arm("c", 11, "c")
    assert rang == ["a", "b"] and len(timers) == 1


def test_ten_thousand_members_that_come_and_go_leave_a_small_heap() -> None:
    """Each comes with five minutes (rule 9), has ten seconds from its first rebalance on, and leaves."""
    timers: Timers[Hashable] = Timers()
    for member in range(10_000):
        timers.arm(member, member + 300_000, member)
        timers.arm(member, member + 10_000, member)
        timers.disarm(member)
    assert len(timers._heap) <= 65 and not len(timers)


def test_a_key_that_is_armed_for_later_and_then_for_soon_over_and_over_does_not_fill_the_heap() -> None:
    timers: Timers[str] = Timers()
    for second in range(10_000):
        timers.arm("join", second * 1_000 + 300_000, "late")
        timers.arm("join", second * 1_000 + 999, "soon")
        assert list(timers.due(second * 1_000 + 999)) == ["soon"]
        assert len(timers._heap) <= 67


def test_every_timer_of_a_group_is_listed() -> None:
    """ExpiryDue is no timer: the check of a partition asks each of its groups."""
    named = {event for rules in RULES.values() for event in rules if event.__name__.endswith(("Due", "Late"))}
    assert len(named) > 5 and named - {ExpiryDue} <= set(GROUP_TIMERS)
