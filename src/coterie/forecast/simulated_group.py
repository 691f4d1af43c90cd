"""The world of one seed: the shipped broker and consumers in virtual time, and records that are counted.

A run settles first: members join, and their heartbeats spread. Then the change is made and costs are counted, until the
group is as it was: all partitions have a running owner, and the lag is as before. It ends after a while at the latest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Any

from coterie.client.member import effects
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.facts import (
    Fact,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberMissedJoin,
    MemberMissedRevocation,
    MemberMissedSync,
    MemberReplaced,
)
from coterie.forecast.changes import Change, Script
from coterie.forecast.costs import WorldCost
from coterie.forecast.group_model import GroupModel, MemberModel
from coterie.forecast.record_flow import PolledRecords, RecordFlow
from coterie.ledger import Interval, Ledger, Rebalance
from coterie.ledger.ownership import Intervals
from coterie.sim.consumer import ConsumerProcess, Habits, User
from coterie.sim.machine import Machine
from coterie.sim.schedule import Random
from coterie.sim.world import Broken, Observer, World

TOPICS_MS = 500
JOIN_MS = 1_000
JOIN_WITHIN_MS = 2_000
SPREAD_MS = 12_000
"""When heartbeats are spread. After a rebalance all members send theirs at the same moment, and each is a little late
each time, so that they are at any moment in a group that has run for long. Here each process pauses once for that."""
MOST_SPREAD_MS = 10_000
RECORDS_MS = 25_000
"""When the first records are produced: the group has settled by then."""
NORMAL_MS = 35_000
"""The lag from then on is what is normal for the group."""
BEGIN_MS = 60_000
"""When the change begins."""
DRIFT_PPM = 500
"""The largest difference in speed between clocks."""
SAMPLE_MS = 1_000
QUIET_MS = 10_000
"""A run ends when the group was as before for this long."""
MOST_AFTER_MS = 900_000
"""A run ends this long after the change at the latest."""
IDLE_MS = 200
"""How long a poll waits if there is little to do."""
NEVER_MS = 30_000
NORMAL_FACTOR, NORMAL_MORE_MS = 1.5, 1_000
"""A lag counts as normal up to this factor, and this many ms, above the worst one before the change."""


@dataclass(frozen=True)
class Question:
    """A group, and the change whose cost is asked for."""

    model: GroupModel
    change: Change
    name: str = "as it is"


class CountingProcess(ConsumerProcess):
    """A consumer's process whose records are counted. It polls, works, commits and closes as a real one."""

    world: SimulatedGroup

    def __init__(self, world: World, name: str, clock: Any, habits: Habits) -> None:
        super().__init__(world, name, clock, habits)
        self.batch: PolledRecords | None = None
        """The records that it works on."""
        self._commits_at_ms = 0

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    @property
    def is_member(self) -> bool:
        """Return whether the coordinator would accept its commit."""
        found = self.world.any_group(self.group_id)
        return found is not None and self.member.member_id in found.members

    def _poll_ms(self) -> int:
        group = self.world
        if not group.model.records_per_s:
            return NEVER_MS
        return 0 if group.flow.backlog(self.name, group.schedule.now_ms) * self.record_ms >= IDLE_MS else IDLE_MS

    @property
    def record_ms(self) -> float:
        return self.world.record_ms(self.slot)

    async def _polled(self, records: Sequence[Any]) -> None:
        assert not records, "records are counted, not sent"
        flow, schedule, habits = self.world.flow, self.world.schedule, self.habits
        if habits.auto_commit and schedule.now_ms >= self._commits_at_ms:
            self._commits_at_ms = schedule.now_ms + habits.auto_commit_interval_ms
            if self.is_member:
                flow.commit(self.name)
        batch = flow.take(self.name, schedule.now_ms, self.record_ms, habits.max_poll_records)
        if not batch.parts:
            return
        self.batch, self.user = batch, User.WORKING
        stall_ms = self.world.stalls.pop(self.slot, 0.0)
        await asyncio.sleep(max(ceil(batch.work_ms + stall_ms), 1) / 1000)
        self.batch, self.user = None, User.AWAY
        flow.processed(batch, schedule.now_ms, is_whole=True)
        if not habits.auto_commit and self.is_member:
            flow.commit(self.name)

    def close(self, within_ms: int = NEVER_MS, *, leave: bool | None = None) -> None:
        """Close the consumer when the batch at hand is processed."""
        if self.user is User.WORKING and self.is_alive and self._closing is None:
            self._closing = (within_ms, leave)
        else:
            super().close(within_ms, leave=leave)

    async def _close(self, within_ms: int, leave: bool | None) -> None:
        """Commit before it leaves: in a rebalance its partitions are lost then, not revoked, as in Java's consumer."""
        if self.is_member:
            self.world.flow.commit(self.name)
        await super()._close(within_ms, leave)


