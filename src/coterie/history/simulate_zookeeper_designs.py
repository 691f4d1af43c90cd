"""Run a scenario under design 1 or 2 on virtual time, on a model of ZooKeeper whose followers lag.

`ZooKeeperWorld` does for the machines what `drivers.py` does on real time. No records are read: a process only keeps
its positions. `simulate_zookeeper_design` performs the actions of a scenario in it, and records who owns what.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from coterie.assignors import Assignor, Range, Topic
from coterie.history.design_costs import Design, DesignRun, OwnershipTimeline
from coterie.history.design_types import (
    CommitDue,
    Connect,
    Connected,
    DesignMachine,
    Disconnected,
    DisconnectMember,
    MessageReceived,
    Partition,
    Paths,
    SendMessage,
    SetTimer,
    StartReading,
    Stopped,
    StopReading,
    TimerFired,
    ZkRequest,
    read_assignment,
    read_offset,
)
from coterie.history.scenario import (
    BROKERS,
    FOLLOWERS,
    GROUP,
    SESSION_MS,
    TOPIC,
    ActionKind,
    Backwards,
    Scenario,
    ScenarioAction,
)
from coterie.history.server_side_coordinator import RegisteredBroker
from coterie.history.server_side_member import CommitRequest, ServerSideMember
from coterie.history.zookeeper_model import DataSet, Ensemble, SessionClosed, Transaction
from coterie.history.zookeeper_watchers import WatchingConsumer, WatchingSettings
from coterie.sim.schedule import Rng, Schedule

CONNECTION_MS = 1
RECORD_MS = 100
"""The interval of records in every partition."""


class SimulatedProcess:
    """A machine, its session, and for a member its connection to a coordinator."""

    def __init__(self, world: ZooKeeperWorld, name: str, machine: DesignMachine) -> None:
        self.name = name
        self.machine: Any = machine
        self.positions: dict[Partition, int] = {}
        self.events: list[Any] = []
        self.zookeeper = world.ensemble.client(name, self.deliver)
        self.peer: SimulatedProcess | None = None
        """The broker a member is connected to."""
        self.is_paused = self.is_cut = False
        self._world = world
        self._held: deque[Callable[[], None]] = deque()
        self._timers: dict[str, int] = {}
        self._perform: Mapping[type, Callable[[Any], None]] = {
            ZkRequest: self.zookeeper.send,
            SetTimer: self._set_timer,
            StartReading: self._start,
            StopReading: self._stop,
            Connect: self._connect,
            SendMessage: self._send,
            DisconnectMember: lambda effect: world.disconnect(world.processes[effect.to]),
        }

    @property
    def is_alive(self) -> bool:
        return self.zookeeper.is_alive

    def deliver(self, event: Any) -> None:
        if self.is_paused:
            self._held.append(lambda: self.deliver(event))
            return
        self.events.append(event)
        for effect in self.machine.handle(event, self._world.schedule.now_ms):
            self._perform[type(effect)](effect)
        self._world.on_change(self)

    # --- faults -------------------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the process: events wait, and its session is not kept alive."""
        if not self.is_paused:
            self.is_paused = True
            self.zookeeper.cut()
            self._world.on_change(self)

    def resume(self) -> None:
        if self.is_paused:
            self.is_paused = False
            self._let_through()
            self.zookeeper.repair()
            self._world.on_change(self)

    def cut(self) -> None:
        """Cut it off from ZooKeeper and its coordinator. It goes on reading records."""
        if not self.is_cut:
            self.is_cut = True
            self.zookeeper.cut()

    def repair(self) -> None:
        if self.is_cut:
            self.is_cut = False
            self._let_through()
            self.zookeeper.repair()

    def _let_through(self) -> None:
        held, self._held = self._held, deque()
        for act in held:
            act()

    def receive(self, event: Any, sender: SimulatedProcess) -> None:
        """Take an event from the connection between a member and its coordinator."""
        away = next((one for one in (self, sender) if one.is_cut), None)
        if away is not None:
            away._held.append(lambda: self.receive(event, sender))  # noqa: SLF001  the same class
        elif self.is_alive:
            self.deliver(event)

    # --- effects ------------------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[Partition, int] | None = None) -> None:
        """Commit these positions, or else what would have been read by now."""
        if self.is_paused or not self.is_alive or not (positions or self.positions):
            return
        so_far = self._world.schedule.now_ms // RECORD_MS
        self.positions = {**dict.fromkeys(self.positions, so_far), **(positions or {})}
        self.deliver(CommitDue(dict(positions or self.positions)))

    def _set_timer(self, effect: SetTimer) -> None:
        self._timers[effect.key] = effect.at_ms
        self._world.schedule.at(effect.at_ms, self._timer_due, (effect.key, effect.at_ms))

    def _timer_due(self, about: tuple[str, int]) -> None:
        if self.is_alive and self._timers.get(about[0]) == about[1]:
            self.deliver(TimerFired(about[0]))

    def _start(self, effect: StartReading) -> None:
        self.positions = dict(effect.offsets)

    def _stop(self, _effect: StopReading) -> None:
        positions, self.positions = self.positions, {}
        self._world.schedule.after(CONNECTION_MS, self.deliver, Stopped(positions))

    def _connect(self, effect: Connect) -> None:
        found = self._world.processes.get(effect.address)
        self.peer = found if found is not None and found.is_alive else None
        answer = Connected() if self.peer is not None else Disconnected()
        self._world.schedule.after(CONNECTION_MS, lambda event: self.receive(event, found or self), answer)

    def _send(self, effect: SendMessage) -> None:
        """A broker names the member it sends to; a member has only its coordinator."""
        to = self._world.processes[effect.to] if effect.to else self.peer
        if not isinstance(effect.message, CommitRequest):
            self._world.messages += 1
        if to is not None and (not effect.to or to.peer is self):
            heard = MessageReceived(effect.message, "" if effect.to else self.name)
            self._world.schedule.after(CONNECTION_MS, lambda event: to.receive(event, self), heard)


