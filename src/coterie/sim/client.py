"""A client's process: wires to brokers by node and lane, requests as bytes, answers in order, timeouts.

Does what `client/network/connection.py` and `client/network/cluster.py` do on asyncio: a request that is not answered
in time costs the connection; every lane has its own (M11); whoever failed to connect waits a little longer each time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import ModuleType
from typing import TYPE_CHECKING, Any

from coterie.client.network.metadata import Metadata, learn
from coterie.errors import STALE_METADATA, ConnectionLostError, ErrorCode, KafkaError, RequestTimedOutError
from coterie.protocol.apis import metadata as metadata_api
from coterie.protocol.frames import read_response_header, request_frame
from coterie.sim.host import Clock, Host
from coterie.sim.network import Wire

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["ANY", "Asked", "Client", "Done"]

ANY = -1
"""Whichever broker can be asked."""
SETUP_TIMEOUT_MS = 10_000
RECONNECT_MS, RECONNECT_MOST_MS = 50, 1_000
API_TIMEOUT_MS = 60_000
RETRY_MS = 100
_CORRELATION_AT = 8

Done = Callable[[Any, Any, KafkaError | None], None]
"""Called once with what the asker gave, and the answer or an error."""


class Asked:
    __slots__ = ("correlation_id", "done", "due_ms", "is_flexible", "module", "request", "sent_ms", "then", "version")

    def __init__(
        self,
        correlation_id: int,
        module: ModuleType,
        version: int,
        is_flexible: bool,
        request: Any,
        sent_ms: int,
        due_ms: int,
        done: Done,
        then: Any,
    ) -> None:
        self.correlation_id = correlation_id
        self.module = module
        self.version = version
        self.is_flexible = is_flexible
        self.request = request
        self.sent_ms = sent_ms
        self.due_ms = due_ms
        self.done = done
        self.then = then


class Client(Host):
    __slots__ = (
        "_failures",
        "_network",
        "_rng",
        "_wires",
        "client_id",
        "group_id",
        "is_alive",
        "metadata",
        "tag",
        "versions",
    )

    def __init__(self, world: World, name: str, clock: Clock, versions: dict[str, int] | None = None) -> None:
        super().__init__(world, name, clock)
        self.client_id = name
        self.versions = versions or {}
        """The newest it speaks, by the name of the API; others as new as we have them."""
        self.metadata = Metadata()
        self.is_alive = True
        self.group_id = ""
        self._wires: dict[tuple[int, str], Wire] = {}
        self._failures: dict[int, int] = {}
        self._rng = world.rng.of(f"{name}/choices")
        self._network = world.network
        self.tag = name.encode()

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(
        self,
        node_id: int,
        lane: str,
        module: ModuleType,
        request: Any,
        timeout_ms: int,
        done: Done,
        then: Any = None,
        *,
        at_most: int = 1 << 15,
    ) -> None:
        if node_id == ANY:
            node_id = self._any_node()
        wire = self._wires.get((node_id, lane)) or self._open(node_id, lane)
        if request is not wire.last_request and request != wire.last_request:
            wire.last_request, wire.said = request, self._say(module, request, at_most)
        version, is_flexible, before, after = wire.said
        wire.last_id = correlation_id = wire.last_id + 1
        frame = before + correlation_id.to_bytes(4, "big") + after
        now_ms = self._schedule.now_ms
        due_ms = now_ms + timeout_ms
        wire.asked.append(Asked(correlation_id, module, version, is_flexible, request, now_ms, due_ms, done, then))
        if wire.is_ready:
            self._network.send(wire, frame)
        else:
            wire.unsent.append(frame)
        if not now_ms < wire.alarm_ms <= due_ms:
            wire.alarm_ms = due_ms
            self._schedule.at(due_ms, self._look_at, (wire, due_ms))

    def _say(self, module: ModuleType, request: Any, at_most: int) -> tuple[int, bool, bytes, bytes]:
        row = module.API
        version = min(at_most, self.versions.get(row.name, 1 << 15), row.versions[-1])
        body = module.write_request(request, version)
        frame = request_frame(row.key, version, 0, self.client_id, body, flexible=version >= row.flexible)
        return version, row.has_flexible_response_header(version), frame[:_CORRELATION_AT], frame[_CORRELATION_AT + 4 :]

    def _any_node(self) -> int:
        """As `client/network/cluster.py`: whom it could not reach it asks when nobody else is left."""
        numbers = self.world.machine.numbers
        if len(numbers) == 1:
            return numbers[0]
        return self._rng.choice([one for one in numbers if one not in self._failures] or numbers)

    def _open(self, node_id: int, lane: str) -> Wire:
        failures = self._failures.get(node_id, 0)
        pause_ms = min(RECONNECT_MS << min(failures - 1, 5), RECONNECT_MOST_MS) if failures else 0
        key = (node_id, lane)
        wire = self._wires[key] = self.world.network.open(self, self.world.machine, key, pause_ms)
        self.later(pause_ms + SETUP_TIMEOUT_MS, self._set_up, wire)
        return wire

    def _set_up(self, wire: Wire) -> None:
        if wire.is_open and not wire.is_ready:
            self._give_up(wire, ConnectionLostError(f"{wire.machine.name} cannot be reached"))

    def connected(self, wire: Wire) -> None:
        if self.is_paused:
            self.misses(self.connected, wire)
        elif wire.is_open:
            self._failures.pop(wire.key[0], None)
            wire.is_ready = True
            for frame in wire.unsent:
                self.world.network.send(wire, frame)
            wire.unsent.clear()

    def hears(self, about: tuple[Wire, bytes]) -> None:
        if self.is_paused:
            self.misses(self.hears, about)
            return
        wire, data = about
        if not wire.is_open:
            return
        asked = wire.asked.popleft()
        frame = data[4:]
        found, at = read_response_header(frame, flexible=asked.is_flexible)
        if found != asked.correlation_id:
            self.world.fails(
                "order of answers", f"{self.name} was answered {found}, and had asked {asked.correlation_id}"
            )
        answer = asked.module.read_response(frame, at, asked.version)
        for hears in self.world.on_answered:
            hears(self, asked, answer, data)
        asked.done(asked.then, answer, None)

    # --- losing -------------------------------------------------------------------------------------------------------

    def _look_at(self, about: tuple[Wire, int]) -> None:
        """A request may be late: answers come in order, so nothing behind it can come either."""
        wire, at_ms = about
        if not wire.is_open or wire.alarm_ms != at_ms:
            return
        if self.is_paused:
            self.misses(self._look_at, about)
            return
        wire.alarm_ms = -1
        if not wire.asked:
            return
        due_ms = min(asked.due_ms for asked in wire.asked)
        if due_ms > self.world.schedule.now_ms:
            wire.alarm_ms = due_ms
            self.world.schedule.at(due_ms, self._look_at, (wire, due_ms))
            return
        late = next(asked for asked in wire.asked if asked.due_ms == due_ms)
        name = late.module.API.name
        self.world.timed_out(self, wire, late)
        self._give_up(wire, RequestTimedOutError(f"{wire.machine.name} did not answer {name}"))

    def lost(self, wire: Wire) -> None:
        if self.is_paused:
            self.misses(self.lost, wire)
        elif wire.is_open:
            self._give_up(wire, ConnectionLostError(f"{wire.machine.name} closed the connection"))

    def _give_up(self, wire: Wire, error: KafkaError) -> None:
        if self._wires.get(wire.key) is wire:
            del self._wires[wire.key]
        self._failures[wire.key[0]] = self._failures.get(wire.key[0], 0) + 1
        self.world.network.hang_up(wire)
        asked = list(wire.asked)
        wire.asked.clear()
        for one in asked:  # soon, not from within
            self.later(0, self._unanswered, (one, error))

    def _unanswered(self, about: tuple[Asked, KafkaError]) -> None:
        if self.is_paused:
            self.misses(self._unanswered, about)
        elif self.is_alive:
            asked, error = about
            asked.done(asked.then, None, type(error)(str(error), error.code))

    def disconnect(self, node_id: int, lane: str) -> None:
        wire = self._wires.get((node_id, lane))
        if wire is not None:
            self._give_up(wire, ConnectionLostError("given up"))
            self._failures.pop(node_id, None)

    def ends(self, *, loses_power: bool = False) -> None:
        """The process is gone. What was open is closed by the system, unless that is gone as well."""
        self.is_alive = False
        self.is_paused = False
        self.forget_missed()
        wires, self._wires = list(self._wires.values()), {}
        if loses_power:
            self.world.network.vanish(self)
            return
        for wire in wires:
            wire.asked.clear()
            self.world.network.hang_up(wire)

    # --- who leads what -----------------------------------------------------------------------------------------------

    def refresh(
        self, topics: Collection[str] | None, done: Callable[[KafkaError | None], None], *, until_ms: int | None = None
    ) -> None:
        """Ask until it works or `default.api.timeout.ms` has passed."""
        until_ms = self.world.schedule.now_ms + API_TIMEOUT_MS if until_ms is None else until_ms
        wanted = None if topics is None else [metadata_api.Topic(name=name) for name in sorted(topics)]
        request = metadata_api.Request(topics=wanted, allow_auto_topic_creation=False)
        self.ask(ANY, "", metadata_api, request, 30_000, self._refreshed, (topics, done, until_ms))

    def _refreshed(self, about: Any, answer: metadata_api.Response | None, error: KafkaError | None) -> None:
        topics, done, until_ms = about
        if answer is not None and not answer.error and answer.brokers:
            self.metadata = learn(self.metadata, answer, is_all=topics is None)
            done(None)
            return
        if error is None and answer is not None:
            error = KafkaError.of(answer.error or ErrorCode.LEADER_NOT_AVAILABLE, "asking who leads what")
        assert error is not None
        if self.world.schedule.now_ms + RETRY_MS >= until_ms or not (error.retriable or error.code in STALE_METADATA):
            done(error)
            return
        self.later(RETRY_MS, self._refresh_again, about)

    def _refresh_again(self, about: Any) -> None:
        if self.is_paused:
            self.misses(self._refresh_again, about)
        elif self.is_alive:
            topics, done, until_ms = about
            self.refresh(topics, done, until_ms=until_ms)
