"""Fetches the keys that signed tokens are verified with, from `sasl.oauthbearer.jwks.endpoint.url`, again and again."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from coterie.broker.security.signed_tokens import SignedTokens, read_jwks
from coterie.errors import CoterieError, MalformedError
from coterie.settings.broker_settings import BrokerSettings

MOST_BYTES = 1 << 20
WITHIN_S = 10
LEAST_PAUSE_MS = 10_000
"""A token with an unknown key has the keys fetched, but not more often than this."""


class JwksEndpoint:
    """The keys of one listener's tokens."""

    def __init__(self, settings: BrokerSettings, now_ms: Callable[[], int]) -> None:
        """Fetch the keys. `settings` are those of the listener for OAUTHBEARER.

        Raises:
            CoterieError: They cannot be fetched.
        """
        self._url = settings.sasl_oauthbearer_jwks_endpoint_url or ""
        if urlsplit(self._url).scheme not in {"http", "https", "file"}:
            raise CoterieError(
                f"sasl.oauthbearer.jwks.endpoint.url is {self._url!r}; must be an http, https or file URL"
            )
        self._now_ms = now_ms
        self._every_ms = max(settings.sasl_oauthbearer_jwks_endpoint_refresh_ms, LEAST_PAUSE_MS)
        self._fetched_ms = now_ms()
        self._is_wanted = False
        self.tokens = SignedTokens(settings, self._want)
        self.reload()

    def _want(self) -> None:
        self._is_wanted = True

    def has_changed(self) -> bool:
        """Return whether it is time to fetch the keys again."""
        passed_ms = self._now_ms() - self._fetched_ms
        if passed_ms < (LEAST_PAUSE_MS if self._is_wanted else self._every_ms):
            return False
        self._fetched_ms = self._now_ms()
        self._is_wanted = False
        return True

    def reload(self) -> None:
        """Fetch the keys, on any thread. If they cannot be, nothing changes."""
        from urllib.request import urlopen  # it loads forty modules that few brokers need

        try:
            with urlopen(self._url, timeout=WITHIN_S) as answer:  # noqa: S310  the scheme is one of three
                data = answer.read(MOST_BYTES)
            self.tokens.keys = read_jwks(data)
        except (OSError, ValueError, MalformedError) as error:
            raise CoterieError(f"keys of tokens from {self._url}: {error}") from None
