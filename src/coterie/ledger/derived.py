"""What the records of `__consumer_offsets` let one conclude about rounds, on any cluster.

A group's record is written when a round has ended, so its members and their partitions are known for sure; when the
round began, who was late and why it came are not. The cause told here is what the members that came and went suggest,
the beginning of a round is its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from coterie import facts
from coterie.facts import Cause, Fact
from coterie.messages import GroupRecord, StoredGroup, StoredMember

__all__ = ["derived_facts"]


def derived_facts(records: Iterable[tuple[int, GroupRecord]]) -> Iterator[Fact]:
    """Records of groups with their times, in the order of their log."""
    known: dict[str, StoredGroup] = {}
    for at_ms, record in records:
        group_id, stored = record.group_id, record.value
        if stored is None:
            known.pop(group_id, None)
            yield facts.GroupDied(at_ms, group_id, "its record was deleted")
            continue
        before = known.get(group_id)
        known[group_id] = stored
        if stored.members:
            yield from _stored(at_ms, group_id, before, stored)
        elif before is not None and before.members:
            yield from (_left(at_ms, group_id, member) for member in before.members)
            yield facts.GroupEmptied(at_ms, group_id, stored.generation_id)


def _stored(at_ms: int, group_id: str, before: StoredGroup | None, now: StoredGroup) -> Iterator[Fact]:
    old = {member.member_id: member for member in before.members} if before is not None else {}
    new = {member.member_id: member for member in now.members}
    if before is not None and before.generation_id == now.generation_id and old:
        yield from _replaced(at_ms, group_id, old, new)
        return
    came = [member for member_id, member in new.items() if member_id not in old]
    went = [member for member_id, member in old.items() if member_id not in new]
    for member in came:
        yield facts.MemberJoined(
            at_ms, group_id, member.member_id, member.instance_id, member.client_id, member.client_host
        )
    cause, culprit = _cause(came, went)
    generation_id = before.generation_id if before is not None else 0
    yield facts.RoundStarted(at_ms, group_id, cause, culprit, None, generation_id, [*old])
    for member in went:
        yield _left(at_ms, group_id, member)
    yield facts.JoinPhaseCompleted(at_ms, group_id, now.generation_id, now.protocol_name or "", now.leader_id or "", {})
    yield facts.AssignmentStored(
        at_ms, group_id, now.generation_id, {member.member_id: member.assignment for member in now.members}
    )


def _replaced(at_ms: int, group_id: str, old: dict[str, StoredMember], new: dict[str, StoredMember]) -> Iterator[Fact]:
    """The same generation written again: a static member came back under a new id (rule 19)."""
    gone = {member.instance_id: member_id for member_id, member in old.items() if member_id not in new}
    for member_id, member in new.items():
        if member_id not in old and member.instance_id in gone and member.instance_id is not None:
            yield facts.MemberReplaced(at_ms, group_id, member_id, gone[member.instance_id], member.instance_id)


def _cause(came: list[StoredMember], went: list[StoredMember]) -> tuple[Cause, str]:
    if came:
        return Cause.NEW_MEMBER, came[0].member_id
    if went:
        return Cause.MEMBER_LEFT, went[0].member_id
    return Cause.PROTOCOLS_CHANGED, ""


def _left(at_ms: int, group_id: str, member: StoredMember) -> Fact:
    return facts.MemberLeft(at_ms, group_id, member.member_id, member.instance_id, None)
