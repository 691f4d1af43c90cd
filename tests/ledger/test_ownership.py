"""Unassigned partition-milliseconds, against a second reading: look at every partition in every millisecond."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from coterie.facts import (
    AssignmentStored,
    Cause,
    Fact,
    GroupCreated,
    GroupDied,
    GroupEmptied,
    GroupLoaded,
    JoinPhaseCompleted,
    MemberAssigned,
    MemberExpired,
    MemberLeft,
    MemberRejoined,
    MemberReplaced,
    RebalanceStarted,
)
from coterie.ledger import Ledger, Move, Ownership, intervals_of, read_fact, write_fact
from coterie.ledger.ownership import Partition
from coterie.protocol.subscription import Assignment, Subscription, write_assignment, write_subscription
from coterie.structs import replace

MEMBERS = ("a", "b", "c", "d")
PARTITIONS: list[Partition] = [("t", 0), ("t", 1), ("u", 0), ("u", 7)]

Owners = Mapping[Partition, str]


def by_topic(partitions: list[Partition]) -> dict[str, list[int]]:
    return {topic: [number for one, number in partitions if one == topic] for topic, _ in partitions}


def as_assignments(owners: Owners) -> dict[str, bytes]:
    members = {member: [one for one, owner in owners.items() if owner == member] for member in MEMBERS}
    return {member: write_assignment(Assignment(by_topic(owned))) for member, owned in members.items()}


@dataclass
class Given:
    """An assignment is known to all: each partition has one owner, or none."""

    owners: Owners


@dataclass
class Keeps:
    """A member rejoins and lists what it still owns; what it claims beyond that is nothing to us."""

    member: str
    claims: list[Partition]


@dataclass
class Took:
    """A member of a consumer group has another assignment, of partitions that nobody else owns (K11)."""

    member: str
    owned: list[Partition]
    gives_up: int
    """How many of them are still to be given up: it owns them, too."""


@dataclass
class Garbled:
    """A member rejoins with bytes that say nothing: it has given up everything."""

    member: str


@dataclass
class Gone:
    member: str


@dataclass
class Renamed:
    """A static member comes back under a new id."""

    old: str
    new: str


@dataclass
class Emptied:
    pass


Step = Given | Keeps | Took | Garbled | Gone | Renamed | Emptied
members = st.sampled_from(MEMBERS)
steps = st.one_of(
    st.builds(Given, st.dictionaries(st.sampled_from(PARTITIONS), members)),
    st.builds(Given, st.dictionaries(st.sampled_from(PARTITIONS), members)),
    st.builds(Keeps, members, st.lists(st.sampled_from(PARTITIONS), unique=True)),
    st.builds(Took, members, st.lists(st.sampled_from(PARTITIONS), unique=True), st.integers(0, 4)),
    st.builds(Garbled, members),
    st.builds(Gone, members),
    st.builds(Renamed, members, members),
    st.builds(Emptied),
)
timelines = st.lists(st.tuples(st.integers(0, 20), steps), max_size=30)


class Watcher:
    """The second reading: one owner or none for each partition, and a counter that runs while there is none."""

    def __init__(self) -> None:
        self.owner: dict[Partition, str | None] = {}
        self.last: dict[Partition, str] = {}
        self.unassigned: dict[Partition, int] = {}
        self.ended_ms = 0

    def a_millisecond_passes(self) -> None:
        for partition, owner in self.owner.items():
            if owner is None:
                self.unassigned[partition] += 1

    def may_see(self, step: Step) -> bool:
        """A new id is nobody's, and nobody takes what another owns."""
        match step:
            case Renamed(_, new):
                return new not in self.owner.values()
            case Took(member, owned, _):
                return all(self.owner.get(one) in {None, member} for one in owned)
        return True

    def see(self, step: Step) -> tuple[list[Move], int, int] | None:
        match step:
            case Given(owners):
                return self.assign(owners)
            case Keeps(member, claims):
                self.drop(member, [one for one in PARTITIONS if one not in claims])
            case Took(member, owned, _):
                self.drop(member, [one for one in PARTITIONS if one not in owned])
                others = {one: owner for one, owner in self.owner.items() if owner not in {None, member}}
                return self.assign(others | dict.fromkeys(owned, member))
            case Garbled(member) | Gone(member):
                self.drop(member, PARTITIONS)
            case Renamed(old, new):
                for partition in [one for one, owner in self.owner.items() if owner == old]:
                    self.owner[partition] = self.last[partition] = new
            case Emptied():
                self.owner, self.last, self.unassigned = {}, {}, {}
        return None

    def assign(self, owners: Owners) -> tuple[list[Move], int, int]:
        moves = [
            Move(one, self.last.get(one, ""), owner, self.unassigned.get(one, 0) if one in self.last else None)
            for one, owner in owners.items()
            if self.last.get(one, "") != owner
        ]
        gap_ms = sum(self.unassigned.get(one, 0) for one in owners)
        for partition in self.owner:
            if partition not in owners and self.owner[partition] is not None:
                self.owner[partition], self.unassigned[partition] = None, 0
        for partition, owner in owners.items():
            self.owner[partition] = self.last[partition] = owner
            self.unassigned[partition] = 0
        return moves, len(owners) - len(moves), gap_ms

    def drop(self, member: str, partitions: list[Partition]) -> None:
        for partition in partitions:
            if self.owner.get(partition) == member:
                self.owner[partition], self.unassigned[partition] = None, 0


