"""The SASL mechanisms PLAIN, SCRAM and OAUTHBEARER, both sides, without I/O: tokens in, tokens out.

A client's side is a `SaslClient`, a broker's side a `SaslServer`; both are named after Java's. How tokens travel
(SaslHandshake, SaslAuthenticate) is not known here. Nonces come in, since nothing here is random.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from types import MappingProxyType
from typing import NamedTuple, Protocol

from coterie.errors import CoterieError, MalformedError
from coterie.structs import DataStruct

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


# --- PLAIN (RFC 4616): the user's name and password in one token ------------------------------------------------------


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


# --- SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), without channel binding ------------------------------------
# The password is never sent. The broker stores none either: a `ScramCredential` is enough to check a proof of it.


HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash function of each mechanism."""
ITERATIONS = 4_096
"""The smallest number of iterations, and the default of Kafka's tools."""
MOST_ITERATIONS = 16_384
_MOST_FROM_BROKER = 10_000_000
"""A broker that asks a client for more would only keep it busy."""
_NO_BINDING = b64encode(b"n,,").decode()

_BASE64 = r"[A-Za-z0-9/+]+={0,2}|"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"  # without the comma
_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>n,(?:a=(?P<authzid>(?:[^,=]|=2C|=3D)*))?,)"
    rf"(?P<bare>n=(?P<user>(?:[^,=]|=2C|=3D)+),r=(?P<nonce>{_PRINTABLE})(?:,.*)?)",
    re.DOTALL,
)
_SERVER_FIRST = re.compile(rf"r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+)(?:,.*)?")
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,.*)?),p=(?P<proof>{_BASE64})", re.DOTALL
)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    return pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


class ScramCredential(DataStruct, frozen=True):
    """The credential that a broker stores in place of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    @classmethod
    def of(cls, mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Make the credential of a salted password."""
        name = HASHES[mechanism]
        client_key = hmac.digest(salted, b"Client Key", name)
        server_key = hmac.digest(salted, b"Server Key", name)
        return cls(salt, new_hash(name, client_key).digest(), server_key, iterations)

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslError from None


class ScramClient:
    def __init__(self, mechanism: str, user: str, password: str, nonce: str) -> None:
        """`nonce` is random, printable and without commas, and another each time."""
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._password = password
        self._nonce = nonce
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"
        self._signature: bytes | None = None
        self._has_begun = False
        self.is_complete = False

    def respond(self, challenge: bytes) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            return f"n,,{self._bare}".encode()
        if self._signature is None:
            return self._prove(challenge)
        self._check(challenge)
        return b""

    def _prove(self, challenge: bytes) -> bytes:
        first = _text(challenge)
        match = _SERVER_FIRST.fullmatch(first)
        if match is None:
            raise SaslError("the broker's first SCRAM message cannot be read")
        if not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise SaslError("the broker's SCRAM nonce does not continue the client's")
        iterations = int(match["iterations"])
        if not ITERATIONS <= iterations <= _MOST_FROM_BROKER:
            raise SaslError(f"the broker asks for {iterations} SCRAM iterations; {ITERATIONS} is the least")
        salted = salted_password(self._mechanism, self._password, b64decode(match["salt"]), iterations)
        unproved = f"c={_NO_BINDING},r={match['nonce']}"
        signed = f"{self._bare},{first},{unproved}".encode()
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = new_hash(self._hash, client_key).digest()
        proof = _xor(client_key, hmac.digest(stored_key, signed, self._hash))
        self._signature = hmac.digest(hmac.digest(salted, b"Server Key", self._hash), signed, self._hash)
        return f"{unproved},p={b64encode(proof).decode()}".encode()

    def _check(self, challenge: bytes) -> None:
        text = _text(challenge)
        if text.startswith("e="):
            raise SaslError(f"the broker refused the SCRAM proof: {text[2:]}")
        expected = f"v={b64encode(self._signature or b'').decode()}"
        if not hmac.compare_digest(text.partition(",")[0].encode(), expected.encode()):
            raise SaslError("the broker's SCRAM signature is wrong: it does not know the password either")
        self.is_complete = True


class ScramServer:
    expires_ms = None

    def __init__(self, mechanism: str, credential_of: Callable[[str], ScramCredential | None], nonce: str) -> None:
        """`nonce` is random, printable and without commas, and another each time."""
        self._hash = HASHES[mechanism]
        self._credential_of = credential_of
        self._own_nonce = nonce
        self._credential: ScramCredential | None = None
        self._nonce = self._signed = self._gs2 = ""
        self.is_complete = False
        self.user = ""

    def evaluate(self, token: bytes) -> bytes:
        if self.is_complete:
            raise SaslError
        return self._begin(_text(token)) if self._credential is None else self._finish(_text(token))

    def _begin(self, message: str) -> bytes:
        match = _CLIENT_FIRST.fullmatch(message)
        if match is None:
            raise SaslError
        self.user = _plain_name(match["user"])
        if _plain_name(match["authzid"] or "") not in {"", self.user}:
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._credential = self._credential_of(self.user)
        if self._credential is None:
            raise SaslError
        self._gs2 = match["gs2"]
        self._nonce = match["nonce"] + self._own_nonce
        salt = b64encode(self._credential.salt).decode()
        first = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._signed = f"{match['bare']},{first}"
        return first.encode()

    def _finish(self, message: str) -> bytes:
        assert self._credential is not None, "the first message found it"
        match = _CLIENT_FINAL.fullmatch(message)
        binding = b64encode(self._gs2.encode()).decode()
        if match is None or match["nonce"] != self._nonce or match["binding"] != binding:
            raise SaslError
        signed = f"{self._signed},{match['unproved']}".encode()
        proof = b64decode(match["proof"])
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise SaslError
        client_key = _xor(proof, signature)
        if not hmac.compare_digest(new_hash(self._hash, client_key).digest(), self._credential.stored_key):
            raise SaslError
        self.is_complete = True
        return b"v=" + b64encode(hmac.digest(self._credential.server_key, signed, self._hash))


def _plain_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


# --- OAUTHBEARER (RFC 7628): a bearer token, and optional extensions (KIP-342) ----------------------------------------


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
