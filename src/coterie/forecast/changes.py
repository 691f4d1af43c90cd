"""The changes that a forecast asks about. Each is a script: it does something, and says for how long it waits then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from coterie.errors import CoterieError
from coterie.forecast.record_flow import Surge
from coterie.sim.schedule import Random

if TYPE_CHECKING:
    from coterie.forecast.simulated_group import SimulatedGroup

LOOK_MS = 20
"""How often a script looks whether a process has ended."""
RESTART_JITTER = 0.1
"""The start of a process takes up to this share longer or shorter."""
SECOND = 1_000
BETWEEN_MS = 30_000
"""The time between two changes."""
HOUR_S = 3_600

Script = Iterator[int]
"""The waits of a script, in ms."""


@dataclass(frozen=True)
class Change(ABC):
    @abstractmethod
    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        """Do it in a simulated group."""

    @property
    @abstractmethod
    def described(self) -> str:
        """Return what is done, in a few words."""


@dataclass(frozen=True)
class Nothing(Change):
    """Nothing is done: what does the group cost by itself, with its pauses and its load?"""

    minutes: float = 10.0

    def script(self, group: SimulatedGroup, rng: Random) -> Script:  # noqa: ARG002
        yield round(self.minutes * 60 * SECOND)

    @property
    def described(self) -> str:
        return f"{self.minutes:g} minutes in which nothing is done"


@dataclass(frozen=True)
class Deploy(Change):
    """All members are replaced, some at a time."""

    batch: int = 1
    """The members that are down at the same time."""
    pause_s: float = 10.0
    """The time between the start of a batch and the end of the next."""
    order: str = "listed"
    kills: bool = False
    """The processes are killed: they do not close their consumers."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings that the new processes have, where they differ."""

    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        new = group.model.with_settings(self.settings)
        slots = group.running
        if self.order == "random":
            rng.shuffle(slots)
        elif self.order == "reversed":
            slots.reverse()
        for at in range(0, len(slots), self.batch):
            batch = slots[at : at + self.batch]
            for slot in batch:
                group.stop(slot, kills=self.kills)
            yield from _until_replaced(group, batch, rng, new.restart_s, lambda slot: group.start(slot, new))
            if at + self.batch < len(slots):
                yield round(self.pause_s * SECOND)

    @property
    def described(self) -> str:
        many = "one member" if self.batch == 1 else f"{self.batch} members"
        how = ", killed" if self.kills else ""
        new = f", with {_shown(self.settings)}" if self.settings else ""
        return f"rolling deploy, {many} at a time, {self.pause_s:g} s apart{how}{new}"


def _until_replaced(
    group: SimulatedGroup, slots: Sequence[str], rng: Random, restart_s: float, start: object
) -> Script:
    """Wait until each process has ended, and then for as long as a start takes."""
    assert callable(start)
    due_ms: dict[str, int] = {}
    waiting = list(slots)
    while waiting:
        for slot in list(waiting):
            if slot in group.consumers:
                continue  # it closes
            if slot not in due_ms:
                jitter = rng.uniform(1 - RESTART_JITTER, 1 + RESTART_JITTER)
                due_ms[slot] = group.schedule.now_ms + round(restart_s * jitter * SECOND)
            if group.schedule.now_ms >= due_ms[slot]:
                start(slot)
                waiting.remove(slot)
        if waiting:
            yield LOOK_MS


@dataclass(frozen=True)
class Scale(Change):
    """The group gets more or fewer members."""

    to: int

    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        yield from group.scale(self.to, rng)

    @property
    def described(self) -> str:
        return f"scaled to {self.to} members"


@dataclass(frozen=True)
class Autoscale(Change):
    """An autoscaler sets the number of members by the lag, as KEDA does: ceil(lag / threshold).

    It adds members at once. It removes members if the lag has asked for fewer during the whole cool-down.
    """

    threshold: int
    """The lag, in records, that one member is for."""
    every_s: float = 30.0
    cool_down_s: float = 300.0
    least: int = 1
    most: int = 100
    surge: float = 3.0
    """While the surge lasts, this many times as many records are produced."""
    surge_minutes: float = 5.0
    minutes: float = 20.0

    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        if not group.model.records_per_s:
            raise CoterieError("an autoscaler follows the lag: give the topics records_per_s")
        began_ms = group.schedule.now_ms
        group.flow.surge(Surge(began_ms, began_ms + round(self.surge_minutes * 60 * SECOND), self.surge))
        fewer_since_ms = began_ms
        most_lately = 0
        while group.schedule.now_ms < began_ms + self.minutes * 60 * SECOND:
            lag = sum(records for records, _ in group.flow.lags(group.schedule.now_ms))
            wanted = min(max(ceil(lag / self.threshold), self.least), self.most)
            now_ms, count = group.schedule.now_ms, group.wanted_members
            if wanted >= count:
                fewer_since_ms, most_lately = now_ms, 0
            else:
                most_lately = max(most_lately, wanted)
            if wanted > count:
                group.run_script(group.scale(wanted, rng))
            elif wanted < count and now_ms - fewer_since_ms >= self.cool_down_s * SECOND:
                group.run_script(group.scale(most_lately, rng))
                fewer_since_ms, most_lately = now_ms, 0
            yield round(self.every_s * SECOND)

    @property
    def described(self) -> str:
        return (
            f"autoscaler: ceil(lag / {self.threshold}) members, {self.least} to {self.most}, every {self.every_s:g} s, "
            f"cool-down {self.cool_down_s:g} s; {self.surge:g} times the records for {self.surge_minutes:g} of "
            f"{self.minutes:g} minutes"
        )


