"""The story that every design is told: n consumers; one joins, one dies, the group's broker goes and comes again.

It is a list of acts, the same for all. With a strategy to come, everything that has the strategy in it is restarted
with another one, one after the other. With faults, they are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from coterie.history.model_world import SESSION_MS
from coterie.sim.rng import Random, Rng

__all__ = ["BROKERS", "FOLLOWERS", "Act", "Chapter", "Do", "Rolled", "Scenario", "scenario"]

BROKERS = ("1", "2")
FOLLOWERS = (1, 2)
STREAM = "tale"
"""The name of the random stream. Under another name the same seed draws other faults."""
FIRST_MS, APART_MS = 4_000, 200
CHAPTER_MS = 60_000
ROLL_MS, DOWN_MS = 10_000, 1_000
LEAST_FAULTS, MOST_FAULTS = 3, 7


class Do(StrEnum):
    COME = "comes"
    DIE = "dies"
    STOP = "stops in order"
    RENEW = "comes back with another strategy"
    BROKER_GOES = "the broker that coordinates goes, for a while"
    PAUSE = "is paused"
    CUT = "is cut off"
    LAG = "of ZooKeeper lags"
    PAUSE_BROKER = "stands still"


class Rolled(StrEnum):
    """Who is restarted, one after the other."""

    MEMBERS = "members"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True)
class Act:
    at_ms: int
    do: Do
    who: str = ""
    for_ms: int = 0

    def __str__(self) -> str:
        whom = f"{self.who} " if self.who else ""
        lasts = f", {self.for_ms / 1_000:.1f} s" if self.for_ms else ""
        return f"{self.at_ms / 1_000:.1f} s: {whom}{self.do}{lasts}"


@dataclass(frozen=True, slots=True)
class Chapter:
    name: str
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    members: int
    partitions: int
    chapters: Sequence[Chapter]
    acts: Sequence[Act]

    @property
    def length_ms(self) -> int:
        return self.chapters[-1].ended_ms

    @property
    def faults(self) -> list[Act]:
        return [act for act in self.acts if act.do in {Do.PAUSE, Do.CUT, Do.LAG, Do.PAUSE_BROKER}]


def scenario(
    seed: int, members: int, partitions: int, *, with_faults: bool = False, rolls: Rolled | None = None
) -> Scenario:
    """`rolls`: who is restarted with a new strategy, if anybody is."""
    slots = [f"c{number}" for number in range(1, members + 1)]
    new, dead = f"c{members + 1}", slots[0]
    acts = [Act(FIRST_MS + APART_MS * at, Do.COME, slot) for at, slot in enumerate(slots)]
    began_ms = FIRST_MS + APART_MS * members + 2 * CHAPTER_MS
    chapters: list[Chapter] = []
    for name, act in (
        ("one joins", Act(began_ms, Do.COME, new)),
        ("one dies", Act(began_ms + CHAPTER_MS, Do.DIE, dead)),
        ("its broker goes", Act(began_ms + 2 * CHAPTER_MS, Do.BROKER_GOES, for_ms=CHAPTER_MS)),
        ("a broker comes", None),
    ):
        first_ms = began_ms + CHAPTER_MS * len(chapters)
        chapters.append(Chapter(name, first_ms, first_ms + CHAPTER_MS))
        acts += [act] if act is not None else []
    there = [*slots[1:], new]
    if rolls is not None:
        first_ms = chapters[-1].ended_ms
        who = there if rolls is Rolled.MEMBERS else [f"b{broker}" for broker in BROKERS]
        for at, one in enumerate(who):
            stops_ms = first_ms + ROLL_MS * at
            acts += [Act(stops_ms, Do.STOP, one), Act(stops_ms + DOWN_MS, Do.RENEW, one)]
        chapters.append(Chapter("a new strategy", first_ms, first_ms + ROLL_MS * members + CHAPTER_MS))
    if with_faults:
        chapters.append(Chapter("after the faults", chapters[-1].ended_ms, chapters[-1].ended_ms + CHAPTER_MS))
        acts += _faults(Rng(seed).of(STREAM), there, chapters)
    return Scenario(seed, members, partitions, chapters, sorted(acts, key=lambda act: act.at_ms))


def _faults(rng: Random, slots: Sequence[str], chapters: Sequence[Chapter]) -> list[Act]:
    """Of those that are there from beginning to end; at last there is time to come to rest."""
    first_ms, last_ms = chapters[0].began_ms, chapters[-1].began_ms - 2 * SESSION_MS
    return [_fault(rng, slots, rng.randint(first_ms, last_ms)) for _ in range(rng.randint(LEAST_FAULTS, MOST_FAULTS))]


def _fault(rng: Random, slots: Sequence[str], at_ms: int) -> Act:
    do = rng.choice((Do.PAUSE, Do.CUT, Do.LAG, Do.PAUSE_BROKER))
    for_ms = int(rng.choice((0.5, 1.5, 2.5)) * SESSION_MS * rng.uniform(0.7, 1.3))
    who = {Do.LAG: f"follower {rng.choice(FOLLOWERS)}", Do.PAUSE_BROKER: f"b{rng.choice(BROKERS)}"}.get(
        do, rng.choice(slots)
    )
    return Act(at_ms, do, who, for_ms)
