"""The tokens of OAUTHBEARER, from a callback or from a token endpoint (S20 to S23).

A token is kept for four fifths of its life. If no new one can be had then, the old one is used as long as it lives.
Callbacks and HTTP run in a thread, so that the event loop goes on.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
import threading
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote_plus, unquote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from coterie.client.network.backoff import backoff_ms
from coterie.errors import SaslAuthenticationError
from coterie.settings.client_settings import ClientSettings
from coterie.settings.config_def import HIDDEN
from coterie.settings.sasl_credentials import SaslCredentials, TokenEndpoint, UnsecuredToken

T = TypeVar("T")
_LATEST_S = 100_000_000_000
"""A time after this is in milliseconds: as seconds, it would be after the year 5000."""
_KEPT = 0.8
_LONGEST_ANSWER = 1_000_000
_BACKDATED_S = 5
"""The seconds by which an unsecured token is backdated: Kafka accepts no token from the future (S20)."""


@dataclass(frozen=True, slots=True)
class Token:
    value: str = field(repr=False)
    expires_ms: float | None = None
    """The end of its life by the wall clock; None if it is not known."""
    extensions: Mapping[str, str] = field(default_factory=dict)


class Tokens:
    def __init__(self, settings: ClientSettings, credentials: SaslCredentials, wall_ms: Callable[[], int]) -> None:
        self._settings = settings
        self._credentials = credentials
        self._wall_ms = wall_ms
        self._lock = asyncio.Lock()
        self._token: Token | None = None
        self._fetch_again_ms = 0.0

    async def token(self) -> Token:
        """Return a valid token; callers at the same time share it."""
        async with self._lock:
            if self._token is not None and self._wall_ms() < self._fetch_again_ms:
                return self._token
            began_ms = self._wall_ms()
            try:
                found = await self._fetch()
            except SaslAuthenticationError:
                kept = self._token
                if kept is not None and kept.expires_ms is not None and self._wall_ms() < kept.expires_ms:
                    return kept
                raise
            self._token, self._fetch_again_ms = found, began_ms
            if found.expires_ms is not None:
                self._fetch_again_ms += _KEPT * (found.expires_ms - began_ms)
            return found

    async def _fetch(self) -> Token:
        source = self._credentials.token
        if isinstance(source, UnsecuredToken):
            return _unsecured(source, self._wall_ms() / 1000)
        if isinstance(source, TokenEndpoint):
            return await self._from_endpoint(source)
        return await self._from_callback(source)

    # --- a callback ---------------------------------------------------------------------------------------------------

    async def _from_callback(self, source: object) -> Token:
        try:
            provider: Any = _named(source) if isinstance(source, str) else source
            if isinstance(provider, type):
                provider = provider()
            function = getattr(provider, "token", provider)
            arguments = [self._settings.sasl_oauthbearer_config] if _takes_argument(function) else []
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                if inspect.iscoroutinefunction(function):
                    found = await function(*arguments)
                else:
                    found = await _in_thread(lambda: function(*arguments))
                    if inspect.isawaitable(found):
                        found = await found
            more = getattr(provider, "extensions", None)
            return _token_of(found, more() if callable(more) else {})
        except SaslAuthenticationError:
            raise
        except TimeoutError:
            raise SaslAuthenticationError(
                f"sasl.oauth.token.provider returned no token within request.timeout.ms, which is "
                f"{self._settings.request_timeout_ms}"
            ) from None
        except Exception as error:
            raise SaslAuthenticationError(
                f"sasl.oauth.token.provider returned no token: it raised {type(error).__name__}"
            ) from error

    # --- a token endpoint ---------------------------------------------------------------------------------------------

    async def _from_endpoint(self, endpoint: TokenEndpoint) -> Token:
        settings = self._settings
        began_ms = self._wall_ms()
        failures = 0
        while True:
            try:
                answer = await _in_thread(lambda: _ask(endpoint, settings))
            except URLError as error:
                failures += 1
                pause_ms = backoff_ms(
                    failures, settings.sasl_login_retry_backoff_ms, settings.sasl_login_retry_backoff_max_ms, 0.5
                )
                if self._wall_ms() + pause_ms > began_ms + settings.sasl_login_retry_backoff_max_ms:
                    raise SaslAuthenticationError(
                        f"sasl.oauthbearer.token.endpoint.url: {_shown(endpoint.url)} cannot be reached: {error.reason}"
                    ) from None
                await asyncio.sleep(pause_ms / 1000)
            else:
                return _token_in(answer, endpoint, self._wall_ms())


def _named(name: str) -> object:
    """Return the object of `module:name`."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)


