"""Faults of brokers, disks, networks and clients. A row of FAULTS draws each from the seed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.sim.clients import Client
from coterie.sim.disk import DAMAGES
from coterie.sim.machine import Machine
from coterie.sim.schedule import Random
from coterie.sim.steps import CreateTopic, FaultStep, GrowTopic, PlanStep, Undo
from coterie.sim.transactional import Moment, TransactionalProcess
from coterie.sim.world import World
from coterie.structs import replace

BACK_AFTER_MS = 8_000


def _client(world: World, slot: str) -> Client | None:
    return world.consumers.get(slot) or world.producers.get(slot) or world.clients.get(slot)


@dataclass(frozen=True, kw_only=True)
class Ambush(FaultStep):
    waits: bool = False
    """The fault happens during a write to the disk."""

    @abstractmethod
    def strike(self, machine: Machine) -> None: ...

    def repair(self, machine: Machine) -> None:
        machine.power_up()

    def begin(self, world: World) -> Undo:
        machine = world.machine
        is_over = False

        def strike(_about: object = None) -> None:
            if not is_over:
                self.strike(machine)

        def undo() -> None:
            nonlocal is_over
            is_over = True
            self.repair(machine)

        if self.waits:
            machine.ambush(strike)
        else:
            strike()
        return undo


class BrokerKilled(Ambush):
    """kill -9: what was written is there; clients only see that their connections are closed."""

    def strike(self, machine: Machine) -> None:
        machine.kill()


class PowerLost(Ambush):
    """Clients see nothing, and the disk keeps any part of what was not synced."""

    def strike(self, machine: Machine) -> None:
        machine.lose_power()


@dataclass(frozen=True, kw_only=True)
class SwapInterrupted(FaultStep):
    """It dies while a compacted segment replaces others, which takes several steps (`storage/cleanup.py`)."""

    loses_power: bool = False

    def begin(self, world: World) -> Undo:
        machine = world.machine

        def strike() -> None:
            world.schedule.after(BACK_AFTER_MS, lambda _about: machine.power_up(), None)
            if self.loses_power:
                machine.lose_power()
            else:
                machine.kill()

        machine.ambush_swap(strike)

        def undo() -> None:
            machine.ambush_swap(None)
            machine.power_up()

        return undo


class BrokerRestarted(FaultStep):
    def begin(self, world: World) -> Undo:
        machine = world.machine
        machine.stop()
        return machine.start


@dataclass(frozen=True, kw_only=True)
class PowerLostAfterRestart(FaultStep):
    """The power fails after a clean shutdown: was all that the next start trusts durable?"""

    after_ms: int

    def begin(self, world: World) -> Undo:
        machine = world.machine
        is_over = False

        def strike(_about: object) -> None:
            if not is_over:
                machine.lose_power()

        def undo() -> None:
            nonlocal is_over
            is_over = True
            machine.power_up()

        machine.stop()
        machine.start()
        world.schedule.after(self.after_ms, strike, None)
        return undo


@dataclass(frozen=True, kw_only=True)
class DiskDamaged(FaultStep):
    """Durable data is changed while the broker is down. A start or a read must report it with an error;
    then it is repaired (`Machine.report_damage`). If it is neither reported nor repaired, an invariant fails.

    The system's cache survives: after a power cut, damage to what was written since the last checkpoint cannot be
    distinguished from a torn write.
    """

    how: str
    in_order: bool
    """True: the broker was stopped before; False: it was killed."""

    def begin(self, world: World) -> Undo | None:
        machine = world.machine
        if machine.cluster is None:
            return None
        if self.in_order:
            machine.stop()
        else:
            machine.kill()
        world.happened("", f"{self.how} in {' and '.join(machine.disk.damage(self.how))}")
        return machine.start


class BrokerPaused(FaultStep):
    def begin(self, world: World) -> Undo | None:
        machine = world.machine
        if machine.cluster is None or machine.is_paused:
            return None
        machine.pause()
        return machine.resume


@dataclass(frozen=True, kw_only=True)
class WallClockChange(FaultStep):
    """The wall clock of the machine is wrong until this ends."""

    by_ms: int

    def begin(self, world: World) -> Undo:
        machine = world.machine
        # Offsets that are stamped too early look older after a restart; so much may be missing (`Machine.kept_ms`).
        machine.set_wall(max(self.by_ms, -machine.settings.offsets_retention_minutes * 60_000 // 20))
        return lambda: machine.set_wall(0)


class DiskFull(FaultStep):
    def begin(self, world: World) -> Undo:
        disk = world.machine.disk
        disk.is_full = True

        def undo() -> None:
            disk.is_full = False

        return undo


class DiskFails(Ambush):
    """Reads, writes and syncs fail for a while."""

    def strike(self, machine: Machine) -> None:
        machine.disk.is_failing = True

    def repair(self, machine: Machine) -> None:
        machine.disk.is_failing = False


@dataclass(frozen=True, kw_only=True)
class DiskSlow(FaultStep):
    times: int = 100

    def begin(self, world: World) -> Undo:
        machine = world.machine
        machine.slow_disk, machine.was_slow = self.times, True

        return machine.disk_is_fast_again


@dataclass(frozen=True, kw_only=True)
class NodeStops(FaultStep):
    """A clean stop: its partitions and groups move to other nodes, if there are any, and return with it (C4)."""

    node: int

    def begin(self, world: World) -> Undo:
        nodes = world.machine.nodes
        nodes.stop(self.node)
        return lambda: nodes.start(self.node)


class BrokerCutOff(FaultStep):
    def begin(self, world: World) -> Undo:
        name = world.machine.name
        world.network.cut(name)
        return lambda: world.network.repair(name)


@dataclass(frozen=True, kw_only=True)
class OfClient(FaultStep):
    slot: str


class CutOff(OfClient):
    def begin(self, world: World) -> Undo | None:
        client = _client(world, self.slot)
        if client is None:
            return None
        world.network.cut(client.name)
        return lambda: world.network.repair(client.name)


class ConnectionsLost(OfClient):
    def begin(self, world: World) -> None:
        client = _client(world, self.slot)
        for wire in [wire for wire in world.network.wires if wire.client is client]:
            world.network.lose(wire)


class HalfOpen(OfClient):
    """A firewall has dropped its connections: what is sent is lost, and neither side sees an error."""

    def begin(self, world: World) -> None:
        client = _client(world, self.slot)
        for wire in world.network.wires:
            if wire.client is client:
                wire.is_dead = True


class Paused(OfClient):
    def begin(self, world: World) -> Undo | None:
        client = _client(world, self.slot)
        if client is None or client.is_paused:
            return None
        client.pause()
        return client.resume


@dataclass(frozen=True, kw_only=True)
class SlowLink(OfClient):
    by_ms: int = 500

    def begin(self, world: World) -> Undo | None:
        client = _client(world, self.slot)
        if client is None:
            return None
        slow, name = world.network.slow, client.name
        slow[name] = self.by_ms

        def undo() -> None:
            slow.pop(name, None)

        return undo


@dataclass(frozen=True, kw_only=True)
class Crashed(OfClient):
    """A member's process or its host crashes; its supervisor starts another."""

    loses_power: bool = False

    def begin(self, world: World) -> Undo | None:
        consumer = world.consumers.get(self.slot)
        if consumer is None:
            return None
        world.crash(consumer, loses_power=self.loses_power)

        def undo() -> None:
            world.consumer(self.slot, replace(consumer.habits))

        return undo


