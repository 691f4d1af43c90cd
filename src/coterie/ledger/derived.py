"""Derive facts about classic groups from the records of `__consumer_offsets`, on any cluster.

Each record is the whole group, written at the end of a rebalance. So members and owners are certain, and a rebalance is
the difference between two records. The log does not say when it began, what it cost, or whether a member left or was
removed. A generation may be missing because it was compacted, or because the next rebalance began before the leader's
sync. What is not known is called unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any

from coterie import facts
from coterie.errors import MalformedError
from coterie.facts import Cause, Fact
from coterie.protocol.messages import GroupRecord, StoredGroup, StoredMember
from coterie.protocol.subscription import read_subscription


class DerivedCause(StrEnum):
    """Causes of a rebalance that only a derived one has."""

    MEMBER_GONE = "member disappeared"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class RebalanceSeen(Fact):
    """A rebalance as two records of a group show it. Its time is that of its end."""

    cause: Cause | DerivedCause
    member_id: str
    reason: str | None
    old_generation_id: int
    waits_for: Sequence[str]
    generation_id: int
    protocol_name: str
    leader_id: str


@dataclass(slots=True)
class MemberGone(Fact):
    """A member is no longer in the group's record. It left, crashed or timed out; the log does not say which."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """The parts of a record that the next record of the group is compared with."""

    generation_id: int
    protocol_name: str | None = None
    members: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    """The instance id and the subscribed topics of each member."""

    @classmethod
    def of(cls, stored: StoredGroup) -> Seen:
        members = {member.member_id: (member.instance_id, _subscribed(member)) for member in stored.members}
        return cls(stored.generation_id, stored.protocol_name, members)

    def to_json(self) -> Any:
        return [self.generation_id, self.protocol_name, {name: list(about) for name, about in self.members.items()}]

    @classmethod
    def from_json(cls, said: Any) -> Seen:
        generation_id, protocol_name, members = said
        return cls(generation_id, protocol_name, {name: (about[0], about[1]) for name, about in members.items()})


def _subscribed(member: StoredMember) -> str:
    """Return the subscribed topics. The owned partitions, also in the bytes, do not count as a change."""
    try:
        return "\n".join(sorted(read_subscription(member.subscription).topics))
    except MalformedError:
        return member.subscription.hex()


class ChangeKind(Enum):
    FIRST = auto()
    """The first record of the group that is in the log."""
    REBALANCE = auto()
    REPLACED = auto()
    """The same generation with other ids: a static member came back without a rebalance (rule 19)."""
    AGAIN = auto()
    """The same generation, the same members."""
    GONE = auto()


@dataclass(frozen=True, slots=True)
class RecordChange:
    """The change from one record of a group to the next."""

    kind: ChangeKind
    last: Seen | None
    """The record before, since the group was created."""
    now: Seen | None
    is_new_group: bool
    """The record before has a higher generation: the group was deleted and created again."""

    @property
    def before(self) -> Seen:
        """Return the state before the rebalance; before generation 1 there are no members."""
        return self.last if self.last is not None else Seen(0)

    @property
    def came(self) -> list[str]:
        return sorted(self._after.members.keys() - self.before.members.keys())

    @property
    def left(self) -> list[str]:
        return sorted(self.before.members.keys() - self._after.members.keys())

    @property
    def returned(self) -> dict[str, str]:
        """Return the new and the old id of static members that came back."""
        old = {self.before.members[name][0]: name for name in self.left}
        names = {name: self._after.members[name][0] for name in self.came}
        return {name: old[instance] for name, instance in names.items() if instance is not None and instance in old}

    @property
    def changed(self) -> list[str]:
        """Return the members whose subscription has changed."""
        both = sorted(self._after.members.keys() & self.before.members.keys())
        return [name for name in both if self._after.members[name][1] != self.before.members[name][1]]

    @property
    def has_other_assignor(self) -> bool:
        before, now = self.before, self._after
        return bool(before.members and now.members and before.protocol_name != now.protocol_name)

    @property
    def _after(self) -> Seen:
        return self.now if self.now is not None else Seen(self.before.generation_id)

    def why(self) -> str:
        """Describe the change in words."""
        returned = len(self.returned)
        reasons = [
            _count(len(self.came) - returned, "member joined", "members joined"),
            _count(len(self.left) - returned, "member disappeared", "members disappeared"),
            _count(returned, "static member rejoined", "static members rejoined"),
            _count(len(self.changed), "member changed its subscription", "members changed their subscriptions"),
        ]
        if self.has_other_assignor:
            reasons.append(f"the assignor changed from {self.before.protocol_name} to {self._after.protocol_name}")
        said = ", ".join(reason for reason in reasons if reason)
        not_logged = _count(self.missing, "generation was not logged", "generations were not logged")
        if said:
            return f"{said}; {not_logged}" if not_logged else said
        return f"unknown: {not_logged or 'the log shows no change of members'}"

    @property
    def missing(self) -> int:
        """Return how many generations between the two records are not in the log."""
        return max(self._after.generation_id - self.before.generation_id - 1, 0)

    def cause(self) -> tuple[Cause | DerivedCause, str]:
        """Return the most likely cause, and the member behind it."""
        returned = self.returned
        new = [name for name in self.came if name not in returned]
        gone = [name for name in self.left if name not in returned.values()]
        suggested: tuple[tuple[Cause | DerivedCause, list[str]], ...] = (
            (Cause.NEW_MEMBER, new),
            (DerivedCause.MEMBER_GONE, gone),
            (Cause.STATIC_MEMBER_REPLACED, list(returned)),
            (Cause.PROTOCOLS_CHANGED, self.changed),
        )
        for cause, members in suggested:
            if members:
                return cause, members[0]
        return (Cause.PROTOCOLS_CHANGED if self.has_other_assignor else DerivedCause.UNKNOWN), ""


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number > 0 else ""


