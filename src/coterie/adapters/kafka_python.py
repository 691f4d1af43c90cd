"""Any of our assignors as `partition_assignment_strategy` of kafka-python (3.0 and later).

from coterie.adapters.kafka_python import adapt

KafkaConsumer("orders", group_id="g", partition_assignment_strategy=[adapt("cooperative-sticky")])
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from coterie.adapters.member_slot import Slot, assign, resolve
from coterie.assignors import Assignor, Member, Topic

__all__ = ["adapt"]


def adapt(assignor: Assignor | str, rack: str | None = None) -> AbstractPartitionAssignor:
    """For one consumer: call it again for the next. `rack` is told to the leader (KIP-881)."""
    return _Adapter(resolve(assignor), rack)


class _Adapter(AbstractPartitionAssignor):  # type: ignore[misc]  # the library is not typed
    name = ""

    def __init__(self, assignor: Assignor, rack: str | None) -> None:
        self.name = assignor.name
        self._slot = Slot(assignor, rack)

    def supported_protocols(self) -> list[RebalanceProtocol]:
        return [RebalanceProtocol.COOPERATIVE if self._slot.assignor.cooperative else RebalanceProtocol.EAGER]

    def metadata(self, topics: Collection[str]) -> ConsumerProtocolSubscription:
        told = self._slot.subscription(topics)
        owned = ConsumerProtocolSubscription.TopicPartition
        return ConsumerProtocolSubscription(
            version=told.version,
            topics=told.topics,
            user_data=told.user_data,
            owned_partitions=[owned(topic=topic, partitions=list(ids)) for topic, ids in told.owned.items()],
            generation_id=told.generation_id,
            rack_id=told.rack,
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
    told = joined.metadata
    return Member(
        id=joined.member_id,
        topics=list(told.topics),
        instance_id=joined.group_instance_id,
        rack=told.rack_id,
        owned={run.topic: list(run.partitions) for run in told.owned_partitions or ()},
        generation=told.generation_id,
        user_data=bytes(told.user_data) if told.user_data is not None else None,
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
