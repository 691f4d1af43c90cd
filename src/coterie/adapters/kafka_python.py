"""Use any Coterie assignor as `partition_assignment_strategy` of kafka-python (3.0 and later).

from coterie.adapters.kafka_python import adapt

KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[adapt("cooperative-sticky")])
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from coterie.adapters.member_slot import MemberSlot, assign, resolve
from coterie.assignors import Assignor, Member, Topic


def adapt(assignor: Assignor | str, rack: str | None = None) -> AbstractPartitionAssignor:
    """Return an assignor for one consumer; each consumer needs its own. The leader gets `rack` (KIP-881)."""
    return _KafkaPythonAssignor(resolve(assignor), rack)


class _KafkaPythonAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # the library is not typed
    name = ""

    def __init__(self, assignor: Assignor, rack: str | None) -> None:
        self.name = assignor.name
        self._slot = MemberSlot(assignor, rack)

    def supported_protocols(self) -> list[RebalanceProtocol]:
        return [RebalanceProtocol.COOPERATIVE if self._slot.assignor.cooperative else RebalanceProtocol.EAGER]

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolSubscription:
        subscription = self._slot.subscription(topics)
        owned = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=subscription.version,
            topics=subscription.topics,
            user_data=subscription.user_data,
            owned_partitions=[owned(topic=topic, partitions=list(ids)) for topic, ids in subscription.owned.items()],
            generation_id=subscription.generation_id,
            rack_id=subscription.rack,
        )

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, ConsumerProtocolAssignment]:
        answer = assign(
            self._slot.assignor, [_member(member) for member in members], lambda name: _topic(cluster, name)
        )
        return {
            member: ConsumerProtocolAssignment(0, [(topic, list(ids)) for topic, ids in shares.items()], b"")
            for member, shares in answer.items()
        }

    def on_assignment(self, assignment: ConsumerProtocolAssignment, generation: int) -> None:
        self._slot.assigned(assignment.partitions(), generation)


def _member(joined: Any) -> Member:
    subscription = joined.metadata
    return Member(
        id=joined.member_id,
        topics=list(subscription.topics),
        instance_id=joined.group_instance_id,
        rack=subscription.rack_id,
        owned={run.topic: list(run.partitions) for run in subscription.owned_partitions or ()},
        generation=subscription.generation_id,
        user_data=bytes(subscription.user_data) if subscription.user_data is not None else None,
    )


def _topic(cluster: Any, name: str) -> Topic | None:
    partitions = cluster.partitions_for_topic(name)
    if not partitions:
        return None
    rack_of = {broker.node_id: broker.rack for broker in cluster.brokers() if broker.rack}
    if not rack_of:
        return Topic(len(partitions))
    # The library has no public way to ask for the replicas of a partition.
    replicas = [cluster._partitions[name][partition].replica_nodes for partition in sorted(partitions)]  # noqa: SLF001
    return Topic(len(partitions), [[rack_of[node] for node in nodes if node in rack_of] for nodes in replicas])
