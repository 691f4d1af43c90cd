"""The types of the admin client's arguments and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from coterie.client.network.metadata import Node
from coterie.client.types import TopicPartition
from coterie.protocol.api import ConfigSource, ResourceType
from coterie.protocol.apis import elect_leaders
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
    "ElectionType",
    "GroupDescription",
    "GroupListing",
    "ListedOffset",
    "LogDirectory",
    "MemberDescription",
    "MemberToRemove",
    "NewTopic",
    "PartitionDescription",
    "PartitionReassignment",
    "ProducerState",
    "QuorumInfo",
    "QuorumReplica",
    "ResourceType",
    "TopicCreated",
    "TopicDescription",
    "TopicListing",
    "TopicPartitionReplica",
    "TransactionDescription",
    "TransactionListing",
]


# --- topics -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Args:
        name: The name of the topic.
        partitions: How many partitions it gets; -1 is the broker's default.
        replication_factor: How many replicas each has; -1 is the broker's default.
        configs: Configs of the topic that differ from the broker's. Values are text, as in Kafka: "1000".
        replicas: For each partition the nodes that hold it, the leader first, instead of the two numbers.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    replicas: Mapping[int, Sequence[int]] | None = None
    """The replicas of each partition, the leader first. The two numbers above are not given then."""


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic that was created. The numbers are -1 from a broker too old to say."""

    name: str
    id: UUID | None
    partitions: int
    """-1 if the broker is too old to say."""
    replication_factor: int


@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic in a list of topics."""

    name: str
    id: UUID | None
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition: its leader, its replicas, those in sync (`isr`) and those that are offline."""

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic and its partitions."""

    name: str
    id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


class ListedOffset(NamedTuple):
    """An offset that was looked up by time.

    Args:
        offset: The offset; -1 if there is no record so late.
        timestamp: The time of that record in milliseconds since 1970, or -1.
        leader_epoch: The leader epoch of that record, or -1.
    """

    offset: int
    timestamp: int = -1
    leader_epoch: int = -1


# --- configs and the cluster ------------------------------------------------------------------------------------------


class ConfigResource(NamedTuple):
    """A topic or a broker that has configs.

    Args:
        type: What it is.
        name: The name of the topic or the id of the broker; empty for the default of all brokers.
    """

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """Return the resource of a topic."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, node_id: int) -> ConfigResource:
        """Return the resource of a broker."""
        return cls(ResourceType.BROKER, str(node_id))

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name!r}"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A config with its value, and where the value comes from."""

    name: str
    value: str | None
    """The value; None if it is secret."""
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool


class ConfigChange(NamedTuple):
    """A config to change.

    Args:
        name: The name of the config.
        value: The new value; None to delete it.
        operation: SET; DELETE, which gives the default back; APPEND and SUBTRACT, which are for lists.
    """

    name: str
    value: str | None
    operation: AlterConfigOp = AlterConfigOp.SET


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster: its id, its controller and its brokers."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory of a broker; sizes are -1 from a broker too old to say."""

    path: str
    sizes: Mapping[TopicPartition, int]
    """Bytes of each replica there."""
    total_bytes: int = -1
    usable_bytes: int = -1


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    node_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on node {self.node_id}"


class PartitionReassignment(NamedTuple):
    """A reassignment that is under way: the ids of the brokers."""

    replicas: tuple[int, ...]
    """All that have the partition or are to have it."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class ElectionType(IntEnum):
    """The way a leader is elected."""

    PREFERRED = elect_leaders.PREFERRED
    """The first replica, if it is in sync."""
    UNCLEAN = elect_leaders.UNCLEAN
    """Any replica that is alive, if none in sync is; records may be lost."""


class QuorumReplica(NamedTuple):
    """The progress of a controller, or of a broker, in the log of the cluster's metadata."""

    replica_id: int
    log_end_offset: int
    last_fetch_timestamp: int
    """The time in milliseconds since 1970; -1 if it is not known."""
    last_caught_up_timestamp: int


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The controllers of a cluster. Those of a Coterie broker have no log: its epoch and offsets are 0."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    """The controllers."""
    observers: tuple[QuorumReplica, ...]
    """Brokers that are not controllers."""


CLASSIC, CONSUMER_TYPE = "classic", "consumer"
"""Types of groups, as ListGroups has them."""


# --- groups -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list of groups."""

    group_id: str
    protocol_type: str
    state: str
    """"" from a broker too old to say (before 2.6)."""
    type: str


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group, and what it owns."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    """The host as the broker sees it, with a slash before it as in Java."""
    assignment: tuple[TopicPartition, ...]
    """The partitions; none while the group rebalances, or if it is not a group of consumers."""
    topics: tuple[str, ...] = ()
    """The topics that it is subscribed to."""
    epoch: int | None = None
    """The member epoch; None in a classic group."""
    target_assignment: tuple[TopicPartition, ...] = ()
    """The target assignment that the coordinator has computed; none in a classic group."""
    type: str = CLASSIC
    """classic or consumer (KIP-848), whichever protocol it uses; a group of KIP-848 may have both. "" is unknown."""
    topic_regex: str = ""
    """The regular expression that it is subscribed to, matched by the broker (KIP-848)."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group: its state, its coordinator and its members."""

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
        """True if `members` has the members: in classic groups and in those of KIP-848."""
        return self.type in (CLASSIC, CONSUMER_TYPE)


class MemberToRemove(NamedTuple):
    """A member to remove from its group.

    Args:
        member_id: The id of a dynamic member.
        instance_id: The `group.instance.id` of a static member.
    """

    member_id: str = ""
    instance_id: str | None = None


# --- transactions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id in the list of all of them.

    Args:
        transactional_id: The transactional id.
        producer_id: The id of its producer.
        state: Its state, for example Ongoing.
        coordinator: The node that coordinates it.
    """

    transactional_id: str
    producer_id: int
    state: str
    coordinator: Node


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """The state of a transactional id.

    Args:
        transactional_id: The transactional id.
        coordinator: The node that coordinates it.
        state: Its state, for example Ongoing.
        producer_id: The id of its producer.
        producer_epoch: The epoch of its producer.
        timeout_ms: How long its transactions may be open.
        started_ms: When the last transaction began, in milliseconds since 1970; None if it had none.
        partitions: The partitions of the transaction that is open or being completed.
    """

    transactional_id: str
    coordinator: Node
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: Sequence[TopicPartition]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A partition's memory of an idempotent or transactional producer.

    Args:
        producer_id: The id of the producer.
        producer_epoch: Its epoch.
        last_sequence: The sequence of its last record; None if it has written none in this epoch.
        last_timestamp: The time of its last write, in milliseconds since 1970.
        coordinator_epoch: The coordinator epoch of its last marker; None if it has none.
        transaction_start_offset: The first offset of its open transaction; None if there is none.
    """

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None
    transaction_start_offset: int | None
