"""Derive facts about groups from the records of `__consumer_offsets`, on any cluster.

Each record of a classic group is the whole group, written at the end of a rebalance. So members and owners are certain,
and a rebalance is the difference between two records. The log does not say when it began, what it cost, or whether a
member left or was removed. A generation may be missing because it was compacted, or because the next rebalance began
before the leader's sync. What is not known is called unknown.

A consumer group (KIP-848) is spread over many records, and each step of a rebalance is one of them: the new group
epoch, the target assignment, and what each member is assigned. So the log has their times, too.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import Any
from uuid import UUID

from coterie import facts
from coterie.errors import MalformedError
from coterie.facts import Cause, Fact
from coterie.protocol.consumer_group_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    MEMBER_STATES,
    REGEX,
    TARGET_EPOCH,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    ResolvedPattern,
    TargetEpoch,
    TopicPartitions,
    Value,
    topic_id_text,
)
from coterie.protocol.messages import GroupRecord, StoredGroup, StoredMember
from coterie.protocol.subscription import Assignment, read_subscription, write_assignment


class DerivedCause(StrEnum):
    """Causes of a rebalance that only a derived one has."""

    MEMBER_GONE = "member disappeared"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class RebalanceSeen(Fact):
    """A rebalance as the records of a group show it. Its time is its end in a classic group, else its begin."""

    cause: Cause | DerivedCause
    member_id: str
    reason: str | None
    old_generation_id: int
    waits_for: Sequence[str]
    generation_id: int
    protocol_name: str
    leader_id: str
    group_type: str = facts.CLASSIC


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


def derived_facts(
    records: Iterable[tuple[int, GroupRecord | ConsumerGroupRecord]], names: Mapping[UUID, str] | None = None
) -> Iterator[Fact]:
    """Return the facts of group records, given with their times in the order of the log.

    `names` are the names of topics by id; a topic that is not there is called by its id.
    """
    derived = DerivedFacts(names)
    for at_ms, record in records:
        yield from derived.add(at_ms, record)
    yield from derived.end()


class DerivedFacts:
    """Facts of group records that are added one by one, in the order of the log."""

    def __init__(self, names: Mapping[UUID, str] | None = None) -> None:
        self._names = names if names is not None else {}
        self._known: dict[str, Seen] = {}
        self._consumer_groups: dict[str, _ConsumerGroup] = {}
        self._ended: _Ended | None = None

    def add(self, at_ms: int, record: GroupRecord | ConsumerGroupRecord) -> Iterator[Fact]:
        """Return the facts that a record adds. A deleted group is one of them only after the next record."""
        group_id = record.group_id
        if self._ended is not None:
            if self._ended.is_tombstone_of_it(record):
                return
            if not self._ended.is_replaced_by(record):
                yield from self.end()
        replaced, self._ended = self._ended, None
        if isinstance(record, ConsumerGroupRecord):
            yield from self._of_consumer_group(at_ms, record, replaced)
            return
        if record.value is None:
            self._ended = _Ended(at_ms, group_id, self._known.pop(group_id, Seen(0)), facts.CLASSIC)
            return
        group = self._consumer_groups.pop(group_id, None)
        if replaced is None and group is not None and group.is_empty and record.value.generation_id == 0:
            replaced = _Ended(at_ms, group_id, group.seen(), facts.CONSUMER)  # Kafka writes no tombstones of it
        if replaced is not None:
            self._known[group_id] = yield from _downgraded(at_ms, group_id, replaced.last, record.value)
            return
        step = compare(self._known.pop(group_id, None), record.value)
        if step.is_new_group:
            yield facts.GroupDied(at_ms, group_id, _DELETED)
        assert step.now is not None
        self._known[group_id] = step.now
        yield from _facts_of(at_ms, group_id, step, record.value)

    def _of_consumer_group(self, at_ms: int, record: ConsumerGroupRecord, replaced: _Ended | None) -> Iterator[Fact]:
        group_id = record.group_id
        group = self._consumer_groups.setdefault(group_id, _ConsumerGroup(group_id, self._names))
        if replaced is not None:
            group.upgraded_from = replaced.last
        last = group.seen() if record.type == EPOCH and record.value is None else None
        yield from group.apply(at_ms, record)
        if last is not None and last.generation_id:
            self._ended = _Ended(at_ms, group_id, last, facts.CONSUMER)

    def end(self) -> Iterator[Fact]:
        """Return the fact about a group that was deleted by the last record, if it was."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            yield ended.fact()


