"""Racks of members and replicas, and whether they matter for an assignment (KIP-881)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coterie.assignors.model import Topic

__all__ = ["RackSet", "racks_differ", "racks_matter", "topic_racks"]

RackSet = frozenset[str]
_NOWHERE: RackSet = frozenset()


def topic_racks(topics: Mapping[str, Topic], names: Iterable[str]) -> dict[str, list[RackSet]]:
    """Return the racks of replicas for each topic and partition; unknown ones have none."""
    interned: dict[RackSet, RackSet] = {}
    sets: dict[str, list[RackSet]] = {}
    for name in names:
        topic = topics[name]
        given = list(topic.racks or ())[: topic.partitions]
        known = [interned.setdefault(racks, racks) for racks in map(frozenset, given)]
        sets[name] = known + [_NOWHERE] * (topic.partitions - len(known))
    return sets


def racks_matter(member_racks: Iterable[str | None], partition_racks: Iterable[Sequence[RackSet]]) -> bool:
    """Return whether Kafka uses racks: members and replicas share some, and not every partition is in all of them."""
    wanted = {rack for rack in member_racks if rack}
    if not wanted:
        return False
    distinct, everywhere = _seen(partition_racks)
    return bool(wanted & everywhere) and distinct != {everywhere}


def racks_differ(member_racks: Iterable[str | None], partition_racks: Iterable[Sequence[RackSet]]) -> bool:
    """Return whether racks can make a difference; also if replicas are in all racks, but some member is in none."""
    wanted = {rack or None for rack in member_racks}
    distinct, everywhere = _seen(partition_racks)
    return bool(wanted & everywhere) and not (distinct == {everywhere} and wanted <= everywhere)


def _seen(partition_racks: Iterable[Sequence[RackSet]]) -> tuple[set[RackSet], RackSet]:
    distinct = {racks for racks_of_topic in partition_racks for racks in racks_of_topic}
    return distinct, frozenset().union(*distinct)
