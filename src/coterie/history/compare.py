"""All designs side by side: the same scenario for each, by group size; and many seeds with faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from coterie.history.account import Account, Design
from coterie.history.owning import NOTHING, Shared, Sum
from coterie.history.play_new import play_new
from coterie.history.play_old import play_old
from coterie.history.scenario import Rolled, Scenario, scenario

__all__ = ["Storm", "calm", "play", "split_brain", "storms", "stormy"]

PLAY: Mapping[Design, Callable[[Design, Scenario], Account]] = {
    Design.WATCHERS: play_old,
    Design.SERVER: play_old,
    Design.EAGER: play_new,
    Design.COOPERATIVE: play_new,
}
HAVE_THE_STRATEGY: Mapping[Design, Rolled] = {
    design: Rolled.BROKERS if design is Design.SERVER else Rolled.MEMBERS for design in Design
}
"""Who must be restarted to have another one."""


def play(design: Design, told: Scenario) -> Account:
    return PLAY[design](design, told)


def calm(members: Sequence[int], partitions: int, seed: int) -> Iterator[Account]:
    """Nothing goes wrong but what the scenario says; at last a new strategy comes."""
    for size in members:
        for design in Design:
            yield play(design, scenario(seed, size, partitions, rolls=HAVE_THE_STRATEGY[design]))


def stormy(seed: int, members: int, partitions: int) -> list[Account]:
    """The scenario with the faults of this seed, under each design."""
    told = scenario(seed, members, partitions, with_faults=True)
    return [play(design, told) for design in Design]


@dataclass(slots=True)
class Storm:
    """What many seeds came to, under one design."""

    design: Design
    seeds: int = 0
    split: int = 0
    """Seeds in which a partition had two owners."""
    several: Sum = NOTHING
    believed: Sum = NOTHING
    nobody: Sum = NOTHING
    went_back: int = 0
    came_to_rest: int = 0

    def add(self, one: Account) -> None:
        several = Sum.of(one.several)
        self.seeds += 1
        self.split += bool(several.moments)
        self.several += several
        self.believed += one.believed
        self.nobody += one.nobody
        self.went_back += one.went_back
        self.came_to_rest += one.came_to_rest


def storms(accounts: Iterable[Account]) -> list[Storm]:
    found = {design: Storm(design) for design in Design}
    for one in accounts:
        found[one.design].add(one)
    return list(found.values())


def split_brain(accounts: Iterable[Account]) -> tuple[Account, Shared] | None:
    """The first seed in which a partition had two owners, and the longest such time in it."""
    for one in accounts:
        if one.several:
            return one, max(one.several, key=lambda found: found.ended_ms - found.began_ms)
    return None
