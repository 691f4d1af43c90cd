"""Who holds which partition, as the members themselves know it, and since when nobody does.

A member gives up what its join no longer lists as owned; a cooperative one keeps reading the rest. It gives up
everything when it goes, and takes what a stored assignment gives it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from coterie.errors import MalformedError
from coterie.protocol.subscription import read_assignment, read_subscription

__all__ = ["Move", "Ownership", "Partition"]

Partition = tuple[str, int]


@dataclass(slots=True, frozen=True)
class Move:
    partition: Partition
    old_owner: str
    """The last one that had it, even if it is gone by now; empty if nobody ever had it."""
    new_owner: str


@dataclass(slots=True)
class Ownership:
    held: dict[str, set[Partition]] = field(default_factory=dict)
    """By member: everything here costs what the member at hand holds, never the whole group."""
    free_since_ms: dict[Partition, int] = field(default_factory=dict)
    last_owners: dict[Partition, str] = field(default_factory=dict)
    """Of every partition that was ever given to somebody."""

    def rejoined(self, member_id: str, metadata: bytes, at_ms: int) -> None:
        """What it does not claim to own any more it has given up. Bytes that do not say: all of it."""
        held = self.held.get(member_id)
        if not held:
            return
        try:
            owned = read_subscription(metadata).owned
        except MalformedError:
            owned = {}
        kept = {(topic, partition) for topic, partitions in owned.items() for partition in partitions}
        self._free(held - kept, at_ms)
        held &= kept

    def gone(self, member_id: str, at_ms: int) -> None:
        self._free(self.held.pop(member_id, set()), at_ms)

    def renamed(self, old_id: str, new_id: str) -> None:
        held = self.held[new_id] = self.held.pop(old_id, set())
        self.last_owners.update(dict.fromkeys(held, new_id))

    def assigned(self, assignments: Mapping[str, bytes], at_ms: int) -> tuple[list[Move], int, int]:
        """A new assignment is known to all. Returns what moved, how much was kept, and the gaps it ended, in ms."""
        moves: list[Move] = []
        kept = gap_ms = 0
        lost = set[Partition]().union(*self.held.values())
        self.held = {}
        for partition, owner in _owners(assignments):
            before = self.last_owners.get(partition, "")
            if before == owner:
                kept += 1
            else:
                moves.append(Move(partition, before, owner))
                self.last_owners[partition] = owner
            gap_ms += at_ms - self.free_since_ms.pop(partition, at_ms)
            self.held.setdefault(owner, set()).add(partition)
            lost.discard(partition)
        self._free(lost, at_ms)
        return moves, kept, gap_ms

    def emptied(self) -> None:
        """Nobody is there to read: what is free now is not missing anybody."""
        self.held.clear()
        self.free_since_ms.clear()
        self.last_owners.clear()

    def clock_set(self, by_ms: int) -> None:
        for partition in self.free_since_ms:
            self.free_since_ms[partition] += by_ms

    def _free(self, partitions: Iterable[Partition], at_ms: int) -> None:
        for partition in partitions:
            self.free_since_ms.setdefault(partition, at_ms)


def _owners(assignments: Mapping[str, bytes]) -> Iterable[tuple[Partition, str]]:
    """Assignments that are not a consumer's (or empty) own nothing we can name."""
    for member_id, data in assignments.items():
        try:
            partitions = read_assignment(data).partitions
        except MalformedError:
            continue
        for topic, numbers in partitions.items():
            for number in numbers:
                yield (topic, number), member_id
