"""SASL PLAIN (RFC 4616): the user's name and password in one token."""

from __future__ import annotations

from collections.abc import Callable

from coterie.protocol.sasl import SaslError


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()
        self.is_complete = False

    def respond(self, challenge: bytes) -> bytes:
        if self.is_complete or challenge:
            raise SaslError("the broker sent a token where PLAIN has none")
        self.is_complete = True
        return self._token


class PlainServer:
    expires_ms = None

    def __init__(self, is_password_of: Callable[[str, str], bool]) -> None:
        """`is_password_of` takes a user's name and a password."""
        self._is_password_of = is_password_of
        self.is_complete = False
        self.user = ""

    def evaluate(self, token: bytes) -> bytes:
        parts = token.decode("utf-8", "replace").split("\0")  # what is not UTF-8 is a wrong password (S13)
        if len(parts) != 3:
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, user, password = parts
        if not user:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        if not self._is_password_of(user, password):
            raise SaslError("Authentication failed: Invalid username or password")
        if authorization_id not in {"", user}:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user, self.is_complete = user, True
        return b""
