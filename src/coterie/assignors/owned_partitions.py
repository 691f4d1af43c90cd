"""Finds which partitions each member owns, from the owned partitions that the members send (KIP-429).

What cannot be true is left out: topics that were deleted or are no longer subscribed, and partitions beyond a topic's
end (Kafka throws there, or assigns what does not exist). If several members send the same partition, the one with the
highest generation owns it; if two of them have that generation, none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress

from coterie.assignors.model import Owned

_FLIP = bytes([1, *bytes(255)])  # 0 becomes 1, everything else 0


@dataclass(slots=True)
class StickyMemberData:
    """The partitions that a member reports to own, and their generation: `MemberData` of Kafka's sticky assignors."""

    owned: Owned
    generation: int
    natural: bool = False
    """True if it is known that no id is negative."""


class PreviousAssignment:
    """Holds what each member owns before the rebalance, by its position, and which partitions are unassigned."""

    def __init__(self, owned: list[Owned], sizes: Mapping[str, int]) -> None:
        self.owned = owned
        self.sizes = sizes
        self.taken: dict[str, bytearray] = {}
        """One byte a partition: 1 if it has an owner. A topic without any owned partition is missing."""
        self.claimed: dict[str, bytes] = {}
        """The same for all that members have sent: a member that says it owns a partition may still be reading it."""

    def copy(self) -> PreviousAssignment:
        """Return a copy: what is released in it is not released here."""
        twin = PreviousAssignment(self.owned, self.sizes)
        twin.taken = {topic: bytearray(taken) for topic, taken in self.taken.items()}
        twin.claimed = self.claimed
        return twin

    def release(self, topic: str, partition: int) -> None:
        """Take a partition from its owner."""
        self.taken[topic][partition] = 0

    def free(self, topic: str) -> Sequence[int]:
        """Return the unassigned partitions of a topic, ascending."""
        taken = self.taken.get(topic)
        return range(self.sizes[topic]) if taken is None else _zeros(taken)


def settle(
    data: Sequence[StickyMemberData], subscribed: Sequence[AbstractSet[str]], sizes: Mapping[str, int]
) -> PreviousAssignment:
    """Return what each member owns; `data` and `subscribed` are by position of the member.

    All subscribed topics have a size.
    """
    owned: list[Owned] = []
    runs: dict[str, list[Sequence[int]]] = {topic: [] for topic in sizes}
    strangers: list[tuple[str, Sequence[int]]] = []  # owned by members that no longer subscribe
    for one, wanted in zip(data, subscribed, strict=True):
        mine = one.owned
        if not mine.keys() <= wanted:
            strangers += [(topic, ids) for topic, ids in mine.items() if topic in sizes and topic not in wanted]
            mine = {topic: ids for topic, ids in mine.items() if topic in wanted}
        for topic, ids in mine.items():
            runs[topic].append(ids)
        owned.append(mine)
    previous = PreviousAssignment(owned, sizes)
    natural = all(one.natural or not one.owned for one in data)
    for topic, claimed in runs.items():
        if claimed:
            taken = _mark(claimed, sizes[topic], natural=natural)
            if taken is None:
                taken = _resolve(previous, topic, data)
            else:
                previous.claimed[topic] = bytes(taken)
            previous.taken[topic] = taken
    for topic, ids in strangers:
        previous.claimed[topic] = _also(previous.claimed.get(topic), ids, sizes[topic])
    return previous


def _mark(runs: list[Sequence[int]], size: int, *, natural: bool) -> bytearray | None:
    """Return the owned partitions of a topic, or None if some id is out of bounds or has two owners."""
    taken = bytearray(size)
    try:
        for run in runs:
            for partition in run:
                taken[partition] = 1
    except IndexError:
        return None
    if taken.count(1) != sum(map(len, runs)):
        return None
    # A negative id counts from the end of a bytearray; it shows because the sum of the ids is then too small.
    return taken if natural or sum(map(sum, runs)) + sum(_zeros(taken)) == size * (size - 1) // 2 else None


def _zeros(taken: bytearray) -> list[int]:
    missing = taken.count(0)
    if missing * 4 > len(taken):
        return list(compress(range(len(taken)), taken.translate(_FLIP)))
    ids, at = [], -1
    for _ in range(missing):
        at = taken.find(0, at + 1)
        ids.append(at)
    return ids


def _resolve(previous: PreviousAssignment, topic: str, data: Sequence[StickyMemberData]) -> bytearray:
    size = previous.sizes[topic]
    positions = [position for position, owned in enumerate(previous.owned) if topic in owned]
    winner: dict[int, int] = {}  # partition to position, -1 while it has no owner
    best: dict[int, int] = {}  # partition to the highest generation of those that own it
    for position in positions:
        generation = data[position].generation
        for partition in dict.fromkeys(previous.owned[position][topic]):
            if not 0 <= partition < size:
                continue
            if partition not in best or generation > best[partition]:
                best[partition], winner[partition] = generation, position
            elif generation == best[partition]:
                winner[partition] = -1
    taken, claimed = bytearray(size), bytearray(size)
    for partition, position in winner.items():
        claimed[partition] = 1
        taken[partition] = position >= 0
    for position in positions:
        ids = previous.owned[position][topic]
        kept = [partition for partition in dict.fromkeys(ids) if winner.get(partition) == position]
        if len(kept) < len(ids):
            previous.owned[position] = {**previous.owned[position], topic: kept}
            if not kept:
                previous.owned[position] = {t: i for t, i in previous.owned[position].items() if t != topic}
    previous.claimed[topic] = bytes(claimed)
    return taken


def _also(claimed: bytes | None, ids: Sequence[int], size: int) -> bytes:
    more = bytearray(claimed or size)
    for partition in ids:
        if 0 <= partition < size:
            more[partition] = 1
    return bytes(more)