class SimulatedGroup(World):
    def __init__(self, seed: int, model: GroupModel) -> None:
        self.model = model
        self.flow = RecordFlow()
        self.slowness: dict[str, float] = {}
        """The factor by which the processing of a member is slower."""
        self.stalls: dict[str, float] = {}
        """How much longer, in ms, the next records of a member take."""
        self.wanted_members = len(model.members)
        self._places: dict[str, MemberModel] = {one.name: one for one in model.members}
        self._scripts = 0
        delay_ms = int(model.network_ms)
        super().__init__(
            seed,
            [_Costs],
            model.broker_settings(),
            delay_ms=delay_ms,
            jitter_ms=delay_ms + 2,
            drift_ppm=DRIFT_PPM,
        )
        self.costs = next(one for one in self.observers if isinstance(one, _Costs))

    def process_type(self, habits: Habits) -> type[ConsumerProcess]:  # noqa: ARG002
        return CountingProcess

    # --- what a change does

    @property
    def running(self) -> list[str]:
        """Return the running members in the order of the group's file."""
        return [slot for slot in self._places if slot in self.consumers]

    def start(self, slot: str, model: GroupModel) -> None:
        """Start a process, with the settings of that group."""
        self.consumer(slot, model.habits(self._places[slot]))
        if model.pause_every_s:
            self._pause_later(self.consumers[slot])

    def stop(self, slot: str, *, kills: bool = False) -> None:
        consumer = self.consumers.get(slot)
        if consumer is None:
            return
        if kills:
            self.crash(consumer)
        else:
            consumer.close()

    def scale(self, to: int, rng: Random) -> Script:
        """Start or stop members until there are so many; the last ones are stopped first."""
        slots = list(self._places)
        before, self.wanted_members = self.wanted_members, to
        if to < before:
            for slot in slots[to:before]:
                self.stop(slot)
            while any(slot in self.consumers for slot in slots[to:before]) and self.wanted_members == to:
                yield SAMPLE_MS // 10
            return
        for number in range(len(slots), to):
            name = f"new{number}"
            self._places[name] = MemberModel(name, self.model.members[0].topics)
        yield round(self.model.restart_s * 1_000 * rng.uniform(0.9, 1.1))
        for slot in list(self._places)[before:to]:
            while slot in self.consumers and self.wanted_members >= to:  # it still closes
                yield SAMPLE_MS // 10
            if self.wanted_members >= to:
                self.start(slot, self.model)

    def grow(self, topic: str, to: int) -> None:
        one = self.model.topics[topic]
        self.admin.grow_topic(topic, to)
        self.flow.grow(topic, range(one.partitions, to), one.records_per_s, self.schedule.now_ms)

    def record_ms(self, slot: str) -> float:
        return self.model.record_ms(self._places[slot]) * self.slowness.get(slot, 1.0)

    def run_script(self, script: Script) -> None:
        """Run a script besides others."""

        def resume(_about: object = None) -> None:
            wait_ms = next(script, None)
            if wait_ms is None:
                self._scripts -= 1
            else:
                self.schedule.after(wait_ms, resume, None)

        self._scripts += 1
        resume()

    def _pause_later(self, consumer: ConsumerProcess) -> None:
        rng = self.rng.of(f"{consumer.name}/pauses")

        def pause(_about: object) -> None:
            if consumer.is_alive:
                consumer.pause()
                self.schedule.after(round(self.model.pause_s * 1_000), resume, None)

        def resume(_about: object) -> None:
            if consumer.is_alive:
                consumer.resume()
                later()

        def later() -> None:
            self.schedule.after(round(rng.expovariate(1 / self.model.pause_every_s) * 1_000), pause, None)

        later()

    # --- what happens

    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, partitions: Collection[TopicPartition]
    ) -> None:
        super().listened(consumer, kind, partitions)
        named = [(one.topic, one.partition) for one in partitions]
        if kind is effects.Listened.ASSIGNED:
            self.flow.assigned(consumer.name, named, self.schedule.now_ms)
        else:
            is_revoked = kind is effects.Listened.REVOKED
            self.flow.released(consumer.name, named, self.schedule.now_ms, commits=is_revoked)

    def crash(self, consumer: ConsumerProcess, *, loses_power: bool = False) -> None:
        now_ms = self.schedule.now_ms
        if isinstance(consumer, CountingProcess) and consumer.batch is not None and consumer.is_alive:
            self.flow.processed(consumer.batch, now_ms, is_whole=False)
        self.flow.gone(consumer.name, now_ms)
        super().crash(consumer, loses_power=loses_power)

    def closed(self, consumer: ConsumerProcess) -> None:
        self.flow.released(consumer.name, self.flow.owned(consumer.name), self.schedule.now_ms, commits=True)
        super().closed(consumer)

    def fenced(self, consumer: ConsumerProcess) -> None:
        self.flow.gone(consumer.name, self.schedule.now_ms)
        super().fenced(consumer)

    def failed(self, consumer: ConsumerProcess, error: Exception) -> None:
        self.flow.gone(consumer.name, self.schedule.now_ms)
        super().failed(consumer, error)

    @property
    def is_all_read(self) -> bool:
        """Return whether all partitions have a running owner."""
        return all(one.owner is not None for one in self.flow.partitions.values())

    # --- the run

    def settle(self) -> None:
        """Let the group start, and records flow."""
        self.machine.start()
        for name, topic in self.model.topics.items():
            self.schedule.at(TOPICS_MS, lambda about: self.admin.create_topic(*about), (name, topic.partitions))
            self.flow.add(name, range(topic.partitions), topic.records_per_s, RECORDS_MS)
        rng = self.rng.of("joins")
        for member in self.model.members:
            at_ms = JOIN_MS + rng.randrange(JOIN_WITHIN_MS)
            self.schedule.at(at_ms, lambda slot: self.start(slot, self.model), member.name)
        self.schedule.at(SPREAD_MS, self._spread_heartbeats, rng)
        self._run_until(BEGIN_MS)
        if not self.is_all_read:
            raise CoterieError(
                f"the group does not settle within {BEGIN_MS // 1_000} s, before anything is done: "
                f"{self.costs.why_not_settled()}"
            )

    def _spread_heartbeats(self, rng: Random) -> None:
        """Pause each process for one to two heartbeat intervals: it sends a heartbeat when it goes on."""
        found = self.model.consumer_settings()
        beat_ms = found.heartbeat_interval_ms
        if found.group_protocol == "consumer":
            beat_ms = self.machine.settings.group_consumer_heartbeat_interval_ms
        bounds = (MOST_SPREAD_MS, self.model.detection_bound_ms, found.max_poll_interval_ms)
        beat_ms = min(beat_ms, min(bounds) * 2 // 5)  # twice that is within the session
        for consumer in self.consumers.values():
            if not consumer.is_paused:
                consumer.pause()
                self.schedule.after(beat_ms + rng.randrange(beat_ms + 1), lambda one: one.resume(), consumer)

    def make(self, change: Change) -> int:
        """Make the change, and run until the group is as before. Return when the change had ended."""
        self.costs.begin()
        self.flow.counts_from(self.schedule.now_ms)
        self.run_script(change.script(self, self.rng.of("change")))
        while self._scripts:
            self._run_until(self.schedule.now_ms + SAMPLE_MS)
        ended_ms = self.schedule.now_ms
        quiet_ms = 0
        while quiet_ms < QUIET_MS and self.schedule.now_ms < ended_ms + MOST_AFTER_MS:
            self._run_until(self.schedule.now_ms + SAMPLE_MS)
            quiet_ms = quiet_ms + SAMPLE_MS if self.is_all_read and self.costs.is_lag_normal else 0
        self.flow.ended(self.schedule.now_ms)
        return ended_ms

    def _run_until(self, until_ms: int) -> None:
        while self.schedule.now_ms < until_ms:
            self.schedule.run(min(until_ms, self.schedule.now_ms + SAMPLE_MS))
            self.costs.look()

    def end(self) -> None:
        """End all processes, so that their tasks are not left to the garbage collector."""
        for process in [*self.consumers.values(), *self.displaced, self.admin]:
            process.ends()


_REMOVED = (MemberExpired, MemberMissedJoin, MemberMissedSync, MemberMissedRevocation)


class _Costs(Observer):
    """Counts what a change costs."""

    name = "costs"
    world: SimulatedGroup

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ledger = Ledger()
        self.intervals = Intervals()
        self.joins: list[Fact] = []
        """The facts that name members."""
        self.begin_ms = 0
        """The begin of the change by the broker's clock, as in facts."""
        self.lag_s: list[float] = []
        self.most_records = 0.0
        self.normal_ms = 0.0
        self.abnormal_at_ms = 0
        """When the lag was last higher than normal."""
        self.is_lag_normal = True
        self.detections_ms: list[int] = []
        self.evictions = 0
        self._died_ms: dict[str, int] = {}
        self._has_begun = False

    @property
    def _wall_ms(self) -> int:
        return self.world.machine.wall_ms

    def begin(self) -> None:
        self.begin_ms = self._wall_ms
        self._has_begun = True
        self.evictions = 0

    def look(self) -> None:
        """Look at the lag, each second."""
        now_ms = self.world.schedule.now_ms
        lags = list(self.world.flow.lags(now_ms))
        age_ms = max((age for _, age in lags), default=0.0)
        if not self._has_begun:
            if now_ms >= NORMAL_MS:
                self.normal_ms = max(self.normal_ms, age_ms)
            return
        self.is_lag_normal = age_ms <= self.normal_ms * NORMAL_FACTOR + NORMAL_MORE_MS
        if not self.is_lag_normal:
            self.abnormal_at_ms = now_ms
        self.lag_s.append(age_ms / 1_000)
        self.most_records = max(self.most_records, sum(records for records, _ in lags))

    def went(self, consumer: ConsumerProcess, how: str) -> None:
        if how == "crashed":
            self._died_ms[consumer.member.member_id] = self._wall_ms

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        self.ledger.add(fact)
        self.intervals.add(fact)
        if isinstance(fact, MemberJoined | MemberReplaced):
            self.joins.append(fact)
        if not self._has_begun:
            return
        if isinstance(fact, MemberExpired) and fact.member_id in self._died_ms:
            self.detections_ms.append(fact.at_ms - self._died_ms[fact.member_id])
        elif isinstance(fact, (*_REMOVED, MemberLeft)):
            self.evictions += self._is_running(fact.member_id)

    def _is_running(self, member_id: str) -> bool:
        """Return whether the process of a member runs. A member that has left has forgotten its id; its join tells."""
        names = {one.member_id: one.client_id for one in self.joins if isinstance(one, MemberJoined)}
        return any(
            isinstance(one, CountingProcess) and one.name == names.get(member_id) and not one.is_closing
            for one in self.world.consumers.values()
        )

    def rebalances(self) -> list[Rebalance]:
        """Return the rebalances since the begin of the change."""
        return [one for one in self.ledger.rebalances_of(self.world.model.group_id) if one.began_ms >= self.begin_ms]

    def why_not_settled(self) -> str:
        errors = [error for one in self.world.consumers.values() for error in one.errors]
        if errors:
            return str(errors[-1])
        free = sum(one.owner is None for one in self.world.flow.partitions.values())
        return f"{free} of {len(self.world.flow.partitions)} partitions have no owner"

    def cost(self, ended_ms: int) -> WorldCost:
        world, rebalances = self.world, self.rebalances()
        totals = world.flow.totals
        has_records = bool(world.model.records_per_s)
        took = [one.took_ms for one in rebalances if one.took_ms is not None]
        catch_up_ms: float = max(self.abnormal_at_ms - ended_ms, 0)
        if not self.is_lag_normal:
            catch_up_ms = inf
        return WorldCost(
            world.seed,
            len(rebalances),
            round(sum(one.unassigned_ms or 0 for one in rebalances) / 1_000, 3),
            round(totals.unread_ms / 1_000, 3),
            round(totals.delayed) if has_records else None,
            round(max(self.lag_s, default=0.0), 3) if has_records else None,
            round(self.most_records) if has_records else None,
            catch_up_ms / 1_000 if has_records else None,
            round(totals.duplicates) if has_records else None,
            round((ended_ms - BEGIN_MS) / 1_000, 3),
            max(self.detections_ms) / 1_000 if self.detections_ms else None,
            max(took) / 1_000 if took else None,
            self.evictions,
            world.is_all_read,
            [round(one, 2) for one in self.lag_s] if has_records else [],
        )


@dataclass(frozen=True)
class SimulatedOwners:
    """The owner of each partition over time in one world, for a picture."""

    intervals: Sequence[Interval]
    rebalances: Sequence[Rebalance]
    joins: Sequence[Fact]
    """The facts that name members."""


def simulate_group(question: Question, seed: int) -> WorldCost:
    """Run the world of one seed, and return what the change costs in it."""
    return _simulated(question, seed).cost


def simulate_owners(question: Question, seed: int) -> SimulatedOwners:
    """Run the world of one seed, and return who owned what from shortly before the change on."""
    return _simulated(question, seed).owners


@dataclass(frozen=True)
class _Simulated:
    cost: WorldCost
    owners: SimulatedOwners


def _simulated(question: Question, seed: int) -> _Simulated:
    group = SimulatedGroup(seed, question.model)
    try:
        group.settle()
        cost = group.costs.cost(group.make(question.change))
        first_ms = group.costs.begin_ms - NEVER_MS // 3
        owners = SimulatedOwners(list(_clipped(group, first_ms)), group.costs.rebalances(), group.costs.joins)
        return _Simulated(cost, owners)
    except Broken as error:
        raise CoterieError(f"seed {seed} of {question.name!r} ended early: {error}") from None
    finally:
        group.end()


def _clipped(group: SimulatedGroup, first_ms: int) -> Iterator[Interval]:
    """Return the intervals of the group that end after a time, cut at that time."""
    for one in group.costs.intervals.all:
        if one.ended_ms is None or one.ended_ms > first_ms:
            yield Interval(one.group_id, one.partition, one.owner, max(one.began_ms, first_ms), one.ended_ms)
