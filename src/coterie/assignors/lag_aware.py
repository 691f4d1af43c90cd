"""`lag-aware`, an assignor of the broker for consumer groups: it spreads lag, not partitions.

Partitions are dealt from the largest lag to the smallest, each to the member with the least to read so far. A member
keeps what it has if it has only a little more to read than that one, so that few partitions move. Without any lag the
members get equal numbers of partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace

from coterie.assignors.java_order import by_id
from coterie.assignors.model import Assignment, Assignor, Member, Topic

SLACK = 0.1
"""How much more than the least a member may have to read and keep a partition: this share of the average load."""


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
        slack = SLACK * sum(weights.values()) / len(ordered) if ordered else 0.0
        loads = [0.0] * len(ordered)
        heaps = {each: [(0.0, position) for position in each] for each in set(readers.values())}
        for heap in heaps.values():
            heapify(heap)
        for name, partition in sorted(weights, key=lambda each: (-weights[each], each)):
            heap = heaps[readers[name]]
            while heap[0][0] < loads[heap[0][1]]:  # it has got more since, perhaps of other topics
                heapreplace(heap, (loads[heap[0][1]], heap[0][1]))
            least = heap[0][1]
            mine = owner.get((name, partition), least)
            position = mine if loads[mine] <= loads[least] + slack else least
            loads[position] += weights[name, partition]
            shares[position].setdefault(name, []).append(partition)
        return {
            member.id: {name: sorted(share[name]) for name in sorted(share)}
            for member, share in zip(ordered, shares, strict=True)
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
