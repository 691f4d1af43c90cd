"""What the records of `__consumer_offsets` let one conclude about a classic group, on any cluster.

Each record is the whole group, written when a rebalance has ended, so members and owners are certain, and a rebalance
is the difference of two records. When it began, what it cost, and whether a member left or was thrown out, is not in
the log. A generation may be missing: compacted away, or its rebalance was overtaken before the leader's sync. Nothing
is made up for it: what is not known is called unknown.
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

__all__ = ["DerivedCause", "Kind", "MemberGone", "RebalanceSeen", "Seen", "Step", "compare", "derived_facts"]


class DerivedCause(StrEnum):
    """Causes of a rebalance that no broker gives: all that a log says of it."""

    MEMBER_GONE = "member disappeared"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class RebalanceSeen(Fact):
    """A rebalance as two records of a group show it, told at its end."""

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
    """A member is not in the group's record any more. It left, crashed or expired: the log does not say."""

    member_id: str
    instance_id: str | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What the next record of the group is compared with."""

    generation_id: int
    protocol_name: str | None = None
    members: Mapping[str, tuple[str | None, str]] = field(default_factory=dict)
    """Instance id of each, and what it subscribes to."""

    @classmethod
    def of(cls, stored: StoredGroup) -> Seen:
        members = {member.member_id: (member.instance_id, _wants(member)) for member in stored.members}
        return cls(stored.generation_id, stored.protocol_name, members)

    def to_json(self) -> Any:
        return [self.generation_id, self.protocol_name, {name: list(about) for name, about in self.members.items()}]

    @classmethod
    def from_json(cls, said: Any) -> Seen:
        generation_id, protocol_name, members = said
        return cls(generation_id, protocol_name, {name: (about[0], about[1]) for name, about in members.items()})


def _wants(member: StoredMember) -> str:
    """What it owns is part of a subscription's bytes, too; only what it wants counts as a change."""
    try:
        return "\n".join(sorted(read_subscription(member.subscription).topics))
    except MalformedError:
        return member.subscription.hex()


class Kind(Enum):
    FIRST = auto()
    """Nothing to compare with: what was before is not in the log."""
    REBALANCE = auto()
    REPLACED = auto()
    """The same generation with other ids: a static member came back without a rebalance (rule 19)."""
    AGAIN = auto()
    """The same generation, the same members."""
    GONE = auto()


@dataclass(frozen=True, slots=True)
class Step:
    """From one record of a group to the next."""

    kind: Kind
    last: Seen | None
    """In the log before it, in the same life of the group."""
    now: Seen | None
    is_new_life: bool
    """There was one before of a higher generation: the group was deleted and created again, its tombstone compacted."""

    @property
    def before(self) -> Seen:
        """Where a rebalance began: a group of generation 1 began with nothing."""
        return self.last if self.last is not None else Seen(0)

    @property
    def came(self) -> list[str]:
        return sorted(self._after.members.keys() - self.before.members.keys())

    @property
    def left(self) -> list[str]:
        return sorted(self.before.members.keys() - self._after.members.keys())

    @property
    def returned(self) -> dict[str, str]:
        """Static members that came back under another id: the new one, and the old."""
        old = {self.before.members[name][0]: name for name in self.left}
        names = {name: self._after.members[name][0] for name in self.came}
        return {name: old[instance] for name, instance in names.items() if instance is not None and instance in old}

    @property
    def changed(self) -> list[str]:
        """Members that subscribe to something else."""
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
        """In words of what the two records show."""
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
        """How many generations between the two records are not in the log."""
        return max(self._after.generation_id - self.before.generation_id - 1, 0)

    def cause(self) -> tuple[Cause | DerivedCause, str]:
        """The nearest of the causes that a broker knows, and the member behind it."""
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


def compare(last: Seen | None, stored: StoredGroup | None) -> Step:
    """`last` is None if nothing is known of the group; `stored` is None in a tombstone."""
    if stored is None:
        return Step(Kind.GONE, last, None, is_new_life=False)
    now = Seen.of(stored)
    is_new_life = last is not None and now.generation_id < last.generation_id
    if is_new_life:
        last = None
    if last is None:
        kind = Kind.REBALANCE if now.generation_id == 1 else Kind.FIRST
    elif now.generation_id > last.generation_id:
        kind = Kind.REBALANCE
    else:
        kind = Kind.REPLACED if last.members.keys() != now.members.keys() else Kind.AGAIN
    return Step(kind, last, now, is_new_life)


# --- as facts ---------------------------------------------------------------------------------------------------------


def derived_facts(records: Iterable[tuple[int, GroupRecord]]) -> Iterator[Fact]:
    """Records of groups with their times, in the order of their log. A rebalance is told at its end."""
    known: dict[str, Seen] = {}
    for at_ms, record in records:
        group_id = record.group_id
        step = compare(known.pop(group_id, None), record.value)
        if record.value is None or step.is_new_life:
            yield facts.GroupDied(at_ms, group_id, "its record was deleted")
        if step.now is not None and record.value is not None:
            known[group_id] = step.now
            yield from _told(at_ms, group_id, step, record.value)


def _told(at_ms: int, group_id: str, step: Step, stored: StoredGroup) -> Iterator[Fact]:
    members = {member.member_id: member for member in stored.members}
    returned = step.returned
    if step.kind is Kind.REPLACED:
        for member_id, old_id in returned.items():
            yield facts.MemberReplaced(at_ms, group_id, member_id, old_id, members[member_id].instance_id or "")
        yield from _left(at_ms, group_id, step, stored)
        return
    if step.kind is Kind.AGAIN:
        return
    for member in (members[member_id] for member_id in step.came):
        yield facts.MemberJoined(
            at_ms, group_id, member.member_id, member.instance_id, member.client_id, member.client_host
        )
    assignments = {member.member_id: member.assignment for member in stored.members}
    if step.kind is Kind.FIRST:
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


def _reason(step: Step, cause: Cause | DerivedCause) -> str | None:
    """Details that the cause does not contain."""
    if cause is DerivedCause.UNKNOWN:
        return step.why().removeprefix("unknown: ")
    return _count(step.missing, "generation was not logged", "generations were not logged") or None


def _left(at_ms: int, group_id: str, step: Step, stored: StoredGroup) -> Iterator[Fact]:
    replaced = step.returned.values() if step.kind is Kind.REPLACED else ()
    for member_id in step.left:
        if member_id not in replaced:
            yield MemberGone(at_ms, group_id, member_id, step.before.members[member_id][0])
    if step.left and not stored.members:
        yield facts.GroupEmptied(at_ms, group_id, stored.generation_id)