class ZooKeeperWorld:
    def __init__(self, seed: int = 1, *, partitions: int = 6, lags_ms: Sequence[int] = (5, 20)) -> None:
        self.schedule = Schedule()
        self.ensemble = Ensemble(
            self.schedule, Rng(seed).of("ensemble"), session_timeout_ms=SESSION_MS, lags_ms=lags_ms
        )
        self.topics = {TOPIC: Topic(partitions)}
        self.partitions = [(TOPIC, number) for number in range(partitions)]
        self.processes: dict[str, SimulatedProcess] = {}
        self.messages = 0
        """Messages between members and coordinators, without commits."""
        self.on_change: Callable[[SimulatedProcess], None] = lambda _process: None
        """Called whenever what a process reads may have changed."""
        self._gone: Counter[str] = Counter()
        """The counts of processes whose name another process has now."""

    # --- processes ----------------------------------------------------------------------------------------------------

    def add(self, name: str, machine: DesignMachine) -> SimulatedProcess:
        if name in self.processes:
            self._gone += self.processes[name].zookeeper.counts
        process = self.processes[name] = SimulatedProcess(self, name, machine)
        process.zookeeper.connect()
        return process

    def add_watcher(
        self, name: str, *, assignor: Assignor | None = None, settings: WatchingSettings | None = None
    ) -> SimulatedProcess:
        return self.add(name, WatchingConsumer(GROUP, name, [TOPIC], self.topics, assignor or Range(), settings))

    def add_member(self, name: str) -> SimulatedProcess:
        return self.add(name, ServerSideMember(GROUP, name, [TOPIC]))

    def add_broker(
        self, number: str, *, coordinates: bool = False, assignor: Assignor | None = None
    ) -> SimulatedProcess:
        groups = [GROUP] if coordinates else []
        name = f"b{number}"
        return self.add(name, RegisteredBroker(number, name, groups, self.topics, assignor or Range()))

    def run(self, ms: int) -> None:
        self.schedule.run(self.schedule.now_ms + ms)

    def crash(self, process: SimulatedProcess) -> None:
        process.zookeeper.crash()
        self._disconnect_all(process)

    def close(self, process: SimulatedProcess) -> None:
        """Stop a process cleanly: it commits, and its session ends at once."""
        process.commit()
        process.zookeeper.close()
        self._disconnect_all(process)

    def _disconnect_all(self, process: SimulatedProcess) -> None:
        self.on_change(process)
        self.disconnect(process)
        for other in self.processes.values():
            if other.peer is process:
                self.disconnect(other)

    def disconnect(self, member: SimulatedProcess) -> None:
        peer = member.peer
        if peer is not None:
            member.peer = None
            self.schedule.after(CONNECTION_MS, lambda event: peer.receive(event, member), Disconnected(member.name))
            self.schedule.after(CONNECTION_MS, lambda event: member.receive(event, peer), Disconnected())

    # --- results ------------------------------------------------------------------------------------------------------

    @property
    def members(self) -> list[SimulatedProcess]:
        return [one for one in self.processes.values() if one.is_alive and hasattr(one.machine, "reads")]

    def owners(self) -> dict[Partition, list[str]]:
        """Return who reads each partition."""
        found: dict[Partition, list[str]] = {}
        for process in self.members:
            for one in process.machine.reads:
                found.setdefault(one, []).append(process.name)
        return found

    def is_fully_assigned(self) -> bool:
        owners = self.owners()
        return sorted(owners) == self.partitions and all(len(names) == 1 for names in owners.values())

    def counts(self) -> Counter[str]:
        """Return the requests to ZooKeeper and its notifications, summed over all processes."""
        return sum((process.zookeeper.counts for process in self.processes.values()), self._gone)


