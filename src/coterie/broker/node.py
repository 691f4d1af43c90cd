"""A broker node without I/O: frames in, effects out. It finds out who answers a request, and packs what they say.

Which API is answered where is the table of `handlers.py`; the rules are in the files it names. Logs are appended
to and read here, through the port of `coterie.log.files`: that is the system's cache. Whatever waits for the disk, to
make things durable, to make and delete files, is an effect that comes back.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from traceback import format_exc
from typing import Any
from uuid import UUID

from coterie.apis import FIRST_FLEXIBLE, by_key
from coterie.apis.api_versions import API as API_VERSIONS
from coterie.apis.api_versions import refuse_version
from coterie.broker.calls import Call, Close, Connection, Do, Effect, FlushEnded, Gather, Route, Send, WorkEnded
from coterie.broker.changes import Changes, Step
from coterie.broker.facts import Trouble
from coterie.broker.fetch import FetchDue, Fetches
from coterie.broker.flushing import Flusher, Waiter
from coterie.broker.groups import GroupLogs
from coterie.broker.handlers import HANDLERS
from coterie.broker.kept_facts import FactsDue, KeptFacts
from coterie.broker.produce import ProduceDue
from coterie.broker.producer_ids import ProducerIds
from coterie.broker.settings import Settings
from coterie.broker.topic_changes import is_internal
from coterie.broker.upkeep import (
    CHECKPOINT_EVERY_MS,
    CheckpointDue,
    MendDue,
    RetentionDue,
    check_retention,
    checkpoint,
    mend,
)
from coterie.coordinator import Append, Coordinator
from coterie.errors import MalformedError
from coterie.facts import Fact, Mistake
from coterie.group.effects import Reply, Tell
from coterie.log import DataDirectory, Files, LogConfig, PartitionLog, Topic
from coterie.wire.frames import read_request_header, response_frame, response_frame_parts

__all__ = ["Node"]

_FLEXIBLE = dict(FIRST_FLEXIBLE)  # a view of one, as the table is, is looked up in twice the time


class Node:
    def __init__(
        self, files: Files, settings: Settings, now_ms: int, *, fresh_id: Callable[[], UUID], sync: bool
    ) -> None:
        """`fresh_id` are the dice: ids of members, topics and the cluster."""
        self.files = files
        self.settings = settings
        self.fresh_id = fresh_id
        self.node_id = settings.node_id
        self.endpoint = ("127.0.0.1", 0)
        """Where clients find this node: known when it listens."""
        self.directory = DataDirectory.open(
            files,
            now_ms,
            cluster_id=settings.coterie_cluster_id or _cluster_id(fresh_id()),
            node_id=settings.node_id,
            config_of=self._config_of,
            journaled=sync,
        )
        self.cluster_id = self.directory.meta["cluster.id"]
        self.coordinator = Coordinator(settings.coordinator)
        self.flusher = Flusher(sync=sync, mistaken=self._mistaken, journal=self.directory.journal)
        self.changes = Changes(self._change_mistaken)
        self.fetches = Fetches(self)
        self.group_logs = GroupLogs(self)
        self.kept_facts = KeptFacts(self)
        self.producer_ids = ProducerIds(files)
        self.data_path = "memory"
        self.topic_names = {topic.id: topic.name for topic in self.directory.topics.values()}
        self.is_stopping = False
        self.ready: deque[Connection] = deque()
        """Whoever was answered and has more waiting: `go_on`, after the answer is sent."""
        self._out: list[Effect] = []
        self.now_ms = now_ms
        """Of the event at hand."""
        self._routes = {key: Route(by_key[key], by_key[key].module, handle) for key, handle in HANDLERS.items()}

    def _config_of(self, topic: Topic) -> LogConfig:
        if is_internal(topic.name):
            return self.settings.offsets_log_config(topic.configs)
        return self.settings.log_config(topic.configs)

    # --- events -------------------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Read the groups back and set the timers of upkeep."""
        self.group_logs.load(now_ms)
        timers = self.coordinator.timers
        timers.arm("checkpoint", now_ms + CHECKPOINT_EVERY_MS, CheckpointDue())
        timers.arm("retention", now_ms + self.settings.log_retention_check_interval_ms, RetentionDue())
        return self._take(now_ms)

    def received(self, connection: Connection, frame: bytes, now_ms: int) -> list[Effect]:
        if connection.call is not None or connection.is_full or connection.waiting:
            connection.waiting.append(frame)
            connection.waiting_bytes += len(frame)
            return []
        self._dispatch(connection, frame, now_ms)
        return self._take(now_ms)

    def drained(self, connection: Connection, now_ms: int) -> list[Effect]:
        """The client reads again: what waited behind its last answer is looked at."""
        connection.is_full = False
        self._is_ready(connection)
        return self._take(now_ms)

    def go_on(self, now_ms: int) -> list[Effect]:
        """Look at one request that waited; one, since only when its answer is sent we know if the client takes more."""
        connection = self.ready.popleft()
        if connection.waiting and connection.call is None and not connection.is_full and not connection.is_closed:
            frame = connection.waiting.popleft()
            connection.waiting_bytes -= len(frame)
            self._dispatch(connection, frame, now_ms)
        return self._take(now_ms)

    def _is_ready(self, connection: Connection) -> None:
        if connection.waiting:
            self.ready.append(connection)

    def disconnected(self, connection: Connection) -> None:
        """Nobody is removed from a group for that (rule 9); a parked fetch has lost its reader."""
        connection.is_closed = True
        connection.waiting.clear()
        connection.waiting_bytes = 0
        if connection.call is not None:
            self.fetches.forget(connection.call)

    def disk_ended(self, event: FlushEnded | WorkEnded, now_ms: int) -> list[Effect]:
        self.now_ms = now_ms
        if isinstance(event, WorkEnded):
            work = self.changes.ended(event, now_ms)
            if work is not None:
                self._out.append(work)
        else:
            self._flushed(event, now_ms)
        return self._take(now_ms)

    def _flushed(self, event: FlushEnded, now_ms: int) -> None:
        for log, error in self.flusher.ended(event, now_ms):
            if error is None:
                self.fetches.advanced(log)
            else:
                self.tell_trouble(f"{log.path}: {error}", now_ms)
                mend(self, log)

    def ring(self, now_ms: int) -> list[Effect]:
        for event in self.coordinator.timers.due(now_ms):
            if isinstance(event, FetchDue):
                self.fetches.due(event)
            elif isinstance(event, ProduceDue):
                event.production.due()
            elif isinstance(event, CheckpointDue):
                checkpoint(self)
            elif isinstance(event, RetentionDue):
                check_retention(self)
            elif isinstance(event, MendDue):
                mend(self, event.log)
            elif isinstance(event, FactsDue):
                self.kept_facts.write(now_ms)
            else:
                self.follow(self.coordinator.handle(event, now_ms), now_ms)
        return self._take(now_ms)

    def stop(self, now_ms: int) -> list[Effect]:
        """Whoever waits is answered: groups are told to look for another coordinator, fetches what there is."""
        self.is_stopping = True
        for partition in list(self.coordinator.shards):
            self.follow(self.coordinator.lose(partition, now_ms), now_ms)
        self.fetches.answer_all()
        self.kept_facts.write(now_ms)
        return self._take(now_ms)

    def next_ms(self) -> int | None:
        return self.coordinator.timers.next_ms()

    def _take(self, now_ms: int) -> list[Effect]:
        """The effects of this event; and if nothing is being flushed or changed, what it wrote or asked for is, now."""
        self.now_ms = now_ms
        if self.changes.waiting:
            work = self.changes.start(now_ms)
            if work is not None:
                self._out.append(work)
        if self.flusher.settled:
            self.flusher.settle(now_ms)
        flush = self.flusher.start(now_ms) if self.flusher.is_wanted else None
        out, self._out = self._out, []
        if flush is not None:
            out.append(flush)
        return out

    # --- requests -----------------------------------------------------------------------------------------------------

    def _dispatch(self, connection: Connection, frame: bytes, now_ms: int) -> None:
        try:
            key, version, correlation_id, at = read_request_header(frame, _FLEXIBLE)
            route = self._routes.get(key)
            if route is None or not route.first <= version <= route.last:
                self._refuse_version(connection, key, version, correlation_id)
                return
            call = connection.call = Call(connection, route, version, correlation_id)
            route.handle(self, call, frame, at, now_ms)
        except MalformedError as error:
            connection.call = None
            self.close(connection, f"a request that cannot be read: {error}")
        except Exception:  # noqa: BLE001  who sent it is sent away; nobody else is to notice
            self._mistaken(f"answering a request that begins {frame[:4].hex()}")
            self.close(connection, "a mistake of the broker's own")

    def _mistaken(self, doing: str) -> None:
        """Called where an exception of ours was caught: it is told, with its trace, and everybody else goes on."""
        self.tell(Mistake(self.now_ms, "", doing, format_exc()))

    def _change_mistaken(self, call: Call | None) -> None:
        self._mistaken("a change of the data directory")
        if call is not None:
            self.close(call.connection, "a mistake of the broker's own")

    def rescue(self, doing: str, now_ms: int) -> list[Effect]:
        """An event ended in an exception of ours: what it had done by then is done."""
        self.now_ms = now_ms
        self._mistaken(doing)
        return self._take(now_ms)

    def _refuse_version(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """Only ApiVersions answers, in the oldest form there is, so that the client can choose again (C5)."""
        if key == API_VERSIONS.key:
            self._out.append(Send(connection, response_frame(correlation_id, refuse_version(), flexible=False)))
            self._is_ready(connection)
            return
        name = by_key[key].name if key in by_key else "unknown"
        self.close(connection, f"version {version} of API {key} ({name}) is not supported")

    def close(self, connection: Connection, why: str) -> None:
        connection.waiting.clear()
        connection.waiting_bytes = 0
        self._out.append(Close(connection, why))

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, call: Call, reply: Any) -> None:
        """`reply` is what the API's `write_response` takes. If it cannot be said, only who asked is sent away."""
        try:
            body = call.route.write(reply, call.version)
        except Exception:  # noqa: BLE001
            self._mistaken(f"writing an answer of {call.route.api.name}")
            self.close(call.connection, "an answer that cannot be written")
            return
        self.send(call, body)

    def send(self, call: Call, body: bytes) -> None:
        flexible = call.route.header_flexible[call.version]
        self._out.append(Send(call.connection, response_frame(call.correlation_id, body, flexible=flexible)))
        self.done(call)

    def send_parts(self, call: Call, parts: Sequence[bytes | memoryview]) -> None:
        flexible = call.route.header_flexible[call.version]
        self._out.append(Send(call.connection, response_frame_parts(call.correlation_id, parts, flexible=flexible)))
        self.done(call)

    def done(self, call: Call) -> None:
        """Answered, or not to be answered at all: the next request of the connection may be looked at."""
        connection = call.connection
        if connection.call is call:
            connection.call = None
            if connection.waiting:
                self.ready.append(connection)

    # --- effects of the coordinator -----------------------------------------------------------------------------------

    def ask(self, request: Any, now_ms: int) -> None:
        """A word of the group protocol; its token says who is answered."""
        self.follow(self.coordinator.handle(request, now_ms), now_ms)

    def follow(self, effects: Sequence[Any], now_ms: int) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Reply:
                token = effect.token
                if type(token) is Call:
                    self.answer(token, effect.answer)
                else:
                    gather, index = token
                    self.gather(gather, index, effect.answer)
            elif kind is Append:
                self.group_logs.append(effect, now_ms)
            else:
                self._tell(effect, now_ms)

    def gather(self, gather: Gather, index: int, answer: Any) -> None:
        gather.answers[index] = answer
        gather.missing -= 1
        if not gather.missing:
            self.answer(gather.call, gather.finish(gather.answers))

    def change_each(
        self,
        call: Call,
        asked: Sequence[Any],
        change: Callable[[Any, Any, Callable[[Any], None], int], Step | None],
        finish: Callable[[list[Any]], Any],
    ) -> None:
        """Changes of the data directory, in the order asked; `change` tells its part of the answer to a callable."""
        if not asked:
            self.answer(call, finish([]))
            return
        gather = Gather(call, len(asked), finish)
        for index, each in enumerate(asked):
            self.changes.ask(call, partial(change, self, each, partial(self.gather, gather, index)))

    # --- logs ---------------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        return self.directory.logs.get((topic, partition))

    def wrote(self, log: PartitionLog, waiter: Waiter | None) -> None:
        """Something was appended: whoever waits for it to be durable is told, and so are readers."""
        self.flusher.written(log, waiter)
        if not self.flusher.sync:
            self.fetches.advanced(log)

    def do_later(self, what: str, work: Callable[[], None]) -> None:
        self._out.append(Do(what, work))

    def tell(self, fact: Fact) -> None:
        self._out.append(Tell(fact))

    def _tell(self, effect: Tell, now_ms: int) -> None:
        self._out.append(effect)
        self.kept_facts.add(effect.fact, now_ms)

    def tell_trouble(self, what: str, now_ms: int) -> None:
        self.tell(Trouble(now_ms, "", what))


def _cluster_id(fresh: UUID) -> str:
    """As Kafka writes one: 22 characters of base64."""
    return urlsafe_b64encode(fresh.bytes).decode().rstrip("=")