_DELETED = "its record was deleted"


@dataclass(frozen=True, slots=True)
class _Ended:
    """A group whose record was deleted. If a group of the other type follows, it was converted (K24, K26, K27)."""

    at_ms: int
    group_id: str
    last: Seen
    group_type: str

    def is_tombstone_of_it(self, record: GroupRecord | ConsumerGroupRecord) -> bool:
        """Return whether it is another tombstone of a consumer group that has ended."""
        is_of_it = isinstance(record, ConsumerGroupRecord) and record.group_id == self.group_id
        return is_of_it and record.value is None and self.group_type == facts.CONSUMER

    def is_replaced_by(self, record: GroupRecord | ConsumerGroupRecord) -> bool:
        kind = GroupRecord if self.group_type == facts.CONSUMER else ConsumerGroupRecord
        return isinstance(record, kind) and record.group_id == self.group_id and record.value is not None

    def fact(self) -> Fact:
        return facts.GroupDied(self.at_ms, self.group_id, _DELETED)


def _downgraded(at_ms: int, group_id: str, last: Seen, stored: StoredGroup) -> Generator[Fact, None, Seen]:
    """Return the facts of a downgrade, and what the next record is compared with: it shows who is gone."""
    now = Seen.of(stored)
    gone = {name: about for name, about in last.members.items() if name not in now.members}
    for member_id, (instance_id, _) in gone.items():
        yield MemberGone(at_ms, group_id, member_id, instance_id)
    epochs = (last.generation_id, now.generation_id)
    yield facts.GroupDowngraded(at_ms, group_id, next(iter(gone), ""), *epochs, [*now.members])
    return replace(now, members={**now.members, **gone})


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


# --- consumer groups (KIP-848) ----------------------------------------------------------------------------------------

FIRST_EPOCHS = (1, 2)
"""A new group is at 1 in memory, so the first epoch in the log is 2 (K1); Kafka before 4.2 began at 1."""


@dataclass(slots=True)
class _Member:
    metadata: MemberMetadata
    epoch: int = -1
    state: str = ""
    owned: Mapping[str, Sequence[int]] = field(default_factory=dict)


@dataclass(slots=True)
class EpochChanges:
    """The causes of the next group epoch, from the records since the last one: they come before it (K27)."""

    came: list[str] = field(default_factory=list)
    left: dict[str, str | None] = field(default_factory=dict)
    """The members that were erased, and their instance ids; those among `came` came and left again."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The new and the old ids of static members that came back, which needs no new epoch (K14)."""
    changed: list[str] = field(default_factory=list)
    """Members with another subscription."""
    resolved: list[str] = field(default_factory=list)
    """Regular expressions that match other topics than before."""

    def joined(self, member_id: str, instance_id: str | None) -> str | None:
        """Note a new member. Returns the id that it had before if it is a static member that came back."""
        is_old = {one for one, instance in self.left.items() if instance_id is not None and instance == instance_id}
        old = member_id if member_id in self.left else next(iter(is_old), None)
        if old is None:
            self.came.append(member_id)
            return None
        del self.left[old]
        if old in self.came:
            self.came[self.came.index(old)] = member_id
        elif old != member_id:
            self.replaced[member_id] = self.replaced.pop(old, old)
        return old

    @property
    def joiners(self) -> list[str]:
        return [one for one in self.came if one not in self.left]

    @property
    def leavers(self) -> list[str]:
        return [self.replaced.get(one, one) for one in self.left if one not in self.came]

    def ids(self) -> tuple[list[str], list[str]]:
        """Return the ids that are new, and those that disappeared: a static member that returned has one of each."""
        replaced = {new: old for new, old in self.replaced.items() if new not in self.left}
        return [*self.joiners, *replaced], [*self.leavers, *replaced.values()]

    def cause(self) -> tuple[Cause | DerivedCause, str]:
        """Return the most likely cause, and the member behind it."""
        suggested: tuple[tuple[Cause | DerivedCause, Sequence[str]], ...] = (
            (Cause.NEW_MEMBER, self.joiners),
            (DerivedCause.MEMBER_GONE, self.leavers),
            (Cause.SUBSCRIPTION_CHANGED, self.changed),
        )
        if self.resolved:
            return Cause.REGEX_RESOLVED, next(iter((*self.joiners, *self.changed)), "")
        return next(((cause, members[0]) for cause, members in suggested if members), (DerivedCause.UNKNOWN, ""))

    def why(self, missing: int) -> str:
        """Describe the change in words; `missing` is the number of epochs in between that are not in the log."""
        reasons = [
            _count(len(self.joiners), "member joined", "members joined"),
            _count(len(self.leavers), "member disappeared", "members disappeared"),
            _count(len(self.replaced), "static member rejoined", "static members rejoined"),
            _count(len(self.changed), "member changed its subscription", "members changed their subscriptions"),
            _count(len(self.resolved), "regular expression was resolved", "regular expressions were resolved"),
        ]
        said = ", ".join(reason for reason in reasons if reason) or f"unknown: {_TOPICS_PROBABLY}"
        not_logged = _count(missing, "epoch was not logged", "epochs were not logged")
        return f"{said}; {not_logged}" if not_logged else said


