"""A machine with a broker on it: does for `broker.node.Node` what `broker/server.py` does on asyncio.

One disk, one thread that waits for it. It can be killed, lose its power, be stopped and started, and pause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from coterie.broker.calls import Close, Connection, Do, Effect, Flush, Send, Work
from coterie.broker.groups import read_groups
from coterie.broker.node import Node
from coterie.broker.quick_heartbeat import HEARTBEAT, QuickHeartbeat
from coterie.broker.settings import Settings
from coterie.errors import CoterieError, MalformedError
from coterie.group.effects import Tell
from coterie.sim.dice import fresh_ids
from coterie.sim.disk import Disk, PowerCut
from coterie.sim.host import Clock, Host
from coterie.sim.network import Wire
from coterie.wire.frames import FrameCutter
from coterie.wire.offsets_topic import OFFSETS_TOPIC

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Link", "Machine"]

SWEEP_MS = 60_000
TRY_AGAIN_MS = 1_000


class Link:
    """The broker's end of a wire."""

    __slots__ = ("connection", "cutter", "heard_ms", "node", "quick", "wire")

    def __init__(self, node: Node, wire: Wire, now_ms: int) -> None:
        self.node = node
        self.wire = wire
        self.connection = Connection(wire.client.name, self)
        self.cutter = FrameCutter(node.settings.socket_request_max_bytes)
        self.quick = QuickHeartbeat()
        self.heard_ms = now_ms


