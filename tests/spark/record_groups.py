"""Make `data/groups.jsonl` again: the log that lives of groups leave in Apache Kafka 4.3.1, classic and of KIP-848.

    PYTHONPATH=tests .venv/bin/python tests/spark/record_groups.py

Members of librdkafka come, take over from each other, change their minds, leave, come back under a static name and
vanish. The first line has the names of the topics by their ids; each other line is a record of `__consumer_offsets`:
its offset, its time, and its bytes in hex (a value of null: a tombstone).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic  # noqa: TID251  real processes live by the wall clock

from confluent_kafka import Consumer, TopicPartition

from apache_kafka import ApacheKafka
from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.spark.pipeline.cluster import topic_names
from spark.second_reading import log_of_broker

DATA = Path(__file__).parent / "data" / "groups.jsonl"
TOPICS = {"orders": 6, "payments": 3}
QUICK = {
    "offsets.topic.num.partitions": "1",
    "log.cleaner.enable": "false",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
}


class Life:
    """One group, and who is in it now."""

    def __init__(self, bootstrap: str, group: str, protocol: str) -> None:
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        if protocol == "classic":
            self._settings |= {"session.timeout.ms": 3000, "heartbeat.interval.ms": 200}
        self.members: list[Consumer] = []

    def come(self, *topics: str, **more: str) -> Consumer:
        named = {name.replace("_", "."): text for name, text in more.items()}
        member = Consumer(self._settings | {"client.id": f"client-{len(self.members)}"} | named)
        member.subscribe(list(topics))
        self.members.append(member)
        return member

    def go(self, member: Consumer) -> None:
        self.members.remove(member)
        member.close()

    def settle(self, partitions: int) -> None:
        """Until each has some, and together they have so many."""
        until = monotonic() + 90
        while True:
            sizes = [len(one.assignment()) for one in self.members]
            if all(sizes) and sum(sizes) == partitions:
                return
            assert monotonic() < until, sizes
            for one in self.members:
                one.poll(0.05)

    def commit(self, offset: int) -> None:
        for one in self.members:
            places = [TopicPartition(each.topic, each.partition, offset) for each in one.assignment()]
            if places:
                one.commit(offsets=places, asynchronous=False)


def busy(life: Life) -> None:
    """Reconciliations that wait for somebody to give up what another is to get."""
    first = life.come("orders")
    life.settle(6)
    life.commit(1)
    second, third = life.come("orders"), life.come("orders")  # two epochs, the first of them soon overtaken
    life.settle(6)
    life.commit(2)
    first.subscribe(["orders", "payments"])
    life.settle(9)
    life.go(second)
    life.settle(9)
    life.come("payments")
    life.settle(9)
    life.go(third)
    life.settle(9)
    life.commit(3)
    for member in list(life.members):
        life.go(member)
    life.come("payments")  # the group had nobody, and lives again
    life.settle(3)
    life.go(life.members[0])


def static(life: Life) -> None:
    """A static member leaves for a while (epoch -2) and comes back; another is gone for good, by its session."""
    life.come("orders")
    named = life.come("orders", group_instance_id="till")
    life.settle(6)
    life.go(named)
    life.come("orders", group_instance_id="till")
    life.settle(6)
    life.go(life.members[-1])
    life.settle(6)
    life.commit(4)
    life.go(life.members[0])


def record(bootstrap: str) -> Sequence[str]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions) for name, partitions in TOPICS.items()])
        for protocol in ("consumer", "classic"):
            busy(Life(bootstrap, f"busy-{protocol}", protocol))
            static(Life(bootstrap, f"static-{protocol}", protocol))
            admin.delete_groups([f"static-{protocol}"])
    lines = [json.dumps(topic_names({"kafka.bootstrap.servers": bootstrap}))]
    for one in log_of_broker(bootstrap):
        value = None if one.value is None else one.value.hex()
        lines.append(json.dumps({"offset": one.offset, "ms": one.ms, "key": one.key.hex(), "value": value}))
    return lines


def main() -> None:
    with ApacheKafka(QUICK) as kafka:
        lines = record(kafka.bootstrap)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_text("\n".join(lines) + "\n")
    sys.stdout.write(f"{len(lines) - 1} records in {DATA.name}\n")


if __name__ == "__main__":
    main()
