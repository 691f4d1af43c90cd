"""Racks: whose replica is near to whom, and whether it is worth looking (KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coterie.assignors.model import Topic

__all__ = ["RackSet", "racks_differ", "racks_matter", "topic_racks"]

RackSet = frozenset[str]
_NOWHERE: RackSet = frozenset()


def topic_racks(topics: Mapping[str, Topic], names: Iterable[str]) -> dict[str, list[RackSet]]:
    """For each topic and partition the racks of its replicas; partitions the cluster says nothing about are nowhere."""
    interned: dict[RackSet, RackSet] = {}
    sets: dict[str, list[RackSet]] = {}
    for name in names:
        topic = topics[name]
        given = list(topic.racks or ())[: topic.partitions]
        known = [interned.setdefault(racks, racks) for racks in map(frozenset, given)]
        sets[name] = known + [_NOWHERE] * (topic.partitions - len(known))
    return sets


def racks_matter(member_racks: Iterable[str | None], partition_racks: Iterable[Sequence[RackSet]]) -> bool:
    """Kafka looks at racks only if members and replicas share some, and not every partition is in all of them."""
    wanted = {rack for rack in member_racks if rack}
    if not wanted:
        return False
    distinct, everywhere = _seen(partition_racks)
    return bool(wanted & everywhere) and distinct != {everywhere}


def racks_differ(member_racks: Iterable[str | None], partition_racks: Iterable[Sequence[RackSet]]) -> bool:
    """Whether it makes any difference who gets what. Also if all replicas are everywhere, but some member is not."""
    wanted = {rack or None for rack in member_racks}
    distinct, everywhere = _seen(partition_racks)
    return bool(wanted & everywhere) and not (distinct == {everywhere} and wanted <= everywhere)


def _seen(partition_racks: Iterable[Sequence[RackSet]]) -> tuple[set[RackSet], RackSet]:
    distinct = {racks for racks_of_topic in partition_racks for racks in racks_of_topic}
    return distinct, frozenset().union(*distinct)
