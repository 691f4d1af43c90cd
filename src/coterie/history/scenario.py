"""The scenario that is run under every design: one consumer joins, one dies, the group's broker stops and starts.

It is a list of actions, the same for all designs. It may end with a rolling restart that brings in a new assignor:
whatever has the assignor in it, members or brokers, is restarted. Faults, if wanted, are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from coterie.assignors import Assignment, Assignor, Member, Range, Topic
from coterie.sim.schedule import Random, Rng

GROUP, TOPIC = "g", "t"
SESSION_MS = 6_000
BROKERS = ("1", "2")
FOLLOWERS = (1, 2)
STREAM = "tale"
"""The name of the random stream. Under another name the same seed draws other faults."""
FIRST_MS, APART_MS = 4_000, 200
PERIOD_MS = 60_000
ROLL_MS, DOWN_MS = 10_000, 1_000
MIN_FAULTS, MAX_FAULTS = 3, 7


class ActionKind(StrEnum):
    JOIN = "comes"
    CRASH = "dies"
    STOP = "stops in order"
    RESTART = "comes back with another strategy"
    STOP_BROKER = "the broker that coordinates goes, for a while"
    PAUSE = "is paused"
    CUT = "is cut off"
    LAG = "of ZooKeeper lags"
    PAUSE_BROKER = "stands still"


class RestartOf(StrEnum):
    """The kind of process that a rolling restart restarts."""

    MEMBERS = "members"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True)
class ScenarioAction:
    at_ms: int
    do: ActionKind
    who: str = ""
    for_ms: int = 0

    def __str__(self) -> str:
        whom = f"{self.who} " if self.who else ""
        lasts = f", {self.for_ms / 1_000:.1f} s" if self.for_ms else ""
        return f"{self.at_ms / 1_000:.1f} s: {whom}{self.do}{lasts}"


@dataclass(frozen=True, slots=True)
class Period:
    name: str
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    members: int
    partitions: int
    periods: Sequence[Period]
    acts: Sequence[ScenarioAction]

    @property
    def length_ms(self) -> int:
        return self.periods[-1].ended_ms

    @property
    def faults(self) -> list[ScenarioAction]:
        return [
            act
            for act in self.acts
            if act.do in {ActionKind.PAUSE, ActionKind.CUT, ActionKind.LAG, ActionKind.PAUSE_BROKER}
        ]


def scenario(
    seed: int, members: int, partitions: int, *, with_faults: bool = False, rolls: RestartOf | None = None
) -> Scenario:
    """Return the scenario of a seed. `rolls` says what is restarted with the new assignor, if anything."""
    slots = [f"c{number}" for number in range(1, members + 1)]
    new, dead = f"c{members + 1}", slots[0]
    acts = [ScenarioAction(FIRST_MS + APART_MS * at, ActionKind.JOIN, slot) for at, slot in enumerate(slots)]
    began_ms = FIRST_MS + APART_MS * members + 2 * PERIOD_MS
    periods: list[Period] = []
    for name, act in (
        ("one joins", ScenarioAction(began_ms, ActionKind.JOIN, new)),
        ("one dies", ScenarioAction(began_ms + PERIOD_MS, ActionKind.CRASH, dead)),
        ("its broker goes", ScenarioAction(began_ms + 2 * PERIOD_MS, ActionKind.STOP_BROKER, for_ms=PERIOD_MS)),
        ("a broker comes", None),
    ):
        first_ms = began_ms + PERIOD_MS * len(periods)
        periods.append(Period(name, first_ms, first_ms + PERIOD_MS))
        acts += [act] if act is not None else []
    there = [*slots[1:], new]
    if rolls is not None:
        first_ms = periods[-1].ended_ms
        who = there if rolls is RestartOf.MEMBERS else [f"b{broker}" for broker in BROKERS]
        for at, one in enumerate(who):
            stops_ms = first_ms + ROLL_MS * at
            acts += [
                ScenarioAction(stops_ms, ActionKind.STOP, one),
                ScenarioAction(stops_ms + DOWN_MS, ActionKind.RESTART, one),
            ]
        periods.append(Period("a new strategy", first_ms, first_ms + ROLL_MS * members + PERIOD_MS))
    if with_faults:
        periods.append(Period("after the faults", periods[-1].ended_ms, periods[-1].ended_ms + PERIOD_MS))
        acts += _faults(Rng(seed).of(STREAM), there, periods)
    return Scenario(seed, members, partitions, periods, sorted(acts, key=lambda act: act.at_ms))


def _faults(rng: Random, slots: Sequence[str], periods: Sequence[Period]) -> list[ScenarioAction]:
    """Draw faults of members that run from begin to end, and leave time for the group to become stable."""
    first_ms, last_ms = periods[0].began_ms, periods[-1].began_ms - 2 * SESSION_MS
    return [_fault(rng, slots, rng.randint(first_ms, last_ms)) for _ in range(rng.randint(MIN_FAULTS, MAX_FAULTS))]


def _fault(rng: Random, slots: Sequence[str], at_ms: int) -> ScenarioAction:
    do = rng.choice((ActionKind.PAUSE, ActionKind.CUT, ActionKind.LAG, ActionKind.PAUSE_BROKER))
    for_ms = int(rng.choice((0.5, 1.5, 2.5)) * SESSION_MS * rng.uniform(0.7, 1.3))
    who = {ActionKind.LAG: f"follower {rng.choice(FOLLOWERS)}", ActionKind.PAUSE_BROKER: f"b{rng.choice(BROKERS)}"}.get(
        do, rng.choice(slots)
    )
    return ScenarioAction(at_ms, do, who, for_ms)


# --- the new assignor -------------------------------------------------------------------------------------------------


class Backwards(Assignor):
    """An assignor that no broker knows: the last member gets what `range` gives to the first."""

    name = "backwards"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        first_to_last = sorted(member.id for member in members)
        given = Range().assign([Member(one.id, one.topics) for one in members], topics)
        return {one: given[other] for one, other in zip(first_to_last, reversed(first_to_last), strict=True)}


class BackwardsCooperative(Backwards):
    """The same in two rebalances, so that members go on reading (KIP-429)."""

    name = "backwards-cooperative"
    cooperative = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Leave out what another member still owns, until it has revoked it."""
        owners = {
            (topic, one): member.id for member in members for topic, owned in member.owned.items() for one in owned
        }
        return {
            member_id: {
                topic: [one for one in ids if owners.get((topic, one), member_id) == member_id]
                for topic, ids in given.items()
            }
            for member_id, given in super().assign(members, topics).items()
        }
