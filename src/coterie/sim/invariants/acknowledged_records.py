"""Invariants of records: those that producers had acknowledged, and those that consumers read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.member import effects
from coterie.client.types import TopicPartition
from coterie.facts import Fact, OffsetsStored
from coterie.protocol.batch import batches
from coterie.protocol.records import records
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import Machine
from coterie.sim.world import Observer, World


class AcknowledgedIsKept(Observer):
    """An acknowledged record is never lost, an offset never has two records, and no retry adds a record twice (D1)."""

    name = "acknowledged is kept"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.known: dict[TopicPartition, dict[int, bytes]] = {}
        self.count = 0

    def acknowledged(self, where: TopicPartition, offset: int, value: bytes) -> None:
        self.count += 1
        self._note(where, offset, value, "was acknowledged")

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            self._note(where, record.offset, record.value, f"was read by {consumer.name}")

    def _note(self, where: TopicPartition, offset: int, value: bytes, what: str) -> None:
        before = self.known.setdefault(where, {}).setdefault(offset, value)
        if before != value:
            self.fails(f"{where} at {offset} is {value!r}, which {what}, and was {before!r} before")

    def ended(self) -> None:
        for where, known in self.known.items():
            found = self._log_of(where)
            if len(set(found.values())) < len(found):
                self.fails(f"{where} has a record twice")
            for offset, value in known.items():
                if found.get(offset) != value:
                    self.fails(
                        f"{where} has {found.get(offset)!r} at {offset}, where {value!r} was acknowledged or read"
                    )

    def _log_of(self, where: TopicPartition) -> dict[int, bytes | None]:
        found: dict[int, bytes | None] = {}
        log = self.world.log(where)
        at = log.log_start_offset if log is not None else 0
        while log is not None and at < log.log_end_offset:
            data = log.read(at, 1 << 20, log.log_end_offset)
            for position, header in batches(data):
                at = header.next_offset
                if header.is_control:
                    continue  # the end of a transaction
                found.update({record.offset: record.value for record in records(data, header, position)})
        return found


class OnlyDurableIsRead(Observer):
    """Consumers get only records that are durable."""

    name = "only what is durable is read"

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        for where, last in {TopicPartition(one.topic, one.partition): one.offset for one in records}.items():
            log = self.world.log(where)
            if log is not None and last >= log.durable_end:
                self.fails(f"{consumer.name} has {where} to {last}, which is durable to before {log.durable_end}")


class RecordsComeInOrder(Observer):
    """The owner of a partition gets its records in order, each once, for as long as it owns it."""

    name = "records come in order"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last: dict[str, dict[TopicPartition, int]] = {}

    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None:
        """Keep the last offsets of partitions that stay; a new one begins at the group's position."""
        stays = set(effect.partitions) - set(effect.added)
        before = self._last.get(consumer.name, {})
        self._last[consumer.name] = {one: last for one, last in before.items() if one in stays}

    def rewound(self, consumer: ConsumerProcess) -> None:
        self._last.pop(consumer.name, None)

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        last = self._last.setdefault(consumer.name, {})
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            before = last.get(where)
            if before is not None and record.offset != before + 1:
                self.fails(f"{consumer.name} was handed {where} at {record.offset}, after {before}")
            last[where] = record.offset


class GroupProgress:
    """The offsets that a group has processed: all before `done`, and those in `beyond`."""

    __slots__ = ("beyond", "done")

    def __init__(self) -> None:
        self.done = 0
        self.beyond: set[int] = set()

    def add(self, offset: int) -> None:
        if offset == self.done:
            self.done += 1
            while self.beyond and self.done in self.beyond:
                self.beyond.remove(self.done)
                self.done += 1
        elif offset > self.done:
            self.beyond.add(offset)


class EveryRecordIsProcessed(Observer):
    """A group processes each record at least once: it commits no offset before, and in the end it has processed all."""

    name = "every record is processed"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.progress: dict[tuple[str, str, int], GroupProgress] = {}
        self._groups: set[str] = set()
        self.count = 0

    def came(self, consumer: ConsumerProcess) -> None:
        self._groups.add(consumer.group_id)

    def processed(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        self.count += len(records)
        for record in records:
            self._of(consumer.group_id, record.topic, record.partition).add(record.offset)

    def _of(self, group_id: str, topic: str, partition: int) -> GroupProgress:
        key = (group_id, topic, partition)
        found = self.progress.get(key)
        if found is None:
            found = self.progress[key] = GroupProgress()
        return found

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is not OffsetsStored or fact.group_id not in self._groups:
            return
        for topic, partition, offset in fact.offsets:
            done = self._of(fact.group_id, topic, partition).done
            if offset > done:
                self.fails(
                    f"{fact.group_id} committed {offset} for {topic}-{partition} and has processed only to {done}"
                )

    def is_done(self, group_id: str, where: TopicPartition) -> bool:
        return self._of(group_id, *where).done >= self.end_of(where)

    def end_of(self, where: TopicPartition) -> int:
        log = self.world.log(where)
        return log.log_end_offset if log is not None else 0


class ProducersFindTheirPlace(Observer):
    """A producer gives batches that were refused as out of order a new sequence number (KIP-360)."""

    name = "producers find their place"

    def sample(self) -> None:
        for producer in self.world.producers.values():
            identity = producer.accumulator.identity
            if identity is None or not identity.is_valid:
                continue  # it has to ask for an id first
            for topic in producer.accumulator.topics.values():
                for queue in topic.queues.values():
                    if queue.unsettled and queue.may_move():
                        self.fails(f"all that {producer.name} sent to {queue.where} was refused, and it stays there")
