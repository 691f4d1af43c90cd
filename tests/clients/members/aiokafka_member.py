"""A member by aiokafka."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalStateError

from clients.members.telling import Orders, Stopping, note, orders, say, say_committed, say_consumed, say_partitions

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        say_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        say_partitions("revoked", revoked)


def settings(told: Orders) -> dict[str, Any]:
    return {
        "bootstrap_servers": told.bootstrap,
        "group_id": told.group,
        "client_id": told.client_id,
        "partition_assignment_strategy": [ASSIGNORS[one] for one in told.assignor.split(",")],
        "session_timeout_ms": told.session_timeout_ms,
        "heartbeat_interval_ms": told.heartbeat_interval_ms,
        "metadata_max_age_ms": told.metadata_max_age_ms,
        "max_poll_interval_ms": told.max_poll_interval_ms,
        "group_instance_id": told.instance_id,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }


async def take(consumer: AIOKafkaConsumer, polled: dict[TopicPartition, list[Any]]) -> None:
    records = [(one.topic, one.partition, one.offset, one.value.decode()) for many in polled.values() for one in many]
    if not records:
        return
    say_consumed(records)
    following = {place: many[-1].offset + 1 for place, many in polled.items() if many}
    try:
        await consumer.commit({place: (offset, note()) for place, offset in following.items()})
    except (CommitFailedError, IllegalStateError) as failure:  # the latter: revoked between the poll and now
        say("commit_failed", error=type(failure).__name__)
        return
    say_committed((place.topic, place.partition, offset) for place, offset in following.items())


async def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    told, stopping = orders(), Stopping()
    consumer = AIOKafkaConsumer(**settings(told))
    if told.pattern:
        consumer.subscribe(pattern=f"^{told.pattern}", listener=Listener())
    else:
        consumer.subscribe(list(told.topics), listener=Listener())
    await consumer.start()
    say("started")
    while not stopping:
        await take(consumer, await consumer.getmany(timeout_ms=100))
    await consumer.stop()
    say("closed")


if __name__ == "__main__":
    asyncio.run(main())
