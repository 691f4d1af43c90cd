"""Where a broker listens, and lists of such places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coterie.client.refused_settings import NO_TLS

__all__ = ["Address", "parse_addresses"]


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_addresses(texts: Sequence[str], problems: list[str]) -> tuple[Address, ...]:
    """As `bootstrap.servers` has them: host:port, [::1]:port, and a protocol before it, which must be PLAINTEXT."""
    found = []
    for text in texts:
        protocol, _, rest = text.rpartition("://")
        host, colon, port = rest.rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65_535:
            problems.append(f"bootstrap.servers has {text!r}: must be host:port, for example localhost:9092")
        elif protocol.upper() not in {"", "PLAINTEXT"}:
            problems.append(f"bootstrap.servers has {text!r}: {NO_TLS}")
        else:
            found.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    return tuple(found)
