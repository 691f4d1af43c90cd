"""The target assignment: which assignor is used, and what it assigns (section 5).

`uniform` is the assignor `sticky` of the classic protocol, applied to the last target; `range` is `range`. They are the
functions of `coterie.assignors`, with Kafka's names for them, and small targets are computed at once, as in Kafka.
Everything else takes time: the assignor of a user, and a large group. For these the rule returns `ComputeTarget`, and
the event `TargetComputation` brings the result. Until then the members work with the last target (K2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from coterie.assignors import Member, Owned, Range, Topic
from coterie.assignors.model import by_id
from coterie.assignors.owned_partitions import StickyMemberData
from coterie.assignors.sticky import stick
from coterie.coordinator.consumer.group import ConsumerGroup, ConsumerGroupMember, Target
from coterie.protocol.consumer_group_records import MemberMetadata, ResolvedPattern, TargetAssignment, write_target
from coterie.protocol.java_hash import map_order
from coterie.structs import DataStruct, field, replace

Shares = Mapping[str, Owned]
"""Member id to topic to partitions."""
Assign = Callable[[Sequence[Member], Mapping[str, Topic]], Shares]

AT_ONCE, AT_ONCE_UNEQUAL = 2_000, 1_000
"""The most members and partitions, or members times topics if subscriptions differ, whose target is computed at once.

It takes a few milliseconds. A larger one would hold the event loop for longer than clients should wait.
"""


def uniform_assignor(members: Sequence[Member], topics: Mapping[str, Topic]) -> Shares:
    """Balance all partitions at once; no partition moves unless the balance needs it (K18)."""
    ordered = by_id(members)
    shares, _ = stick(ordered, [StickyMemberData(member.owned, 0, natural=True) for member in ordered], topics)
    return {member.id: share for member, share in zip(ordered, shares, strict=True)}


def range_assignor(members: Sequence[Member], topics: Mapping[str, Topic]) -> Shares:
    """Assign each topic by itself, in consecutive shares (K17)."""
    return Range().assign(members, topics)


ASSIGNORS: Mapping[str, Assign] = {"uniform": uniform_assignor, "range": range_assignor}
"""Kafka's assignors of consumer groups."""


def preferred_server_assignor(group: ConsumerGroup) -> str:
    """Return the assignor that most members name; the first of the setting if no member names one (K16).

    A name that the setting no longer has, since the broker was started with another one, is no vote.
    """
    known = group.settings.group_consumer_assignors
    votes = Counter(
        member.metadata.server_assignor for member in group.members.values() if member.metadata.server_assignor in known
    )
    if not votes:
        return known[0]
    most = max(votes.values())
    return next(name for name in map_order(list(votes)) if votes[name] == most)


# --- what assignors are given -----------------------------------------------------------------------------------------


class TargetComputation(DataStruct, eq=False):
    """The input of an assignor and, when it has answered, the targets that change, or `why` there are none."""

    group_id: str
    group_epoch: int
    assignor: str
    members: Sequence[Member]
    topics: Mapping[str, Topic]
    topic_ids: Mapping[str, UUID]
    targets: Mapping[str, Target]
    """The last target of each member."""
    changed: Mapping[str, TargetAssignment] = field(default_factory=dict)
    why: str = ""

    @property
    def is_small(self) -> bool:
        first = self.members[0].topics if self.members else ()
        if any(member.topics is not first for member in self.members):
            return len(self.members) * len(self.topics) <= AT_ONCE_UNEQUAL
        return len(self.members) + sum(topic.partitions for topic in self.topics.values()) <= AT_ONCE

    def compute(self, assign: Assign, *, is_kafkas: bool) -> TargetComputation:
        """Call an assignor, on any thread; it may take long. The result of an assignor that is not Kafka's is checked.

        A user's assignor is given copies, since it may change what it is given.
        """
        try:
            if is_kafkas:
                self.take(assign(self.members, self.topics))
                return self
            shares = assign([replace(each, owned=dict(each.owned)) for each in self.members], dict(self.topics))
            self.why = assignment_error(self.members, self.topics, shares)
            if not self.why:
                self.take(shares)
        except Exception as error:  # noqa: BLE001  whatever it was, the group goes on without it
            self.why = f"it raised {type(error).__name__}: {error}"
        return self

    def take(self, shares: Shares) -> None:
        """Take the answer: find the targets that it changes, and their bytes."""
        ids = self.topic_ids
        changed: dict[str, TargetAssignment] = {}
        for member in self.members:
            share = shares.get(member.id, _NOTHING)
            old = self.targets.get(member.id, _NO_TARGET)
            if share is member.owned and len(share) == len(old):  # as of nearly all members of a large group
                continue
            new = {ids[name]: tuple(sorted(share[name])) for name in sorted(share) if len(share[name])}
            if new != old:
                changed[member.id] = TargetAssignment(new, write_target(new))
        self.changed = changed


