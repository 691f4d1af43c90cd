"""What a group did, read from `__consumer_offsets`: every broker writes it there, and in the same form.

So nothing has to be told by the broker itself, and one judge serves Coterie and Apache Kafka. A group's record is
written when the leader's assignment is (rule 10), when a static member is replaced, and when the last member has gone.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient

from clients.harness import Facts, wait_until
from coterie.protocol.messages import GroupRecord, OffsetRecord, Record, StoredGroup
from coterie.protocol.offsets_topic import Skipped, read_record

__all__ = ["Journal", "LiveJournal"]

OFFSETS_TOPIC = "__consumer_offsets"
SECONDS = 30
AT_ONCE = 1_000


class Journal(Facts):
    """Facts as `coterie serve` tells them, as far as `__consumer_offsets` knows."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[str, StoredGroup] = {}

    def take(self, record: Record | Skipped, written_ms: int) -> None:
        if isinstance(record, OffsetRecord) and record.value is not None:
            offsets = [(record.topic, record.partition, record.value.offset, record.value.metadata)]
            self._tell("OffsetsStored", record.group_id, record.value.commit_timestamp_ms, offsets=offsets)
        elif isinstance(record, GroupRecord) and record.value is not None:
            self._take_group(record.group_id, record.value, written_ms)

    def _take_group(self, group: str, new: StoredGroup, at_ms: int) -> None:
        old = self._groups.get(group, StoredGroup("consumer", -1))
        self._groups[group] = new
        before, after = ({one.member_id: one for one in stored.members} for stored in (old, new))
        for member_id, member in after.items():
            if member_id not in before:
                told = {"client_id": member.client_id, "instance_id": member.instance_id}
                self._tell("MemberJoined", group, at_ms, member_id=member_id, **told)
        for member_id in before.keys() - after.keys():
            self._tell("MemberGone", group, at_ms, member_id=member_id)
        assignments = {member_id: member.assignment.hex() for member_id, member in after.items()}
        self._tell("AssignmentStored", group, at_ms, generation_id=new.generation_id, assignments=assignments)

    def _tell(self, fact: str, group: str, at_ms: int, **details: Any) -> None:
        self.all.append({"fact": fact, "group_id": group, "at_ms": at_ms, **details})


class LiveJournal(Journal):
    """Of a broker that runs; it may be restarted."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "journal",  # librdkafka wants one; nobody joins by it
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        count = _partitions_of_the_offsets_topic(bootstrap)
        self._consumer.assign([TopicPartition(OFFSETS_TOPIC, one, OFFSET_BEGINNING) for one in range(count)])

    def close(self) -> None:
        self._consumer.close()

    def read(self) -> list[dict[str, Any]]:
        while messages := self._consumer.consume(AT_ONCE, timeout=0):
            for message in messages:
                self._hear(message)
        return self.all

    def _hear(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal() or error.code() == KafkaError._AUTO_OFFSET_RESET:
                raise KafkaException(error)
            return  # the broker is away: the same records come when it is back
        key, value = message.key(), message.value()
        assert isinstance(key, bytes) and not isinstance(value, str)
        self.take(read_record(key, value), message.timestamp()[1])


def _partitions_of_the_offsets_topic(bootstrap: str) -> int:
    """The topic is made when somebody first asks for a coordinator (C2)."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    counts: list[int] = []

    def is_there() -> bool:
        admin.describe_consumer_groups(["nobody"])
        topic = admin.list_topics(timeout=SECONDS).topics.get(OFFSETS_TOPIC)
        counts[:] = [len(topic.partitions)] if topic and not topic.error else []
        return bool(counts) and counts[0] > 0

    wait_until(is_there, f"{OFFSETS_TOPIC} is there", lambda: f"its partitions: {counts}")
    return counts[0]
