"""Lag and rebalances of one group, from descriptions of it that are taken now and then; pure.

A rebalance is seen if two samples in a row differ in members or owners. Several between two samples are seen as one. A
sample of a group that is rebalancing shows no owners, so it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.client.admin import GroupDescription
from coterie.client.types import TopicPartition
from coterie.spark.pipeline.partition_owners import PartitionKey, PartitionOwner, PartitionOwners, Row

SAMPLED = "sampled"
_SETTLED = {"Stable": "stable", "Empty": "empty"}
"""The states in which owners are shown, and what a rebalance has ended in."""


class GroupSamples:
    """Compares each sample of a group with the one before."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._owners = PartitionOwners()
        self._members: set[str] | None = None
        self._sampled_ms = 0

    def add(self, group: GroupDescription, at_ms: int) -> Row | None:
        """Take a sample; return a row of the table `rebalances` if the group has rebalanced since the one before."""
        if group.state not in _SETTLED:
            return None
        before, members = self._members, {one.member_id for one in group.members}
        change = self._owners.assign(_owners(group), members, at_ms, group.group_epoch or 0)
        after_ms, self._members, self._sampled_ms = self._sampled_ms, members, at_ms
        if before is None or (members == before and not change.moved):
            return None
        came, left = sorted(members - before), sorted(before - members)
        return {
            "group_id": self._group_id,
            "evidence": SAMPLED,
            "protocol": group.type,
            "generation": group.group_epoch,
            "cause": _cause(came, left),
            "outcome": _SETTLED[group.state],
            "ended_ms": at_ms,
            "duration_is": f"unknown: it was between two samples, {at_ms - after_ms} ms apart",
            "members": len(members),
            "came": came,
            "left": left,
            **change.columns({}),
            "unassigned_ms": None,
        }


def _owners(group: GroupDescription) -> dict[PartitionKey, PartitionOwner]:
    return {
        (each.topic, each.partition): PartitionOwner(one.member_id, one.instance_id, one.client_id)
        for one in group.members
        for each in one.assignment
    }


def _cause(came: list[str], left: list[str]) -> str:
    said = [f"{len(who)} {'member' if len(who) == 1 else 'members'} {what}" for who, what in _changes(came, left)]
    return ", ".join(said) or "partitions have moved; the members are the same"


def _changes(came: list[str], left: list[str]) -> list[tuple[list[str], str]]:
    return [(who, what) for who, what in ((came, "joined"), (left, "disappeared")) if who]


def lag_rows(
    group: GroupDescription,
    at_ms: int,
    committed: Mapping[TopicPartition, int | None],
    ends: Mapping[TopicPartition, int],
    times: Mapping[TopicPartition, int | None],
) -> list[Row]:
    """Return rows of the table `lag`. A partition that the group has not committed has an unknown lag.

    Args:
        group: The group, which says who owns what.
        at_ms: The time of all this.
        committed: The committed offset of each partition; None if there is none.
        ends: The end of each partition that exists.
        times: The time of the next record to read, in milliseconds, as far as it was found.
    """
    owners = {each: one.member_id for one in group.members for each in one.assignment}
    return [
        {
            "at_ms": at_ms,
            "group_id": group.group_id,
            "topic": each.topic,
            "partition": each.partition,
            "member_id": owners.get(each),
            "committed": offset,
            "log_end": ends.get(each),
            **_behind(offset, ends.get(each), times.get(each), at_ms),
        }
        for each, offset in sorted(committed.items())
    ]


def _behind(offset: int | None, end: int | None, record_ms: int | None, at_ms: int) -> dict[str, Any]:
    if offset is None or end is None:
        return {}
    if end <= offset:
        return {"records_behind": 0, "seconds_behind": 0.0, "seconds_from": "nothing waits"}
    if record_ms is None:
        return {"records_behind": end - offset}
    waits_s = max(at_ms - record_ms, 0) / 1000
    return {"records_behind": end - offset, "seconds_behind": waits_s, "seconds_from": "record"}
