"""Finds which partitions each member owns: the members' claims, without those that cannot be true.

Dropped are claims on topics that were deleted or are no longer subscribed, on partitions beyond a topic's end (Kafka
throws there, or assigns what does not exist), and claims that lose: of several members that claim a partition the one
with the highest generation owns it, and if two of them have that generation none does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import compress

from coterie.assignors.model import Owned

_FLIP = bytes([1, *bytes(255)])  # 0 becomes 1, everything else 0


@dataclass(slots=True)
class Claim:
    owned: Owned
    generation: int
    natural: bool = False
    """True if it is known that no id is negative."""


class Claims:
    """Holds what each member owns, by its position, and which partitions have no owner."""

    def __init__(self, owned: list[Owned], sizes: Mapping[str, int]) -> None:
        self.owned = owned
        self.sizes = sizes
        self.taken: dict[str, bytearray] = {}
        """One byte a partition: 1 if it has an owner. A topic without any owned partition is missing."""
        self.claimed: dict[str, bytes] = {}
        """The same for all claims: a member that claims a partition may still be reading it."""

    def copy(self) -> Claims:
        """Return a copy: what is released in it is not released here."""
        twin = Claims(self.owned, self.sizes)
        twin.taken = {topic: bytearray(taken) for topic, taken in self.taken.items()}
        twin.claimed = self.claimed
        return twin

    def release(self, topic: str, partition: int) -> None:
        self.taken[topic][partition] = 0

    def free(self, topic: str) -> Sequence[int]:
        """Return partitions without an owner, ascending."""
        taken = self.taken.get(topic)
        return range(self.sizes[topic]) if taken is None else _zeros(taken)


def settle(claims: Sequence[Claim], subscribed: Sequence[AbstractSet[str]], sizes: Mapping[str, int]) -> Claims:
    """Return what each member owns; `claims` and `subscribed` are by position of the member.

    All subscribed topics have a size.
    """
    owned: list[Owned] = []
    runs: dict[str, list[Sequence[int]]] = {topic: [] for topic in sizes}
    strangers: list[tuple[str, Sequence[int]]] = []  # claims of members that no longer subscribe
    for claim, wanted in zip(claims, subscribed, strict=True):
        mine = claim.owned
        if not mine.keys() <= wanted:
            strangers += [(topic, ids) for topic, ids in mine.items() if topic in sizes and topic not in wanted]
            mine = {topic: ids for topic, ids in mine.items() if topic in wanted}
        for topic, ids in mine.items():
            runs[topic].append(ids)
        owned.append(mine)
    settled = Claims(owned, sizes)
    natural = all(claim.natural or not claim.owned for claim in claims)
    for topic, claimed in runs.items():
        if claimed:
            taken = _mark(claimed, sizes[topic], natural=natural)
            if taken is None:
                taken = _resolve(settled, topic, claims)
            else:
                settled.claimed[topic] = bytes(taken)
            settled.taken[topic] = taken
    for topic, ids in strangers:
        settled.claimed[topic] = _also(settled.claimed.get(topic), ids, sizes[topic])
    return settled


def _mark(runs: list[Sequence[int]], size: int, *, natural: bool) -> bytearray | None:
    """Return the owned partitions of a topic, or None if some id is out of bounds or claimed twice."""
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


def _resolve(settled: Claims, topic: str, claims: Sequence[Claim]) -> bytearray:
    size = settled.sizes[topic]
    positions = [position for position, owned in enumerate(settled.owned) if topic in owned]
    winner: dict[int, int] = {}  # partition to position, -1 while it has no owner
    best: dict[int, int] = {}  # partition to the highest generation that claims it
    for position in positions:
        generation = claims[position].generation
        for partition in dict.fromkeys(settled.owned[position][topic]):
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
        ids = settled.owned[position][topic]
        kept = [partition for partition in dict.fromkeys(ids) if winner.get(partition) == position]
        if len(kept) < len(ids):
            settled.owned[position] = {**settled.owned[position], topic: kept}
            if not kept:
                settled.owned[position] = {t: i for t, i in settled.owned[position].items() if t != topic}
    settled.claimed[topic] = bytes(claimed)
    return taken


def _also(claimed: bytes | None, ids: Sequence[int], size: int) -> bytes:
    more = bytearray(claimed or size)
    for partition in ids:
        if 0 <= partition < size:
            more[partition] = 1
    return bytes(more)
