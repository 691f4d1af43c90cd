"""Requests that are refused because another member has the group.instance.id: they become facts.

A fenced client may repeat its request for ever. So there is one fact for each refused member and each member that has
the instance id, and at most `MOST_REFUSED` for one holder.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects
from coterie.coordinator.offsets.offsets_group import OffsetsGroup
from coterie.errors import ErrorCode
from coterie.facts import Emit, InstanceIdFenced

MOST_REFUSED = 8
"""A process that is started again and again comes with another member id each time."""


def report_fenced(
    group: OffsetsGroup,
    request: str,
    member_id: str,
    instance_id: str | None,
    error: ErrorCode,
    now_ms: int,
) -> Effects:
    """Return the fact that a request is refused, unless it was reported before or the error is another one."""
    if error not in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID) or instance_id is None:
        return []
    holder_id = group.static.get(instance_id)
    if holder_id is None or holder_id == member_id:  # it repeats its own join
        return []
    return _report_once(
        group, InstanceIdFenced(now_ms, group.group_id, member_id, instance_id, holder_id, request, error)
    )


def report_waiting_fenced(
    group: OffsetsGroup, request: str, member_id: str, instance_id: str, holder_id: str, now_ms: int
) -> Emit:
    """Return the fact that a request which waited is refused: its member was replaced meanwhile, which happens once."""
    error = ErrorCode.FENCED_INSTANCE_ID
    fact = InstanceIdFenced(now_ms, group.group_id, member_id, instance_id, holder_id, request, error, was_waiting=True)
    return Emit(fact)


def _report_once(group: OffsetsGroup, fact: InstanceIdFenced) -> Effects:
    if group.fenced is None:
        group.fenced = {}
    holder_id, refused = group.fenced.get(fact.instance_id, ("", set()))
    if holder_id != fact.holder_id:
        refused = set()
        still = {instance: known for instance, known in group.fenced.items() if instance in group.static}
        group.fenced = {**still, fact.instance_id: (fact.holder_id, refused)}
    if fact.member_id in refused or len(refused) >= MOST_REFUSED:
        return []
    refused.add(fact.member_id)
    return [Emit(fact)]
