"""The SASL mechanisms PLAIN, SCRAM and OAUTHBEARER, both sides, without I/O: tokens in, tokens out.

A client's side is a `SaslClient`, a broker's side a `SaslServer`; both are named after Java's. How tokens travel
(SaslHandshake, SaslAuthenticate) is not known here. Nonces come in, since nothing here is random.
"""

from __future__ import annotations

from typing import Protocol

from coterie.errors import CoterieError

__all__ = ["INVALID_CREDENTIALS", "MECHANISMS", "SaslClient", "SaslError", "SaslServer"]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
INVALID_CREDENTIALS = "Authentication failed during {when} due to invalid credentials with SASL mechanism {mechanism}"
"""Kafka's text for a `SaslError` without a text of its own; `when` is "authentication" or "re-authentication"."""


class SaslError(CoterieError):
    """The other side's token is refused. `str()` is the text for the client, and empty for `INVALID_CREDENTIALS`."""


class SaslClient(Protocol):
    """The client's side of one authentication."""

    @property
    def is_complete(self) -> bool:
        """True if the client has no more to send; only a broker's success ends the authentication."""

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer to a broker's token; the first one has no challenge and is asked with b"".

        Raises:
            SaslError: The broker's token is not acceptable, for example it does not know the password itself.
        """


class SaslServer(Protocol):
    """The broker's side of one authentication."""

    @property
    def is_complete(self) -> bool:
        """True if the client is authenticated."""

    @property
    def user(self) -> str:
        """The name that was authenticated; only when it is complete."""

    @property
    def expires_ms(self) -> int | None:
        """The end of the credentials, by the wall clock; None if they do not expire."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the answer to a client's token.

        Raises:
            SaslError: The token is refused; the client gets the message.
            MalformedError: The token cannot be read; the connection is closed without an answer, as Kafka does.
        """