@dataclass(frozen=True)
class Crashes(Change):
    """Processes crash at random, and are started again."""

    per_hour: float | None = None
    """The crashes of the whole group per hour; None: there is one crash."""
    hours: float = 0.5
    restarts: bool = True

    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        if self.per_hour is None:
            yield round(rng.uniform(0, 5) * SECOND)  # at any moment between two heartbeats
            self._crash(group, rng)
            yield from _until_read(group)
            return
        end_ms = group.schedule.now_ms + round(self.hours * HOUR_S * SECOND)
        while True:
            wait_ms = round(rng.expovariate(self.per_hour / HOUR_S) * SECOND) if self.per_hour else end_ms
            left_ms = end_ms - group.schedule.now_ms
            if wait_ms >= left_ms:
                yield max(left_ms, 0)
                return
            yield wait_ms
            self._crash(group, rng)

    def _crash(self, group: SimulatedGroup, rng: Random) -> None:
        running = [slot for slot in group.consumers if group.flow.owned(group.consumers[slot].name)]
        if running:
            slot = rng.choice(sorted(running))
            group.stop(slot, kills=True)
            if self.restarts:
                group.run_script(
                    _until_replaced(
                        group, [slot], rng, group.model.restart_s, lambda slot: group.start(slot, group.model)
                    )
                )

    @property
    def described(self) -> str:
        after = "and is started again" if self.restarts else "and stays away"
        if self.per_hour is None:
            return f"one member crashes {after}"
        return f"{self.per_hour:g} crashes per hour for {self.hours:g} hours"


def _until_read(group: SimulatedGroup) -> Script:
    """Wait until all partitions have a running owner, for ten minutes at most."""
    end_ms = group.schedule.now_ms + 600 * SECOND
    while group.schedule.now_ms < end_ms and not group.is_all_read:
        yield LOOK_MS


@dataclass(frozen=True)
class Slow(Change):
    """The processing of one member becomes slow for a while, or stalls once."""

    factor: float = 10.0
    minutes: float = 5.0
    stall_s: float | None = None
    """If it is given: one poll's records take this much longer, and nothing else is slow."""

    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        slot = rng.choice(sorted(group.consumers))
        if not group.model.records_per_s:
            raise CoterieError("a slow member needs records to process: give the topics records_per_s")
        if self.stall_s is not None:
            group.stalls[slot] = self.stall_s * SECOND
            while slot in group.stalls:
                yield LOOK_MS
            yield round(self.stall_s * SECOND)
            return
        group.slowness[slot] = self.factor
        yield round(self.minutes * 60 * SECOND)
        del group.slowness[slot]

    @property
    def described(self) -> str:
        if self.stall_s is not None:
            return f"one member stalls for {self.stall_s:g} s"
        return f"one member is {self.factor:g} times slower for {self.minutes:g} minutes"


@dataclass(frozen=True)
class Grow(Change):
    """A topic gets partitions. The topic has as many records as before."""

    topic: str
    to: int

    def script(self, group: SimulatedGroup, rng: Random) -> Script:  # noqa: ARG002
        topic = group.model.topics.get(self.topic)
        if topic is None or topic.partitions >= self.to:
            has = "there is no such topic" if topic is None else f"it has {topic.partitions}"
            raise CoterieError(f"topic {self.topic} cannot get {self.to} partitions: {has}")
        group.grow(self.topic, self.to)
        yield LOOK_MS
        yield from _until_read(group)

    @property
    def described(self) -> str:
        return f"topic {self.topic} grows to {self.to} partitions"


@dataclass(frozen=True)
class InTurn(Change):
    """Several changes, one after the other."""

    changes: tuple[Change, ...]

    def script(self, group: SimulatedGroup, rng: Random) -> Script:
        for number, change in enumerate(self.changes):
            if number:
                yield from _until_read(group)
                yield BETWEEN_MS
            yield from change.script(group, rng)

    @property
    def described(self) -> str:
        return "; then ".join(one.described for one in self.changes)


def _shown(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
