"""Connections, their requests and the responses to them, as the node knows them.

A connection has one request under way at a time; the requests behind it wait until it is answered (C6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any

from coterie.broker.broker_effects import Close, Effects, Ready, Send
from coterie.broker.broker_facts import Reporter
from coterie.protocol.apis import Api
from coterie.protocol.frames import response_frame, response_frame_parts
from coterie.structs import DataStruct

if TYPE_CHECKING:
    from uuid import UUID

    from coterie.broker.security.sasl_server_authenticator import SaslServerAuthenticator
    from coterie.protocol.messages import ConsumerGroupHeartbeat

__all__ = ["ANONYMOUS", "PLAINTEXT", "Call", "Connection", "Gather", "Handler", "Responses", "Route", "close"]

PLAINTEXT = "PLAINTEXT"
ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that has not authenticated, and need not."""

UNKNOWN_SOFTWARE = ("unknown", "unknown")

Handler = Callable[["Call", bytes, int, int], Effects]
"""Handles the requests of one API. It takes the call, the frame, where its body begins, and the time."""

WAITING_BYTES = 1 << 20
"""The broker stops reading from a client whose waiting requests have more bytes than this, or are too many."""


class Connection:
    """One client's stream. `link` belongs to the driver; the node never looks at it."""

    __slots__ = (
        "authenticator",
        "call",
        "client_instance_id",
        "heartbeat",
        "host",
        "is_closed",
        "is_full",
        "is_quick",
        "link",
        "listener",
        "port",
        "principal",
        "software",
        "waiting",
        "waiting_bytes",
    )

    def __init__(self, host: str, link: Any = None, listener: str = PLAINTEXT) -> None:
        self.host = host
        self.port: int | None = None
        """The client's port, if the driver knows it."""
        self.link = link
        self.listener = listener
        """The name of the listener that the client connected to."""
        self.principal = ANONYMOUS
        """The user that the client has authenticated as. ACLs are checked for this principal."""
        self.authenticator: SaslServerAuthenticator | None = None
        """Sees every request before it is answered; None on a listener without SASL."""
        self.is_quick = True
        """True if a heartbeat may skip the node. It may not before authentication, or if the session can expire."""
        self.call: Call | None = None
        """The request under way."""
        self.heartbeat: tuple[bytes, ConsumerGroupHeartbeat] | None = None
        """A frame that was read already, and what it says: the heartbeat that the quick path could not answer."""
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.is_full = False
        """The client does not read what it is sent: nothing more is answered until it does."""
        self.is_closed = False
        self.software = UNKNOWN_SOFTWARE
        """The name and the version of the client's software, as ApiVersions said."""
        self.client_instance_id: UUID | None = None
        """The client instance that was first seen on this connection (KIP-714)."""

    def put_off(self, frame: bytes) -> None:
        self.waiting.append(frame)
        self.waiting_bytes += len(frame)

    @property
    def can_go_on(self) -> bool:
        """Return whether a request waits and may be looked at."""
        return bool(self.waiting) and self.call is None and not self.is_full and not self.is_closed

    def next_waiting(self) -> bytes:
        frame = self.waiting.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    def forget_waiting(self) -> None:
        self.waiting.clear()
        self.waiting_bytes = 0

    def waits_with_more_than(self, share: float, most: int) -> bool:
        """Return whether more than a share of what may wait does: of `most` requests, or of the bytes."""
        return len(self.waiting) > share * most or self.waiting_bytes > share * WAITING_BYTES


class Route:
    """An API: its versions, who handles it, and how its responses are written."""

    __slots__ = ("api", "first", "handle", "header_flexible", "last", "write")

    def __init__(self, api: Api, module: ModuleType, handle: Handler) -> None:
        self.api = api
        self.first = api.versions[0] if not api.refused else api.refused[-1] + 1
        self.last = api.versions[-1]
        self.handle = handle
        self.write: Callable[..., bytes] = module.write_response
        self.header_flexible = [api.has_flexible_response_header(version) for version in range(self.last + 1)]


class Call(DataStruct, eq=False):
    """One request, and the token its answer is addressed to."""

    connection: Connection
    route: Route
    version: int
    correlation_id: int


class Gather:
    """Gathers several answers to one request; when the last has come, all go out in the order asked."""

    __slots__ = ("answers", "call", "finish", "missing")

    def __init__(self, call: Call, count: int, finish: Callable[[list[Any], int], Effects]) -> None:
        """`finish` takes all answers and the time."""
        self.call = call
        self.answers: list[Any] = [None] * count
        self.missing = count
        self.finish = finish

    def part(self, index: int) -> tuple[Gather, int]:
        """Return the token of one of the answers."""
        return (self, index)

    def put(self, index: int, answer: Any, now_ms: int) -> Effects:
        self.answers[index] = answer
        self.missing -= 1
        if self.missing:
            return []
        finish = self.finish
        self.let_go()
        return finish(self.answers, now_ms)

    def let_go(self) -> None:
        """Drop the callback when no answer is awaited any more: it would keep a reference cycle alive."""
        self.finish = _nothing


def _nothing(_answers: list[Any], _now_ms: int) -> Effects:
    return []


def close(connection: Connection, why: str) -> Effects:
    connection.forget_waiting()
    return [Close(connection, why)]


class Responses:
    """Turns answers into frames, and lets the connection handle its next request."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def answer(self, call: Call, reply: Any, now_ms: int) -> Effects:
        """`reply` is what the API's `write_response` takes. If it cannot be written, only its connection is closed."""
        try:
            body = call.route.write(reply, call.version)
        except Exception:  # noqa: BLE001
            mistake = self._reporter.mistake(f"writing an answer of {call.route.api.name}", now_ms)
            return [mistake, *close(call.connection, "an answer that cannot be written")]
        return self.send(call, body)

    def send(self, call: Call, body: bytes) -> Effects:
        connection = call.connection
        flexible = call.route.header_flexible[call.version]
        effects: Effects = [Send(connection, response_frame(call.correlation_id, body, flexible=flexible))]
        if connection.call is call:
            connection.call = None
            if connection.waiting:
                effects.append(Ready(connection))
        return effects

    def send_parts(self, call: Call, parts: Sequence[bytes | memoryview]) -> Effects:
        flexible = call.route.header_flexible[call.version]
        data = response_frame_parts(call.correlation_id, parts, flexible=flexible)
        return [Send(call.connection, data), *self.done(call)]

    def done(self, call: Call) -> Effects:
        """The call is answered, or has no answer: the next request of its connection may be looked at."""
        connection = call.connection
        if connection.call is call:
            connection.call = None
            if connection.waiting:
                return [Ready(connection)]
        return []