class Awakened(OfClient):
    """A copy of a member starts when its generation is over, and sends requests."""

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None and consumer.member.has_generation:
            world.zombie(consumer)


@dataclass(frozen=True, kw_only=True)
class DiesInTransaction(OfClient):
    """A process with transactions crashes at a moment of its next one; its supervisor starts another, or does not."""

    moment: Moment
    loses_power: bool = False
    for_good: bool = False

    def begin(self, world: World) -> Undo | None:
        process = world.consumers.get(self.slot)
        if not isinstance(process, TransactionalProcess):
            return None
        process.ambush = self.moment, lambda _about: world.crash(process, loses_power=self.loses_power)

        def undo() -> None:
            process.ambush = None
            if not process.is_alive and not self.for_good:
                world.consumer(self.slot, replace(process.habits))

        return undo


@dataclass(frozen=True, kw_only=True)
class PausedInTransaction(OfClient):
    """A process with transactions pauses at a moment of its next one, and goes on with it when it wakes up.

    Meanwhile another process with the same transactional id may have started, which fences it.
    """

    moment: Moment
    has_successor: bool = False

    def begin(self, world: World) -> Undo | None:
        process = world.consumers.get(self.slot)
        if not isinstance(process, TransactionalProcess):
            return None

        def strike(_about: object) -> None:
            if not process.is_alive or process.is_paused:
                return
            process.pause()
            if self.has_successor and world.consumers.get(self.slot) is process:
                world.displace(self.slot, replace(process.habits))

        def undo() -> None:
            process.ambush = None
            process.resume()

        process.ambush = self.moment, strike
        return undo