def perform(ownership: Ownership, step: Step, at_ms: int) -> tuple[list[Move], int, int] | None:
    match step:
        case Given(owners):
            return ownership.assigned(as_assignments(owners), at_ms)
        case Keeps(member, claims):
            ownership.rejoined(member, write_subscription(Subscription(["t"], owned=by_topic(claims))), at_ms)
        case Took(member, owned, _):
            moves, gaps_ms = ownership.took(member, set(owned), at_ms)
            return moves, sum(map(len, ownership.held.values())) - len(moves), gaps_ms
        case Garbled(member):
            ownership.rejoined(member, b"\xff", at_ms)
        case Gone(member):
            ownership.gone(member, at_ms)
        case Renamed(old, new):
            ownership.renamed(old, new)
        case Emptied():
            ownership.emptied()
    return None


@given(timelines)
def test_gaps_moves_and_what_stayed_are_those_that_a_watcher_sees(timeline: list[tuple[int, Step]]) -> None:
    ownership, watcher, now_ms = Ownership(), Watcher(), 1_000
    for wait_ms, step in timeline:
        for _ in range(wait_ms):
            watcher.a_millisecond_passes()
        now_ms += wait_ms
        if not watcher.may_see(step):
            continue
        seen, told = watcher.see(step), perform(ownership, step, now_ms)
        assert (seen is None) == (told is None)
        if seen is not None and told is not None:
            assert sorted(seen[0], key=str) == sorted(told[0], key=str) and seen[1:] == told[1:]
        held = {(one, owner) for one, owner in watcher.owner.items() if owner is not None}
        assert held == {(one, member) for member, owned in ownership.held.items() for one in owned}


def as_fact(step: Step, at_ms: int) -> Fact:
    match step:
        case Given(owners):
            return AssignmentStored(at_ms, "g", 1, as_assignments(owners))
        case Keeps(member, claims):
            metadata = write_subscription(Subscription(["t"], owned=by_topic(claims)))
            return MemberRejoined(at_ms, "g", member, metadata)
        case Took(member, owned, gives_up):
            pending, assigned = owned[:gives_up], owned[gives_up:]
            return MemberAssigned(at_ms, "g", member, 1, "Stable", by_topic(assigned), by_topic(pending))
        case Garbled(member):
            return MemberRejoined(at_ms, "g", member, b"")
        case Gone(member):
            return (
                MemberLeft(at_ms, "g", member, None, None) if at_ms % 2 else MemberExpired(at_ms, "g", member, 1, False)
            )
        case Renamed(old, new):
            return MemberReplaced(at_ms, "g", new, old, "i")
        case Emptied():
            return GroupEmptied(at_ms, "g", 1)


@given(timelines)
def test_what_the_rebalances_of_the_ledger_cost_is_what_a_watcher_sees(timeline: list[tuple[int, Step]]) -> None:
    """Each assignment ends a rebalance here, so that nothing a watcher sees can be lost between rebalances."""
    ledger, watcher, now_ms, seen_ms, moved = Ledger(), Watcher(), 1_000, 0, 0
    for wait_ms, step in timeline:
        for _ in range(wait_ms):
            watcher.a_millisecond_passes()
        now_ms += wait_ms
        if not watcher.may_see(step):
            continue
        if isinstance(step, Given | Took):
            ledger.add(RebalanceStarted(now_ms, "g", Cause.NEW_MEMBER, "a", None, 0, []))
        ledger.add(as_fact(step, now_ms))
        seen = watcher.see(step)
        if seen is not None:
            moved += len(seen[0])
            seen_ms += seen[2]
    rebalances = ledger.rebalances_of("g")
    assert sum(one.unassigned_ms or 0 for one in rebalances) == seen_ms
    assert sum(len(one.moves) for one in rebalances) == moved


@given(timelines, st.sampled_from((GroupCreated(0, "g", simple=False), GroupDied(0, "g", "deleted"))))
def test_a_new_life_of_a_group_owes_nothing_to_the_one_before(timeline: list[tuple[int, Step]], end: Fact) -> None:
    ledger, now_ms = Ledger(), 0
    for wait_ms, step in timeline:
        now_ms += wait_ms
        ledger.add(as_fact(step, now_ms))
    ledger.add(end)
    ledger.add(RebalanceStarted(now_ms + 10, "g", Cause.NEW_MEMBER, "a", None, 0, []))
    ledger.add(AssignmentStored(now_ms + 20, "g", 1, as_assignments(dict.fromkeys(PARTITIONS, "a"))))
    last = ledger.rebalances_of("g")[-1]
    assert last.unassigned_ms == 0 and {move.old_owner for move in last.moves} == {""}


