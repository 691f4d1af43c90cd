"""What was acknowledged is never lost, nobody ever reads two different records at one offset, and a record that its
producer sent again is there once (D1).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.types import TopicPartition
from coterie.protocol.batch import batches
from coterie.protocol.records import records
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["AcknowledgedIsKept"]


class AcknowledgedIsKept(Observer):
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
        at = log.log_start if log is not None else 0
        while log is not None and at < log.log_end:
            data = log.read(at, 1 << 20, log.log_end)
            for position, header in batches(data):
                at = header.next_offset
                found.update({record.offset: record.value for record in records(data, header, position)})
        return found