def compare(last: Seen | None, stored: StoredGroup | None) -> RecordChange:
    """Compare two records. `last` is None if there was none before; `stored` is None in a tombstone."""
    if stored is None:
        return RecordChange(ChangeKind.GONE, last, None, is_new_group=False)
    now = Seen.of(stored)
    is_new_group = last is not None and now.generation_id < last.generation_id
    if is_new_group:
        last = None
    if last is None:
        kind = ChangeKind.REBALANCE if now.generation_id == 1 else ChangeKind.FIRST
    elif now.generation_id > last.generation_id:
        kind = ChangeKind.REBALANCE
    else:
        kind = ChangeKind.REPLACED if last.members.keys() != now.members.keys() else ChangeKind.AGAIN
    return RecordChange(kind, last, now, is_new_group)


# --- as facts ---------------------------------------------------------------------------------------------------------


def derived_facts(records: Iterable[tuple[int, GroupRecord]]) -> Iterator[Fact]:
    """Return the facts of group records, given with their times in the order of the log."""
    known: dict[str, Seen] = {}
    for at_ms, record in records:
        group_id = record.group_id
        step = compare(known.pop(group_id, None), record.value)
        if record.value is None or step.is_new_group:
            yield facts.GroupDied(at_ms, group_id, "its record was deleted")
        if step.now is not None and record.value is not None:
            known[group_id] = step.now
            yield from _facts_of(at_ms, group_id, step, record.value)


def _facts_of(at_ms: int, group_id: str, step: RecordChange, stored: StoredGroup) -> Iterator[Fact]:
    members = {member.member_id: member for member in stored.members}
    returned = step.returned
    if step.kind is ChangeKind.REPLACED:
        for member_id, old_id in returned.items():
            yield facts.MemberReplaced(at_ms, group_id, member_id, old_id, members[member_id].instance_id or "")
        yield from _left(at_ms, group_id, step, stored)
        return
    if step.kind is ChangeKind.AGAIN:
        return
    for member in (members[member_id] for member_id in step.came):
        yield facts.MemberJoined(
            at_ms, group_id, member.member_id, member.instance_id, member.client_id, member.client_host
        )
    assignments = {member.member_id: member.assignment for member in stored.members}
    if step.kind is ChangeKind.FIRST:
        state = "Stable" if members else "Empty"
        yield facts.GroupLoaded(at_ms, group_id, state, stored.generation_id, [*members], 0, assignments)
        return
    cause, culprit = step.cause()
    before = step.before
    yield RebalanceSeen(
        at_ms,
        group_id,
        cause,
        culprit,
        _reason(step, cause),
        before.generation_id,
        [*before.members],
        stored.generation_id,
        stored.protocol_name or "",
        stored.leader_id or "",
    )
    yield from _left(at_ms, group_id, step, stored)
    if not members:
        return
    yield facts.AssignmentStored(at_ms, group_id, stored.generation_id, assignments)


def _reason(step: RecordChange, cause: Cause | DerivedCause) -> str | None:
    """Return details that the cause does not contain."""
    if cause is DerivedCause.UNKNOWN:
        return step.why().removeprefix("unknown: ")
    return _count(step.missing, "generation was not logged", "generations were not logged") or None


def _left(at_ms: int, group_id: str, step: RecordChange, stored: StoredGroup) -> Iterator[Fact]:
    replaced = step.returned.values() if step.kind is ChangeKind.REPLACED else ()
    for member_id in step.left:
        if member_id not in replaced:
            yield MemberGone(at_ms, group_id, member_id, step.before.members[member_id][0])
    if step.left and not stored.members:
        yield facts.GroupEmptied(at_ms, group_id, stored.generation_id)
