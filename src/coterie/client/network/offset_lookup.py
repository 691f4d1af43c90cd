"""ListOffsets for many partitions: who is asked for which, and what they answered. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from coterie.client.consumer.fetch_requests import Found, LeaderOf
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.api_values import READ_COMMITTED, READ_UNCOMMITTED
from coterie.protocol.apis import list_offsets

__all__ = ["answers", "questions"]


def questions(
    wanted: Mapping[TopicPartition, int], leader_of: LeaderOf, *, read_committed: bool, timeout_ms: int
) -> tuple[dict[int, list_offsets.Request], list[TopicPartition]]:
    """One for each leader; and those whose leader is not known."""
    by_node: dict[int, dict[str, list[list_offsets.Partition]]] = {}
    unknown: list[TopicPartition] = []
    for one, timestamp in wanted.items():
        leader = leader_of(*one)
        if leader is None:
            unknown.append(one)
            continue
        asked = list_offsets.Partition(partition=one.partition, current_leader_epoch=leader.epoch, timestamp=timestamp)
        by_node.setdefault(leader.node_id, {}).setdefault(one.topic, []).append(asked)
    return {
        node_id: list_offsets.Request(
            isolation_level=READ_COMMITTED if read_committed else READ_UNCOMMITTED,
            topics=[list_offsets.Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
            timeout_ms=timeout_ms,
        )
        for node_id, topics in by_node.items()
    }, unknown


def answers(response: list_offsets.Response) -> Iterator[tuple[TopicPartition, Found]]:
    for topic in response.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition)
            error = KafkaError.of(one.error, f"looking for an offset of {partition}") if one.error else None
            yield partition, Found(one.offset, one.leader_epoch, error, one.timestamp)
