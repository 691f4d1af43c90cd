"""MetadataCache answers what clients ask about the cluster: topics, leaders, and where each node listens."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from coterie.broker.calls import PLAINTEXT
from coterie.broker.leadership import Leadership
from coterie.broker.placement import NO_LEADER, Partition, PartitionState
from coterie.ledger.written_facts import FACTS_TOPIC
from coterie.protocol.api import Leader, NodeEndpoint
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC
from coterie.storage import DataDirectory, StoredTopic

__all__ = ["MetadataCache", "is_internal"]


def is_internal(topic: str) -> bool:
    return topic in {OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, FACTS_TOPIC}


class MetadataCache:
    def __init__(self, directory: DataDirectory, leadership: Leadership) -> None:
        self.cluster_id: str = directory.meta["cluster.id"]
        self.topics = directory.topics
        self.topic_names: dict[UUID, str] = {topic.id: topic.name for topic in directory.topics.values()}
        self.endpoints: dict[str, dict[int, tuple[str, int]]] = {
            PLAINTEXT: dict.fromkeys(leadership.nodes, ("127.0.0.1", 0))
        }
        """The host and port of each node, by the name of the listener. They are set when it listens (S1)."""
        self.listeners: dict[int, list[str]] = {}
        """The addresses of each node, in the form of the setting `listeners`. They are set when it listens."""
        self.version = 0
        """A number that grows whenever a topic is created or deleted, or gets partitions."""
        self._leadership = leadership

    @property
    def nodes(self) -> tuple[int, ...]:
        return self._leadership.nodes

    @property
    def nodes_up(self) -> frozenset[int]:
        return self._leadership.up

    @property
    def controller(self) -> int:
        """The node that clients send changes of the cluster to; in fact every node accepts them."""
        return min(self.nodes_up, default=NO_LEADER)

    @property
    def partition_states(self) -> dict[Partition, PartitionState]:
        return self._leadership.partition_states

    def topic_by_id(self, topic_id: UUID | None) -> StoredTopic | None:
        name = None if topic_id is None else self.topic_names.get(topic_id)
        return None if name is None else self.topics.get(name)

    def leader(self, topic: str, partition: int) -> Leader:
        """Return the leader of a partition, for a client that asked the wrong node (KIP-951)."""
        state = self.partition_states[topic, partition]
        return Leader(leader_id=state.leader, leader_epoch=state.leader_epoch)

    def leader_endpoints(self, leaders: Iterable[Leader], listener: str) -> list[NodeEndpoint]:
        endpoints = self.endpoints[listener]
        numbers = dict.fromkeys(leader.leader_id for leader in leaders if leader.leader_id in endpoints)
        return [
            NodeEndpoint(node_id=number, host=host, port=port)
            for number in numbers
            for host, port in [endpoints[number]]
        ]
