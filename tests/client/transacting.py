"""Transactional producers on any broker, and what a reader sees of them."""

from __future__ import annotations

import coterie
from client.consumers import QUICK, until
from coterie import Admin, Consumer, Producer, TopicPartition

__all__ = ["WAIT_S", "producer", "seen", "stable_end"]

WAIT_S = 60.0
LAST = "last"


def producer(bootstrap: str, name: str, **more: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **more})


def seen(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[str]:
    """The values of the topic, in the order of each partition: all up to a record that is written now."""
    partitions = [TopicPartition(topic, number) for number in range(2)]
    with Producer(bootstrap_servers=bootstrap) as plain:
        for partition in partitions:
            plain.send(topic, LAST, partition=partition.partition)
    found: dict[TopicPartition, list[str]] = {}
    with Consumer({**QUICK, "bootstrap.servers": bootstrap, "isolation.level": isolation_level}) as consumer:
        consumer.assign(partitions)

        def has_all() -> bool:
            for record in consumer.poll(1):
                assert record.value is not None
                found.setdefault(TopicPartition(record.topic, record.partition), []).append(record.value.decode())
            return [values[-1:] for values in found.values()] == [[LAST], [LAST]]

        until(has_all)
    return [value for _, values in sorted(found.items()) for value in values if value != LAST]


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        where = TopicPartition(topic, partition)
        return coterie.checked(admin.list_offsets({where: coterie.LATEST}, read_committed=True))[where].offset