def _takes_argument(function: Any) -> bool:
    """Return whether a callback takes the text of `sasl.oauthbearer.config`, as that of confluent-kafka does."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(each.kind in positional and each.default is inspect.Parameter.empty for each in parameters)


def _token_of(found: object, extensions: Mapping[str, str]) -> Token:
    """Return the token of what a callback returned: a text, or text, time, principal and extensions."""
    parts = found if isinstance(found, tuple | list) else (found,)
    value, expires, *rest = (*parts, None) if len(parts) == 1 else parts
    if not isinstance(value, str) or not value or "\x01" in value or not isinstance(expires, int | float | None):
        raise SaslAuthenticationError(
            f"sasl.oauth.token.provider returned {type(found).__name__}: it must return a token as text, or "
            "(token, expiry in seconds since 1970)"
        )
    if expires is not None and expires < _LATEST_S:
        expires *= 1000
    given = rest[1] if len(rest) > 1 and isinstance(rest[1], Mapping) else {}
    return Token(value, expires, {**extensions, **given})


def _unsecured(claims: UnsecuredToken, now_s: float) -> Token:
    """Return a token without a signature, which Kafka's own test validator accepts."""
    ends_s = now_s + claims.lifetime_s
    body = {**claims.claims, "iat": now_s - _BACKDATED_S, "exp": ends_s}
    parts = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, body)]
    return Token(f"{'.'.join(parts)}.", ends_s * 1000)


class _NoRedirect(HTTPRedirectHandler):
    """A redirect would carry the client's secret elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _ask(endpoint: TokenEndpoint, settings: ClientSettings) -> bytes:
    """Ask for a token, and block. URLError: another time it may work."""
    if endpoint.url.lower().startswith("file:"):
        try:
            return Path(unquote(urlsplit(endpoint.url).path)).read_bytes().strip()
        except OSError as error:
            raise URLError(error.strerror or "it cannot be read") from None
    names = [endpoint.client_id, endpoint.client_secret.value]
    login = ":".join(map(quote_plus, names) if endpoint.is_urlencoded else names)
    form = {"grant_type": "client_credentials"} | ({"scope": endpoint.scope} if endpoint.scope else {})
    request = Request(  # noqa: S310  the settings allow https and http
        endpoint.url,
        urlencode(form).encode(),
        {
            "Authorization": f"Basic {b64encode(login.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
        method="POST",
    )
    opener = build_opener(_NoRedirect, HTTPSHandler(context=_https_context(settings)))
    try:
        with opener.open(request, timeout=settings.request_timeout_ms / 1000) as answer:
            body: bytes = answer.read(_LONGEST_ANSWER)
            return body
    except HTTPError as error:
        with error:
            if error.code >= 500:
                raise URLError(f"it answered {error.code}") from None
            _refused(endpoint, error)
    except URLError:
        raise
    except (OSError, ValueError) as error:
        raise URLError(str(error)) from None


def _https_context(settings: ClientSettings) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=settings.https_ca_location)
    except OSError:
        raise SaslAuthenticationError(f"https.ca.location = {settings.https_ca_location!r} cannot be read") from None


def _refused(endpoint: TokenEndpoint, error: HTTPError) -> NoReturn:
    """The credentials are wrong, or the request is: it is not repeated, and says why (S21)."""
    body = error.read(_LONGEST_ANSWER)
    try:
        answer = json.loads(body)
        said = ": ".join(str(answer[name]) for name in ("error", "error_description") if answer.get(name))
    except (ValueError, AttributeError, TypeError):
        said = ""
    secret = endpoint.client_secret.value
    why = f" ({said[:300].replace(secret, HIDDEN)})" if said and secret else ""
    raise SaslAuthenticationError(
        f"sasl.oauthbearer.token.endpoint.url: {_shown(endpoint.url)} answered {error.code}{why}: check the client id "
        "and secret, sasl.oauthbearer.client.credentials.client.id and .client.secret"
    )


def _token_in(answer: bytes, endpoint: TokenEndpoint, now_ms: float) -> Token:
    if endpoint.url.lower().startswith("file:"):
        return _token_of(answer.decode("utf-8", "replace"), {})
    try:
        found = json.loads(answer)
        value, lives_s = found["access_token"], found.get("expires_in")
    except (ValueError, KeyError, TypeError, AttributeError):
        value = lives_s = None
    if not isinstance(value, str) or not value or "\x01" in value:
        raise SaslAuthenticationError(
            f"sasl.oauthbearer.token.endpoint.url: {_shown(endpoint.url)} answered without an access_token: is it the "
            "token endpoint?"
        )
    return Token(value, now_ms + 1000 * lives_s if isinstance(lives_s, int | float) else None)


def _shown(url: str) -> str:
    """Return a URL without user and query, which may have secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


async def _in_thread(work: Callable[[], T]) -> T:
    """Return what `work` returns. A daemon thread never keeps the process from ending, an executor's would."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: Exception | None) -> None:
        if not done.done():
            done.set_exception(error) if error is not None else done.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001  it is raised where it is waited for
            error = raised
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="coterie-token", daemon=True).start()
    return await done
