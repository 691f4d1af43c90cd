"""Connections and the requests that came by them, as the node knows them.

A connection has one request under way at a time: what stands behind it is not looked at until it is answered (C6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any

from coterie.protocol.apis import Api

__all__ = ["Call", "Connection", "Gather", "Route"]

WAITING_BYTES = 1 << 20
"""Of requests that stand behind the one under way: with more, or more requests, we stop reading for a while."""


class Connection:
    """One client's stream. `link` belongs to whoever carries the bytes; the node never looks at it."""

    __slots__ = ("call", "host", "is_closed", "is_full", "link", "waiting", "waiting_bytes")

    def __init__(self, host: str, link: Any = None) -> None:
        self.host = host
        self.link = link
        self.call: Call | None = None
        """The request under way."""
        self.waiting: deque[bytes] = deque()
        self.waiting_bytes = 0
        self.is_full = False
        """Its client does not read what we send: nothing more is answered until it does."""
        self.is_closed = False

    def put_off(self, frame: bytes) -> None:
        self.waiting.append(frame)
        self.waiting_bytes += len(frame)

    @property
    def can_go_on(self) -> bool:
        """A request waits, and nothing keeps it from being looked at."""
        return bool(self.waiting) and self.call is None and not self.is_full and not self.is_closed

    def next_waiting(self) -> bytes:
        frame = self.waiting.popleft()
        self.waiting_bytes -= len(frame)
        return frame

    def forget_waiting(self) -> None:
        self.waiting.clear()
        self.waiting_bytes = 0

    def waits_with_more_than(self, share: float, most: int) -> bool:
        """With more than a share of what may wait: of `most` requests, or of the bytes."""
        return len(self.waiting) > share * most or self.waiting_bytes > share * WAITING_BYTES


class Route:
    """What there is to know about an API when a request of it arrives."""

    __slots__ = ("api", "first", "handle", "header_flexible", "last", "write")

    def __init__(self, api: Api, module: ModuleType, handle: Callable[..., None]) -> None:
        self.api = api
        self.first = api.versions[0] if not api.refused else api.refused[-1] + 1
        self.last = api.versions[-1]
        self.handle = handle
        self.write: Callable[..., bytes] = module.write_response
        self.header_flexible = [api.has_flexible_response_header(version) for version in range(self.last + 1)]


class Call:
    """One request, and the token its answer is addressed to."""

    __slots__ = ("connection", "correlation_id", "route", "version")

    def __init__(self, connection: Connection, route: Route, version: int, correlation_id: int) -> None:
        self.connection = connection
        self.route = route
        self.version = version
        self.correlation_id = correlation_id


class Gather:
    """Answers of several groups to one request: when the last has come, all go out in the order asked."""

    __slots__ = ("answers", "call", "finish", "missing")

    def __init__(self, call: Call, count: int, finish: Callable[[list[Any]], Any]) -> None:
        self.call = call
        self.answers: list[Any] = [None] * count
        self.missing = count
        self.finish = finish
        """From all answers to what is answered."""

    def part(self, index: int) -> tuple[Gather, int]:
        """The token of one of them."""
        return (self, index)
