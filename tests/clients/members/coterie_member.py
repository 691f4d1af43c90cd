"""A member by our own Consumer."""

from __future__ import annotations

import logging
import re
from typing import Any

from clients.members.telling import Orders, Stopping, note, orders, say, say_committed, say_consumed, say_partitions
from coterie import Consumer
from coterie.client.types import OffsetAndMetadata, Records, TopicPartition
from coterie.errors import CommitFailedError, KafkaError, RebalanceInProgressError


class Listener:
    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        say_partitions("assigned", assigned)

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        say_partitions("revoked", revoked)

    def on_partitions_lost(self, lost: list[TopicPartition]) -> None:
        say_partitions("lost", lost)


def settings(told: Orders) -> dict[str, Any]:
    classic = {
        "partition.assignment.strategy": told.assignor,
        "session.timeout.ms": told.session_timeout_ms,
        "heartbeat.interval.ms": told.heartbeat_interval_ms,
    }
    return {
        **(classic if told.protocol == "classic" else {"group.protocol": told.protocol}),
        "bootstrap.servers": told.bootstrap,
        "group.id": told.group,
        "client.id": told.client_id,
        "metadata.max.age.ms": told.metadata_max_age_ms,
        "max.poll.interval.ms": told.max_poll_interval_ms,
        "group.instance.id": told.instance_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def take(consumer: Consumer, polled: Records) -> None:
    if not polled:
        return
    say_consumed([(one.topic, one.partition, one.offset, (one.value or b"").decode()) for one in polled])
    last = {place: many[-1] for place, many in polled.by_partition().items()}
    following = {place: one.offset + 1 for place, one in last.items()}
    try:
        epochs = {place: one.leader_epoch for place, one in last.items()}
        consumer.commit(
            {at: OffsetAndMetadata(offset, note(), leader_epoch=epochs[at]) for at, offset in following.items()}
        )
    except (CommitFailedError, RebalanceInProgressError) as failure:
        say("commit_failed", error=type(failure).__name__)
        return
    except KafkaError as failure:
        if not failure.retriable:
            raise
        say("commit_failed", error=type(failure).__name__)
        return
    say_committed((place.topic, place.partition, offset) for place, offset in following.items())


def main() -> None:
    logging.basicConfig(level=logging.WARNING)
    told, stopping = orders(), Stopping()
    consumer = Consumer(settings(told))
    consumer.subscribe(re.compile(told.pattern + ".*") if told.pattern else list(told.topics), Listener())
    say("started")
    while not stopping:
        take(consumer, consumer.poll(0.1))
    consumer.close()
    say("closed")


if __name__ == "__main__":
    main()