_SHORT = (100, 1_000, 5_000)
_LONG = (1_000, 8_000, 30_000, 70_000)
_STEPS = (5_000, 10_800_000, 10**11, -5_000, -10_800_000)

_Draw = Callable[[Random, int, Sequence[str], int], FaultStep]


def _of_client(kind: Callable[..., FaultStep], spans: Sequence[int]) -> _Draw:
    return lambda rng, at_ms, slots, _nodes: kind(at_ms=at_ms, slot=rng.choice(slots), for_ms=_span(rng, spans))


def _of_broker(kind: Callable[..., FaultStep], spans: Sequence[int]) -> _Draw:
    return lambda rng, at_ms, _slots, _nodes: kind(at_ms=at_ms, for_ms=_span(rng, spans))


def _span(rng: Random, spans: Sequence[int]) -> int:
    return int(rng.choice(spans) * rng.uniform(0.5, 1.5))


def _ambush(kind: Callable[..., FaultStep], spans: Sequence[int]) -> _Draw:
    return lambda rng, at_ms, _slots, _nodes: kind(at_ms=at_ms, for_ms=_span(rng, spans), waits=rng.random() < 0.6)


FAULTS: dict[str, _Draw] = {
    "BrokerKilled": _ambush(BrokerKilled, _LONG),
    "PowerLost": _ambush(PowerLost, _LONG),
    "SwapInterrupted": lambda rng, at_ms, _slots, _nodes: SwapInterrupted(
        at_ms=at_ms, for_ms=_span(rng, _LONG[2:]), loses_power=rng.random() < 0.5
    ),
    "BrokerRestarted": _of_broker(BrokerRestarted, _SHORT),
    "PowerLostAfterRestart": lambda rng, at_ms, _slots, _nodes: PowerLostAfterRestart(
        at_ms=at_ms, for_ms=40_000, after_ms=_span(rng, (1_000, 5_000, 20_000))
    ),
    "DiskDamaged": lambda rng, at_ms, _slots, _nodes: DiskDamaged(
        at_ms=at_ms, for_ms=_span(rng, _SHORT), how=rng.choice(DAMAGES), in_order=rng.random() < 0.5
    ),
    "BrokerPaused": _of_broker(BrokerPaused, _LONG),
    "BrokerCutOff": _of_broker(BrokerCutOff, _LONG),
    "NodeStops": lambda rng, at_ms, _slots, nodes: NodeStops(
        at_ms=at_ms, for_ms=_span(rng, _SHORT), node=rng.randint(1, nodes)
    ),
    "DiskFull": _of_broker(DiskFull, _LONG),
    "DiskFails": _ambush(DiskFails, _SHORT),
    "DiskSlow": lambda rng, at_ms, _slots, _nodes: DiskSlow(
        at_ms=at_ms, for_ms=_span(rng, _LONG), times=rng.choice((10, 100, 1_000))
    ),
    "CutOff": _of_client(CutOff, _LONG),
    "ConnectionsLost": _of_client(ConnectionsLost, (1,)),
    "HalfOpen": _of_client(HalfOpen, (1,)),
    "Paused": _of_client(Paused, _LONG),
    "SlowLink": lambda rng, at_ms, slots, _nodes: SlowLink(
        at_ms=at_ms, slot=rng.choice(slots), for_ms=_span(rng, _LONG), by_ms=rng.choice((50, 500, 4_000))
    ),
    "Awakened": _of_client(Awakened, (1,)),
    "Crashed": lambda rng, at_ms, slots, _nodes: Crashed(
        at_ms=at_ms, slot=rng.choice(slots), for_ms=_span(rng, _LONG), loses_power=rng.random() < 0.5
    ),
}


