"""The sticky assignors when all members subscribe to the same topics: exactly Kafka's answer.

Every member gets the lower quota P // M, and P mod M members get one more. Each keeps what it owns up to its quota, the
lowest partitions first. Then free partitions are dealt in order, one each in turn, to members below the lower quota, by
member id; the rest goes one each to members that may still have one more. Balance and moves are optimal. The work is
per member and topic, not per partition: only members off their quota are touched, a member that keeps everything keeps
its mapping, and dealing is slicing.

If racks matter (KIP-881) there are three differences. A member keeps only what has a replica in its rack. Free
partitions are dealt to members in their racks first, beginning with those that have the fewest such members. What
cannot be dealt so is dealt as above. So rack matches come before stickiness, as in Kafka; balance comes before both.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from coterie.assignors.model import Owned, RackSet
from coterie.assignors.owned_partitions import PreviousAssignment
from coterie.protocol.java_hash import hash_order


def assign_equal(ids: Sequence[str], topics: Sequence[str], previous: PreviousAssignment) -> list[Owned]:
    """Return shares by position; `ids` of members and names of `topics` are sorted."""
    quota, extras = divmod(sum(previous.sizes[topic] for topic in topics), len(ids))
    kept = list(previous.owned)
    loads = [sum(map(len, owned.values())) for owned in kept]
    keeping = who_keeps_one_more(ids, loads, quota, extras)
    for position, load in enumerate(loads):
        excess = load - quota - (position in keeping)
        if excess > 0:
            kept[position] = _without_the_last(kept[position], excess, previous)
            loads[position] -= excess
    needs = [(position, quota - load) for position, load in enumerate(loads) if load < quota]
    spare = extras - len(keeping)
    one_more = [position for position, load in enumerate(loads) if load == quota] if spare else []
    one_more += [position for position, _ in sorted(needs, key=lambda need: need[1])]  # in the order they are filled
    _deal(kept, topics, previous, [*_turns_by_need(needs), (one_more[:spare], 1)])
    return kept


def who_keeps_one_more(ids: Sequence[str], loads: Sequence[int], quota: int, extras: int) -> set[int]:
    """Return the first `extras` members above the quota, in the order of Java's hash: they keep one more."""
    rich = {position for position, load in enumerate(loads) if load > quota}
    if len(rich) <= extras:
        return rich
    if not extras:
        return set()
    return set([position for position in hash_order(ids) if position in rich][:extras])


def _without_the_last(owned: Owned, excess: int, previous: PreviousAssignment) -> Owned:
    """Release the `excess` highest by (partition, topic): Kafka keeps the start of that list."""
    runs = {topic: sorted(run) for topic, run in owned.items()}
    last = sorted(((partition, topic) for topic, run in runs.items() for partition in run[-excess:]), reverse=True)
    for partition, topic in last[:excess]:
        runs[topic].pop()
        previous.release(topic, partition)
    return {topic: run for topic, run in runs.items() if run}


def _turns_by_need(needs: list[tuple[int, int]]) -> list[tuple[list[int], int]]:
    """Return groups of members that get one partition each in turn, and how many turns each group has.

    Members that need fewer partitions are only in the first groups.
    """
    blocks, done = [], 0
    for level in sorted({need for _, need in needs}):
        blocks.append(([position for position, need in needs if need >= level], level - done))
        done = level
    return blocks


