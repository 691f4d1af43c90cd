"""The sticky assignors when members subscribe to different topics.

`min_cost_flow.py` finds how many of each pile a member gets; this module makes the piles, and chooses the partitions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import chain

from coterie.assignors.min_cost_flow import ONE, solve, union
from coterie.assignors.model import Owned, RackSet
from coterie.assignors.owned_partitions import PreviousAssignment

_Runs = dict[int, Sequence[int]]
"""Pile to partition ids."""


def assign_unequal(
    topics: Sequence[str],
    subscribed: Sequence[AbstractSet[str]],
    previous: PreviousAssignment,
    racks: Sequence[str | None] = (),
    near: Mapping[str, Sequence[RackSet]] | None = None,
) -> list[Owned]:
    """Return shares by position of the member, as are `subscribed` and `racks`; `near` is given if racks matter."""
    digits = {topic: bytearray(b"0") * len(subscribed) for topic in topics}  # of a binary number, the last one first
    for position, names in enumerate(subscribed, 1):
        for name in names:
            digits[name][-position] = ONE
    sets = {topic: int(text, 2) for topic, text in digits.items()}
    if near is None:
        number = {topic: pile for pile, topic in enumerate(topics)}
        owned: list[_Runs] = [{number[topic]: ids for topic, ids in mine.items()} for mine in previous.owned]
        counts = _counts(owned)
        have = solve([previous.sizes[topic] for topic in topics], list(sets.values()), counts)
        return _share_out(topics, previous, owned, counts, have, [previous.free(topic) for topic in topics])
    piles = _Piles(topics, near)
    owned = [piles.split(mine) for mine in previous.owned]
    in_rack: dict[str, int] = {}
    for position, rack in enumerate(racks):
        in_rack[rack or ""] = in_rack.get(rack or "", 0) | 1 << position
    nearby = [union(in_rack.get(rack, 0) for rack in there if rack) for _, there in piles.kinds]
    counts = _counts(owned)
    have = solve(piles.sizes, [sets[topic] for topic, _ in piles.kinds], counts, nearby)
    free = piles.split({topic: previous.free(topic) for topic in topics})
    kinds = [topic for topic, _ in piles.kinds]
    return _share_out(kinds, previous, owned, counts, have, [free.get(pile, ()) for pile in range(len(kinds))])


class _Piles:
    """Partitions of one topic that are in the same racks."""

    def __init__(self, topics: Sequence[str], near: Mapping[str, Sequence[RackSet]]) -> None:
        self.kinds: list[tuple[str, RackSet]] = []
        self.sizes: list[int] = []
        self._pile_of: dict[str, list[int]] = {}
        for topic in topics:
            numbers: dict[RackSet, int] = {}
            for racks in near[topic]:
                if racks not in numbers:
                    numbers[racks] = len(self.kinds)
                    self.kinds.append((topic, racks))
                    self.sizes.append(0)
                self.sizes[numbers[racks]] += 1
            self._pile_of[topic] = [numbers[racks] for racks in near[topic]]

    def split(self, owned: Owned) -> _Runs:
        runs: defaultdict[int, list[int]] = defaultdict(list)
        for topic, ids in owned.items():
            pile_of = self._pile_of[topic]
            for partition in ids:
                runs[pile_of[partition]].append(partition)
        return dict(runs)


def _counts(owned: list[_Runs]) -> list[dict[int, int]]:
    return [{pile: len(ids) for pile, ids in runs.items() if ids} for runs in owned]


def _share_out(
    names: Sequence[str],
    previous: PreviousAssignment,
    owned: list[_Runs],
    had: list[dict[int, int]],
    have: list[dict[int, int]],
    free: list[Sequence[int]],
) -> list[Owned]:
    """Let every member keep the lowest of what it owned; the rest of each pile goes to the others in order."""
    shares: dict[int, dict[str, Sequence[int]]] = {}  # of members for which something changes
    surrendered: dict[int, list[int]] = {}
    wanted: list[tuple[int, int, int]] = []  # member, pile, how many more
    for position, (before, after) in enumerate(zip(had, have, strict=True)):
        if before == after:
            continue
        mine = shares[position] = dict(previous.owned[position])
        for pile, count in before.items():
            left = after.get(pile, 0)
            if left < count:
                given = sorted(owned[position][pile])[left:]
                surrendered.setdefault(pile, []).extend(given)
                mine[names[pile]] = sorted(set(mine[names[pile]]).difference(given))
        wanted += [(position, pile, count - before.get(pile, 0)) for pile, count in after.items()]
    pool = [sorted(chain(ids, surrendered[pile])) if pile in surrendered else ids for pile, ids in enumerate(free)]
    used = [0] * len(pool)
    for position, pile, more in wanted:
        if more > 0:
            at, name, mine = used[pile], names[pile], shares[position]
            used[pile] = at + more
            taken = pool[pile][at : at + more]
            mine[name] = sorted((*mine[name], *taken)) if mine.get(name) else taken
    result: list[Owned] = list(previous.owned)
    for position, mine in shares.items():
        result[position] = mine if all(mine.values()) else {name: ids for name, ids in mine.items() if ids}
    return result
