"""The requests of one connection, and the versions that they have. No I/O.

Answers come in the order of the requests, so the first request without an answer is the one that the next frame
answers. While the client authenticates again, requests are held back. Times are in seconds, as event loops count them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NamedTuple

from coterie.errors import MalformedError, UnsupportedVersionError
from coterie.protocol.api import Api
from coterie.protocol.apis import api_versions
from coterie.protocol.frames import client_id_bytes, read_response_header, request_frame_of

_HIGHEST_CORRELATION = 2**31 - 1
NEVER = float("inf")


class InFlightRequest:
    """A request that is to be answered. `answer`, who waits for it, and `timer` are the driver's."""

    __slots__ = ("answer", "api", "correlation_id", "deadline", "timeout_ms", "timer", "version")

    timer: Any

    def __init__(self, api: Api, version: int, now: float, timeout_ms: float, answer: Any = None) -> None:
        self.api = api
        self.version = version
        self.timeout_ms = timeout_ms
        self.deadline = now + timeout_ms / 1000
        self.answer = answer
        self.correlation_id = 0
        """0 until it is sent."""


class HeldBack(NamedTuple):
    """A request that waits for the end of a login; `request` is None if it has no answer."""

    api: Api
    version: int
    body: bytes
    request: InFlightRequest | None


class InFlightRequests:
    def __init__(self, client_id: str, max_idle_s: float, now: float) -> None:
        """`max_idle_s`: how long the connection may be unused; below zero: for any time."""
        self._header_end = client_id_bytes(client_id)
        self._flexible_header_end = self._header_end + b"\0"
        self._max_idle_s = max_idle_s
        self._used_at = now
        self._last_correlation_id = 0
        self.sent: deque[InFlightRequest] = deque()
        """The requests that the broker has to answer, in order."""
        self._held_back: deque[HeldBack] | None = None
        """The requests that wait while the client authenticates again; None otherwise."""
        self.login_at = NEVER
        """When to authenticate again. The next request from then on is held back, and those that follow it."""

    def __len__(self) -> int:
        """Return the number of requests that are not answered yet."""
        return len(self.sent) + len(self._held_back or ())

    # --- sending ------------------------------------------------------------------------------------------------------

    def send(self, api: Api, version: int, body: bytes, request: InFlightRequest | None, now: float) -> bytes | None:
        """Return the frame to write; None if the request is held back. `request` is None if it has no answer."""
        self._used_at = now
        if now >= self.login_at:
            self.login_at = NEVER
            self._held_back = deque()
        if self._held_back is not None:
            self._held_back.append(HeldBack(api, version, body, request))
            return None
        return self.frame(api, version, body, request)

    def frame(self, api: Api, version: int, body: bytes, request: InFlightRequest | None) -> bytes:
        """Return the frame of a request that is never held back: of a login, or one that was held back until now."""
        self._last_correlation_id = correlation_id = self._last_correlation_id % _HIGHEST_CORRELATION + 1
        if request is not None:
            request.correlation_id = correlation_id
            self.sent.append(request)
        header_end = self._flexible_header_end if version >= api.flexible else self._header_end
        return request_frame_of(api.key, version, correlation_id, header_end, body)

    def release(self) -> Sequence[HeldBack]:
        """The client has authenticated: return what was held back, in order. It is sent with `frame`."""
        held_back, self._held_back = self._held_back, None
        return held_back or ()

    # --- what becomes of requests -------------------------------------------------------------------------------------

    def answered(self, frame: bytes) -> tuple[InFlightRequest, int]:
        """Return the request that a frame answers, and where the answer's body begins.

        Raises:
            MalformedError: It is not the answer that is due. The connection cannot be used any more.
        """
        if not self.sent:
            raise MalformedError(f"{len(frame)} bytes came and nothing had been asked")
        request = self.sent[0]
        flexible = request.api.has_flexible_response_header(request.version)
        correlation_id, at = read_response_header(frame, flexible=flexible)
        if correlation_id != request.correlation_id:
            raise MalformedError(
                f"the answer to request {correlation_id} came where that to {request.correlation_id} "
                f"({request.api.name}) was due; a broker answers in order"
            )
        self.sent.popleft()
        return request, at

    def expired(self, now: float) -> InFlightRequest | None:
        """Return the request whose time ended first; None if none has ended.

        The connection has to be closed then: no later answer can arrive before the one that is missing.
        """
        late = [each for each in self._waiting() if each.deadline <= now]
        return min(late, key=lambda each: each.deadline, default=None)

    def drop(self) -> list[InFlightRequest]:
        """The connection has ended: return the requests that get no answer."""
        waiting = self._waiting()
        self.sent, self._held_back = deque(), None
        return waiting

    def _waiting(self) -> list[InFlightRequest]:
        return [*self.sent, *(each.request for each in self._held_back or () if each.request is not None)]

    # --- idleness -----------------------------------------------------------------------------------------------------

    @property
    def idle_at(self) -> float:
        """When the connection is idle for too long, unless it is used before."""
        return self._used_at + self._max_idle_s if self._max_idle_s >= 0 else NEVER

    def is_idle(self, now: float) -> bool:
        """Return whether nothing was asked for too long. A connection that waits for an answer is in use."""
        if len(self):
            self._used_at = now
        return now - self._used_at >= self._max_idle_s >= 0


# Which version of an API a client and a broker speak with each other: the highest that both know.


class Versions:
    def __init__(self, whose: object, answer: api_versions.Response) -> None:
        """`whose`: the broker, as errors name it."""
        self._whose = whose
        self._theirs = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}
        self._features = {each.name: each.max_version_level for each in answer.finalized_features}
        self._chosen: dict[tuple[int, int | None], int] = {}

    def of(self, api: ModuleType, at_most: int | None = None) -> int:
        """Return the highest version that both sides have, not above `at_most`."""
        row: Api = api.API
        key = (row.key, at_most)
        version = self._chosen.get(key)
        if version is None:
            version = self._chosen[key] = self._highest(row, at_most)
        return version

    def feature(self, name: str) -> int:
        """Return the finalized level of a feature (KIP-584); 0 if the broker does not name it."""
        return self._features.get(name, 0)

    def _highest(self, row: Api, at_most: int | None) -> int:
        theirs = self._theirs.get(row.key, range(0))
        limit = row.versions[-1] if at_most is None else at_most
        ours = [version for version in row.versions if row.serves(version) and version <= limit]
        if not theirs:
            raise UnsupportedVersionError(
                f"{self._whose} does not speak {row.name} at all, of which we speak versions {_span(ours)}"
            )
        common = [version for version in ours if version in theirs]
        if not common:
            raise UnsupportedVersionError(
                f"{self._whose} speaks {row.name} in versions {_span(theirs)}, we in {_span(ours)}: "
                "there is none in common"
            )
        return common[-1]


def version_after_refusal(refusal: api_versions.Response) -> int:
    """A broker that does not know our latest version of ApiVersions says in version 0 which it knows (KIP-511)."""
    row = api_versions.API
    theirs = [each.max_version for each in refusal.api_keys if each.api_key == row.key]
    return min([row.versions[-1], *theirs]) if theirs else 0


def _span(versions: Sequence[int]) -> str:
    return f"{versions[0]} to {versions[-1]}"
