"""Bearer tokens that an identity provider has signed: JWTs, verified with the keys of a JWKS (S21). No I/O.

It needs `cryptography`, which is the extra `tls`.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from coterie.broker.security.unsecured_tokens import decode_part, is_number
from coterie.errors import CoterieError, MalformedError
from coterie.extras import how_to_install
from coterie.protocol.sasl_mechanisms import ValidToken
from coterie.settings.broker_settings import BrokerSettings
from coterie.structs import DataStruct

MOST_KEYS = 100
_CURVES = {"P-256": "SECP256R1", "P-384": "SECP384R1", "P-521": "SECP521R1"}
_KEY_TYPES = {
    "RS256": "RSA",
    "RS384": "RSA",
    "RS512": "RSA",
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
}
"""The algorithms, and the type or curve of the keys they need. `none` and shared secrets are not among them."""


class Key(DataStruct, frozen=True):
    """A public key of a JWKS."""

    id: str | None
    type: str
    """RSA, or the name of a curve."""
    public_key: Any

    def has_signed(self, algorithm: str, signed: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec, padding
        from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

        digest = getattr(hashes, f"SHA{algorithm[2:]}")()
        try:
            if self.type == "RSA":
                self.public_key.verify(signature, signed, padding.PKCS1v15(), digest)
            else:
                size = (self.public_key.key_size + 7) // 8
                if len(signature) != 2 * size:
                    return False
                r, s = (int.from_bytes(part, "big") for part in (signature[:size], signature[size:]))
                self.public_key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(digest))
        except InvalidSignature:
            return False
        return True


def read_jwks(data: bytes) -> list[Key]:
    """Return the keys of a JWKS that signatures can be verified with; others are left out.

    Raises:
        MalformedError: It is not a JWKS, or has no such key.
    """
    require_cryptography()
    try:
        rows = json.loads(data)["keys"]
        keys = [key for row in rows[:MOST_KEYS] if (key := _key(row)) is not None]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise MalformedError("it is not a JWKS") from None
    if not keys:
        raise MalformedError("it has no RSA or EC key that signatures can be verified with")
    return keys


def require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise CoterieError(f"to verify signed tokens, cryptography is needed: {how_to_install('tls')}") from None


def _key(row: Mapping[str, Any]) -> Key | None:
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    if row.get("use", "sig") != "sig":
        return None
    if row.get("kty") == "RSA":
        public = rsa.RSAPublicNumbers(_number(row["e"]), _number(row["n"])).public_key()
        return Key(row.get("kid"), "RSA", public)
    curve = row.get("crv", "")
    if row.get("kty") == "EC" and curve in _CURVES:
        numbers = ec.EllipticCurvePublicNumbers(_number(row["x"]), _number(row["y"]), getattr(ec, _CURVES[curve])())
        return Key(row.get("kid"), curve, numbers.public_key())
    return None


def _number(text: str) -> int:
    return int.from_bytes(_bytes(text), "big")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class SignedTokens:
    """Validates the tokens of a listener. `keys` may be replaced at any time."""

    def __init__(self, settings: BrokerSettings, on_unknown_key: Callable[[], None] = lambda: None) -> None:
        """`settings` are those of the listener for OAUTHBEARER. `on_unknown_key` is called if a key is not there."""
        self.keys: Sequence[Key] = ()
        self._on_unknown_key = on_unknown_key
        self._issuer = settings.sasl_oauthbearer_expected_issuer
        self._audiences = frozenset(settings.sasl_oauthbearer_expected_audience)
        self._skew_ms = settings.sasl_oauthbearer_clock_skew_seconds * 1000
        self._sub = settings.sasl_oauthbearer_sub_claim_name

    def validate(self, token: str, now_ms: int) -> ValidToken | None:
        """Return whose token it is, and until when; None if it is not accepted."""
        parts = token.split(".")
        if len(parts) != 3:
            return None
        header, claims = decode_part(parts[0]), decode_part(parts[1])
        if header is None or claims is None or "crit" in header:
            return None
        if not self._is_signed(header, f"{parts[0]}.{parts[1]}".encode(), parts[2]):
            return None
        return self._accepted(claims, now_ms)

    def _is_signed(self, header: Mapping[str, Any], signed: bytes, signature: str) -> bool:
        algorithm, key_id = header.get("alg"), header.get("kid")
        key_type = _KEY_TYPES.get(algorithm) if isinstance(algorithm, str) else None
        if not isinstance(algorithm, str) or key_type is None:
            return False
        try:
            data = _bytes(signature)
        except ValueError:
            return False
        candidates = [key for key in self.keys if key.type == key_type and key_id in {None, key.id}]
        if not candidates:
            self._on_unknown_key()
        return any(key.has_signed(algorithm, signed, data) for key in candidates)

    def _accepted(self, claims: Mapping[str, Any], now_ms: int) -> ValidToken | None:
        """Check what a token says of itself: whose it is, from when until when, by whom and for whom."""
        user, expires, issued = claims.get(self._sub), claims.get("exp", False), claims.get("iat", False)
        begins, audience = claims.get("nbf", 0), claims.get("aud", [])
        if not isinstance(user, str) or not user.strip():
            return None
        if not is_number(expires) or not is_number(issued) or not is_number(begins):
            return None
        audiences = {audience} if isinstance(audience, str) else set(map(str, audience)) if audience else set()
        if self._audiences and not self._audiences & audiences:
            return None
        if self._issuer is not None and claims.get("iss") != self._issuer:
            return None
        expires_ms = round(expires * 1000)
        if now_ms >= expires_ms + self._skew_ms or now_ms < begins * 1000 - self._skew_ms:
            return None
        return ValidToken(user, expires_ms)
