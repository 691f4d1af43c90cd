"""The metadata of a cluster that a client has, and how a response changes it; no I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis.metadata import DescribedPartition, DescribedTopic, Response
from coterie.structs import DataStruct, field

NO_LEADER = -1


class Node(NamedTuple):
    """A broker of a cluster.

    Args:
        id: The id of the broker.
        host: The name or address it can be reached at.
        port: The port it listens at.
        rack: The rack it is in, if it has one.
    """

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class PartitionInfo(DataStruct, frozen=True):
    leader: int
    """NO_LEADER while there is none."""
    leader_epoch: int = -1
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()
    offline: Sequence[int] = ()
    error: ErrorCode = ErrorCode.NONE


class TopicMetadata(DataStruct, frozen=True):
    name: str
    id: UUID | None = None
    partitions: Mapping[int, PartitionInfo] = field(default_factory=dict)
    error: ErrorCode = ErrorCode.NONE
    is_internal: bool = False


class Metadata(DataStruct, frozen=True):
    nodes: Mapping[int, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    controller: int = NO_LEADER
    cluster_id: str | None = None

    def leader(self, topic: str, partition: int) -> int:
        """NO_LEADER if there is none, or the partition is not known."""
        known = self.topics.get(topic)
        found = known.partitions.get(partition) if known else None
        return found.leader if found else NO_LEADER

    def why_no_leader(self, topic: str, partition: int, what: str) -> KafkaError:
        """Return the error message for a partition without a leader; `what` names the operation."""
        known = self.topics.get(topic)
        if known is not None and known.error:
            return KafkaError.of(known.error, what)
        if known is not None and partition in known.partitions:
            return KafkaError.of(ErrorCode.LEADER_NOT_AVAILABLE, what)
        has = f"the topic has {len(known.partitions)} partitions" if known is not None else None
        return KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what, has)

    def topic_names(self) -> dict[UUID, str]:
        return {topic.id: name for name, topic in self.topics.items() if topic.id is not None}


def learn(known: Metadata, news: Response, *, is_all: bool) -> Metadata:
    """Return the metadata with a response merged in. `is_all`: the response has all topics, so others do not exist."""
    topics = {} if is_all else dict(known.topics)
    for described in news.topics:
        if described.name is not None:
            topics[described.name] = _topic(described, known.topics.get(described.name))
    return Metadata(
        nodes={each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in news.brokers},
        topics=topics,
        controller=news.controller_id,
        cluster_id=news.cluster_id,
    )


def _topic(news: DescribedTopic, known: TopicMetadata | None) -> TopicMetadata:
    assert news.name is not None
    is_same = known is not None and known.id == news.topic_id
    before = known.partitions if known is not None and is_same else {}
    partitions = {each.partition: _partition(each, before.get(each.partition)) for each in news.partitions}
    return TopicMetadata(news.name, news.topic_id, dict(sorted(partitions.items())), news.error, news.is_internal)


def _partition(news: DescribedPartition, known: PartitionInfo | None) -> PartitionInfo:
    """Ignore an older leader epoch: it comes from a broker with outdated metadata (KIP-320)."""
    if known is not None and -1 < news.leader_epoch < known.leader_epoch:
        return known
    return PartitionInfo(
        news.leader_id,
        news.leader_epoch,
        tuple(news.replicas),
        tuple(news.isr),
        tuple(news.offline_replicas),
        news.error,
    )
