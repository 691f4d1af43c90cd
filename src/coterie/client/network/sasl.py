"""The login of a client: SaslHandshake, then SaslAuthenticate until both sides are content (S2 to S9, S13 to S18)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from secrets import token_urlsafe
from types import ModuleType
from typing import Any

from coterie.client.network.oauth_tokens import Tokens
from coterie.errors import ErrorCode, SaslAuthenticationError
from coterie.protocol.apis import sasl_authenticate, sasl_handshake
from coterie.protocol.sasl_mechanisms import OAuthBearerClient, PlainClient, SaslClient, SaslError, ScramClient
from coterie.settings.client_settings import Address, ClientSettings
from coterie.settings.sasl_credentials import SaslCredentials

Send = Callable[[ModuleType, Any], Awaitable[Any]]
"""Sends one request on the connection that is to be authenticated, and returns the answer."""
_MOST_TOKENS = 8
"""No mechanism needs more; a broker that asks for more would never end."""
_EARLIEST, _LATEST = 0.85, 0.95
_LEAST_PAUSE_S = 1.1
"""Kafka refuses to authenticate a client again within a second (S33)."""


class Authenticator:
    """Logs in on the connections of one client."""

    def __init__(
        self,
        settings: ClientSettings,
        credentials: SaslCredentials,
        wall_ms: Callable[[], int],
        chance: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._tokens = Tokens(settings, credentials, wall_ms)
        self._chance = chance

    async def authenticate(self, address: Address, send: Send) -> float | None:
        """Log in, and return after how many seconds the client has to log in again; None if it need not.

        Raises:
            SaslAuthenticationError: The broker refused, or there is no token; what it said is in the message.
        """
        mechanism = self._credentials.mechanism
        client = await self._client()
        handshake: sasl_handshake.Response = await send(sasl_handshake, sasl_handshake.Request(mechanism=mechanism))
        if handshake.error:
            raise self._handshake_error(address, handshake)
        token = client.respond(b"")
        for _ in range(_MOST_TOKENS):
            response: sasl_authenticate.Response = await send(
                sasl_authenticate, sasl_authenticate.Request(auth_bytes=token)
            )
            if response.error:
                raise self._refused(address, response)
            try:
                token = b"" if client.is_complete and not response.auth_bytes else client.respond(response.auth_bytes)
            except SaslError as error:
                raise SaslAuthenticationError(f"{address}: {error} (sasl.mechanism is {mechanism})") from None
            if client.is_complete and not token:
                return self._again_after_s(response.session_lifetime_ms)
        raise SaslAuthenticationError(f"{address}: the login does not come to an end (sasl.mechanism is {mechanism})")

    async def _client(self) -> SaslClient:
        mine = self._credentials
        if mine.mechanism == "PLAIN":
            return PlainClient(mine.username, mine.password.value)
        if mine.mechanism == "OAUTHBEARER":
            token = await self._tokens.token()
            return OAuthBearerClient(token.value, {**mine.extensions, **token.extensions})
        return ScramClient(mine.mechanism, mine.username, mine.password.value, token_urlsafe(24))

    def _again_after_s(self, lifetime_ms: int) -> float | None:
        """Return when to authenticate again: at 85 to 95 % of the session, as in Java, so that clients spread (S34)."""
        if lifetime_ms <= 0:
            return None
        return max(lifetime_ms / 1000 * (_EARLIEST + (_LATEST - _EARLIEST) * self._chance()), _LEAST_PAUSE_S)

    def _handshake_error(self, address: Address, handshake: sasl_handshake.Response) -> SaslAuthenticationError:
        mechanism, protocol = self._credentials.mechanism, self._settings.security_protocol
        if handshake.error is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            enabled = ", ".join(sorted(handshake.mechanisms)) or "none"
            said = f"the broker does not have sasl.mechanism {mechanism} enabled; it has {enabled}"
        elif handshake.error is ErrorCode.ILLEGAL_SASL_STATE:
            other = "SSL" if self._settings.uses_tls else "PLAINTEXT"
            said = f"the listener has no login, and security.protocol is {protocol}: is it {other}?"
        else:
            said = "the broker refused SaslHandshake"
        return SaslAuthenticationError(f"{address}: {said} ({handshake.error.name})", handshake.error)

    def _refused(self, address: Address, response: sasl_authenticate.Response) -> SaslAuthenticationError:
        mine = self._credentials
        if mine.mechanism == "OAUTHBEARER":
            who, what = "the token", "where it comes from (sasl.oauth.token.provider, sasl.oauthbearer.*)"
        else:
            who, what = f"user {mine.username!r}", "sasl.username and sasl.password"
        said = response.message or "without a reason"
        return SaslAuthenticationError(
            f"{address} refused {who} with sasl.mechanism {mine.mechanism}: {said} ({response.error.name}); "
            f"check {what}",
            response.error,
        )
