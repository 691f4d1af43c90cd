"""Reads `listeners`, `advertised.listeners` and `listener.security.protocol.map`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from coterie.settings.config_def import SettingsError

_LISTENER = re.compile(
    r"(?P<name>[A-Za-z0-9_.-]+)://(?P<host>\[[0-9A-Fa-f:.%]*\]|[^\[\]:/]*):(?P<port>[0-9]{1,5})", re.ASCII
)
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Kafka's security protocols (S1)."""


class Endpoint(NamedTuple):
    """A listener: its name, address and security protocol."""

    name: str
    host: str
    """The host, or empty for every address of the machine."""
    port: int
    protocol: str = "PLAINTEXT"

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


def client_endpoints(
    listeners: Sequence[str], protocol_map: Sequence[str], controllers: Sequence[str]
) -> tuple[Endpoint, ...]:
    """Return the listeners for clients, which leaves out those for controllers."""
    protocols = dict(_protocol(entry) for entry in protocol_map)
    found = [endpoint for endpoint in map(_endpoint, listeners) if not _is_for(endpoint, controllers)]
    if not found:
        raise SettingsError(f"listeners is {','.join(listeners)!r}: no listener for clients is left")
    for endpoint in found:
        if endpoint.name not in protocols:
            raise SettingsError(
                f"listener {endpoint.name} has no security protocol; listener.security.protocol.map must have "
                f"{endpoint.name}:PROTOCOL, of {', '.join(PROTOCOLS)}"
            )
        if [other.name for other in found].count(endpoint.name) > 1:
            raise SettingsError(f"listeners names {endpoint.name} twice; each has a name of its own")
        if endpoint.port and [other.port for other in found].count(endpoint.port) > 1:
            raise SettingsError(f"listeners has port {endpoint.port} twice; each has a port of its own")
    return tuple(endpoint._replace(protocol=protocols[endpoint.name]) for endpoint in found)


def listener_names(listeners: Sequence[str]) -> list[str]:
    """Return the names of all listeners, in upper case; those that cannot be read are left out."""
    return [match["name"].upper() for match in map(_LISTENER.fullmatch, listeners) if match is not None]


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
    if not colon or protocol.upper() not in PROTOCOLS:
        raise SettingsError(
            f"listener.security.protocol.map has {entry!r}; an entry must be NAME:PROTOCOL, of {', '.join(PROTOCOLS)}"
        )
    return name.upper(), protocol.upper()


def _is_for(endpoint: Endpoint, names: Sequence[str]) -> bool:
    return endpoint.name in {name.upper() for name in names}
