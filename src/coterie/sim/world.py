"""A world: virtual time, a network, a machine with a broker, clients; and those who watch.

Everything that happens passes through here once, by name, and is handed to each observer that wants to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from coterie.broker.broker_facts import Trouble
from coterie.client.member import effects
from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.types import TopicPartition
from coterie.coordinator.classic import Group
from coterie.coordinator.consumer import ConsumerGroup
from coterie.facts import Fact, GroupLoaded, JoinPhaseCompleted, TargetAssignmentComputed
from coterie.protocol.apis import by_key, consumer_group_heartbeat
from coterie.protocol.messages import OffsetCommit
from coterie.settings.broker_settings import BrokerSettings
from coterie.sim.clients import AdminProcess, Client, Committer, ProducerProcess, Zombie
from coterie.sim.consumer import ConsumerProcess, Habits
from coterie.sim.machine import Machine
from coterie.sim.network import VirtualNetwork, VirtualWire
from coterie.sim.schedule import HostClock, Rng, Schedule
from coterie.sim.transactional import CommittedReader, SimTransaction, TransactionalProcess
from coterie.storage import PartitionLog
from coterie.structs import replace

if TYPE_CHECKING:
    from coterie.sim.clients import Asked
    from coterie.sim.machine import BrokerLink


class Broken(BaseException):
    """An invariant does not hold. This is no Exception, so that the shipped code does not catch it."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name
        self.what = what