_NO_TARGET: Target = {}
_NOTHING: Owned = {}


class TargetLate(DataStruct):
    """The assignor has had its time (`coterie.assignor.timeout.ms`)."""

    group_id: str
    computing: TargetComputation


class _Known(DataStruct):
    """A member for assignors, and what it was made of."""

    metadata: MemberMetadata
    resolved: ResolvedPattern | None
    target: Target
    member: Member


def build_group_spec(group: ConsumerGroup) -> TargetComputation:
    """Return what the assignor is asked for the present subscriptions and topics."""
    image = group.image
    found = image.topics
    topics = {name: Topic(found[name].partitions) for name in sorted(group.subscribed_topics()) if name in found}
    ids = {name: found[name].id for name in topics}
    return TargetComputation(
        group.group_id, group.group_epoch, preferred_server_assignor(group), _members(group), topics, ids, group.targets
    )


def _members(group: ConsumerGroup) -> list[Member]:
    """Return the members for assignors. Members that have not changed since the last target are reused."""
    image, known = group.image, group.known_members
    if known.version != image.version:
        known.members.clear()
        known.version = image.version
    before, names = known.members, image.topic_names
    equal: dict[Sequence[str], Sequence[str]] = {}
    last: Sequence[str] = ()
    after: dict[str, _Known] = {}
    members: list[Member] = []
    for member_id, member in group.members.items():
        metadata, target = member.metadata, group.targets.get(member_id, _NO_TARGET)
        resolved = group.resolved.get(metadata.pattern) if metadata.pattern else None
        one: _Known | None = before.get(member_id)
        if one is None or one.metadata is not metadata or one.target is not target or one.resolved is not resolved:
            one = _Known(metadata, resolved, target, _member(group, member, names, target))
        if one.member.topics is not last:
            last = one.member.topics = equal.setdefault(one.member.topics, one.member.topics)
        after[member_id] = one
        members.append(one.member)
    known.members = after
    return members


def _member(group: ConsumerGroup, member: ConsumerGroupMember, names: Mapping[UUID, str], target: Target) -> Member:
    owned = {names[topic_id]: partitions for topic_id, partitions in target.items() if topic_id in names}
    topics = tuple(sorted(group.topics_of(member)))
    return Member(member.member_id, topics, member.metadata.instance_id, member.metadata.rack_id, owned)


# --- what they answer -------------------------------------------------------------------------------------------------


def assignment_error(members: Sequence[Member], topics: Mapping[str, Topic], shares: object) -> str:
    """Return what is wrong with the answer of an assignor; "" if it can be used.

    Each partition of a subscribed topic has exactly one member, and that member subscribes to the topic.
    """
    if not isinstance(shares, Mapping):
        return f"its answer is not a mapping of members, but {type(shares).__name__}"
    subscribed = {member.id: frozenset(member.topics) for member in members}
    taken: dict[str, bytearray] = {name: bytearray(topic.partitions) for name, topic in topics.items()}
    for member_id, share in shares.items():
        if member_id not in subscribed:
            return f"it names {member_id!r}, which is not a member"
        for name, partitions in share.items():
            if len(partitions) and (name not in subscribed[member_id] or name not in taken):
                return f"it gives topic {name!r} to {member_id}, which does not subscribe to it"
            for partition in partitions:
                if not isinstance(partition, int) or not 0 <= partition < len(taken[name]):
                    return f"it gives {name} partition {partition!r}, which does not exist, to {member_id}"
                if taken[name][partition]:
                    return f"it gives partition {partition} of {name} to two members"
                taken[name][partition] = 1
    missing = [f"{name}-{found.index(0)}" for name, found in taken.items() if 0 in found]
    return f"it leaves {missing[0]} without a member" if missing else ""
