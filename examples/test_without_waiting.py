"""A pytest test of group behaviour with a virtual clock, which the test moves: nothing sleeps.

    pytest examples/test_without_waiting.py

The rules are those of the broker. A step says which answer its member expects; if it is another, the test prints all
steps.
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
    """KIP-345: a member that returns with its `group.instance.id` before its session times out keeps its partitions."""
    story = Story()
    (a,) = story.stable("a", instance="worker-1", session=SESSION_MS)
    rebalances = len(story.rebalances)
    story.advance(ms=SESSION_MS - 1)
    a.joins(id="", expect="leads gen 1 skip")  # as a new process that knows its name alone
    assert len(story.rebalances) == rebalances
