"""Sticky, when all members subscribe to the same topics and racks matter (KIP-881): exactly Kafka's answer.

As in `equal`, with three differences. A member keeps only what is near to it. What is free is then dealt to members
near to it, partitions that few members are near to first. What cannot be dealt so is dealt plainly.
So rack matches come before stickiness here, as Kafka has it; balance comes before both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from coterie.assignors.claims import Claims
from coterie.assignors.equal import who_keeps_one_more
from coterie.assignors.model import Owned
from coterie.assignors.racks import RackSet

__all__ = ["assign_equal_with_racks"]


def assign_equal_with_racks(
    ids: Sequence[str],
    topics: Sequence[str],
    claims: Claims,
    racks: Sequence[str | None],
    near: Mapping[str, Sequence[RackSet]],
    *,
    still: bool = False,
) -> list[Owned]:
    """`racks` are the members' by position, `near` the partitions' by topic.

    `still` is for cooperative rebalances: partitions do not move where nobody has to give up anything and no rack match
    is gained. Kafka moves them, and from rebalance to rebalance again, so that it may not come to rest before the fifth
    rebalance.
    """
    moving = _Deal(ids, topics, claims.copy(), racks, near)
    moving.deal()
    if still and moving.moves():
        keeping = _Deal(ids, topics, claims.copy(), racks, near, keep_far=True)
        keeping.deal()
        if not keeping.moves() and keeping.matches() >= moving.matches():
            return keeping.result()
    return moving.result()


class _Deal:
    def __init__(
        self,
        ids: Sequence[str],
        topics: Sequence[str],
        claims: Claims,
        racks: Sequence[str | None],
        near: Mapping[str, Sequence[RackSet]],
        *,
        keep_far: bool = False,
    ) -> None:
        self.topics, self.claims, self.racks, self.near = topics, claims, racks, near
        self.keep_far = keep_far
        self.quota, extras = divmod(sum(claims.sizes[topic] for topic in topics), len(ids))
        self.held: list[dict[str, list[int]]] = [self._near_part_of(position) for position in range(len(ids))]
        self.loads = [sum(map(len, held.values())) for held in self.held]
        keeping = who_keeps_one_more(ids, self.loads, self.quota, extras)
        for position, load in enumerate(self.loads):
            self._cut(position, load - self.quota - (position in keeping))
        self.extras = extras - len(keeping)
        self.below = _Circle([p for p, load in enumerate(self.loads) if load < self.quota], racks)
        self.at_quota = _Queue(racks)
        if self.extras:
            for position, load in enumerate(self.loads):
                if load == self.quota:
                    self.at_quota.append(position)

    def _near_part_of(self, position: int) -> dict[str, list[int]]:
        rack, owned = self.racks[position], self.claims.owned[position]
        if self.keep_far or not rack:
            return {topic: list(run) for topic, run in owned.items()}
        held = {topic: [p for p in run if rack in self.near[topic][p]] for topic, run in owned.items()}
        for topic, run in owned.items():
            for partition in set(run).difference(held[topic]):
                self.claims.release(topic, partition)
        return held

    def _cut(self, position: int, excess: int) -> None:
        if excess <= 0:
            return
        ordered = sorted((partition, topic) for topic, run in self.held[position].items() for partition in run)
        for partition, topic in ordered[-excess:]:
            self.held[position][topic].remove(partition)
            self.claims.release(topic, partition)
        self.loads[position] -= excess

    def deal(self) -> None:
        self._to_anyone([free for free in self._free() if not self._to_a_near_member(*free)])

    def result(self) -> list[Owned]:
        return [{topic: sorted(run) for topic, run in held.items() if run} for held in self.held]

    def moves(self) -> int:
        """Owned partitions that are somewhere else now."""
        return sum(
            len(set(run).difference(held.get(topic, ())))
            for owned, held in zip(self.claims.owned, self.held, strict=True)
            for topic, run in owned.items()
        )

    def matches(self) -> int:
        return sum(
            rack in self.near[topic][partition]
            for rack, held in zip(self.racks, self.held, strict=True)
            if rack
            for topic, run in held.items()
            for partition in run
        )

    def _free(self) -> list[tuple[str, int]]:
        """By the number of members near to a partition, then topic, then partition."""
        population = Counter(rack for rack in self.racks if rack)
        free = [(topic, partition) for topic in self.topics for partition in self.claims.free(topic)]
        return sorted(free, key=lambda tp: sum(population[rack] for rack in self.near[tp[0]][tp[1]]))

    def _to_a_near_member(self, topic: str, partition: int) -> bool:
        racks = self.near[topic][partition]
        position = self.below.next_in(racks)
        if position is not None:
            if self._give(position, topic, partition) >= self.quota:
                self.below.remove(position)
                if self.extras:
                    self.at_quota.append(position)
            return True
        position = self.at_quota.first_in(racks)
        if position is None:
            return False
        self._give(position, topic, partition)
        self.at_quota.remove(position)
        self.extras -= 1
        if not self.extras:
            self.at_quota = _Queue(self.racks)
        return True

    def _to_anyone(self, left: list[tuple[str, int]]) -> None:
        turns = self._turns(self.below.members())
        for topic, partition in left:
            self._give(next(turns), topic, partition)

    def _turns(self, below: list[int]) -> Iterator[int]:
        filled: list[int] = []
        while below:
            yield from below
            filled += [position for position in below if self.loads[position] == self.quota]
            below = [position for position in below if self.loads[position] < self.quota]
        yield from chain(self.at_quota.members(), filled)

    def _give(self, position: int, topic: str, partition: int) -> int:
        self.held[position].setdefault(topic, []).append(partition)
        self.loads[position] += 1
        return self.loads[position]


class _Circle:
    """Members in order, and a pointer that goes round: who is next in one of these racks?"""

    def __init__(self, positions: list[int], racks: Sequence[str | None]) -> None:
        self._racks = racks
        self._pointer = 0
        self._in: dict[str, list[int]] = {}
        for position in positions:
            self._in.setdefault(racks[position] or "", []).append(position)

    def next_in(self, racks: RackSet) -> int | None:
        """The next one from the pointer on; the pointer moves behind it."""
        found: int | None = None
        for rack in racks:
            if rack and (inside := self._in.get(rack)):
                candidate = inside[bisect_left(inside, self._pointer) % len(inside)]
                if found is None or self._distance(candidate) < self._distance(found):
                    found = candidate
        if found is not None:
            self._pointer = found + 1
        return found

    def _distance(self, position: int) -> tuple[bool, int]:
        return position < self._pointer, position

    def remove(self, position: int) -> None:
        self._in[self._racks[position] or ""].remove(position)

    def members(self) -> list[int]:
        ordered: list[int] = []
        for inside in self._in.values():
            for position in inside:
                insort(ordered, position)
        return ordered


class _Queue:
    """Members in the order they came, found by rack."""

    def __init__(self, racks: Sequence[str | None]) -> None:
        self._racks = racks
        self._tickets: dict[int, int] = {}
        self._in: defaultdict[str, deque[int]] = defaultdict(deque)

    def append(self, position: int) -> None:
        self._tickets[position] = len(self._tickets)
        self._in[self._racks[position] or ""].append(position)

    def first_in(self, racks: RackSet) -> int | None:
        heads = [self._in[rack][0] for rack in racks if rack and self._in.get(rack)]
        return min(heads, key=self._tickets.__getitem__, default=None)

    def remove(self, position: int) -> None:
        self._in[self._racks[position] or ""].remove(position)

    def members(self) -> list[int]:
        return sorted(chain.from_iterable(self._in.values()), key=self._tickets.__getitem__)