def test_a_group_that_was_read_back_has_the_owners_of_its_record() -> None:
    ledger = Ledger()
    ledger.add(GroupLoaded(5, "g", "Stable", 3, ["a"], 0, as_assignments({("t", 0): "a"})))
    ledger.add(RebalanceStarted(6, "g", Cause.SESSION_EXPIRED, "a", None, 3, []))
    ledger.add(MemberLeft(7, "g", "a", None, None))
    ledger.add(AssignmentStored(17, "g", 4, as_assignments({("t", 0): "b"})))
    assert ledger.rebalances_of("g")[-1].unassigned_ms == 10
    assert ledger.rebalances_of("g")[-1].moves == [Move(("t", 0), "a", "b", 10)]


@given(timelines)
def test_intervals_say_of_every_moment_what_a_watcher_sees(timeline: list[tuple[int, Step]]) -> None:
    """One owner or none at any time; and an owner that keeps a partition has one interval, not two."""
    watcher, now_ms, told = Watcher(), 1_000, list[Fact]()
    seen: dict[int, dict[Partition, str]] = {}
    for wait_ms, step in timeline:
        held = {one: owner for one, owner in watcher.owner.items() if owner is not None}
        seen.update(dict.fromkeys(range(now_ms, now_ms + wait_ms), held))
        now_ms += wait_ms
        if not watcher.may_see(step):
            continue
        watcher.see(step)
        told.append(as_fact(step, now_ms))
    intervals = intervals_of(told)
    for at_ms, held in seen.items():
        at_once = [
            one for one in intervals if one.began_ms <= at_ms < (now_ms if one.ended_ms is None else one.ended_ms)
        ]
        assert {one.partition: one.owner for one in at_once} == held
        assert len(at_once) == len(held)
    for partition in PARTITIONS:
        mine = [one for one in intervals if one.partition == partition]
        assert not any(
            a.ended_ms == b.began_ms and a.owner == b.owner and a.ended_ms != a.began_ms and _kept(told, a.ended_ms)
            for a, b in pairwise(mine)
        )


def _kept(told: list[Fact], at_ms: int | None) -> bool:
    """Only assignments at that time: nobody gave anything up in between."""
    return all(isinstance(fact, AssignmentStored) for fact in told if fact.at_ms == at_ms) and (
        sum(fact.at_ms == at_ms for fact in told) == 1
    )


def story_in_both_forms(timeline: list[tuple[int, Step]]) -> tuple[list[Fact], list[Fact]]:
    """Return a story with a fact for each rejoin, as release 0.1.0 wrote it, and one in which a phase has them all.

    In the second a rejoin has a fact of its own only if the phase does not list it: see `MemberRejoined`.
    """
    old, new = [], []
    waiting: dict[str, MemberRejoined] = {}
    began_ms = now_ms = 1_000
    generation = 0

    def both(fact: Fact) -> None:
        old.append(fact)
        new.append(fact)

    for wait_ms, step in timeline:
        now_ms += wait_ms
        if isinstance(step, Took):
            continue
        if isinstance(step, Given):
            after = {member: one.at_ms - began_ms for member, one in waiting.items()}
            by_metadata: dict[bytes, list[str]] = {}
            for member, one in waiting.items():
                by_metadata.setdefault(one.metadata, []).append(member)
            waiting = {}
            generation += 1
            start = JoinPhaseCompleted(now_ms, "g", generation, "range", "a", after)
            old.append(start)
            new.append(replace(start, took_ms=now_ms - began_ms, rejoined=list(by_metadata.items())))
            both(as_fact(step, now_ms))
            began_ms = now_ms
            both(RebalanceStarted(now_ms, "g", Cause.NEW_MEMBER, "a", None, generation, []))
            continue
        fact = as_fact(step, now_ms)
        match step:
            case Emptied():
                doomed = list(waiting)
            case Renamed(first, second):
                doomed = [first, second]
            case _:
                doomed = [step.member]
        new += [waiting.pop(member) for member in doomed if member in waiting]
        if isinstance(fact, MemberRejoined):
            old.append(fact)
            waiting[fact.member_id] = fact
        else:
            both(fact)
    return old, new + list(waiting.values())


@given(timelines)
def test_both_forms_of_a_rebalance_are_folded_alike(timeline: list[tuple[int, Step]]) -> None:
    """Owners, gaps, moves and intervals, to the millisecond, also as facts are written and read."""
    old, new = story_in_both_forms(timeline)
    assert intervals_of(new) == intervals_of(old)
    read = [read_fact(write_fact(fact)) for fact in new]
    of_old, of_new = Ledger(), Ledger()
    for each, story in ((of_old, old), (of_new, read)):
        for fact in story:
            assert fact is not None
            each.add(fact)
    assert of_new.rebalances == of_old.rebalances
    books = of_old.book_of("g"), of_new.book_of("g")
    assert books[0] is None or books[1] is None or books[0].ownership == books[1].ownership