_TOPICS_PROBABLY = "no member changed; probably topics of the subscription did"


class _ConsumerGroup:
    """One consumer group, as its records show it."""

    def __init__(self, group_id: str, names: Mapping[UUID, str]) -> None:
        self._group_id = group_id
        self._names = names
        self._reset()

    def _reset(self) -> None:
        self._epoch: int | None = None
        self._assignment_epoch = -1
        self._members: dict[str, _Member] = {}
        self._resolved: dict[str, Sequence[str]] = {}
        self._is_rebalancing = False
        self._next = EpochChanges()
        self._early: dict[str, CurrentAssignment] = {}
        """Assignments of members whose metadata was written again, and so compacted to a later place in the log."""
        self.upgraded_from: Seen | None = None
        """The classic group whose place it takes, until its first epoch."""

    @property
    def is_empty(self) -> bool:
        return self._epoch is not None and not self._members

    def seen(self) -> Seen:
        """Return the group as the record of a classic group is seen, with the members of its last epoch."""
        members = {name: (one.metadata.instance_id, "") for name, one in self._members.items()}
        members |= {name: (instance_id, "") for name, instance_id in self._next.left.items()}
        return Seen(self._epoch or 0, None, members)

    def apply(self, at_ms: int, record: ConsumerGroupRecord) -> Iterator[Fact]:
        value, about = record.value, record.about
        if record.type == EPOCH:
            yield from self._new_epoch(at_ms, value)
        elif record.type == MEMBER:
            yield from self._member(at_ms, about, value)
        elif record.type == CURRENT:
            self._early.pop(about, None)
            if isinstance(value, CurrentAssignment):
                yield from self._current(at_ms, about, value)
        elif record.type == TARGET_EPOCH and isinstance(value, TargetEpoch):
            self._assignment_epoch = value.assignment_epoch
            yield facts.TargetAssignmentComputed(at_ms, self._group_id, value.assignment_epoch, self._assignor())
        elif record.type == REGEX:
            topics = list(value.topics) if isinstance(value, ResolvedPattern) else None
            if topics is not None and topics != self._resolved.get(about):
                self._next.resolved.append(about)
            self._resolved.pop(about, None)
            self._resolved |= {} if topics is None else {about: topics}

    def _new_epoch(self, at_ms: int, value: Value | None) -> Iterator[Fact]:
        epoch = value.epoch if isinstance(value, ConsumerGroupEpoch) else None
        if epoch is not None and epoch == self._epoch:
            return  # the same again, with another hash of its topics
        if self._epoch is not None and (epoch is None or epoch < self._epoch):
            if epoch is not None:
                yield facts.GroupDied(at_ms, self._group_id, _DELETED)
            new = {} if epoch is None else {one: self._members[one] for one in self._next.joiners}
            self._reset()  # if the epoch is lower, the tombstone was compacted away
            self._members, self._next.came = new, [*new]
        if epoch is None:
            return
        before, self._epoch = self._epoch, epoch
        changes, self._next = self._next, EpochChanges()
        if self.upgraded_from is not None:
            classic, self.upgraded_from = self.upgraded_from, None
            stayed = [one for one in self._members if one in classic.members]
            first = epoch if stayed else FIRST_EPOCHS[0]
            yield facts.GroupUpgraded(at_ms, self._group_id, "", classic.generation_id, first, stayed)
            if stayed:
                return
        was_classic = any(one.metadata.classic_session_timeout_ms is not None for one in self._members.values())
        if before is None and (epoch not in FIRST_EPOCHS or was_classic):  # a classic group was converted (K24)
            state = "Stable" if self._members else "Empty"
            yield facts.GroupLoaded(at_ms, self._group_id, state, epoch, [*self._members], 0, self._assignments())
            return
        old = epoch - 1 if before is None else before
        cause, who = changes.cause()
        not_logged = _count(epoch - old - 1, "epoch was not logged", "epochs were not logged")
        reason = _TOPICS_PROBABLY if cause is DerivedCause.UNKNOWN and not not_logged else not_logged
        yield RebalanceSeen(
            at_ms,
            self._group_id,
            cause,
            who,
            reason or None,
            old,
            [*self._members],
            epoch,
            self._assignor(),
            "",
            facts.CONSUMER,
        )
        for member_id, instance_id in changes.left.items():
            yield MemberGone(at_ms, self._group_id, member_id, instance_id)
        self._is_rebalancing = bool(self._members)
        if not self._members:
            yield facts.GroupEmptied(at_ms, self._group_id, epoch)

    def _member(self, at_ms: int, member_id: str, value: Value | None) -> Iterator[Fact]:
        member = self._members.get(member_id)
        if not isinstance(value, MemberMetadata):
            if member is not None:
                del self._members[member_id]
                self._next.left[member_id] = member.metadata.instance_id
            return
        if member is not None:
            if _topics(member.metadata) != _topics(value):
                self._next.changed.append(member_id)
            member.metadata = value
            return
        self._members[member_id] = _Member(value)
        instance_id = value.instance_id
        old = self._next.joined(member_id, instance_id)
        if old is None and (self.upgraded_from is None or member_id not in self.upgraded_from.members):
            yield facts.MemberJoined(at_ms, self._group_id, member_id, instance_id, value.client_id, value.client_host)
        elif old is not None and old != member_id:
            yield facts.MemberReplaced(at_ms, self._group_id, member_id, old, instance_id or "")
        early = self._early.pop(member_id, None)
        if early is not None:
            yield from self._current(at_ms, member_id, early)

    def _current(self, at_ms: int, member_id: str, value: CurrentAssignment) -> Iterator[Fact]:
        member = self._members.get(member_id)
        if member is None:
            self._early[member_id] = value
            return
        assigned, pending = self._by_name(value.assigned), self._by_name(value.pending_revocation)
        state = MEMBER_STATES[value.state] if 0 <= value.state < len(MEMBER_STATES) else f"state {value.state}"
        member.epoch, member.state = value.member_epoch, state
        member.owned = {topic: [*assigned.get(topic, []), *pending.get(topic, [])] for topic in {**assigned, **pending}}
        yield facts.MemberAssigned(at_ms, self._group_id, member_id, value.member_epoch, state, assigned, pending)
        if self._is_rebalancing and self._is_settled():
            self._is_rebalancing = False
            yield facts.AssignmentStored(at_ms, self._group_id, self._assignment_epoch, self._assignments())

    def _is_settled(self) -> bool:
        epoch = self._assignment_epoch
        return epoch == self._epoch and all(
            member.epoch == epoch and member.state == MEMBER_STATES[0] for member in self._members.values()
        )

    def _assignor(self) -> str:
        """Return the assignor that most members name (K16). The broker's default is not in the log."""
        votes = [one.metadata.server_assignor for one in self._members.values() if one.metadata.server_assignor]
        return max(sorted(votes, reverse=True), key=votes.count, default="")

    def _assignments(self) -> dict[str, bytes]:
        return {name: write_assignment(Assignment(member.owned)) for name, member in self._members.items()}

    def _by_name(self, topics: Iterable[TopicPartitions]) -> dict[str, list[int]]:
        return {
            self._names.get(topic.topic_id) or topic_id_text(topic.topic_id.bytes): list(topic.partitions)
            for topic in topics
        }


def _topics(metadata: MemberMetadata) -> tuple[frozenset[str], str]:
    return frozenset(metadata.topics), metadata.pattern or ""
