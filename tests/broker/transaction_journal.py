"""What transactional producers have sent, what a read_committed reader has seen of it, and whether the two agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

__all__ = ["Fate", "Journal", "Sent"]


class Fate(Enum):
    OPEN = auto()
    """It was never ended: nothing of it may be seen."""
    COMMITTING = auto()
    """Its commit was sent and not answered: all of it or nothing."""
    COMMITTED = auto()
    ABORTED = auto()
    """Its abort was sent: nothing of it may be seen, whether it was answered or not."""


@dataclass(slots=True)
class Sent:
    fate: Fate = Fate.OPEN
    values: dict[int, set[bytes]] = field(default_factory=dict)
    """By partition."""
    delivered: dict[int, object] = field(default_factory=dict)
    """What a client was told of its record, by partition: an offset, or an error. A raw producer notes nothing."""


class Journal:
    """What one producer has sent, what was seen of it, and whether the two agree."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sent: list[Sent] = []
        self.seen: dict[int, dict[int, set[bytes]]] = {}

    def begin(self) -> tuple[int, Sent]:
        self.sent.append(Sent())
        return len(self.sent) - 1, self.sent[-1]

    def value(self, number: int, partition: int, count: int) -> bytes:
        return f"{self.name}/{number}/{partition}/{count}".encode()

    def take(self, partition: int, value: bytes) -> None:
        name, number, *_ = value.decode().split("/")
        if name == self.name:
            values = self.seen.setdefault(int(number), {}).setdefault(partition, set())
            assert value not in values, f"{value!r} was seen twice"
            values.add(value)

    def check(self, committed_offset: int) -> None:
        last = -1
        for number, sent in enumerate(self.sent):
            seen = self.seen.get(number, {})
            wanted = {partition: values for partition, values in sent.values.items() if values}
            where = f"{self.name}, transaction {number}, {sent.fate.name}, delivered {sent.delivered}"
            if sent.fate is Fate.COMMITTED:
                assert seen == wanted, f"{where}: {seen} of {wanted}"
            elif sent.fate is Fate.COMMITTING:
                assert seen in ({}, wanted), f"{where}: {seen} of {wanted}"
            else:
                assert not seen, f"{where}: {seen}"
            if seen:
                last = number
        assert committed_offset == last, f"{self.name}: offset {committed_offset}, and transaction {last} was the last"
