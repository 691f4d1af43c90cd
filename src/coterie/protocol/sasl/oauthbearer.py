"""SASL OAUTHBEARER (RFC 7628): the client's token is a bearer token, and optional extensions (KIP-342)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.sasl import SaslError

NO_EXTENSIONS: Mapping[str, str] = MappingProxyType({})
_REFUSED = b'{"status":"invalid_token"}'
_ACKNOWLEDGED = b"\x01"
_FIRST = re.compile(r"n,(?:a=(?P<authzid>[^,]*))?,\x01(?P<pairs>(?:[^\x01]*\x01)*)\x01", re.DOTALL)
_EXTENSION = re.compile(r"(?P<name>[A-Za-z]+)=(?P<value>[\x21-\x7e \t\r\n]+)")


class ValidToken(NamedTuple):
    """A token that was accepted."""

    user: str
    expires_ms: int


class OAuthBearerClient:
    def __init__(self, token: str, extensions: Mapping[str, str] = NO_EXTENSIONS) -> None:
        more = "".join(f"{name}={value}\x01" for name, value in extensions.items())
        self._first = f"n,,\x01auth=Bearer {token}\x01{more}\x01".encode()
        self._has_begun = False
        self.refusal: str | None = None
        """The broker's message about a token that it does not accept."""

    @property
    def is_complete(self) -> bool:
        return self._has_begun and self.refusal is None

    def respond(self, challenge: bytes) -> bytes:
        """An answer that is not empty refuses the token; the broker waits for a byte before it says so (S18)."""
        if not self._has_begun:
            self._has_begun = True
            return self._first
        self.refusal = challenge.decode("utf-8", "replace")
        return _ACKNOWLEDGED


class OAuthBearerServer:
    def __init__(self, validate: Callable[[str], ValidToken | None]) -> None:
        """`validate` takes a token and returns None if it is not accepted."""
        self._validate = validate
        self._is_refused = False
        self.is_complete = False
        self.user = ""
        self.expires_ms: int | None = None
        self.extensions: Mapping[str, str] = NO_EXTENSIONS

    def evaluate(self, token: bytes) -> bytes:
        if self._is_refused and token == _ACKNOWLEDGED:
            raise SaslError(_REFUSED.decode())
        match = _FIRST.fullmatch(token.decode("utf-8", "replace"))
        if match is None:
            raise SaslError
        pairs = [pair.partition("=") for pair in match["pairs"].split("\x01")[:-1]]
        values = [value for name, _, value in pairs if name == "auth"]
        extensions = [_EXTENSION.fullmatch("".join(pair)) for pair in pairs if pair[0] != "auth"]
        if len(values) != 1 or None in extensions:
            raise SaslError
        scheme, _, bearer = values[0].partition(" ")
        if scheme.lower() != "bearer":
            raise MalformedError(f"an OAUTHBEARER token with the scheme {scheme[:20]!r}")
        valid = self._validate(bearer.strip())
        if valid is None:
            self._is_refused = True
            return _REFUSED
        if (match["authzid"] or valid.user) != valid.user:
            raise SaslError(
                f"Authentication failed: Client requested an authorization id ({match['authzid']}) that is different "
                f"from the token's principal name ({valid.user})"
            )
        self.extensions = {match["name"]: match["value"] for match in extensions if match is not None}
        self.user, self.expires_ms = valid
        self.is_complete = True
        return b""
