"""A member by kafka-python."""

from __future__ import annotations

import logging
import signal
from collections.abc import Collection
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import CommitFailedError, RebalanceInProgressError, RetriableError

from clients.members.telling import Orders, note, orders, say, say_committed, say_consumed, say_partitions

POLL_MS = 3_600_000
"""A poll that times out while the member joins loses the assignment that then arrives (kafka-python 3.0.12): so none
does, and SIGTERM interrupts it as Ctrl-C would."""

ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        say_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        say_partitions("revoked", revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        say_partitions("lost", lost)


def settings(told: Orders) -> dict[str, Any]:
    given: dict[str, Any] = {
        "bootstrap_servers": told.bootstrap,
        "group_id": told.group,
        "client_id": told.client_id,
        "partition_assignment_strategy": [ASSIGNORS[one] for one in told.assignor.split(",")],
        "session_timeout_ms": told.session_timeout_ms,
        "heartbeat_interval_ms": told.heartbeat_interval_ms,
        "metadata_max_age_ms": told.metadata_max_age_ms,
        "max_poll_interval_ms": told.max_poll_interval_ms,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
    }
    if told.instance_id:
        given["group_instance_id"] = told.instance_id
    return given


def take(consumer: KafkaConsumer, polled: dict[TopicPartition, list[Any]]) -> None:
    records = [(one.topic, one.partition, one.offset, one.value.decode()) for many in polled.values() for one in many]
    if not records:
        return
    say_consumed(records)
    following = {place: many[-1].offset + 1 for place, many in polled.items() if many}
    try:
        consumer.commit({place: OffsetAndMetadata(offset, note(), -1) for place, offset in following.items()})
    except (CommitFailedError, RebalanceInProgressError, RetriableError) as failure:
        say("commit_failed", error=type(failure).__name__)
        return
    say_committed((place.topic, place.partition, offset) for place, offset in following.items())


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    told = orders()
    consumer = KafkaConsumer(**settings(told))
    if told.pattern:
        consumer.subscribe(pattern=f"^{told.pattern}", listener=Listener())
    else:
        consumer.subscribe(list(told.topics), listener=Listener())
    say("started")
    try:
        while True:
            try:
                polled = consumer.poll(timeout_ms=POLL_MS)
            except RetriableError as failure:  # such as a broker that is away; another library would keep it to itself
                say("error", error=type(failure).__name__)
                continue
            take(consumer, polled)
    except KeyboardInterrupt:
        consumer.close()
    say("closed")


if __name__ == "__main__":
    main()
