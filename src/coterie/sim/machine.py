"""A machine with a broker on it: does for `broker.cluster.Cluster` what `broker/io/server.py` does on asyncio.

One process, whose nodes have an address each (`nodes.py`); one disk, a thread that waits for it, and one for what takes
long. It can be killed, lose its power, be stopped and started, and pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from coterie.broker.broker_effects import (
    BackgroundTask,
    Close,
    Computation,
    DeleteFiles,
    Effect,
    Flush,
    Ready,
    Send,
    Starting,
    Stopping,
    TimersDue,
    WallClockSet,
    Work,
)
from coterie.broker.calls import PLAINTEXT, Connection
from coterie.broker.cluster import Cluster
from coterie.broker.connection_limits import silence_of
from coterie.broker.handlers.quick_heartbeat import HEARTBEAT, QuickHeartbeat
from coterie.broker.io.clock import AWAY_MS
from coterie.broker.node import BrokerNode
from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.runtime import Shard
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import CoterieError, MalformedError
from coterie.facts import Emit
from coterie.protocol.frames import FrameCutter
from coterie.settings.broker_settings import BrokerSettings
from coterie.sim.disk import Disk, PowerCut
from coterie.sim.network import VirtualWire
from coterie.sim.nodes import Nodes
from coterie.sim.schedule import Host, HostClock, fresh_ids
from coterie.storage.files import parent_of

if TYPE_CHECKING:
    from coterie.sim.world import World

SWEEP_MS = 60_000
FIRST_PORT = 9091
"""The port of node 1 is this plus one."""
TRY_AGAIN_MS = 1_000
BACKGROUND_TASK_STEPS, BACKGROUND_TASK_MS = 1, 20
"""Long work runs in pieces of this size, with pauses of this length for other events."""
COMPUTATION_MS = 30
"""The time that the broker computes the target of a large consumer group, or one with an assignor of a user."""


class BrokerLink:
    """The broker's side of a connection."""

    __slots__ = ("connection", "cutter", "heard_ms", "is_read", "node", "quick", "wire")

    def __init__(self, node: BrokerNode, wire: VirtualWire, now_ms: int) -> None:
        self.node = node
        self.wire = wire
        self.connection = Connection(wire.client.name, self)
        self.cutter = FrameCutter(node.settings.socket_request_max_bytes)
        self.quick = QuickHeartbeat(self.connection)
        self.heard_ms = now_ms
        self.is_read = True
        """False: the node stops and reads no more requests."""


