"""One connection to one broker: its bytes, futures and timers. `in_flight_requests.py` decides.

A response that cannot be read ends the connection, and all requests that wait on it fail with the reason.

On a listener with SASL the connection authenticates first, and again before its session expires (KIP-368). To
re-authenticate it holds new requests back, waits for the responses to earlier ones, authenticates, and then sends the
requests that it held back, in order.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any, Self, cast

from coterie.client.network.in_flight_requests import (
    NEVER,
    InFlightRequest,
    InFlightRequests,
    Versions,
    version_after_refusal,
)
from coterie.client.network.sasl import Authenticator
from coterie.client.network.tls import certificate_error, handshake_error, other_listener, wants_tls
from coterie.errors import (
    AuthenticationError,
    ConnectionLostError,
    ErrorCode,
    IllegalArgumentError,
    KafkaError,
    MalformedError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from coterie.protocol.api import Api
from coterie.protocol.apis import api_versions
from coterie.protocol.frames import SMALL, FrameReader
from coterie.settings.client_settings import Address, ClientSettings
from coterie.version import __version__

SOFTWARE = "coterie"
CLOSE_GRACE_S = 1.0
LONGEST_S = 86_400.0
"""Timers do not take the centuries that settings allow."""

_Answer = tuple[bytes, int]
"""A frame and where its body begins."""

OnAnswer = Callable[[Any, Exception | None], None]
"""Called with an answer and None, or with None and an error."""


_here = threading.local()


def _small_frames() -> bytearray:
    """Return the buffer that all connections of a thread share: each uses it only within one turn of the event loop."""
    found: bytearray | None = getattr(_here, "small_frames", None)
    if found is None:
        found = _here.small_frames = bytearray(SMALL)
    return found


class _Callback:
    """Takes the place of a future, and calls a function with the answer: soon, as futures call theirs."""

    __slots__ = ("_api", "_connection", "_is_done", "_then", "_version")

    def __init__(self, connection: BrokerConnection, api: ModuleType, version: int, then: OnAnswer) -> None:
        self._connection, self._api, self._version, self._then = connection, api, version, then
        self._is_done = False

    def done(self) -> bool:
        return self._is_done

    def set_result(self, answer: _Answer) -> None:
        self._is_done = True
        self._connection._loop.call_soon(self._read, answer)  # noqa: SLF001  it is a part of the connection

    def set_exception(self, error: Exception) -> None:
        self._is_done = True
        self._connection._loop.call_soon(self._then, None, error)  # noqa: SLF001

    def _read(self, answer: _Answer) -> None:
        try:
            reply = self._connection._read(self._api, *answer, self._version)  # noqa: SLF001
        except KafkaError as unreadable:
            self._then(None, unreadable)
        else:
            self._then(reply, None)


_TLS_ALERT = b"\x15\x03"
_FIRST_REQUESTS = 3
"""The numbers of ApiVersions, which may be asked twice, and of what follows it."""


class BrokerConnection(asyncio.BufferedProtocol):
    _versions: Versions

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self._settings = settings
        self._request_timeout_ms = settings.request_timeout_ms
        self._idle_s = min(settings.connections_max_idle_ms / 1000, LONGEST_S)
        self._frames = FrameReader(settings.coterie_max_response_bytes, _small_frames())
        self._loop = asyncio.get_running_loop()
        self._requests = InFlightRequests(settings.client_id or SOFTWARE, self._idle_s, self._loop.time())
        self._written: tuple[Any, int | None, int, bytes] | None = None
        """The last request of `ask`, the version that it may have at most, the one that it has, and its body."""
        self._authenticator: Authenticator | None = None
        self._all_answered: asyncio.Future[None] | None = None
        self._login: asyncio.Task[None] | None = None
        """The task that authenticates again."""
        self._idle_timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self._is_silent = True
        """True until something has been received."""
        self._gone = self._loop.create_future()
        self.error: KafkaError | None = None
        """The error that ended the connection; None while it is open."""
        self.on_lost: Callable[[KafkaError], None] | None = None
        """Is called when it ends and not by our own will."""

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        settings: ClientSettings,
        *,
        setup_timeout_ms: float | None = None,
        context: ssl.SSLContext | None = None,
        authenticator: Authenticator | None = None,
    ) -> Self:
        """Return a connection with known API versions, authenticated if the listener needs it.

        Raises:
            ConnectionLostError: The broker cannot be reached.
            AuthenticationError: Broker and client do not accept each other.
        """
        address = Address(host, port)
        connection = cls(address, settings)
        connection._authenticator = authenticator
        within_ms = settings.socket_connection_setup_timeout_ms if setup_timeout_ms is None else setup_timeout_ms
        loop = connection._loop
        try:
            async with asyncio.timeout(min(within_ms / 1000, LONGEST_S)):
                await loop.create_connection(lambda: connection, host, port, ssl=context)
        except TimeoutError:
            raise ConnectionLostError(
                f"{address} did not accept a connection within {within_ms:.0f} ms: is it the right address, "
                "and is nothing in between that drops packets?"
            ) from None
        except (OSError, UnicodeError) as error:
            failed = handshake_error(address, error, settings)
            raise failed or ConnectionLostError(f"cannot connect to {address}: {_why(error)}") from None
        try:
            connection._tune(settings)
            await connection._learn_versions()
            await connection._authenticate()
        except BaseException:
            connection._end(ConnectionLostError(f"{address}: the connection was not needed any more"))
            raise
        connection._watch_idleness()
        return connection

    def __repr__(self) -> str:
        return f"BrokerConnection({self.address}, {'closed' if self.is_closed else f'{self.in_flight} in flight'})"

    @property
    def is_closed(self) -> bool:
        return self.error is not None

    @property
    def in_flight(self) -> int:
        """The number of requests that are not answered yet."""
        return len(self._requests)

    def version_of(self, api: ModuleType, at_most: int | None = None) -> int:
        """Return the highest version that both sides support, not above `at_most`."""
        return self._versions.of(api, at_most)

    def feature(self, name: str) -> int:
        """Return the level of a feature that the cluster has finalized, as of when this connection was opened."""
        return self._versions.feature(name)

    async def send(
        self,
        api: ModuleType,
        request: Any,
        *,
        timeout_ms: float,
        at_most: int | None = None,
        at_least: int = 0,
        expects_answer: bool = True,
    ) -> Any:
        """Ask, and wait for the answer. Requests go out in the order of the calls, many at a time.

        `expects_answer` False is for a Produce with acks=0, the one request that has none.
        """
        version = self.version_of(api, at_most)
        if version < at_least:
            raise UnsupportedVersionError(
                f"{self.address} speaks {api.API.name} in version {version}, and version {at_least} is needed"
            )
        try:
            body = api.write_request(request, version)
        except (struct.error, OverflowError, UnicodeEncodeError) as error:
            raise IllegalArgumentError(
                f"{api.API.name} version {version}: a value does not fit its field ({error})"
            ) from None
        if not expects_answer:
            self._send(api.API, version, body, None, self._loop.time())
            return None
        frame, at = await self._ask(api.API, version, body, timeout_ms)
        return self._read(api, frame, at, version)

    def ask(
        self,
        api: ModuleType,
        request: Any,
        then: OnAnswer,
        *,
        timeout_ms: float,
        at_most: int | None = None,
    ) -> None:
        """Ask without a task: `then` is called soon after the answer came, or the error.

        The bytes of a request that is sent again and again are written once. Raises what cannot be sent.
        """
        known = self._written
        if known is None or known[0] is not request or known[1] != at_most:
            version = self.version_of(api, at_most)
            known = self._written = request, at_most, version, api.write_request(request, version)
        _, _, version, body = known
        now = self._loop.time()
        asked = self._asked(api.API, version, timeout_ms, _Callback(self, api, version, then), now)
        try:
            self._send(api.API, version, body, asked, now)
        except KafkaError:
            asked.timer.cancel()
            raise

    async def close(self) -> None:
        """Close the connection without waiting for answers. A second close does nothing."""
        self._end(ConnectionLostError(f"the connection to {self.address} was closed by this client"), orderly=True)
        if self._transport is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await asyncio.shield(self._gone)
        self._transport.abort()

    def abort(self) -> None:
        """Close the socket at once, without waiting until it is closed."""
        self.on_lost = None
        self._end(ConnectionLostError(f"the connection to {self.address} was given up by this client"))

    # --- asking -------------------------------------------------------------------------------------------------------

    def _send(self, row: Api, version: int, body: bytes, asked: InFlightRequest | None, now: float) -> None:
        """Write a request, unless it is held back while the client logs in again."""
        if self.error is not None:
            raise _again(self.error)
        frame = self._requests.send(row, version, body, asked, now)
        if frame is not None:
            self._transport.write(frame)  # type: ignore[union-attr]  # it is used after it was opened
        elif self._login is None:
            self._login = self._loop.create_task(self._authenticate_again())

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None, "it is used after it was opened"
        self._transport.write(frame)

    async def _ask(self, row: Api, version: int, body: bytes, timeout_ms: float, *, is_login: bool = False) -> _Answer:
        """`is_login`: it is not held back by the login that it is a part of."""
        if self.error is not None:
            raise _again(self.error)
        now = self._loop.time()
        answer: asyncio.Future[_Answer] = self._loop.create_future()
        asked = self._asked(row, version, timeout_ms, answer, now)
        if is_login:
            self._write(self._requests.frame(row, version, body, asked))
        else:
            self._send(row, version, body, asked, now)
        return await answer

    def _asked(self, row: Api, version: int, timeout_ms: float, answer: Any, now: float) -> InFlightRequest:
        """Return a request with its timer, which belongs to it: one that was cancelled is answered too, or never."""
        asked = InFlightRequest(row, version, now, timeout_ms, answer)
        asked.timer = self._loop.call_later(timeout_ms / 1000, self._expire, asked.deadline)
        return asked

    def _read(self, api: ModuleType, frame: bytes, at: int, version: int) -> Any:
        try:
            return api.read_response(frame, at, version)
        except MalformedError as error:
            raise self._end(
                ConnectionLostError(f"{self.address} answered {api.API.name} with what cannot be read: {error}")
            ) from None

    def _expire(self, deadline: float) -> None:
        """The timer of a request has fired; some event loops are early by a part of a millisecond."""
        asked = self._requests.expired(max(deadline, self._loop.time()))
        if asked is not None:
            self._out_of_time(asked, asked.timeout_ms)

    def _out_of_time(self, asked: InFlightRequest, timeout_ms: float) -> None:
        said = f"{self.address} did not answer {asked.api.name} within {timeout_ms:.0f} ms"
        if not asked.answer.done():
            asked.answer.set_exception(RequestTimedOutError(f"{said}. Is it overloaded, or is the network down?"))
        self._end(ConnectionLostError(f"{said}, so that the connection was closed"))

    # --- logging in ---------------------------------------------------------------------------------------------------

    async def _authenticate(self) -> None:
        if self._authenticator is None:
            return
        again_after_s = await self._authenticator.authenticate(self.address, self._send_login)
        self._requests.login_at = NEVER if again_after_s is None else self._loop.time() + again_after_s

    async def _send_login(self, api: ModuleType, request: Any) -> Any:
        version = self.version_of(api)
        body = api.write_request(request, version)
        frame, at = await self._ask(api.API, version, body, self._request_timeout_ms, is_login=True)
        return self._read(api, frame, at, version)

    async def _authenticate_again(self) -> None:
        """S33: earlier requests are answered first, and nothing else is sent until the login has ended."""
        try:
            if self._requests.sent:
                self._all_answered = self._loop.create_future()
                await self._all_answered
            await self._authenticate()
        except KafkaError as error:
            self._end(error)
            return
        except Exception as error:  # whosever mistake it is, others wait for the connection
            self._end(ConnectionLostError(f"{self.address}: logging in again failed: {type(error).__name__}"))
            raise
        self._login = None
        for each in self._requests.release():
            if each.request is not None and each.request.answer.done():
                each.request.timer.cancel()  # it was cancelled
            elif self.error is None:
                self._write(self._requests.frame(*each))

    # --- opening ------------------------------------------------------------------------------------------------------

    async def _learn_versions(self) -> None:
        """Ask the broker for its API versions, from our latest version down."""
        request = api_versions.Request(client_software_name=SOFTWARE, client_software_version=__version__)
        response = await self._ask_versions(request, api_versions.API.versions[-1])
        if response.error is ErrorCode.UNSUPPORTED_VERSION:
            response = await self._ask_versions(request, version_after_refusal(response))
        if response.error:
            raise self._end(
                UnsupportedVersionError(f"{self.address} answered ApiVersions with {response.error.name}: is it Kafka?")
            )
        self._versions = Versions(self.address, response)

    async def _ask_versions(self, request: api_versions.Request, version: int) -> api_versions.Response:
        body = api_versions.write_request(request, version)
        frame, at = await self._ask(api_versions.API, version, body, self._request_timeout_ms)
        is_refusal = frame[at : at + 2] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")
        response: api_versions.Response = self._read(api_versions, frame, at, 0 if is_refusal else version)
        return response

    def _tune(self, settings: ClientSettings) -> None:
        """Set the socket's buffer sizes, if settings give them: the system finds better sizes than Java's defaults."""
        assert self._transport is not None, "it is connected"
        its_socket = self._transport.get_extra_info("socket")
        for name, option in (("send.buffer.bytes", socket.SO_SNDBUF), ("receive.buffer.bytes", socket.SO_RCVBUF)):
            size = getattr(settings, name.replace(".", "_"))
            if name in settings.given and size > 0:
                its_socket.setsockopt(socket.SOL_SOCKET, option, size)

    # --- idleness -----------------------------------------------------------------------------------------------------

    def _watch_idleness(self) -> None:
        idle_at = self._requests.idle_at
        if idle_at != NEVER and not self.is_closed:
            self._idle_timer = self._loop.call_at(idle_at, self._idle_long_enough)

    def _idle_long_enough(self) -> None:
        if not self._requests.is_idle(self._loop.time()):
            self._watch_idleness()
            return
        self._end(
            ConnectionLostError(f"the connection to {self.address} was closed after {self._idle_s:.0f} s without use"),
            orderly=True,
        )

    # --- what the event loop calls ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has a class of its own
        if self.is_closed:
            self._transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.error is not None:
            return
        if self._is_silent:
            self._is_silent = False
            if _small_frames().startswith(_TLS_ALERT):  # as a frame it would have 352 million bytes (S26)
                self._end(wants_tls(self.address, self._settings))
                return
        frame: Any  # a bytearray, if it is large, which reads just as bytes do
        try:
            for frame in self._frames.filled(nbytes):
                self._answered(frame)
        except MalformedError as error:
            self._end(ConnectionLostError(f"{self.address} sent what is not an answer of a Kafka broker: {error}"))

    def _answered(self, frame: bytes) -> None:
        requests = self._requests
        asked, at = requests.answered(frame)
        asked.timer.cancel()
        if not asked.answer.done():
            asked.answer.set_result((frame, at))
        if self._all_answered is not None and not requests.sent and not self._all_answered.done():
            self._all_answered.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        half = f" in the middle of an answer, of which {self._frames.held} bytes had come" if self._frames.held else ""
        why = f": {_why(exc)}" if exc is not None else ""
        refused = certificate_error(self.address, exc, self._settings)
        lost = ConnectionLostError(f"{self.address} closed the connection{half}{why}")
        self._end(refused or lost, hint="" if refused else self._why_lost())

    def _why_lost(self) -> str:
        """Say what kind of listener it may be, if it has not answered the first request that it understands."""
        first = self._requests.sent[0] if self._requests.sent else None
        if first is None or first.correlation_id > _FIRST_REQUESTS:
            return ""
        return other_listener(self._settings, is_after_versions=first.api is not api_versions.API)

    def _end(self, error: KafkaError, *, orderly: bool = False, hint: str = "") -> KafkaError:
        """End the connection with an error; only the first one counts. All requests that wait fail with it."""
        if self.error is not None:
            return error
        self.error = error
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._transport is not None:
            self._transport.close() if orderly else self._transport.abort()
        self._frames = FrameReader(0, _small_frames())
        if self._login is not None and self._login is not _current_task():
            self._login.cancel()
        is_refused = isinstance(error, AuthenticationError)
        for each in self._requests.drop():
            each.timer.cancel()
            if not each.answer.done():
                more = "" if is_refused else f"; {each.api.name} had not been answered{hint}"
                each.answer.set_exception(_again(error, more))
        if self.on_lost is not None and not orderly:
            self.on_lost(error)
        return error


def _current_task() -> asyncio.Task[Any] | None:
    """The running task; None in what the event loop calls by itself."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _again(error: KafkaError, more: str = "") -> KafkaError:
    """Return a copy of the error for each caller that waits: a raised exception has its own traceback."""
    return type(error)(f"{error}{more}", error.code)


def _why(error: Exception) -> str:
    """Return the system's error message; that of asyncio only repeats the address."""
    number = getattr(error, "errno", None)
    if number and number > 0:
        reason = os.strerror(number)
        return reason[:1].lower() + reason[1:]
    return str(getattr(error, "strerror", None) or error or type(error).__name__)