class Observer:
    """The base of invariants and of others that watch a run. Only the hooks that a class defines are called."""

    name = "observer"
    requests: Collection[int] | None = None
    """The keys of the APIs whose requests `request_arrived` is called for; None: of all."""
    answers: Collection[int] | None = None
    """The same for `answered`."""

    def __init__(self, world: World) -> None:
        self.world = world

    def fails(self, what: str) -> None:
        self.world.fails(self.name, what)

    def missing(self) -> str:
        """Describe what is not settled yet when all faults are repaired; the run waits for it."""
        return ""

    # the wire
    def request_arrived(self, machine: Machine, link: BrokerLink, frame: bytes) -> None: ...
    def bytes_arrived(self, client: Client, data: bytes) -> None: ...
    def answered(self, client: Client, asked: Asked, answer: Any) -> None: ...
    def timed_out(self, client: Client, api: str) -> None: ...
    # the broker
    def on_fact(self, machine: Machine, fact: Fact) -> None: ...
    def broker_began(self, machine: Machine) -> None: ...
    def broker_ended(self, machine: Machine) -> None: ...
    # consumers and producers
    def came(self, consumer: ConsumerProcess) -> None: ...
    def went(self, consumer: ConsumerProcess, how: str) -> None: ...
    def ownership_changed(self, consumer: ConsumerProcess) -> None: ...
    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, partitions: Collection[TopicPartition]
    ) -> None: ...
    def held(self, consumer: ConsumerProcess, partitions: Collection[TopicPartition]) -> None: ...
    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None: ...
    def commit_sent(self, client: Client, request: OffsetCommit) -> None: ...
    def heartbeat_sent(self, client: Client, request: consumer_group_heartbeat.Request) -> None: ...
    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None: ...
    def processed(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None: ...
    def acknowledged(self, where: TopicPartition, offset: int, value: bytes) -> None: ...
    def rewound(self, consumer: ConsumerProcess) -> None: ...
    # transactions
    def initialized(self, process: TransactionalProcess, identity: ProducerIdAndEpoch) -> None: ...
    def transaction_changed(self, process: TransactionalProcess, transaction: SimTransaction) -> None: ...
    def read_committed(self, reader: CommittedReader, records: Sequence[Any]) -> None: ...
    # the run
    def happened(self, who: str, what: str) -> None: ...
    def healed(self) -> None: ...
    def sample(self) -> None: ...
    def ended(self) -> None: ...


HOOKS = tuple(
    name
    for name, value in vars(Observer).items()
    if callable(value) and not name.startswith("_") and name not in {"fails", "missing"}
)


EPOCH_MS = 1_700_000_000_000
SOON_MS = 60
RESTART_MS = 5_000


class World:
    def __init__(
        self,
        seed: int,
        observers: Sequence[Callable[[World], Observer]],
        settings: Mapping[str, object],
        *,
        delay_ms: int = 0,
        jitter_ms: int = 3,
        skew_ms: int = 0,
        drift_ppm: int = 0,
        disk_ms: int = 2,
        nodes: int = 1,
    ) -> None:
        """The number of nodes of the broker, which runs on one machine."""
        self.seed = seed
        self.broken: Broken | None = None
        """The invariant that failed. It is stored here, since asyncio would catch the exception."""
        self.disk_ms = disk_ms
        self.rng = Rng(seed)
        self.schedule = Schedule()
        self.network = VirtualNetwork(self, delay_ms=delay_ms, jitter_ms=jitter_ms)
        self._clock_rng = self.rng.of("clocks")
        self._skew_ms, self._drift_ppm = skew_ms, drift_ppm
        self._began_ms = EPOCH_MS + self._clock_rng.randrange(10**9)
        self.machine = Machine(self, BrokerSettings.of(settings), self._clock("b1"), nodes)
        self.consumers: dict[str, ConsumerProcess] = {}
        """The running processes by name. A name may be used again by another process."""
        self.displaced: list[ConsumerProcess] = []
        """Running processes whose slot another process has."""
        self.restarting: dict[str, Habits] = {}
        """Processes that failed and are about to be started again, by name."""
        self.consumer_protocol_groups: set[str] = set()
        """The groups that have had a member with group.protocol=consumer."""
        self.producers: dict[str, ProducerProcess] = {}
        self.clients: dict[str, Client] = {}
        """The other clients."""
        self.admin = AdminProcess(self, "admin", self._clock("admin"))
        self._lives: dict[str, int] = {}
        self._awaited: dict[str, list[Callable[[object], None]]] = {}
        self._loaded_ms: dict[str, int] = {}
        self._moment_rng = self.rng.of("moments")
        self.observers = [make(self) for make in observers]
        self._on = {
            hook: [
                getattr(one, hook) for one in self.observers if getattr(type(one), hook) is not getattr(Observer, hook)
            ]
            for hook in HOOKS
        }
        self.on_arrived, self.on_answered = (
            tuple(self._hooks_of(hook, key) for key in range(max(by_key) + 1))
            for hook in ("request_arrived", "answered")
        )
        """The hooks that are called for every packet, by the key of its API."""
        self.on_bytes = self._on["bytes_arrived"]

    def _hooks_of(self, hook: str, key: int) -> Sequence[Callable[..., None]]:
        """Return the hooks that want to know of this API."""
        about = {"request_arrived": "requests", "answered": "answers"}[hook]
        found = []
        for hears in self._on[hook]:
            wanted = getattr(hears.__self__, about)
            if wanted is None or key in wanted:
                found.append(hears)
        return found

    def _clock(self, name: str) -> HostClock:
        rng = self.rng.of(f"clock/{name}")
        skew_ms, ppm = self._skew_ms, self._drift_ppm
        return HostClock(
            self._began_ms + (rng.randint(-skew_ms, skew_ms) if skew_ms else 0), rng.randint(-ppm, ppm) if ppm else 0
        )

    # --- who is there -------------------------------------------------------------------------------------------------

    def consumer(self, name: str, habits: Habits) -> ConsumerProcess | None:
        """Start a process of that name, unless it runs already."""
        if name in self.consumers:
            return None
        self.restarting.pop(name, None)
        if habits.is_consumer_protocol:
            self.consumer_protocol_groups.add(habits.group_id)
        life = self._lives[name] = self._lives.get(name, 0) + 1
        consumer = self.process_type(habits)(self, name if life == 1 else f"{name}.{life}", self._clock(name), habits)
        consumer.slot = name
        self.consumers[name] = consumer
        self._each("came", consumer)
        consumer.begin()
        return consumer

    def process_type(self, habits: Habits) -> type[ConsumerProcess]:
        """Return the class of the process that a consumer with these habits has."""
        return ConsumerProcess if habits.transactional_id is None else TransactionalProcess

    def displace(self, name: str, habits: Habits) -> None:
        """Start another process of that name beside the one that runs."""
        if name in self.consumers:
            self.displaced.append(self.consumers.pop(name))
        self.consumer(name, habits)

    def crash(self, consumer: ConsumerProcess, *, loses_power: bool = False) -> None:
        if consumer.is_alive:
            consumer.ends(loses_power=loses_power)
            self._gone(consumer, "crashed")

    def closed(self, consumer: ConsumerProcess) -> None:
        self._gone(consumer, "closed")

    def fenced(self, consumer: ConsumerProcess) -> None:
        """End a process whose slot another one has; its supervisor does not restart it."""
        consumer.ends()
        self._gone(consumer, "was fenced")

    def failed(self, consumer: ConsumerProcess, error: Exception) -> None:
        """End a process whose poll raises an error for good. Its supervisor restarts it, if it has its slot."""
        if not consumer.is_alive:
            return
        slot = consumer.slot
        if self.consumers.get(slot) is consumer:
            self.restarting[slot] = habits = replace(consumer.habits)

            def restart(_about: object) -> None:
                if self.restarting.get(slot) is habits:
                    self.consumer(slot, habits)

            self.schedule.after(RESTART_MS, restart, None)
        consumer.ends()
        self._gone(consumer, f"failed: {error}")

    def _gone(self, consumer: ConsumerProcess, how: str) -> None:
        if self.consumers.get(consumer.slot) is consumer:
            del self.consumers[consumer.slot]
        else:
            self.displaced.remove(consumer)
        self._each("went", consumer, how)

    def producer(self, name: str, topics: Sequence[str], every_ms: int) -> ProducerProcess:
        producer = self.producers[name] = ProducerProcess(self, name, self._clock(name), topics, every_ms)
        producer.begin()
        return producer

    def committer(self, group_id: str, topic: str, partitions: int, every_ms: int) -> None:
        name = f"{group_id}-committer"
        committer = Committer(self, name, self._clock(name), group_id, topic, partitions, every_ms)
        self.clients[name] = committer
        committer.begin()

    def reader(self, name: str, topics: Sequence[tuple[str, int]]) -> None:
        """Start a reader of committed records."""
        reader = self.clients[name] = CommittedReader(self, name, self._clock(name), topics)
        reader.begin()

    def zombie(self, of: ConsumerProcess) -> None:
        """Copy a member; the copy starts when the group has another generation."""
        name = f"{of.name}-zombie{len(self.clients)}"
        zombie = self.clients[name] = Zombie(self, name, self._clock(name), of)
        self.when_joined(of.group_id, zombie.awakes)

    def forget(self, client: Client) -> None:
        client.later(0, lambda _: client.ends(), None)
        self.clients.pop(client.name, None)

    @property
    def processes(self) -> list[Client]:
        """The clients that have not ended."""
        return [
            *self.consumers.values(),
            *self.displaced,
            *self.producers.values(),
            *self.clients.values(),
            self.admin,
        ]

    def shut_down(self) -> None:
        """End all clients when the run is over. A task that is left to the garbage collector cannot wait any more."""
        for client in self.processes:
            client.is_alive = False
            client.loop.end()

    def any_group(self, group_id: str) -> Group | ConsumerGroup | None:
        """The group as its coordinator has it; None without a coordinator."""
        for _, _, shard in self.machine.shards():
            group = shard.groups.get(group_id)
            if group is not None:
                return group
        return None

    def group(self, group_id: str) -> Group | None:
        """The group, if it is a classic one."""
        group = self.any_group(group_id)
        return group if isinstance(group, Group) else None

    def consumer_group(self, group_id: str) -> ConsumerGroup | None:
        """The group, if it is a consumer group."""
        group = self.any_group(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def may_not_know(self, group_id: str, sent_ms: int) -> bool:
        """The coordinator was perhaps loading the group then: until it is loaded, every heartbeat succeeds (C3)."""
        return self.group(group_id) is None or sent_ms <= self._loaded_ms.get(group_id, -1)

    def log(self, where: TopicPartition) -> PartitionLog | None:
        """The log of a partition."""
        return self.machine.cluster.directory.logs.get(where) if self.machine.cluster is not None else None

    # --- what happens -------------------------------------------------------------------------------------------------

    def _each(self, hook: str, *about: Any) -> None:
        for hears in self._on[hook]:
            hears(*about)

    def fails(self, name: str, what: str) -> NoReturn:
        self.broken = self.broken or Broken(name, what)
        raise self.broken

    def timed_out(self, client: Client, api: str) -> None:
        if client.is_alive:
            self._each("timed_out", client, api)

    def dropped(self, machine: Machine, wire: VirtualWire, why: str) -> None:
        self._each("happened", machine.name, f"closes the connection of {wire.client.name}: {why}")

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        self._each("on_fact", machine, fact)
        if type(fact) is Trouble:
            machine.report_damage(fact.what)
        elif type(fact) is GroupLoaded:
            self._loaded_ms[fact.group_id] = self.schedule.now_ms
        elif isinstance(fact, (JoinPhaseCompleted, TargetAssignmentComputed)) and fact.group_id in self._awaited:
            for act in self._awaited.pop(fact.group_id):
                self.schedule.after(int(self._moment_rng.random() * SOON_MS), act, None)

    def when_joined(self, group_id: str, act: Callable[[object], None]) -> None:
        """Call it soon after the next join phase or target of that group, while assignments are in flight."""
        self._awaited.setdefault(group_id, []).append(act)

    def broker_began(self, machine: Machine) -> None:
        self._each("broker_began", machine)

    def broker_ended(self, machine: Machine) -> None:
        self._each("broker_ended", machine)

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        self._each("ownership_changed", consumer)

    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, partitions: Collection[TopicPartition]
    ) -> None:
        if consumer.is_alive:
            self._each("listened", consumer, kind, partitions)

    def held(self, consumer: ConsumerProcess, partitions: Collection[TopicPartition]) -> None:
        self._each("held", consumer, partitions)

    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None:
        self._each("assigned", consumer, effect)

    def commit_sent(self, client: Client, request: OffsetCommit) -> None:
        self._each("commit_sent", client, request)

    def heartbeat_sent(self, client: Client, request: consumer_group_heartbeat.Request) -> None:
        self._each("heartbeat_sent", client, request)

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        if consumer.is_alive:
            self._each("took", consumer, records)

    def processed(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        if consumer.is_alive:
            self._each("processed", consumer, records)

    def read_failed(self, consumer: ConsumerProcess, error: Exception) -> None:
        self._each("happened", consumer.name, f"poll raises: {error}")

    def acknowledged(self, where: TopicPartition, offset: int, value: bytes) -> None:
        self._each("acknowledged", where, offset, value)

    def rewound(self, consumer: ConsumerProcess) -> None:
        """It goes back to the committed offsets."""
        self._each("rewound", consumer)

    def initialized(self, process: TransactionalProcess, identity: ProducerIdAndEpoch) -> None:
        if process.is_alive:
            self._each("happened", process.name, f"has producer id {identity.producer_id}, epoch {identity.epoch}")
            self._each("initialized", process, identity)

    def transaction_changed(self, process: TransactionalProcess, transaction: SimTransaction) -> None:
        if process.is_alive:
            self._each("happened", process.name, f"{transaction.name} {transaction.stage.name.lower()}")
            self._each("transaction_changed", process, transaction)

    def read_committed(self, reader: CommittedReader, records: Sequence[Any]) -> None:
        if reader.is_alive:
            self._each("read_committed", reader, records)

    def happened(self, who: str, what: str) -> None:
        self._each("happened", who, what)

    def healed(self) -> None:
        """All faults are repaired, and no new ones come."""
        for client in self.clients.values():
            if isinstance(client, CommittedReader):
                client.behave()
        self._each("healed")

    def sample(self) -> None:
        self._each("sample")

    def ended(self) -> None:
        self._each("ended")
