"""The ledger: facts told by real groups, folded into rebalances with what they cost (semantics 12)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from coterie.coordinator.classic import ClassicGroupState
from coterie.facts import AssignmentStored, Cause, ClockSet, Fact, RebalanceStarted
from coterie.ledger import Ledger, RebalanceOutcome, fold
from coterie.protocol.subscription import Assignment, write_assignment
from coterie.stories import Story
from coterie.stories.story import Actor
from coterie.structs import replace


def gives(**partitions: list[int]) -> bytes:
    return write_assignment(Assignment(partitions))


def test_an_eager_rebalance_costs_every_partition_from_its_owners_join_on(group: Story) -> None:
    """Semantics 12: a gives up two partitions at 0, b two at 2 000; all are owned again at 5 000."""
    a, b = group.stable("a", "b", assignments={"a": gives(t=[0, 1]), "b": gives(t=[2, 3])}, session=60_000)
    a.joins()
    group.advance(ms=2_000)
    b.joins()
    group.advance(ms=3_000)
    a.syncs({"a": gives(t=[0, 1, 2]), "b": gives(t=[3])})
    last = group.rebalances[-1]
    assert last.unassigned_ms == 2 * 5_000 + 2 * 3_000
    assert last.outcome is RebalanceOutcome.STABLE
    assert (last.join_ms, last.sync_ms) == (2_000, 3_000)
    assert last.joined_after_ms == {a.member_id: 0, b.member_id: 2_000}
    assert last.last_to_join == b.member_id
    assert last.waits_for == [b.member_id]
    assert [(move.partition, move.old_owner, move.new_owner) for move in last.moves] == [
        (("t", 2), b.member_id, a.member_id)
    ]
    assert last.kept == 3


def test_a_cooperative_rebalance_costs_only_what_moves(group: Story) -> None:
    """Rule 20, KIP-429: what a member still owns when it joins is not given up."""
    a, b = group.stable("a", "b", assignments={"a": gives(t=[0, 1, 2]), "b": gives()}, session=60_000)
    a.joins(owned={"t": [0, 1, 2]})
    b.joins(topics=("t", "u"))
    group.advance(ms=1_000)
    a.syncs({"a": gives(t=[0, 1]), "b": gives()})  # t 2 is withheld until a has given it up
    first = group.rebalances[-1]
    assert (first.unassigned_ms, first.moves) == (0, [])
    group.advance(ms=500)
    b.syncs()
    a.joins(owned={"t": [0, 1]})
    b.joins(owned={})
    a.syncs({"a": gives(t=[0, 1]), "b": gives(t=[2])})
    second = group.rebalances[-1]
    assert second.unassigned_ms == 500
    assert [move.partition for move in second.moves] == [("t", 2)]
    assert second.kept == 2


def test_a_member_that_dies_leaves_its_partitions_without_owner_until_the_rebalance_ends(group: Story) -> None:
    """Semantics 12: from the moment the coordinator knows."""
    a, b = group.stable("a", "b", assignments={"a": gives(t=[0]), "b": gives(t=[1])}, session=10_000)
    group.advance(ms=9_000)
    a.beats()
    group.advance(ms=1_000)
    group.expect(state=ClassicGroupState.PREPARING_REBALANCE)
    group.advance(ms=250)
    a.joins()
    a.syncs({"a": gives(t=[0, 1])})
    last = group.rebalances[-1]
    assert (last.cause, last.culprit) == (Cause.SESSION_EXPIRED, b.member_id)
    assert last.unassigned_ms == 250  # t 0 was given up and taken at the same moment


def test_a_returning_static_member_moves_nothing(group: Story) -> None:
    """Rule 19: its partitions are the same, its name is not."""
    (a,) = group.stable("a", instance="i", assignments={"a": gives(t=[0])})
    a.joins(id="")
    a.joins(reason="topics changed")
    a.syncs({"a": gives(t=[0])})
    last = group.rebalances[-1]
    assert (last.moves, last.kept) == ([], 1)


def test_a_rebalance_overtaken_by_the_next_is_superseded(group: Story) -> None:
    """Rule 13: a rebalance from Completing."""
    a, b = group.stable("a", "b")
    a.joins()
    b.joins()
    group.member("c").joins(old=True)
    assert [one.outcome for one in group.rebalances] == [
        RebalanceOutcome.STABLE,
        RebalanceOutcome.SUPERSEDED,
        RebalanceOutcome.RUNNING,
    ]


def test_a_rebalance_that_empties_the_group_ends_so_and_owes_nothing(group: Story) -> None:
    """Rule 6: nobody is there to miss a partition."""
    (a,) = group.stable("a", assignments={"a": gives(t=[0])})
    a.leaves()
    assert group.rebalances[-1].outcome is RebalanceOutcome.EMPTY
    group.advance(ms=100_000)
    group.stable("b", assignments={"b": gives(t=[0])})
    assert group.rebalances[-1].unassigned_ms == 0


def test_a_rebalance_is_lost_with_its_coordinator(group: Story) -> None:
    """C4: and who owned what is known again from the log."""
    a, b = group.stable("a", "b", assignments={"a": gives(t=[0]), "b": gives(t=[1])})
    a.joins()
    group.move_coordinator()
    assert group.rebalances[-1].outcome is RebalanceOutcome.LOST
    b.joins(topics=("t", "u"))
    a.joins()
    a.syncs({"a": gives(t=[0]), "b": gives(t=[1])})
    assert (group.rebalances[-1].moves, group.rebalances[-1].kept) == ([], 2)


def _b_falls_silent(story: Story, a: Actor, _b: Actor) -> None:
    story.advance(ms=9_000)
    a.beats()
    story.advance(ms=1_000)


CAUSES: Mapping[Cause, Callable[[Story, Actor, Actor], object]] = {
    Cause.NEW_MEMBER: lambda story, _a, _b: story.member("c").joins(old=True),
    Cause.MEMBER_LEFT: lambda _story, _a, b: b.leaves(),
    Cause.SESSION_EXPIRED: _b_falls_silent,
    Cause.PROTOCOLS_CHANGED: lambda _story, _a, b: b.joins(topics=("u",)),
    Cause.LEADER_REJOINED: lambda _story, a, _b: a.joins(),
}


@pytest.mark.parametrize("cause", list(CAUSES))
def test_a_rebalance_names_its_cause(cause: Cause) -> None:
    """Semantics 12; the other causes have tests of their own in the room of the group."""
    story = Story()
    a, b = story.stable("a", "b", session=10_000)
    CAUSES[cause](story, a, b)
    assert story.rebalances[-1].cause is cause


def test_the_ledger_keeps_the_last_rebalances_of_each_group_and_ignores_what_it_does_not_know() -> None:
    """Bounded, whatever is told."""
    ledger = Ledger(keep=3)
    for number in range(10):
        ledger.add(RebalanceStarted(number, f"g{number % 2}", Cause.NEW_MEMBER, "", None, 0, []))
        ledger.add(AssignmentStored(number, f"g{number % 2}", 1, {"m": b"not an assignment"}))
    ledger.add(Fact(0, "g0"))
    assert [one.began_ms for one in ledger.rebalances_of("g1")] == [5, 7, 9]
    assert [one.began_ms for one in ledger.rebalances] == [4, 5, 6, 7, 8, 9]
    assert ledger.rebalances_of("unknown") == []


def test_facts_can_be_folded_in_one_go(group: Story) -> None:
    group.stable("a")
    assert fold(group.world.facts) == group.rebalances


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, ""),
        ("topics changed", "topics changed"),
        ("need to re-join with the given member-id: a-1", ""),  # everybody says so (KIP-394)
        ("need to revoke partitions and re-join", "cooperative follow-up: it revoked partitions"),
    ],
)
def test_a_reason_is_told_without_what_clients_say_as_a_matter_of_course(
    group: Story, said: str | None, told: str
) -> None:
    group.stable("a")
    assert replace(group.rebalances[-1], reason=said).shown_reason == told


@pytest.mark.parametrize("by_ms", [3_600_000, -3_600_000])
def test_durations_are_the_same_though_the_clock_was_set_meanwhile(group: Story, by_ms: int) -> None:
    a, b = group.stable("a", "b", assignments={"a": gives(t=[0]), "b": gives(t=[1])}, session=60_000)
    a.joins()
    group.advance(ms=2_000)
    b.joins()
    group.advance(ms=3_000)
    a.syncs({"a": gives(t=[0]), "b": gives(t=[1])})
    told = group.world.facts
    for step in range(1, len(told)):
        later = [replace(fact, at_ms=fact.at_ms + by_ms) for fact in told[step:]]
        ledger = Ledger()
        for fact in [*told[:step], ClockSet(told[step].at_ms + by_ms, "", by_ms), *later]:
            ledger.add(fact)
        for one, other in zip(ledger.rebalances_of("g"), fold(told), strict=True):
            assert (one.join_ms, one.sync_ms, one.unassigned_ms) == (other.join_ms, other.sync_ms, other.unassigned_ms)