def aimed_faults(rng: Random, steps: Sequence[PlanStep], until_ms: int, *, compacts: bool) -> list[FaultStep]:
    """Return the faults that need the right moment.

    One is a restart while new partitions are empty, then records, then a power failure: the next process may take their
    files for durable. If logs are compacted, another is a crash during a compaction.
    """
    found: list[FaultStep] = []
    if compacts:
        at_ms = rng.randint(until_ms // 5, until_ms // 2)
        found.append(SwapInterrupted(at_ms=at_ms, for_ms=until_ms // 3, loses_power=rng.random() < 0.5))
    for step in steps:
        if isinstance(step, (CreateTopic, GrowTopic)) and rng.random() < 0.5:
            after_ms = rng.randint(20_000, 60_000)
            at_ms = min(step.at_ms + rng.choice((200, 1_000, 3_000)), until_ms)
            found.append(PowerLostAfterRestart(at_ms=at_ms, for_ms=after_ms + 10_000, after_ms=after_ms))
    return found


def clock_faults(rng: Random, until_ms: int) -> list[FaultStep]:
    """The steps of wall clocks: seconds to years, forward and back."""
    return [
        WallClockChange(at_ms=rng.randint(0, until_ms), for_ms=_span(rng, _LONG), by_ms=rng.choice(_STEPS))
        for _ in range(rng.randint(0, 3))
    ]


def draw_fault(rng: Random, at_ms: int, slots: Sequence[str], nodes: int, *, compacts: bool) -> FaultStep:
    """A power cut is the hardest test, and three times as likely as any other fault."""
    names = [name for name in FAULTS if compacts or name != "SwapInterrupted"]
    return FAULTS[rng.choice([*names, "PowerLost", "PowerLost"])](rng, at_ms, slots, nodes)


def transaction_faults(rng: Random, slots: Sequence[str], until_ms: int) -> list[FaultStep]:
    """The faults of processes at the moments of a transaction, for those that have transactions."""
    found: list[FaultStep] = []
    if not slots:
        return found
    for _ in range(rng.randint(4, 8)):
        at_ms, slot, moment = rng.randint(10_000, until_ms), rng.choice(slots), rng.choice(list(Moment))
        for_ms = _span(rng, (30_000, 60_000))
        if rng.random() < 0.5:
            found.append(
                PausedInTransaction(
                    at_ms=at_ms, for_ms=for_ms, slot=slot, moment=moment, has_successor=rng.random() < 0.7
                )
            )
        else:
            found.append(
                DiesInTransaction(
                    at_ms=at_ms,
                    for_ms=for_ms,
                    slot=slot,
                    moment=moment,
                    loses_power=rng.random() < 0.5,
                    for_good=slot != slots[0] and rng.random() < 0.3,
                )
            )
    return found