COMMIT_MS = 1_000
LAGS_MS = (2, 5, 20, 80)
"""One of these, by the seed, is the delay of a follower without faults."""


def simulate_zookeeper_design(design: Design, scenario: Scenario) -> DesignRun:
    return _ScenarioRun(design, scenario).run()


class _ScenarioRun:
    def __init__(self, design: Design, scenario: Scenario) -> None:
        rng = Rng(scenario.seed).of("followers")
        self._lags = [rng.choice(LAGS_MS) for _ in FOLLOWERS]
        self._scenario = scenario
        self._world = world = ZooKeeperWorld(scenario.seed, partitions=scenario.partitions, lags_ms=self._lags)
        self._is_watching = design is Design.WATCHERS
        self._result = DesignRun(
            design, scenario, OwnershipTimeline(GROUP, world.partitions), OwnershipTimeline(GROUP, world.partitions)
        )
        self._paths = Paths(GROUP)
        self._fence: tuple[int, Mapping[Partition, str]] = (0, {})
        self._offsets = {self._paths.offset(one): one for one in world.partitions}
        self._restart_count = 0
        self._strategy: Assignor = Range()
        world.on_change = self._note_ownership
        world.ensemble.on_change = self._tree_changed
        self._actions: Mapping[ActionKind, Callable[[ScenarioAction], None]] = {
            ActionKind.JOIN: self._join,
            ActionKind.CRASH: lambda act: world.crash(world.processes[act.who]),
            ActionKind.STOP: self._stop,
            ActionKind.RESTART: self._restart,
            ActionKind.STOP_BROKER: self._stop_coordinator,
            ActionKind.PAUSE: self._pause,
            ActionKind.PAUSE_BROKER: self._pause,
            ActionKind.CUT: self._cut,
            ActionKind.LAG: self._lag,
        }

    def run(self) -> DesignRun:
        schedule = self._world.schedule
        for broker in BROKERS:
            self._add_broker(broker)
        for act in self._scenario.acts:
            schedule.at(act.at_ms, self._perform_action, act)
        for period in self._scenario.periods:
            schedule.at(period.began_ms - 1, self._mark, None)
        schedule.at(COMMIT_MS, self._commit, None)
        schedule.run(self._scenario.length_ms)
        self._mark(None)
        return self._result

    def _perform_action(self, act: ScenarioAction) -> None:
        self._actions[act.do](act)

    def _mark(self, _about: object) -> None:
        attempts = sum(getattr(one.machine, "attempts", 0) for one in self._world.processes.values())
        more = Counter(messages=self._world.messages, restarts=self._restart_count, attempts=attempts)
        self._result.marks.append(self._world.counts() + more)

    def _commit(self, _about: object) -> None:
        for process in self._world.members:
            process.commit()
        self._world.schedule.after(COMMIT_MS, self._commit, None)

    # --- actions ------------------------------------------------------------------------------------------------------

    def _join(self, act: ScenarioAction) -> None:
        self._result.added(act.who, self._world.schedule.now_ms)
        if self._is_watching:
            self._world.add_watcher(act.who, assignor=self._strategy)
        else:
            self._world.add_member(act.who)

    def _add_broker(self, number: str) -> None:
        self._world.add_broker(number, coordinates=not self._is_watching, assignor=self._strategy)

    def _stop(self, act: ScenarioAction) -> None:
        process = self._world.processes[act.who]
        process.resume()
        process.repair()
        self._world.close(process)

    def _restart(self, act: ScenarioAction) -> None:
        self._restart_count += 1
        self._strategy = Backwards()
        if act.who.startswith("b"):
            self._add_broker(act.who[1:])
        else:
            self._join(act)

    def _stop_coordinator(self, act: ScenarioAction) -> None:
        """Stop the broker that coordinates for a while; under design 1, where none does, the first one."""
        who = next(
            (a for a in self._world.processes.values() if a.is_alive and _coordinates(a)), self._world.processes["b1"]
        )
        self._stop(ScenarioAction(act.at_ms, ActionKind.STOP, who.name))
        self._world.schedule.after(act.for_ms, self._add_broker, who.name[1:])

    def _pause(self, act: ScenarioAction) -> None:
        process = self._world.processes[act.who]
        if process.is_alive and not process.is_paused:
            process.pause()
            self._world.schedule.after(act.for_ms, lambda _about: process.resume(), None)

    def _cut(self, act: ScenarioAction) -> None:
        process = self._world.processes[act.who]
        if not process.is_cut:
            process.cut()
            self._world.schedule.after(act.for_ms, lambda _about: process.repair(), None)

    def _lag(self, act: ScenarioAction) -> None:
        number = int(act.who.removeprefix("follower "))
        server = self._world.ensemble.servers[number]
        server.lag_ms = 2 * SESSION_MS

        def repair(_about: object) -> None:
            server.lag_ms = self._lags[number - 1]

        self._world.schedule.after(act.for_ms, repair, None)

    # --- ownership ----------------------------------------------------------------------------------------------------

    def _note_ownership(self, process: SimulatedProcess) -> None:
        if not hasattr(process.machine, "reads") or self._world.processes.get(process.name) is not process:
            return
        now_ms, result = self._world.schedule.now_ms, self._result
        if not process.is_alive:
            result.removed(process.name, now_ms)
            return
        result.believes.owns(process.name, process.machine.reads, now_ms)
        result.owns.owns(process.name, self._owned_by(process), now_ms)

    def _owned_by(self, process: SimulatedProcess) -> Collection[Partition]:
        reads: frozenset[Partition] = process.machine.reads
        if self._is_watching:
            return reads if not process.is_paused else frozenset(filter(self._claimed_by(process.name), reads))
        generation, owners = self._fence
        return [one for one in reads if process.machine.generation == generation and owners.get(one) == process.name]

    def _claimed_by(self, name: str) -> Callable[[Partition], bool]:
        """A paused consumer reads nothing, but still owns what it has claimed."""
        tree = self._world.ensemble.leader.tree

        def is_so(one: Partition) -> bool:
            node = tree.get(self._paths.owner(one))
            return node is not None and node.data.decode() == name

        return is_so

    def _tree_changed(self, what: Transaction) -> None:
        if isinstance(what, DataSet):
            for path, data in what.values.items():
                if path == self._paths.assignment:
                    self._fence = read_assignment(data)
                elif path in self._offsets:
                    self._result.committed(self._offsets[path], read_offset(data))
        if isinstance(what, SessionClosed) or (isinstance(what, DataSet) and self._paths.assignment in what.values):
            for process in self._world.members:
                self._note_ownership(process)


def _coordinates(process: SimulatedProcess) -> bool:
    return bool(getattr(process.machine, "coordinators", None))
