"""The metadata of a cluster that a client has, its age, what to ask, and how a response changes it; no I/O."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import find_coordinator
from coterie.protocol.apis.metadata import DescribedPartition, DescribedTopic, Request, Response, Topic
from coterie.settings.client_settings import ClientSettings
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


class ClusterMetadata:
    """The metadata of a cluster, and its age. Times are in seconds, as event loops count them."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.known = Metadata()
        # Bootstrap servers have numbers below zero until the answer of Metadata has those of the nodes.
        self._seeds = {-1 - at: Node(-1 - at, *address) for at, address in enumerate(settings.addresses)}
        self._coordinators: dict[int, Node] = {}
        """The nodes that were named as a coordinator."""
        self._learned_at: float | None = None
        self._topics_learned_at: dict[str, float] = {}

    # --- its age ------------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Let all metadata expire."""
        self._learned_at = None
        self._topics_learned_at.clear()

    def is_old(self, now: float) -> bool:
        """Return whether it is older than `metadata.max.age.ms`, expired, or missing."""
        return self._is_old(self._learned_at, now)

    def knows(self, topic: str, now: float) -> bool:
        """Return whether the metadata of the topic is current."""
        return not self._is_old(self._topics_learned_at.get(topic), now)

    def _is_old(self, learned_at: float | None, now: float) -> bool:
        return learned_at is None or (now - learned_at) * 1000 >= self._settings.metadata_max_age_ms

    # --- what it says -------------------------------------------------------------------------------------------------

    def leader(self, topic: str, partition: int, now: float) -> int:
        """Return the leader of a partition; NO_LEADER if a node has to be asked."""
        found = self.known.leader(topic, partition)
        return found if found != NO_LEADER and self.knows(topic, now) else NO_LEADER

    def controller(self, now: float) -> int:
        """Return the controller; NO_LEADER if a node has to be asked."""
        return NO_LEADER if self.is_old(now) else self.known.controller

    def node(self, node_id: int) -> Node | None:
        return self.known.nodes.get(node_id) or self._coordinators.get(node_id) or self._seeds.get(node_id)

    @property
    def bootstrap_nodes(self) -> Collection[Node]:
        """The bootstrap servers, if they are tried too when no node answers (KIP-899)."""
        is_used = not self.known.nodes or self._settings.metadata_recovery_strategy == "rebootstrap"
        return self._seeds.values() if is_used else ()

    # --- what it learns -----------------------------------------------------------------------------------------------

    def learned(self, news: Response, now: float, *, is_all: bool) -> Metadata:
        """Merge a response in. `is_all`: it has all topics, so others do not exist.

        Raises:
            KafkaError: The response has no metadata.
        """
        if news.error is ErrorCode.REBOOTSTRAP_REQUIRED:
            self.known = Metadata()
            raise KafkaError("the cluster asks the client to bootstrap again", ErrorCode.LEADER_NOT_AVAILABLE)
        if news.error:
            raise KafkaError.of(news.error, "asking who leads what")
        if not news.brokers:
            raise KafkaError("the cluster has no brokers yet", ErrorCode.LEADER_NOT_AVAILABLE)
        self.known = learn(self.known, news, is_all=is_all)
        self._learned_at = now
        if is_all:
            self._topics_learned_at.clear()
        self._topics_learned_at |= {topic.name: now for topic in news.topics if topic.name is not None}
        return self.known

    def learned_coordinator(self, key: str, key_type: int, news: find_coordinator.Response) -> Node:
        """Return the coordinator that a response names, and keep the address of the node.

        Raises:
            KafkaError: There is none at the moment, or the response does not name exactly one.
        """
        whose = "group" if key_type == find_coordinator.GROUP else "transactional id"
        what = f'looking for the coordinator of {whose} "{key}"'
        if len(news.coordinators) != 1:
            raise KafkaError(f"{what}: the broker named {len(news.coordinators)}, and a {whose} has exactly one")
        (found,) = news.coordinators
        if found.error:
            raise KafkaError.of(found.error, what, found.message)
        node = self._coordinators[found.node_id] = Node(found.node_id, found.host, found.port)
        return node


def ask_for(topics: Collection[str] | None, *, allow_auto_create: bool) -> Request:
    """Return the request for the metadata of these topics; None: of all."""
    asked = None if topics is None else [Topic(name=name) for name in sorted(topics)]
    return Request(topics=asked, allow_auto_topic_creation=allow_auto_create)


def ask_for_ids(topic_ids: Collection[UUID]) -> Request:
    return Request(topics=[Topic(topic_id=one) for one in sorted(topic_ids)], allow_auto_topic_creation=False)


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
