"""A pytest test of what a group does to your members, under a clock that the test moves: nothing sleeps, nobody waits.

    pytest examples/test_without_waiting.py

The rules are those of the broker. A step says what its member hears; if that is not so, the whole story is printed.
"""

from __future__ import annotations

from coterie.facts import Cause
from coterie.stories import Story

SESSION_MS = 45_000
"""Kafka's default: how long a member may be silent."""


def test_a_crash_costs_the_group_a_rebalance_and_45_seconds() -> None:
    story = Story()
    a, _b = story.stable("a", "b", session=SESSION_MS)
    story.advance(ms=SESSION_MS - 1)  # b has crashed; a lives
    a.beats(expect="ok")
    story.advance(ms=1)
    a.beats(expect="REBALANCE_IN_PROGRESS")
    last = story.rebalances[-1]
    assert last.cause is Cause.SESSION_EXPIRED and last.culprit.startswith("b")


def test_a_restart_with_a_static_id_costs_no_rebalance_if_it_is_quick() -> None:
    """`group.instance.id`, KIP-345: whoever comes back by that name within its session has its partitions back."""
    story = Story()
    (a,) = story.stable("a", instance="worker-1", session=SESSION_MS)
    rebalances = len(story.rebalances)
    story.advance(ms=SESSION_MS - 1)
    a.joins(id="", expect="leads gen 1 skip")  # as a new process that knows its name alone
    assert len(story.rebalances) == rebalances
