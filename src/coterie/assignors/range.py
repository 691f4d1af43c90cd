"""`range`: each topic by itself, in consecutive shares; topics of one shape get the same shares (co-partitioning).

With racks (KIP-881) a member first takes partitions that have a replica in its rack, within the share it would have
had anyway; topics with the same readers and the same number of partitions still stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors.model import (
    Assignment,
    Assignor,
    Member,
    RackSet,
    Topic,
    by_instance_then_id,
    java_sorted,
    racks_matter,
    topic_racks,
)


class Range(Assignor):
    name = "range"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        assignment: Assignment = {member.id: {} for member in members}
        readers: dict[str, list[Member]] = {}
        for member in by_instance_then_id(members):
            for topic in dict.fromkeys(member.topics):
                if topic in topics and topics[topic].partitions:
                    readers.setdefault(topic, []).append(member)
        racks = _racks_if_they_matter(readers, topics)
        for together in _topics_that_stay_together(readers, topics):
            first = together[0]
            for member, ids in _shares(readers[first], topics[first].partitions, [racks[t] for t in together if racks]):
                for topic in together:
                    assignment[member.id][topic] = ids
        return assignment


def _racks_if_they_matter(readers: Mapping[str, list[Member]], topics: Mapping[str, Topic]) -> dict[str, list[RackSet]]:
    """Return racks if some topic gains from them: then Kafka matches racks for all topics that stay together."""
    if not any(member.rack for members in readers.values() for member in members):
        return {}
    racks = topic_racks(topics, readers)
    matter = any(racks_matter((m.rack for m in readers[topic]), [racks[topic]]) for topic in readers)
    return racks if matter else {}


def _topics_that_stay_together(readers: Mapping[str, list[Member]], topics: Mapping[str, Topic]) -> list[list[str]]:
    """Return groups of topics with the same readers and as many partitions, in order."""
    groups: dict[tuple[tuple[str, ...], int], list[str]] = {}
    for topic in java_sorted(readers):
        shape = tuple(member.id for member in readers[topic]), topics[topic].partitions
        groups.setdefault(shape, []).append(topic)
    return list(groups.values())


def _shares(members: list[Member], count: int, racks: list[list[RackSet]]) -> list[tuple[Member, Sequence[int]]]:
    own = [member.rack for member in members]
    if racks and any(own) and (len(racks) > 1 or racks_matter(own, racks)):
        near = [frozenset.intersection(*sets) for sets in zip(*racks, strict=True)]
        return _RackShares(members, count).deal(near, co_partitioned=len(racks) > 1)
    quota, extra = divmod(count, len(members))
    shares: list[tuple[Member, Sequence[int]]] = []
    start = 0
    for position, member in enumerate(members):
        stop = start + quota + (position < extra)
        if stop > start:
            shares.append((member, range(start, stop)))
        start = stop
    return shares


class _RackShares:
    """Shares of `count` partitions: every member may have the quota, and one more while extras remain."""

    def __init__(self, members: list[Member], count: int) -> None:
        self.members = members
        self.quota, self.extras = divmod(count, len(members))
        self.held: list[list[int]] = [[] for _ in members]

    def deal(self, near: list[RackSet], *, co_partitioned: bool) -> list[tuple[Member, Sequence[int]]]:
        left = self._by_partition(near) if co_partitioned else self._by_member(near)
        for position in range(len(self.members)):
            room = self._room(position)
            self._take(position, left[:room])
            del left[:room]
        return [(member, sorted(ids)) for member, ids in zip(self.members, self.held, strict=True) if ids]

    def _room(self, position: int) -> int:
        return max(0, self.quota + (self.extras > 0) - len(self.held[position]))

    def _take(self, position: int, ids: list[int]) -> None:
        if ids:
            self.held[position] += ids
            self.extras -= len(self.held[position]) > self.quota

    def _by_partition(self, near: list[RackSet]) -> list[int]:
        """Deal several topics at once: each partition goes to the first member in a rack that all of them have."""
        queues: dict[str, list[int]] = {}  # rack to positions, the next one last; "" has those without a rack
        for position in reversed(range(len(self.members))):
            queues.setdefault(self.members[position].rack or "", []).append(position)
        left = []
        for partition, racks in enumerate(near):
            heads = [queue[-1] for queue in (self._with_room(queues.get(rack)) for rack in (*racks, "")) if queue]
            if heads:
                self._take(min(heads), [partition])
            else:
                left.append(partition)
        return left

    def _with_room(self, queue: list[int] | None) -> list[int] | None:
        while queue and not self._room(queue[-1]):  # room never grows, so a full member stays full
            queue.pop()
        return queue

    def _by_member(self, near: list[RackSet]) -> list[int]:
        """Deal one topic: each member takes the first partitions in its rack; one without a rack takes any."""
        free = dict.fromkeys(range(len(near)))
        in_rack: dict[str, list[int]] = {}
        for partition in reversed(range(len(near))):
            for rack in near[partition]:
                in_rack.setdefault(rack, []).append(partition)
        for position, member in enumerate(self.members):
            room = self._room(position)
            ids: list[int] = []
            if member.rack:
                stack = in_rack.get(member.rack, [])
                while stack and len(ids) < room:
                    partition = stack.pop()
                    if partition in free:
                        ids.append(partition)
            else:
                ids = [partition for partition, _ in zip(free, range(room), strict=False)]
            for partition in ids:
                del free[partition]
            self._take(position, ids)
        return list(free)
