"""The nodes of one process, and what they share: the data directory, who leads what, the disk's queue, the timers.

What concerns one connection is an event of its node (`node.py`); what concerns all is one of the cluster: timers that
ring, the disk that has ended, nodes that stop and start. What any of them wants done is in one list, in order.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from traceback import format_exc
from typing import Any
from uuid import UUID

from coterie.broker.broker_effects import BackgroundTask, BackgroundTaskEnded, Close, Do, Effect, FlushEnded, WorkEnded
from coterie.broker.broker_facts import Trouble
from coterie.broker.calls import Call, Connection
from coterie.broker.handlers.fetch import FetchDue, Fetches
from coterie.broker.handlers.produce import ProduceDue
from coterie.broker.handlers.refusals import TopicError
from coterie.broker.handlers.topic_changes import ensure, is_internal
from coterie.broker.leadership import Done, Leadership
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.facts_topic import FactsDue, FactsTopic
from coterie.broker.maintenance.flushing import Flusher, Waiter
from coterie.broker.maintenance.group_loads import LoadDue
from coterie.broker.maintenance.log_cleaner import CleanDue, Cleaner
from coterie.broker.maintenance.periodic import (
    CHECKPOINT_EVERY_MS,
    CheckpointDue,
    RepairDue,
    RetentionDue,
    check_retention,
    checkpoint,
    repair,
)
from coterie.broker.maintenance.producer_ids import ProducerIds
from coterie.broker.node import Node
from coterie.broker.placement import NOBODY
from coterie.coordinator.classic import HeldBytes
from coterie.coordinator.classic.effects import Tell
from coterie.coordinator.classic.wall_clock import WallClock
from coterie.coordinator.runtime import Timers
from coterie.errors import CoterieError
from coterie.facts import ClockSet, Fact, Mistake
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DataDirectory, Files, LogConfig, PartitionLog, Topic, facts_log_config, offsets_log_config

__all__ = ["Cluster", "check_nodes"]

MAX_NODES = 100
"""Each has a port of its own; a mistyped number must not take all there are."""


def check_nodes(count: int) -> None:
    if not 1 <= count <= MAX_NODES:
        raise CoterieError(f"{count} nodes; a broker has 1 to {MAX_NODES} of them")


class Cluster:
    def __init__(
        self,
        files: Files,
        settings: BrokerSettings,
        now_ms: int,
        *,
        fresh_id: Callable[[], UUID],
        sync: bool,
        nodes: int = 1,
        wall: WallClock | None = None,
    ) -> None:
        """`fresh_id` makes ids of members, topics and the cluster. Nodes are numbered from `node.id` on."""
        check_nodes(nodes)
        self.files = files
        self.settings = settings
        self.fresh_id = fresh_id
        self.wall = WallClock() if wall is None else wall
        self.directory = DataDirectory.open(
            files,
            now_ms,
            cluster_id=settings.coterie_cluster_id or _cluster_id(fresh_id()),
            node_id=settings.node_id,
            config_of=self._config_of,
            journaled=sync,
        )
        self.cluster_id = self.directory.meta["cluster.id"]
        self.timers: Timers[Any] = Timers()
        self.held_by_groups = HeldBytes()
        self.next_ms = self.timers.next_ms  # asked after every event
        self.flusher = Flusher(
            sync=sync, mistaken=self.mistaken, journal=self.directory.journal, ends=self.directory.ends
        )
        self.changes = Changes(self._change_mistaken)
        self.fetches = Fetches(self)
        self.facts_topic = FactsTopic(self)
        self.cleaner = Cleaner(self)
        try:
            highest = max((log.highest_producer_id for log in self.directory.logs.values()), default=-1)
            self.producer_ids = ProducerIds(files, highest, self.directory.ends)
        except BaseException:
            self.directory.release()
            raise
        self.data_path = "memory"
        self.room: Callable[[], int] = lambda: settings.fetch_max_bytes
        """How large an answer may be now: less when clients do not take theirs."""
        self.topic_names = {topic.id: topic.name for topic in self.directory.topics.values()}
        self.is_stopping = False
        self.ready: deque[tuple[Node, Connection]] = deque()
        """Whoever was answered and has more waiting: `go_on`, after the answer is sent."""
        self.out: list[Effect] = []
        self.gathers_writes = False
        """Flushes begin when `flush` is called, not with the event that wants one."""
        self.now_ms = now_ms
        """Of the event at hand."""
        first = settings.node_id
        self.nodes = {number: Node(self, replace(settings, node_id=number)) for number in range(first, first + nodes)}
        try:
            self.leadership = Leadership(self)
        except BaseException:
            self.directory.release()
            raise

    def _config_of(self, topic: Topic) -> LogConfig:
        if topic.name == FACTS_TOPIC:
            return facts_log_config(topic.configs, self.settings)
        if is_internal(topic.name):
            return offsets_log_config(topic.configs, self.settings)
        return LogConfig.of(topic.configs, self.settings)

    @property
    def nodes_up(self) -> list[Node]:
        return [node for number, node in self.nodes.items() if number in self.leadership.up]

    # --- events -------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Read the groups back and set the timers of maintenance."""
        self.load_groups(now_ms)
        self.timers.arm("checkpoint", now_ms + CHECKPOINT_EVERY_MS, CheckpointDue())
        self.timers.arm("retention", now_ms + self.settings.log_retention_check_interval_ms, RetentionDue())
        self.cleaner.start(now_ms)
        return self.take(now_ms)

    def load_groups(self, now_ms: int) -> None:
        for node in self.nodes.values():
            node.group_logs.load(now_ms)

    def go_on(self, now_ms: int) -> list[Effect]:
        """Look at one request that waited; one, since only when its answer is sent we know if the client takes more."""
        node, connection = self.ready.popleft()
        node.go_on(connection, now_ms)
        return self.take(now_ms)

    def disk_ended(self, event: FlushEnded | WorkEnded, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        if isinstance(event, WorkEnded):
            work = self.changes.ended(event, now_ms)
            if work is not None:
                self.out.append(work)
        else:
            self._flushed(event, now_ms)
        return self.take(now_ms)

    def background_task_ended(self, event: BackgroundTaskEnded, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        self.cleaner.ended(event, now_ms)
        return self.take(now_ms)

    def clock_was_set(self, by_ms: int, now_ms: int) -> list[Effect]:
        """Emit the fact that the wall clock was set, for readers that compute durations from the times of facts."""
        fact = ClockSet(now_ms, "", by_ms)
        self.tell(fact)
        self.facts_topic.add(fact, now_ms)
        return self.take(now_ms)

    def _flushed(self, event: FlushEnded, now_ms: int) -> None:
        for log, error in self.flusher.ended(event, now_ms):
            if error is None:
                self.fetches.advanced(log)
            else:
                self.tell_trouble(f"{log.path}: {error}", now_ms)
                repair(self, log)

    def ring(self, now_ms: int) -> list[Effect]:
        for event in self.timers.due(now_ms):
            if isinstance(event, FetchDue):
                self.fetches.due(event)
            elif isinstance(event, ProduceDue):
                event.production.due()
            elif isinstance(event, CheckpointDue):
                checkpoint(self)
            elif isinstance(event, RetentionDue):
                check_retention(self)
            elif isinstance(event, CleanDue):
                self.cleaner.due(now_ms)
            elif isinstance(event, RepairDue):
                repair(self, event.log)
            elif isinstance(event, FactsDue):
                self.facts_topic.write(now_ms)
            elif isinstance(event, LoadDue):
                event.loads.due(event, now_ms)
            else:
                self._ring_for_groups(event, now_ms)
        return self.take(now_ms)

    def _ring_for_groups(self, event: Any, now_ms: int) -> None:
        """A timer of a group, or of a partition of them: it is for whoever coordinates it now."""
        group_id = getattr(event, "group_id", None)
        partition = event.partition if group_id is None else self.partition_of(group_id)
        leader = self.leadership.leader_of((OFFSETS_TOPIC, partition))
        if leader != NOBODY:
            node = self.nodes[leader]
            node.follow(node.coordinator.handle(event, now_ms), now_ms)

    def partition_of(self, group_id: str) -> int:
        return next(iter(self.nodes.values())).coordinator.partition_of(group_id)

    def stop(self, now_ms: int) -> list[Effect]:
        """Whoever waits is answered: groups are told to look for another coordinator, fetches what there is."""
        self.is_stopping = True
        self.cleaner.stop()
        for node in self.nodes.values():
            for partition in list(node.coordinator.shards):
                node.follow(node.coordinator.lose(partition, now_ms), now_ms)
        self.fetches.answer_all()
        self.facts_topic.write(now_ms)
        for log in self.directory.logs.values():
            if not log.is_in_order:
                repair(self, log)  # not when its turn comes: it can only be closed in order
        return self.take(now_ms)

    def flush(self, now_ms: int) -> list[Effect]:
        """Whoever gathers writes has gathered enough."""
        return self.take(now_ms, flushes=True)

    def take(self, now_ms: int, *, flushes: bool = False) -> list[Effect]:
        """The effects of this event; and if nothing is being flushed or changed, what it wrote or asked for is, now."""
        self.now_ms = now_ms
        flushes |= not self.gathers_writes
        flush = None
        while True:
            if self.changes.waiting:
                work = self.changes.start(now_ms)
                if work is not None:
                    self.out.append(work)
            if self.flusher.settled:
                self.flusher.settle(now_ms)
            if flushes and flush is None and self.flusher.can_start:
                flush = self.flusher.start(now_ms)
            # Who waited for what was durable already may have asked for a change.
            if not (self.changes.waiting and self.changes.can_start):
                break
        out, self.out = self.out, []
        if flush is not None:
            out.append(flush)
        return out

    # --- nodes stop and start -----------------------------------------------------------------------------------------

    def stop_node(self, node_id: int, done: Done, now_ms: int) -> list[Effect]:
        """Its partitions go to the others. Until its connections are closed it answers that it leads nothing."""
        self.leadership.stop(node_id, done)
        return self.take(now_ms)

    def start_node(self, node_id: int, done: Done, now_ms: int) -> list[Effect]:
        """Its partitions come back to it."""
        self.leadership.start(node_id, done)
        return self.take(now_ms)

    def move_partition(self, topic: str, partition: int, node_id: int, done: Done, now_ms: int) -> list[Effect]:
        self.leadership.move((topic, partition), node_id, done)
        return self.take(now_ms)

    def move_coordinator(self, group_id: str, node_id: int, done: Done, now_ms: int) -> list[Effect]:
        """With it go all groups of its partition of `__consumer_offsets`, which is created if need be."""

        def there(made: Topic | TopicError) -> None:
            if isinstance(made, TopicError):
                done(CoterieError(f"__consumer_offsets does not exist and cannot be created: {made}"))
            else:
                self.leadership.move((OFFSETS_TOPIC, self.partition_of(group_id)), node_id, done)

        self.changes.ask(None, lambda at_ms: ensure(self, OFFSETS_TOPIC, there, at_ms))
        return self.take(now_ms)

    # --- what nodes want ----------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """Whoever leads it."""
        return self.directory.logs.get((topic, partition))

    def wrote(self, log: PartitionLog, waiter: Waiter | None) -> None:
        """Something was appended: whoever waits for it to be durable is told, and so are readers."""
        self.flusher.written(log, waiter)
        if not self.flusher.sync:
            self.fetches.advanced(log)

    def close(self, connection: Connection, why: str) -> None:
        connection.forget_waiting()
        self.out.append(Close(connection, why))

    def background_task(self, background_task: BackgroundTask) -> None:
        self.out.append(background_task)

    def do_later(self, what: str, work: Callable[[], None]) -> None:
        self.out.append(Do(what, work))

    def tell(self, fact: Fact) -> None:
        """A fact has the time of its event, and is told with the wall clock's."""
        fact.at_ms = self.wall.at(fact.at_ms)
        self.out.append(Tell(fact))

    def tell_trouble(self, what: str, now_ms: int) -> None:
        self.tell(Trouble(now_ms, "", what))

    # --- mistakes of ours ---------------------------------------------------------------------------------------------

    def mistaken(self, doing: str) -> None:
        """Called where an exception of ours was caught: it is told, with its trace, and everybody else goes on."""
        self.tell(Mistake(self.now_ms, "", doing, format_exc()))

    def _change_mistaken(self, call: Call | None) -> None:
        self.mistaken("a change of the data directory")
        if call is not None:
            self.close(call.connection, "a mistake of the broker's own")

    def rescue(self, doing: str, now_ms: int) -> list[Effect]:
        """An event ended in an exception of ours: what it had done by then is done."""
        self.now_ms = now_ms
        self.mistaken(doing)
        return self.take(now_ms)


def _cluster_id(fresh: UUID) -> str:
    """As Kafka writes one: 22 characters of base64."""
    return urlsafe_b64encode(fresh.bytes).decode().rstrip("=")
