"""Every record is processed at least once by the group: nothing is committed before it is, and in the end all are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.types import TopicPartition
from coterie.facts import Fact, OffsetsStored
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["EveryRecordIsProcessed"]


class GroupProgress:
    """All before `done` are processed, and those in `beyond`."""

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

    def tell(self, _machine: Machine, fact: Fact) -> None:
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
        return log.log_end if log is not None else 0
