"""A broker node without I/O: frames in, effects out. It finds out who answers a request, and packs what they say.

Which API is answered where is the table of `handlers/table.py`; the rules are in the files it names. Logs are appended
to and read here, through the port of `coterie.storage.files`: that is the system's cache. Whatever waits for the disk,
to make things durable, to make and delete files, is an effect that comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.broker.broker_effects import Effect, Send
from coterie.broker.calls import Call, Connection, Gather, Route
from coterie.broker.group_logs import GroupLogs
from coterie.broker.handlers.table import HANDLERS
from coterie.broker.maintenance.directory_changes import Step
from coterie.broker.maintenance.group_loads import GroupLoads
from coterie.broker.placement import Partition
from coterie.coordinator.classic.effects import Reply, Tell
from coterie.coordinator.runtime import Append, Coordinator
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.apis import FIRST_FLEXIBLE, by_key
from coterie.protocol.apis.api_versions import API as API_VERSIONS
from coterie.protocol.apis.api_versions import refuse_version
from coterie.protocol.frames import read_request_header, response_frame, response_frame_parts
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import PartitionLog

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster

__all__ = ["Node"]

_FLEXIBLE = dict(FIRST_FLEXIBLE)  # a view of one, as the table is, is looked up in twice the time


class Node:
    def __init__(self, cluster: Cluster, settings: BrokerSettings) -> None:
        """`settings` are the cluster's, with the number of this node."""
        self.cluster = cluster
        self.settings = settings
        self.node_id = settings.node_id
        self.endpoint = ("127.0.0.1", 0)
        """Where clients find this node: known when it listens."""
        self.led: dict[Partition, PartitionLog] = {}
        """The partitions this node leads."""
        self.timers = cluster.timers
        self.coordinator = Coordinator(settings, cluster.timers, cluster.wall, cluster.held_by_groups)
        self.group_logs = GroupLogs(self)
        self.group_loads = GroupLoads(self)
        self._routes = {key: Route(by_key[key], by_key[key].module, handle) for key, handle in HANDLERS.items()}
        # What all nodes share, under the names by which every handler asks for it.
        self.fresh_id = cluster.fresh_id
        self.directory = cluster.directory
        self.topic_names = cluster.topic_names
        self.flusher = cluster.flusher
        self.fetches = cluster.fetches
        self.changes = cluster.changes
        self.producer_ids = cluster.producer_ids
        self.wrote = cluster.wrote
        self.close = cluster.close
        self.do_later = cluster.do_later
        self.tell = cluster.tell
        self.tell_trouble = cluster.tell_trouble
        self._facts_topic = cluster.facts_topic
        self._take = cluster.take

    # --- events -------------------------------------------------------------------------------------------------------

    def received(self, connection: Connection, frame: bytes, now_ms: int) -> list[Effect]:
        if connection.call is not None or connection.is_full or connection.waiting:
            connection.put_off(frame)
            return []
        return self.look_at(connection, frame, now_ms)

    def look_at(self, connection: Connection, frame: bytes, now_ms: int) -> list[Effect]:
        """Answer or park a request of a connection that has none under way."""
        self._dispatch(connection, frame, now_ms)
        return self._take(now_ms)

    def drained(self, connection: Connection, now_ms: int) -> list[Effect]:
        """The client reads again: what waited behind its last answer is looked at."""
        connection.is_full = False
        self._is_ready(connection)
        return self._take(now_ms)

    def go_on(self, connection: Connection, now_ms: int) -> None:
        """Look at a request that waited."""
        if connection.can_go_on:
            self._dispatch(connection, connection.next_waiting(), now_ms)

    def _is_ready(self, connection: Connection) -> None:
        if connection.waiting:
            self.cluster.ready.append((self, connection))

    def disconnected(self, connection: Connection) -> None:
        """Nobody is removed from a group for that (rule 9); a parked fetch has lost its reader."""
        connection.is_closed = True
        connection.forget_waiting()
        if connection.call is not None:
            self.fetches.forget(connection.call)
            connection.call = None  # else the two hold each other

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
            self.cluster.mistaken(f"answering a request that begins {frame[:4].hex()}")
            self.close(connection, "a mistake of the broker's own")

    def _refuse_version(self, connection: Connection, key: int, version: int, correlation_id: int) -> None:
        """Only ApiVersions answers, in the oldest form there is, so that the client can choose again (C5)."""
        if key == API_VERSIONS.key:
            self.cluster.out.append(Send(connection, response_frame(correlation_id, refuse_version(), flexible=False)))
            self._is_ready(connection)
            return
        name = by_key[key].name if key in by_key else "unknown"
        self.close(connection, f"version {version} of API {key} ({name}) is not supported")

    # --- answers ------------------------------------------------------------------------------------------------------

    def answer(self, call: Call, reply: Any) -> None:
        """`reply` is what the API's `write_response` takes. If it cannot be said, only who asked is sent away."""
        try:
            body = call.route.write(reply, call.version)
        except Exception:  # noqa: BLE001
            self.cluster.mistaken(f"writing an answer of {call.route.api.name}")
            self.close(call.connection, "an answer that cannot be written")
            return
        self.send(call, body)

    def send(self, call: Call, body: bytes) -> None:
        flexible = call.route.header_flexible[call.version]
        self.cluster.out.append(Send(call.connection, response_frame(call.correlation_id, body, flexible=flexible)))
        self.done(call)

    def send_parts(self, call: Call, parts: Sequence[bytes | memoryview]) -> None:
        flexible = call.route.header_flexible[call.version]
        self.cluster.out.append(
            Send(call.connection, response_frame_parts(call.correlation_id, parts, flexible=flexible))
        )
        self.done(call)

    def done(self, call: Call) -> None:
        """Answered, or not to be answered at all: the next request of the connection may be looked at."""
        connection = call.connection
        if connection.call is call:
            connection.call = None
            if connection.waiting:
                self.cluster.ready.append((self, connection))

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
        """If this node leads it; else `absent` says what is wrong."""
        return self.led.get((topic, partition))

    def absent(self, topic: str, partition: int) -> ErrorCode:
        if (topic, partition) in self.directory.logs:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _tell(self, effect: Tell, now_ms: int) -> None:
        effect.fact.at_ms = self.cluster.wall.at(effect.fact.at_ms)
        self.cluster.out.append(effect)
        self._facts_topic.add(effect.fact, now_ms)