def _deal(
    kept: list[Owned], topics: Sequence[str], previous: PreviousAssignment, blocks: list[tuple[list[int], int]]
) -> None:
    """Hand out the free partitions in order. A block gives each of its members one partition a turn."""
    free = ((topic, run) for topic in topics if (run := previous.free(topic)))
    gained: defaultdict[int, dict[str, Sequence[int]]] = defaultdict(dict)
    topic, run, at = "", range(0), 0
    for slots, turns_each in blocks:
        turn, turns = 0, len(slots) * turns_each
        while turn < turns:
            if at == len(run):
                topic, run, at = *next(free), 0
            stop = min(len(run), at + turns - turn)
            first, step = turn % len(slots), len(slots)
            for position, start in zip(chain(slots[first:], slots[:first]), range(at, stop), strict=False):
                mine = gained[position]
                part = run[start:stop:step]
                mine[topic] = sorted((*mine[topic], *part)) if topic in mine else part
            turn += stop - at
            at = stop
    for position, more in gained.items():
        old = kept[position]
        for name in old.keys() & more.keys():
            more[name] = sorted((*old[name], *more[name]))
        kept[position] = {**old, **more}


def assign_equal_with_racks(
    ids: Sequence[str],
    topics: Sequence[str],
    previous: PreviousAssignment,
    racks: Sequence[str | None],
    near: Mapping[str, Sequence[RackSet]],
    *,
    still: bool = False,
) -> list[Owned]:
    """Return shares by position; `racks` are the members' by position, `near` the partitions' by topic.

    `still` is for cooperative rebalances: partitions do not move if no member has to give up any and no rack match is
    gained. Kafka moves them, in one rebalance after another, so that a group may need five until it is stable.
    """
    moving = _Deal(ids, topics, previous.copy(), racks, near)
    moving.deal()
    if still and moving.moves():
        keeping = _Deal(ids, topics, previous.copy(), racks, near, keep_far=True)
        keeping.deal()
        if not keeping.moves() and keeping.matches() >= moving.matches():
            return keeping.result()
    return moving.result()


class _Deal:
    def __init__(
        self,
        ids: Sequence[str],
        topics: Sequence[str],
        previous: PreviousAssignment,
        racks: Sequence[str | None],
        near: Mapping[str, Sequence[RackSet]],
        *,
        keep_far: bool = False,
    ) -> None:
        self.topics, self.previous, self.racks, self.near = topics, previous, racks, near
        self.keep_far = keep_far
        self.quota, extras = divmod(sum(previous.sizes[topic] for topic in topics), len(ids))
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
        rack, owned = self.racks[position], self.previous.owned[position]
        if self.keep_far or not rack:
            return {topic: list(run) for topic, run in owned.items()}
        held = {topic: [p for p in run if rack in self.near[topic][p]] for topic, run in owned.items()}
        for topic, run in owned.items():
            for partition in set(run).difference(held[topic]):
                self.previous.release(topic, partition)
        return held

    def _cut(self, position: int, excess: int) -> None:
        if excess <= 0:
            return
        ordered = sorted((partition, topic) for topic, run in self.held[position].items() for partition in run)
        for partition, topic in ordered[-excess:]:
            self.held[position][topic].remove(partition)
            self.previous.release(topic, partition)
        self.loads[position] -= excess

    def deal(self) -> None:
        self._to_anyone([free for free in self._free() if not self._to_a_near_member(*free)])

    def result(self) -> list[Owned]:
        return [{topic: sorted(run) for topic, run in held.items() if run} for held in self.held]

    def moves(self) -> int:
        """Return how many partitions have another owner now."""
        return sum(
            len(set(run).difference(held.get(topic, ())))
            for owned, held in zip(self.previous.owned, self.held, strict=True)
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
        """Return free partitions by the number of members in their racks, then topic, then partition."""
        population = Counter(rack for rack in self.racks if rack)
        free = [(topic, partition) for topic in self.topics for partition in self.previous.free(topic)]
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
    """Members in a circle, with a pointer to the next one, found by rack."""

    def __init__(self, positions: list[int], racks: Sequence[str | None]) -> None:
        self._racks = racks
        self._pointer = 0
        self._in: dict[str, list[int]] = {}
        for position in positions:
            self._in.setdefault(racks[position] or "", []).append(position)

    def next_in(self, racks: RackSet) -> int | None:
        """Return the next member in one of these racks, and move the pointer behind it."""
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
    """Members in the order in which they were added, found by rack."""

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