class Machine(Host):
    def __init__(self, world: World, settings: BrokerSettings, clock: HostClock, nodes: int) -> None:
        super().__init__(world, "b1", clock)
        self.settings = settings
        self.numbers = range(settings.node_id, settings.node_id + nodes)
        self.ports = [FIRST_PORT + number for number in self.numbers]
        self.nodes = Nodes(self)
        self.disk = Disk(world.rng.of(f"{self.name}/disk"))
        self.cluster: Cluster | None = None
        self.has_power = True
        self.links: dict[BrokerLink, None] = {}
        self.slow_disk = 1
        """The factor by which the disk is slower."""
        self.was_slow = False
        self._fresh_id = fresh_ids(world.rng.of(f"{self.name}/ids"))
        self._disk_rng = world.rng.of(f"{self.name}/latency")
        self._jobs: deque[Flush | Work] = deque()
        self._background_task: BackgroundTask | None = None
        self.background_tasks = 0
        """The number of long jobs that have ended."""
        self._alarm_ms: int | None = None
        self.wall = WallClock()
        """The wall clock as the process last read it."""
        self.wall_off_ms = 0
        """The error of the machine's wall clock."""
        self.away_ms = 0
        """The total time for which the process was paused."""
        self.resumed_ms = -1
        """The world's time at which it last resumed."""
        self._behind_ms = 0
        """The time for which the process was paused, which its own time does not count."""
        self._paused_at_ms = 0
        self._ambush: Callable[[object], None] | None = None
        self._strikes_in_swap: Callable[[], None] | None = None
        self._steps_of_swap: int | None = None
        """The number of disk jobs of a swap that are still done before the process dies."""
        self.damage_reported = 0
        self.swaps_cut = 0
        """The number of times that it died while a compacted segment replaced others."""

    # --- time ---------------------------------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """The process's own time, which stands still while it is paused (`broker/io/clock.py`)."""
        now_ms, clock = self._schedule.now_ms, self.clock
        return (clock.local(now_ms) if clock.ppm else now_ms + clock.ahead_ms) - self._behind_ms  # for every request

    def at(self, local_ms: int, act: Callable[[Any], None], about: Any) -> None:
        super().at(local_ms + self._behind_ms, act, about)

    @property
    def wall_ms(self) -> int:
        return super().now_ms + self.wall_off_ms

    def set_wall(self, off_ms: int) -> None:
        """Set the wall clock of the machine; its process follows."""
        self.wall_off_ms = off_ms
        if self.cluster is not None and not self.is_paused:
            self._look_at_wall()

    def _look_at_wall(self) -> None:
        by_ms = self.wall.read(self.wall_ms - self.now_ms, self.now_ms)
        if by_ms and self.cluster is not None:
            cluster = self.cluster
            self.run("a clock that was set", partial(cluster.handle, WallClockSet(by_ms)))

    def pause(self) -> None:
        super().pause()
        self._paused_at_ms = super().now_ms

    def resume(self) -> None:
        """Timers that are late fire before requests that have arrived are handled: no session must end by that."""
        if not self.is_paused:
            return
        paused_ms = super().now_ms - self._paused_at_ms
        if paused_ms > AWAY_MS:
            self._behind_ms += paused_ms
            self.away_ms += paused_ms
            self.resumed_ms = self.world.schedule.now_ms
            self.wall.was_away(paused_ms)
        self._missed = deque(sorted(self._missed, key=lambda each: each[0] != self._ring))
        self._look_at_wall()
        super().resume()

    # --- coming and going ---------------------------------------------------------------------------------------------

    def start(self, _about: object = None) -> None:
        """Start the broker, and try again if its data cannot be opened."""
        if self.cluster is not None or not self.has_power:
            return
        self.wall, self.wall_off_ms = WallClock(), 0  # a machine sets its clock right before it starts anything
        self._behind_ms = 0
        now_ms = self.now_ms
        try:
            cluster = Cluster(
                self.disk,
                self.settings,
                now_ms,
                fresh_id=self._fresh_id,
                sync=True,
                nodes=len(self.numbers),
                wall=self.wall,
            )
            cluster.metadata.endpoints[PLAINTEXT] = {
                number: (self.name, FIRST_PORT + number) for number in cluster.nodes
            }
            effects = cluster.handle(Starting(), now_ms)
        except PowerCut:  # what a crash interrupted was about to be finished
            self._dies_in_swap()
            return
        except (CoterieError, OSError) as error:
            self.disk.killed()
            if not (self.disk.is_failing or self.disk.is_full or self.report_damage(str(error))):
                self.world.fails("recovery", f"{self.name} cannot open its data: {error}")
            self.later(TRY_AGAIN_MS, self.start, None)
            return
        self.disk.steps_left = None
        self.cluster = cluster
        self.nodes.began()
        self.world.broker_began(self)
        self._perform(effects)
        self.later(SWEEP_MS, self._sweep, cluster)

    def report_damage(self, what: str) -> bool:
        """Return whether the error names a damaged file, which is then restored from a copy."""
        names = [name for path in self.disk.damaged for name in (path, parent_of(path)) if name]
        if not any(name in what for name in names):
            return False
        self.world.happened(self.name, f"reports damage, which is put right: {what}")
        self.damage_reported += 1
        self.disk.restore()
        return True

    def kill(self) -> None:
        """The process dies and the system continues: all files are there, all connections are closed."""
        if self.cluster is None:
            return
        under_way = self._jobs[0] if self._jobs else None
        self._ended()
        self._stops_within(under_way)
        self.disk.killed()
        for link in self._take_links():
            self.world.network.drop(link.wire)

    def lose_power(self) -> None:
        """Clients see nothing, and the disk keeps any part of what was not synced."""
        if not self.has_power:
            return
        self.has_power = False
        under_way = self._jobs[0] if self._jobs else None
        if self.cluster is not None:
            self._ended()
        self._stops_within(under_way)
        self.disk.crash()
        self._take_links()
        self.world.network.power_lost(self)

    def _stops_within(self, job: Flush | Work | None) -> None:
        """A process that dies during a write has done a part of it."""
        if job is not None:
            self.disk.steps_left = self._disk_rng.randint(0, 6)
            with suppress(PowerCut):
                job.run()

    def power_up(self) -> None:
        self.has_power = True
        self.start()

    def _ended(self) -> None:
        self.cluster = None
        self._steps_of_swap = None
        self._jobs.clear()
        self._background_task = None
        self._alarm_ms = None
        self.forget_missed()
        self.is_paused = False
        self.world.broker_ended(self)

    def _take_links(self) -> list[BrokerLink]:
        links = list(self.links)
        self.links.clear()
        for link in links:
            link.connection.is_closed = True
        return links

    def stop(self) -> None:
        """A clean shutdown: requests that wait are answered, and all data is durable."""
        cluster = self.cluster
        if cluster is None or self.is_paused:
            self.kill()
            return
        self.ambush_swap(None)
        cluster.cleaner.stop()
        self._drain(cluster)
        self._perform(cluster.handle(Stopping(), self.now_ms))
        self._drain(cluster)
        try:
            cluster.directory.close()
        except CoterieError as error:
            if not (self.disk.is_failing or self.disk.is_full):
                self.world.fails("recovery", f"{self.name} cannot close its data: {error}")
        self._ended()
        self.disk.killed()
        for link in self._take_links():
            self.world.network.drop(link.wire)

    def _drain(self, cluster: Cluster) -> None:
        """Finish all disk jobs. A shutdown takes no time here."""
        while self._jobs or self._background_task is not None:
            if self._jobs:
                self._job_ended((cluster, self._jobs[0]))
            else:
                self._background_task_goes_on((cluster, self._background_task))

    @property
    def kept_ms(self) -> float:
        """The time for which offsets of Empty groups are kept at least, in the world's time, since clocks drift."""
        return self.settings.offsets_retention_minutes * 60_000 * 0.9

    def shards(self) -> Iterator[tuple[BrokerNode, int, Shard]]:
        """All shards: the node, the partition and the shard."""
        if self.cluster is not None:
            for node in self.cluster.nodes.values():
                for partition, shard in node.coordinator.shards.items():
                    yield node, partition, shard

    # --- connections --------------------------------------------------------------------------------------------------

    def accepts(self, wire: VirtualWire) -> BrokerLink | None:
        """Accept a connection. The system does this even while the process is paused."""
        if self.cluster is None or not self.nodes.listens(wire.port - FIRST_PORT):
            return None
        link = BrokerLink(self.cluster.nodes[wire.port - FIRST_PORT], wire, self.now_ms)
        self.links[link] = None
        return link

    def receives(self, about: tuple[BrokerLink, bytes]) -> None:
        if self.is_paused:
            self.misses(self.receives, about)
            return
        link, data = about
        node, connection, cluster, world = link.node, link.connection, self.cluster, self.world
        if cluster is None or node is not cluster.nodes[node.node_id] or connection.is_closed or not link.is_read:
            return
        link.heard_ms = now_ms = self.now_ms
        try:
            frames = link.cutter.feed(data)
        except MalformedError as error:
            self.drop(connection, str(error))
            return
        for frame in frames:
            for hears in world.on_arrived[frame[1]]:
                hears(self, link, frame)
            if frame.startswith(HEARTBEAT) and not (connection.call or connection.waiting):
                answer = link.quick.answer(node.coordinator, frame, now_ms)
                if answer is not None:
                    world.network.answer(link.wire, answer)
                    continue
            self._perform(node.received(connection, frame, now_ms))
        if cluster.next_ms() != self._alarm_ms:
            self._keep_alarm(cluster)

    def loses(self, about: tuple[BrokerLink, str]) -> None:
        if self.is_paused:
            self.misses(self.loses, about)
            return
        link, _ = about
        if self.links.pop(link, self) is None:
            link.node.disconnected(link.connection)
            link.wire.link = None

    def drop(self, connection: Connection, why: str) -> None:
        if not connection.is_closed:
            link: BrokerLink = connection.link
            link.node.disconnected(connection)
            self.links.pop(link, None)
            self.world.dropped(self, link.wire, why)
            self.world.network.drop(link.wire)

    def _sweep(self, cluster: Cluster) -> None:
        if cluster is not self.cluster:
            return
        idle_ms = cluster.settings.connections_max_idle_ms
        now_ms = self.now_ms
        for link in list(self.links):
            why = silence_of(link.connection, now_ms - link.heard_ms, 0, idle_ms)
            if why is not None:
                self.drop(link.connection, why)
        self.later(SWEEP_MS, self._sweep, cluster)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect]) -> None:
        cluster = self.cluster
        assert cluster is not None
        ready: deque[Connection] = deque()
        while True:
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    self._send(effect)  # type: ignore[arg-type]
                elif kind is Flush or kind is Work:
                    self._on_disk(cluster, effect)  # type: ignore[arg-type]
                elif kind is BackgroundTask:
                    self._background_task = effect  # type: ignore[assignment]
                    self.later(BACKGROUND_TASK_MS, self._background_task_goes_on, (cluster, effect))
                elif kind is Computation:
                    self.later(COMPUTATION_MS, self._computed, (cluster, effect))
                elif kind is Emit:
                    self.world.on_fact(self, effect.fact)  # type: ignore[union-attr]
                elif kind is Ready:
                    ready.append(effect.connection)  # type: ignore[union-attr]
                elif kind is Reply:
                    effect.token(effect.answer)  # type: ignore[union-attr, operator]
                elif kind is Close:
                    self.drop(effect.connection, effect.why)  # type: ignore[union-attr]
                else:
                    assert isinstance(effect, DeleteFiles)
                    self.later(5, self._delete_files, (cluster, effect.work))
            if not ready:
                break
            connection = ready.popleft()
            effects = connection.link.node.go_on(connection, self.now_ms)
        self._keep_alarm(cluster)

    def _send(self, effect: Send) -> None:
        connection = effect.connection
        if not connection.is_closed:
            data = effect.data
            self.world.network.answer(connection.link.wire, data if isinstance(data, bytes) else b"".join(data))

    def run(self, what: str, event: Callable[[int], Sequence[Effect]]) -> None:
        """An exception becomes a fact, and the broker goes on, as on asyncio; `NoMistakes` fails then."""
        assert self.cluster is not None
        now_ms = self.now_ms
        try:
            effects = event(now_ms)
        except Exception:  # noqa: BLE001
            effects = self.cluster.mistaken(what, now_ms)
        self._perform(effects)

    def _keep_alarm(self, cluster: Cluster) -> None:
        next_ms = cluster.next_ms()
        if next_ms != self._alarm_ms:
            self._alarm_ms = next_ms
            if next_ms is not None:
                self.at(next_ms, self._ring, (cluster, next_ms))

    def _ring(self, about: tuple[Cluster, int]) -> None:
        if self.is_paused:
            self.misses(self._ring, about)
        elif about == (self.cluster, self._alarm_ms):
            self._alarm_ms = None
            self.run("a timer", partial(about[0].handle, TimersDue()))

    def ambush(self, strike: Callable[[object], None]) -> None:
        """Call it during the next write to the disk."""
        self._ambush = strike

    def ambush_swap(self, strike: Callable[[], None] | None) -> None:
        """Call it in the middle of the next swap of compacted segments; None cancels it."""
        self._strikes_in_swap, self._steps_of_swap = strike, None
        self.disk.waits_for_swap = strike is not None

    def _dies_in_swap(self) -> None:
        self._jobs.clear()  # the one that was under way has done its part
        self.disk.killed()
        self.swaps_cut += 1
        assert self._strikes_in_swap is not None
        self._strikes_in_swap()

    # --- the disk -----------------------------------------------------------------------------------------------------

    def _on_disk(self, cluster: Cluster, effect: Flush | Work) -> None:
        self._jobs.append(effect)
        if len(self._jobs) == 1:
            self._begin_job(cluster)

    def _begin_job(self, cluster: Cluster) -> None:
        took_ms = 1 + int(self._disk_rng.expovariate(1 / self.world.disk_ms))
        took_ms *= self.slow_disk
        self.later(took_ms, self._job_ended, (cluster, self._jobs[0]))
        if self._ambush is not None:
            strike, self._ambush = self._ambush, None
            self.later(int(self._disk_rng.random() * took_ms), strike, None)

    def disk_is_fast_again(self) -> None:
        """Make the disk fast, and finish what was started before: at 200 ms a sync it could take fifteen minutes."""
        self.slow_disk = 1
        if self._jobs and self.cluster is not None:
            self.later(1 + self.world.disk_ms, self._job_ended, (self.cluster, self._jobs[0]))

    def _job_ended(self, about: tuple[Cluster, Flush | Work]) -> None:
        cluster, job = about
        if cluster is not self.cluster or not self._jobs or self._jobs[0] is not job:
            return
        if self.is_paused:
            self.misses(self._job_ended, about)
            return
        self.disk.steps_left = self._steps_of_swap
        try:
            ended = job.run()
        except PowerCut:
            self._dies_in_swap()
            return
        self._steps_of_swap, self.disk.steps_left = self.disk.steps_left, None
        self._jobs.popleft()
        if self._jobs:
            self._begin_job(cluster)
        self.run("what follows work of the disk", partial(cluster.handle, ended))

    def _background_task_goes_on(self, about: tuple[Cluster, BackgroundTask | None]) -> None:
        cluster, background_task = about
        if cluster is not self.cluster or background_task is None or background_task is not self._background_task:
            return
        if self.is_paused:
            self.misses(self._background_task_goes_on, about)
            return
        done = 0

        def rest() -> None:
            nonlocal done
            done += 1

        ended = BackgroundTask(
            islice(background_task.steps, BACKGROUND_TASK_STEPS), background_task.then, background_task.is_wanted
        ).run(rest)
        if done == BACKGROUND_TASK_STEPS:
            self.later(BACKGROUND_TASK_MS, self._background_task_goes_on, about)
            return
        self._background_task = None
        self.background_tasks += 1
        self.run("what follows long work", partial(cluster.handle, ended))

    def _computed(self, about: tuple[Cluster, Computation]) -> None:
        cluster, computation = about
        if cluster is not self.cluster:
            return
        if self.is_paused:
            self.misses(self._computed, about)
            return
        self.run("what follows a computation", partial(cluster.handle, computation.run()))

    def _delete_files(self, about: tuple[Cluster, Any]) -> None:
        cluster, work = about
        if cluster is self.cluster:
            with suppress(OSError):
                work()
