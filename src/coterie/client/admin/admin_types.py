"""What an admin is given and gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from coterie.client.network.metadata import Node
from coterie.client.types import TopicPartition
from coterie.protocol.api_values import ConfigSource, ResourceType
from coterie.protocol.apis.incremental_alter_configs import AlterConfigOp
from coterie.protocol.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP

__all__ = [
    "EARLIEST",
    "LATEST",
    "MAX_TIMESTAMP",
    "AlterConfigOp",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "LogDirectory",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "PartitionDescription",
    "ResourceType",
    "TopicCreated",
    "TopicDescription",
    "TopicListing",
]


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """-1 is whatever the broker's own default is."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    replicas: Mapping[int, Sequence[int]] | None = None
    """For each partition the nodes that hold it, the leader first; then the two numbers above are not given."""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    name: str
    id: UUID | None
    partitions: int
    """-1 if the broker is too old to say."""
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    id: UUID | None
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ListedOffset(NamedTuple):
    offset: int
    """-1: there is no record so late."""
    timestamp: int = -1
    leader_epoch: int = -1


# --- configs and the cluster ------------------------------------------------------------------------------------------


class ConfigResource(NamedTuple):
    """Whose configs. A broker's name is its id; "" is the default of all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        return cls(ResourceType.BROKER, str(node_id))

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    """None for one that is secret."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool


class ConfigChange(NamedTuple):
    """DELETE gives the default back; APPEND and SUBTRACT are for lists."""

    name: str
    value: str | None
    operation: AlterConfigOp = AlterConfigOp.SET


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    path: str
    sizes: Mapping[TopicPartition, int]
    """Bytes of each replica there."""
    total_bytes: int = -1
    usable_bytes: int = -1


CLASSIC, CONSUMER_TYPE = "classic", "consumer"
"""Types of groups, as ListGroups has them."""


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str
    """"" from a broker too old to say (before 2.6)."""
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    """As the broker saw it, with a slash before it as Java writes it."""
    assignment: tuple[TopicPartition, ...]
    """Nothing while the group rebalances, or if it is not a group of consumers."""
    topics: tuple[str, ...] = ()
    """What it is subscribed to."""
    epoch: int | None = None
    """The member epoch; None in a classic group."""
    target_assignment: tuple[TopicPartition, ...] = ()
    """What the group's coordinator wants it to own; nothing in a classic group."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[MemberDescription, ...]
    """Empty for share and streams groups, whose members are not known (`shows_members`)."""
    type: str = CLASSIC
    """classic, consumer (KIP-848), share (KIP-932) or streams (KIP-1071)."""
    group_epoch: int | None = None
    assignment_epoch: int | None = None
    """The epoch of the target assignment. Both epochs are None unless the type is consumer."""

    @property
    def shows_members(self) -> bool:
        return self.type in (CLASSIC, CONSUMER_TYPE)


class MemberToRemove(NamedTuple):
    """By the id of a dynamic member, or by the group.instance.id of a static one."""

    member_id: str = ""
    instance_id: str | None = None
