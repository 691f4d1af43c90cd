"""Unsecured bearer tokens, for tests: JWTs without a signature, which anyone can make (S20)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from binascii import Error
from typing import Any

from coterie.protocol.sasl_mechanisms import ValidToken


def validate_unsecured(token: str, now_ms: int) -> ValidToken | None:
    """Return whose token it is, and until when; None if Kafka does not accept it."""
    parts = token.split(".")
    if len(parts) != 3 or parts[2]:
        return None
    header, claims = decode_part(parts[0]), decode_part(parts[1])
    if header is None or claims is None or header.get("alg") != "none":
        return None
    user, expires, issued = claims.get("sub"), claims.get("exp", False), claims.get("iat", 0)
    if not isinstance(user, str) or not user.strip() or not is_number(expires):
        return None
    if not is_number(issued) or issued * 1000 > now_ms or issued >= expires:
        return None
    expires_ms = round(expires * 1000)
    return ValidToken(user, expires_ms) if expires_ms > now_ms else None


def decode_part(part: str) -> dict[str, Any] | None:
    """Return the JSON object in a part of a JWT; None if there is none."""
    try:
        found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except (ValueError, Error, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def is_number(value: object) -> bool:
    """Return whether it is a number that can be a time."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12