class Machine(Host):
    def __init__(self, world: World, number: int, settings: Settings, clock: Clock) -> None:
        super().__init__(world, f"b{number}", clock)
        self.number = number
        self.settings = settings
        self.disk = Disk(world.dice.of(f"{self.name}/disk"))
        self.node: Node | None = None
        self.has_power = True
        self.links: dict[Link, None] = {}
        self.slow_disk = 1
        """Everything on the disk takes so many times longer."""
        self.was_slow = False
        self._fresh_id = fresh_ids(world.dice.of(f"{self.name}/ids"))
        self._disk_dice = world.dice.of(f"{self.name}/latency")
        self._jobs: deque[Flush | Work] = deque()
        self._alarm_ms: int | None = None
        self._ambush: Callable[[object], None] | None = None

    # --- coming and going ---------------------------------------------------------------------------------------------

    def start(self, _about: object = None) -> None:
        """A supervisor: what cannot be opened now is tried again."""
        if self.node is not None or not self.has_power:
            return
        now_ms = self.now_ms
        try:
            node = Node(self.disk, self.settings, now_ms, fresh_id=self._fresh_id, sync=True)
            node.endpoint = (self.name, 9092)
            effects = node.start(now_ms)
        except (CoterieError, OSError) as error:
            self.disk.killed()
            if not (self.disk.is_failing or self.disk.is_full):
                self.world.fails("recovery", f"{self.name} cannot open its data: {error}")
            self.later(TRY_AGAIN_MS, self.start, None)
            return
        self.node = node
        self.world.broker_began(self)
        self._perform(effects)
        self.later(SWEEP_MS, self._sweep, node)

    def kill(self) -> None:
        """The process is gone, the system goes on: its files are all there, its connections are closed."""
        if self.node is None:
            return
        under_way = self._jobs[0] if self._jobs else None
        self._ended()
        self._stops_within(under_way)
        self.disk.killed()
        for link in self._take_links():
            self.world.network.drop(link.wire)

    def lose_power(self) -> None:
        """Nobody is told anything, and the disk keeps what it likes of what was not synced."""
        if not self.has_power:
            return
        self.has_power = False
        under_way = self._jobs[0] if self._jobs else None
        if self.node is not None:
            self._ended()
        self._stops_within(under_way)
        self.disk.crash()
        self._take_links()
        self.world.network.power_lost(self)

    def _stops_within(self, job: Flush | Work | None) -> None:
        """Whoever dies while the disk works has done a part of it."""
        if job is not None:
            self.disk.steps_left = self._disk_dice.randint(0, 6)
            with suppress(PowerCut):
                job.run()

    def power_up(self) -> None:
        self.has_power = True
        self.start()

    def _ended(self) -> None:
        self.node = None
        self._jobs.clear()
        self._alarm_ms = None
        self.forget_missed()
        self.is_paused = False
        self.world.broker_ended(self)

    def _take_links(self) -> list[Link]:
        links = list(self.links)
        self.links.clear()
        for link in links:
            link.connection.is_closed = True
        return links

    def stop(self) -> None:
        """In order: who waits is answered, what was written made durable, the directory left clean."""
        node = self.node
        if node is None or self.is_paused:
            self.kill()
            return
        self._drain(node)
        self._perform(node.stop(self.now_ms))
        self._drain(node)
        try:
            node.directory.close()
        except CoterieError as error:
            if not (self.disk.is_failing or self.disk.is_full):
                self.world.fails("recovery", f"{self.name} cannot close its data: {error}")
        self._ended()
        self.disk.killed()
        for link in self._take_links():
            self.world.network.drop(link.wire)

    def _drain(self, node: Node) -> None:
        """What is on its way to the disk is there. The rest of the world waits: a stop takes no time here."""
        while self._jobs:
            self._job_ended((node, self._jobs[0]))

    def lose_groups(self) -> None:
        """Somebody else coordinates from now on: whoever waits is told, and everything about groups is forgotten."""
        node = self.node
        if node is not None:
            for partition in list(node.coordinator.shards):
                node.follow(node.coordinator.lose(partition, self.now_ms), self.now_ms)
            self._perform(node.ring(self.now_ms))

    def gain_groups(self, _about: object = None) -> None:
        """And back again. A new coordinator reads what is durable: so it waits until all is."""
        node = self.node
        if node is None:
            return  # it reads everything when it starts
        if self.is_paused:
            self.misses(self.gain_groups, None)
            return
        topic = node.directory.topics.get(OFFSETS_TOPIC)
        lost = [at for at in range(topic.partitions if topic else 0) if at not in node.coordinator.shards]
        logs = {at: node.directory.logs[OFFSETS_TOPIC, at] for at in lost}
        if not all(log.is_in_order and log.durable_end == log.log_end for log in logs.values()):
            self.later(200, self._gain_again, node)
            return
        for partition, log in logs.items():
            read_groups(log, node.coordinator.gain(partition))
        self.later(self._disk_dice.randint(0, 300), self._loaded, (node, lost))

    def _gain_again(self, node: Node) -> None:
        if node is self.node:
            self.gain_groups()

    def _loaded(self, about: tuple[Node, list[int]]) -> None:
        if self.is_paused:
            self.misses(self._loaded, about)
            return
        node, partitions = about
        if node is self.node:
            for partition in partitions:
                if partition not in node.coordinator.shards:
                    node.follow(node.coordinator.loaded(partition, self.now_ms), self.now_ms)
            self.world.broker_began(self)
            self._perform(node.ring(self.now_ms))

    # --- connections --------------------------------------------------------------------------------------------------

    def accepts(self, wire: Wire) -> Link | None:
        """The system does, even while the process pauses."""
        if self.node is None:
            return None
        link = Link(self.node, wire, self.now_ms)
        self.links[link] = None
        return link

    def receives(self, about: tuple[Link, bytes]) -> None:
        if self.is_paused:
            self.misses(self.receives, about)
            return
        link, data = about
        node, connection = link.node, link.connection
        if node is not self.node or connection.is_closed:
            return
        link.heard_ms = now_ms = self.now_ms
        try:
            frames = link.cutter.feed(data)
        except MalformedError as error:
            self._drop(connection, str(error))
            return
        for frame in frames:
            self.world.request_arrived(self, link, frame)
            if frame.startswith(HEARTBEAT) and not (connection.call or connection.waiting):
                answer = link.quick.answer(node, frame, now_ms)
                if answer is not None:
                    self.world.network.answer(link.wire, answer)
                    continue
            self._perform(node.received(connection, frame, now_ms))
        self._keep_alarm(node)

    def loses(self, about: tuple[Link, str]) -> None:
        if self.is_paused:
            self.misses(self.loses, about)
            return
        link, _ = about
        if self.links.pop(link, self) is None:
            link.node.disconnected(link.connection)
            link.wire.link = None

    def _drop(self, connection: Connection, why: str) -> None:
        if not connection.is_closed and self.node is not None:
            self.node.disconnected(connection)
            self.links.pop(connection.link, None)
            self.world.dropped(self, connection.link.wire, why)
            self.world.network.drop(connection.link.wire)

    def _sweep(self, node: Node) -> None:
        """Who has said nothing for too long, and waits for nothing, is probably not there."""
        if node is not self.node:
            return
        idle_ms = node.settings.connections_max_idle_ms
        now_ms = self.now_ms
        for link in list(self.links):
            if link.connection.call is None and now_ms - link.heard_ms > idle_ms:
                self._drop(link.connection, "nothing was heard for long")
        self.later(SWEEP_MS, self._sweep, node)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _perform(self, effects: Sequence[Effect]) -> None:
        node = self.node
        assert node is not None
        while True:
            for effect in effects:
                kind = type(effect)
                if kind is Send:
                    self._send(effect)  # type: ignore[arg-type]
                elif kind is Flush or kind is Work:
                    self._on_disk(node, effect)  # type: ignore[arg-type]
                elif kind is Tell:
                    self.world.tell(self, effect.fact)  # type: ignore[union-attr]
                elif kind is Close:
                    self._drop(effect.connection, effect.why)  # type: ignore[union-attr]
                else:
                    assert isinstance(effect, Do)
                    self.later(5, self._chore, (node, effect.work))
            if not node.ready:
                break
            effects = node.go_on(self.now_ms)
        self._keep_alarm(node)

    def _send(self, effect: Send) -> None:
        connection = effect.connection
        if not connection.is_closed:
            data = effect.data
            self.world.network.answer(connection.link.wire, data if isinstance(data, bytes) else b"".join(data))

    def _run(self, what: str, event: Callable[[int], Sequence[Effect]]) -> None:
        """A mistake of ours is told, and the broker goes on, as on asyncio; the world will have none."""
        assert self.node is not None
        now_ms = self.now_ms
        try:
            effects = event(now_ms)
        except Exception:  # noqa: BLE001
            effects = self.node.rescue(what, now_ms)
        self._perform(effects)

    def _keep_alarm(self, node: Node) -> None:
        next_ms = node.coordinator.timers.next_ms()
        if next_ms != self._alarm_ms:
            self._alarm_ms = next_ms
            if next_ms is not None:
                self.at(next_ms, self._ring, (node, next_ms))

    def _ring(self, about: tuple[Node, int]) -> None:
        if self.is_paused:
            self.misses(self._ring, about)
        elif about == (self.node, self._alarm_ms):
            self._alarm_ms = None
            self._run("a timer", about[0].ring)

    def ambush(self, strike: Callable[[object], None]) -> None:
        """To be done the next time that something is on its way to the disk, before it is there."""
        self._ambush = strike

    # --- the disk -----------------------------------------------------------------------------------------------------

    def _on_disk(self, node: Node, effect: Flush | Work) -> None:
        self._jobs.append(effect)
        if len(self._jobs) == 1:
            self._begin_job(node)

    def _begin_job(self, node: Node) -> None:
        took_ms = 1 + int(self._disk_dice.expovariate(1 / self.world.disk_ms))
        took_ms *= self.slow_disk
        self.later(took_ms, self._job_ended, (node, self._jobs[0]))
        if self._ambush is not None:
            strike, self._ambush = self._ambush, None
            self.later(int(self._disk_dice.random() * took_ms), strike, None)

    def _job_ended(self, about: tuple[Node, Flush | Work]) -> None:
        node, job = about
        if node is not self.node or not self._jobs or self._jobs[0] is not job:
            return
        if self.is_paused:
            self.misses(self._job_ended, about)
            return
        ended = job.run()
        self._jobs.popleft()
        if self._jobs:
            self._begin_job(node)
        self._run("what follows work of the disk", lambda now_ms: node.disk_ended(ended, now_ms))

    def _chore(self, about: tuple[Node, Any]) -> None:
        node, work = about
        if node is self.node:
            with suppress(OSError):
                work()
