"""SaslServerAuthenticator: the SASL dialogue of one connection, from its first byte, without I/O.

ApiVersions may come first, once. SaslHandshake names a mechanism, and SaslAuthenticate carries its tokens; after a
handshake of version 0 they come as bare frames. `REQUESTS` has what each state does with each request. When the client
is authenticated, requests are ordinary ones, until the session ends: then the client authenticates again, or is
disconnected at its next request (KIP-368).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from coterie.broker.broker_effects import Authenticated, Close, Effects, Ready, Send
from coterie.broker.broker_facts import AuthenticationFailed, Reporter
from coterie.broker.calls import Connection
from coterie.broker.security.illegal_sasl_state import illegal_sasl_state
from coterie.broker.security.sasl_listener import SaslListener
from coterie.coordinator.runtime import Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.apis import FIRST_FLEXIBLE, Api, api_versions, by_key, sasl_authenticate, sasl_handshake
from coterie.protocol.frames import read_request_header, response_frame
from coterie.protocol.sasl_mechanisms import INVALID_CREDENTIALS, SaslError, SaslServer
from coterie.structs import DataStruct

API_VERSIONS = api_versions.API.key
HANDSHAKE = sasl_handshake.API.key
AUTHENTICATE = sasl_authenticate.API.key
OTHER: Final = -1
REAUTHENTICATION_INTERVAL_MS = 1_000
"""A client may not begin to authenticate again more often (S33)."""
_SIZE_BYTES = 4


class SaslState(Enum):
    INITIAL = auto()
    """No request has arrived yet."""
    HANDSHAKE = auto()
    """ApiVersions was answered."""
    AUTHENTICATE = auto()
    """The mechanism is known; tokens come in SaslAuthenticate."""
    TOKENS = auto()
    """The mechanism is known; tokens come as bare frames."""
    BAD_MECHANISM = auto()
    """A client that authenticates again has asked for another mechanism: its next request fails (S33)."""
    COMPLETE = auto()
    FAILED = auto()
    """The client is answered when the delay is over; what it sends meanwhile is dropped."""


class Action(Enum):
    PASS = auto()
    """An ordinary request."""
    BEGIN = auto()
    """Begin with the mechanism that is asked for."""
    EVALUATE = auto()
    """Give the token to the mechanism."""
    REFUSE = auto()
    """Answer ILLEGAL_SASL_STATE in the form of the request, and close."""
    CLOSE = auto()
    """Close without an answer."""


REQUESTS: Mapping[SaslState, Mapping[int, Action]] = {
    SaslState.INITIAL: {
        API_VERSIONS: Action.PASS,
        HANDSHAKE: Action.BEGIN,
        AUTHENTICATE: Action.CLOSE,
        OTHER: Action.CLOSE,
    },
    SaslState.HANDSHAKE: {
        API_VERSIONS: Action.CLOSE,
        HANDSHAKE: Action.BEGIN,
        AUTHENTICATE: Action.CLOSE,
        OTHER: Action.CLOSE,
    },
    SaslState.AUTHENTICATE: {
        API_VERSIONS: Action.REFUSE,
        HANDSHAKE: Action.REFUSE,
        AUTHENTICATE: Action.EVALUATE,
        OTHER: Action.REFUSE,
    },
    SaslState.COMPLETE: {
        API_VERSIONS: Action.PASS,
        HANDSHAKE: Action.PASS,
        AUTHENTICATE: Action.PASS,
        OTHER: Action.PASS,
    },
}
"""The answer to a request in each state that reads requests (S2 to S9); `OTHER` is any other API."""


class FailureDue(DataStruct, eq=False):
    """The delay of a failed authentication is over (S10)."""

    connection: Connection
    answer: bytes

    def effects(self) -> Effects:
        if self.connection.is_closed:
            return []
        answer: Effects = [Send(self.connection, self.answer)] if self.answer else []
        return [*answer, Close(self.connection, "")]


class _Request(DataStruct):
    api: Api
    version: int
    correlation_id: int
    frame: bytes
    at: int

    def answer(self, response: Any) -> bytes:
        return self.framed(self.api.module.write_response(response, self.version))

    def framed(self, body: bytes) -> bytes:
        flexible = self.api.has_flexible_response_header(self.version)
        return response_frame(self.correlation_id, body, flexible=flexible)


class SaslServerAuthenticator:
    def __init__(
        self,
        connection: Connection,
        listener: SaslListener,
        timers: Timers[Any],
        reporter: Reporter,
        wall: WallClock,
    ) -> None:
        self.state = SaslState.INITIAL
        self._connection = connection
        self._listener = listener
        self._timers = timers
        self._reporter = reporter
        self._wall = wall
        self._now_ms = 0
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._expires_ms: int | None = None
        """The end of the session, by the broker's own time; None if it does not expire."""
        self._is_again = False
        """True if the client was authenticated before."""
        self._began_again_ms: int | None = None
        connection.is_quick = False

    def received(self, frame: bytes, now_ms: int) -> Effects | None:
        """Return what follows from a frame; None if it is an ordinary request, to be answered as such.

        Raises:
            MalformedError: It cannot be read; the connection is closed without an answer.
        """
        self._now_ms = now_ms
        if self.state is SaslState.FAILED:
            return []
        if not frame:
            raise MalformedError("a frame without content before the client is authenticated")
        if self.state is SaslState.BAD_MECHANISM:
            return self._fail(b"", "another mechanism than at first; it cannot be changed")
        if self.state is SaslState.TOKENS:
            return self._evaluate(None, frame)
        request = _read(frame)
        if self.state is SaslState.COMPLETE:
            return self._after_completion(request)
        return self._in_dialogue(request)

    def _in_dialogue(self, request: _Request) -> Effects | None:
        key = request.api.key
        actions = REQUESTS[self.state]
        action = actions.get(key, actions[OTHER])
        if action is Action.PASS:
            if request.api.serves(request.version) and _names_its_client(request):
                self.state = SaslState.HANDSHAKE  # else it does not count, and the client may ask again (S3)
            return None
        if action is Action.CLOSE or not request.api.serves(request.version):
            return self._close(
                f"{request.api.name} v{request.version} before authentication; clients of the listener "
                f"{self._listener.name} must use SASL"
            )
        if action is Action.BEGIN:
            return self._begin(request)
        if action is Action.EVALUATE:
            token = sasl_authenticate.read_request(request.frame, request.at, request.version).auth_bytes
            return self._evaluate(request, bytes(token))
        body = illegal_sasl_state(request.api, request.frame, request.at, request.version)
        answer = b"" if body is None else request.framed(body)
        return self._fail(answer, f"{request.api.name} instead of SaslAuthenticate")

    # --- SaslHandshake ------------------------------------------------------------------------------------------------

    def _begin(self, request: _Request) -> Effects:
        asked = sasl_handshake.read_request(request.frame, request.at, request.version).mechanism
        mechanisms = list(self._listener.mechanisms)
        if asked not in mechanisms:
            unknown = sasl_handshake.Response(error=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=mechanisms)
            answer = b"" if self._is_again else request.answer(unknown)
            return self._fail(answer, f"mechanism {asked[:50]!r} is not enabled")
        answer = request.answer(sasl_handshake.Response(mechanisms=mechanisms))
        if self._is_again and asked != self._mechanism:
            self.state = SaslState.BAD_MECHANISM
            return self._answer(answer)
        self._mechanism = asked
        self._server = self._listener.server_of(asked, lambda: self._wall.at(self._now_ms))
        self.state = SaslState.AUTHENTICATE if request.version else SaslState.TOKENS
        return self._answer(answer)

    # --- tokens -------------------------------------------------------------------------------------------------------

    def _evaluate(self, request: _Request | None, token: bytes) -> Effects:
        """Give a token to the mechanism; `request` is None for a bare one."""
        assert self._server is not None, "the handshake made it"
        try:
            challenge = self._server.evaluate(token)
            principal = self._principal_of(self._server)
        except SaslError as error:
            when = "re-authentication" if self._is_again else "authentication"
            why = str(error) or INVALID_CREDENTIALS.format(when=when, mechanism=self._mechanism)
            if request is None:
                return self._fail(b"", why)
            refused = sasl_authenticate.Response(error=ErrorCode.SASL_AUTHENTICATION_FAILED, message=why)
            return self._fail(request.answer(refused), why)
        effects: Effects = []
        lifetime_ms = 0
        if principal:
            self._connection.principal = principal
            lifetime_ms = self._complete(self._server)
            effects.append(Authenticated(self._connection))
        if request is None:
            answer = len(challenge).to_bytes(_SIZE_BYTES, "big") + challenge
        else:
            accepted = sasl_authenticate.Response(message="", auth_bytes=challenge, session_lifetime_ms=lifetime_ms)
            answer = request.answer(accepted)
        return [*effects, *self._answer(answer)]

    def _principal_of(self, server: SaslServer) -> str:
        """Return who is authenticated; "" if the mechanism needs more tokens. It cannot be changed (S33)."""
        if not server.is_complete:
            return ""
        was = self._connection.principal
        if self._is_again and was != f"User:{server.user}":
            raise SaslError(
                "Cannot change principals during re-authentication from "
                f"User.{was.removeprefix('User:')}: User.{server.user}"
            )
        return f"User:{server.user}"

    def _complete(self, server: SaslServer) -> int:
        """The client is authenticated. Return for how long, in ms; 0 if there is no limit (S19 and S31)."""
        limits = []
        if server.expires_ms is not None:
            limits.append(server.expires_ms - self._wall.at(self._now_ms))
        max_reauth_ms = self._listener.max_reauth_ms[self._mechanism]
        if max_reauth_ms > 0:
            limits.append(max_reauth_ms)
        lifetime_ms = max(min(limits), 0) if limits else 0
        self._expires_ms = self._now_ms + lifetime_ms if limits else None
        self._server = None
        self.state = SaslState.COMPLETE
        self._connection.is_quick = self._expires_ms is None
        return lifetime_ms

    # --- after it -----------------------------------------------------------------------------------------------------

    def _after_completion(self, request: _Request) -> Effects | None:
        if self._expires_ms is None:
            return None
        if request.api.key == HANDSHAKE and self._may_begin_again():
            self._is_again = True
            self._began_again_ms = self._now_ms
            self.state = SaslState.HANDSHAKE
            return self._in_dialogue(request)
        if self._now_ms > self._expires_ms:
            return self._close(f"the session of {self._connection.principal} has ended, and it did not log in again")
        return None

    def _may_begin_again(self) -> bool:
        began_ms = self._began_again_ms
        return began_ms is None or self._now_ms - began_ms >= REAUTHENTICATION_INTERVAL_MS

    # --- endings ------------------------------------------------------------------------------------------------------

    def _answer(self, answer: bytes) -> Effects:
        effects: Effects = [Send(self._connection, answer)]
        if self._connection.waiting:
            effects.append(Ready(self._connection))
        return effects

    def _close(self, why: str) -> Effects:
        self.state = SaslState.FAILED
        return [Close(self._connection, why)]

    def _fail(self, answer: bytes, why: str) -> Effects:
        """Send the answer, and close, when the delay is over (S10)."""
        self.state = SaslState.FAILED
        connection, delay_ms = self._connection, self._listener.failed_authentication_delay_ms
        self._timers.arm(self, self._now_ms + delay_ms, FailureDue(connection, answer))
        fact = AuthenticationFailed(self._now_ms, "", connection.host, self._listener.name, self._mechanism, why)
        return [self._reporter.fact(fact)]


def _read(frame: bytes) -> _Request:
    key, version, correlation_id, at = read_request_header(frame, FIRST_FLEXIBLE)
    return _Request(by_key[key], version, correlation_id, frame, at)


def _names_its_client(request: _Request) -> bool:
    asked = api_versions.read_request(request.frame, request.at, request.version)
    return api_versions.names_its_client(asked, request.version)
