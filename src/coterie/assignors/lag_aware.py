"""`lag-aware`, an assignor of the broker for consumer groups: it spreads lag, not partitions.

First each member keeps what it has, the largest lag first, until it has its share of all there is to read. The rest is
dealt from the largest lag to the smallest, each to the member with the least to read so far. Without any lag the
members get equal numbers of partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from coterie.assignors.model import Assignment, Assignor, Member, Topic, by_id

SLACK = 0.1
"""The share by which a member's lag may exceed the average while it keeps all its partitions."""


class LagAware(Assignor):
    name = "lag-aware"
    uses_lag = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Return which member gets which partitions. Only lag counts, and each partition counts as one record more."""
        ordered = by_id(members)
        wanted = [frozenset(member.topics) for member in ordered]
        shares: list[dict[str, list[int]]] = [{} for _ in ordered]
        owner = {
            (name, partition): position
            for position, member in enumerate(ordered)
            for name, partitions in member.owned.items()
            if name in wanted[position]
            for partition in partitions
        }
        readers: dict[str, tuple[int, ...]] = {
            name: tuple(position for position, names in enumerate(wanted) if name in names) for name in topics
        }
        weights = _weights({name: topic for name, topic in topics.items() if readers[name]})
        share = (1 + SLACK) * sum(weights.values()) / len(ordered) if ordered else 0.0
        loads = [0.0] * len(ordered)

        def give(place: tuple[str, int], position: int) -> None:
            loads[position] += weights[place]
            shares[position].setdefault(place[0], []).append(place[1])

        left = []
        for place in sorted(weights, key=lambda each: (-weights[each], each)):
            mine = owner.get(place)
            if mine is not None and (not loads[mine] or loads[mine] + weights[place] <= share):
                give(place, mine)
            else:
                left.append(place)
        heaps = {each: [(loads[position], position) for position in each] for each in set(readers.values())}
        for heap in heaps.values():
            heapify(heap)
        for place in left:
            heap = heaps[readers[place[0]]]
            while heap[0][0] < loads[heap[0][1]]:  # it has got more since, perhaps of other topics
                heapreplace(heap, (loads[heap[0][1]], heap[0][1]))
            give(place, heap[0][1])
        return {
            member.id: {name: sorted(dealt[name]) for name in sorted(dealt)}
            for member, dealt in zip(ordered, shares, strict=True)
        }


def _weights(topics: Mapping[str, Topic]) -> dict[tuple[str, int], float]:
    """Return what each partition is to read. Of one without a committed offset nothing is known: it is the average."""
    lags = {
        (name, partition): topic.lag[partition] if topic.lag is not None else None
        for name, topic in topics.items()
        for partition in range(topic.partitions)
    }
    known = [lag for lag in lags.values() if lag is not None]
    average = sum(known) / len(known) if known else 0.0
    return {each: 1 + (average if lag is None else lag) for each, lag in lags.items()}
