"""Values that several APIs share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from coterie.protocol.codec.fields import Int32

__all__ = ["NOT_ASKED", "READ_COMMITTED", "READ_UNCOMMITTED", "ConfigSource", "Leader", "NodeEndpoint", "ResourceType"]

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
"""Isolation levels of a reader."""

NOT_ASKED = -(1 << 31)
"""Authorized operations of somebody who did not ask for them."""


@dataclass(slots=True, kw_only=True)
class Leader:
    """Who leads a partition now, for a client that asked the wrong broker (KIP-951)."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


@dataclass(slots=True, kw_only=True)
class NodeEndpoint:
    """Where to find that leader."""

    node_id: Int32
    host: str
    port: Int32
    rack: str | None = None


class ResourceType(IntEnum):
    """Whose configs."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:  # noqa: ARG003  a newer broker may know more
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    """Where the value of a config comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:  # noqa: ARG003  a newer broker may know more
        return cls.UNKNOWN
