"""Reads `listeners` and `advertised.listeners`.

Only PLAINTEXT is supported. A listener with another protocol is refused, and not opened without protection.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from coterie.settings.config_def import SettingsError

__all__ = ["Endpoint", "advertised_endpoints", "client_endpoints"]

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[^\[\]:/]*):(?P<port>[0-9]{1,5})", re.ASCII
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Endpoint(NamedTuple):
    """A listener: its name and address."""

    name: str
    host: str
    """The host, or empty for every address of the machine."""
    port: int


def client_endpoints(
    listeners: Sequence[str], protocol_map: Sequence[str], controllers: Sequence[str]
) -> tuple[Endpoint, ...]:
    """Return the listeners for clients, which leaves out those for controllers."""
    protocols = dict(_protocol(entry) for entry in protocol_map)
    found = [endpoint for endpoint in map(_endpoint, listeners) if not _is_for(endpoint, controllers)]
    if not found:
        raise SettingsError(f"listeners is {','.join(listeners)!r}: no listener for clients is left")
    for endpoint in found:
        protocol = protocols.get(endpoint.name, endpoint.name)
        if protocol != "PLAINTEXT":
            raise SettingsError(
                f"listener {endpoint.name} has the protocol {protocol} (listener.security.protocol.map); only "
                "PLAINTEXT is supported, without passwords. Make it PLAINTEXT, and restrict who can connect"
            )
    for endpoint in found:
        if [other.name for other in found].count(endpoint.name) > 1:
            raise SettingsError(f"listeners names {endpoint.name} twice; each has a name of its own")
    return tuple(found)


def advertised_endpoints(
    advertised: Sequence[str], endpoints: Sequence[Endpoint], controllers: Sequence[str]
) -> tuple[Endpoint, ...]:
    """Return the addresses to advertise, each for one of the listeners in `endpoints`."""
    found = tuple(endpoint for endpoint in map(_endpoint, advertised) if not _is_for(endpoint, controllers))
    names = [endpoint.name for endpoint in endpoints]
    for endpoint in found:
        if endpoint.name not in names:
            raise SettingsError(
                f"advertised.listeners has {endpoint.name}, which is not in listeners ({', '.join(names)}); "
                "an address is advertised for a listener"
            )
        if endpoint.host in {"", "0.0.0.0", "::"}:  # noqa: S104 (it is refused)
            raise SettingsError(
                f"advertised.listeners has {endpoint.name}://{endpoint.host}:{endpoint.port}, which clients cannot "
                "connect to; give a host they can reach"
            )
    return found


def _endpoint(text: str) -> Endpoint:
    match = _LISTENER.fullmatch(text)
    if match is None or int(match["port"]) > 65_535:
        raise SettingsError(
            f"{text!r} is not a listener; it must be NAME://host:port, such as PLAINTEXT://127.0.0.1:9092"
        )
    return Endpoint(match["name"].upper(), match["host"].strip("[]"), int(match["port"]))


def _protocol(entry: str) -> tuple[str, str]:
    name, colon, protocol = entry.partition(":")
    if not colon or protocol.upper() not in _PROTOCOLS:
        raise SettingsError(
            f"listener.security.protocol.map has {entry!r}; an entry must be NAME:PROTOCOL, of {', '.join(_PROTOCOLS)}"
        )
    return name.upper(), protocol.upper()


def _is_for(endpoint: Endpoint, names: Sequence[str]) -> bool:
    return endpoint.name in {name.upper() for name in names}
