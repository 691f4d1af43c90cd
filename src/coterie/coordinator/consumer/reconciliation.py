"""Reconcile a member with its target on its heartbeat, as Kafka's CurrentAssignmentBuilder (section 3, `states.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from coterie.coordinator.classic.effects import Arm, Disarm, Effects
from coterie.coordinator.consumer.group import Assigned, ConsumerGroup, ConsumerGroupMember, RevocationDue
from coterie.coordinator.consumer.group_change import ConsumerGroupChange, united
from coterie.coordinator.consumer.states import ON_RECONCILE, MemberState, Situation, Step

Owned = Mapping[UUID, Sequence[int]]
_NONE: Mapping[int, int] = {}
UNREVOKED = MemberState.UNREVOKED_PARTITIONS


def reconcile(
    change: ConsumerGroupChange, member: ConsumerGroupMember, owned: Owned | None, *, subscription_changed: bool
) -> Effects:
    """Take the member's next step. `owned` is what it reports to own; None: it does not say."""
    before = (member.epoch, member.previous_epoch, member.state, member.assigned, member.pending_revocation)
    step = ON_RECONCILE[member.state][_situation(change.group, member, owned, changed=subscription_changed)]
    if step is Step.NOTHING:
        return []
    after = (
        _drop_topics(change.group, member, owned) if step is Step.DROP_TOPICS else _next(change.group, member, owned)
    )
    if after == before:
        return []
    change.set_current_assignment(member, *after)
    if member.is_classic:
        return []  # it has a time to join and one to sync instead (K25)
    key = change.group.revocation_key(member.member_id)
    if member.state is not UNREVOKED:
        return [Disarm(key)] if before[2] is UNREVOKED else []
    return [expect_revocation(change.group, member, change.now_ms)]


def expect_revocation(group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> Arm:
    """The member has its rebalance timeout to give up partitions (K12)."""
    then = RevocationDue(group.group_id, member.member_id, member.epoch)
    return Arm(group.revocation_key(member.member_id), now_ms + member.metadata.rebalance_timeout_ms, then)


def _situation(group: ConsumerGroup, member: ConsumerGroupMember, owned: Owned | None, *, changed: bool) -> Situation:
    if member.state is MemberState.STABLE:
        if member.epoch != group.assignment_epoch:
            return Situation.BEHIND
        return Situation.REACHED_AND_CHANGED if changed else Situation.REACHED
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return Situation.WAITS
    if not _owns_any(owned, member.pending_revocation):
        return Situation.GAVE_UP
    return Situation.OWNS_REVOKED_AND_CHANGED if changed else Situation.OWNS_REVOKED


def _owns_any(owned: Owned | None, partitions: Assigned) -> bool:
    """Return whether the member may still own one of these: it does not say, or says so."""
    if owned is None:
        return True
    return any(not partitions.get(topic_id, _NONE).keys().isdisjoint(numbers) for topic_id, numbers in owned.items())


_After = tuple[int, int, MemberState, Assigned, Assigned]


def _subscribed_ids(group: ConsumerGroup, member: ConsumerGroupMember) -> set[UUID]:
    topics = group.image.topics
    return {topics[name].id for name in group.topics_of(member) if name in topics}


def _next(group: ConsumerGroup, member: ConsumerGroupMember, owned: Owned | None) -> _After:
    subscribed = _subscribed_ids(group, member)
    target = {
        topic_id: frozenset(numbers)
        for topic_id, numbers in group.targets.get(member.member_id, {}).items()
        if topic_id in subscribed
    }
    if len(target) == len(member.assigned) and all(
        member.assigned.get(each, _NONE).keys() == target[each] for each in target
    ):
        return group.assignment_epoch, member.epoch, MemberState.STABLE, member.assigned, {}  # as of nearly all members
    kept: dict[UUID, Mapping[int, int]] = {}
    revoked: dict[UUID, Mapping[int, int]] = {}
    taken: dict[UUID, Mapping[int, int]] = {}
    is_complete = True
    for topic_id in dict.fromkeys((*member.assigned, *target)):
        has, wants = member.assigned.get(topic_id, _NONE), target.get(topic_id, frozenset())
        missing = [number for number in wants if number not in has]
        free = [number for number in missing if group.holder(topic_id, number) in {None, member.member_id}]
        is_complete &= len(free) == len(missing)
        _put(kept, topic_id, {number: epoch for number, epoch in has.items() if number in wants})
        _put(revoked, topic_id, {number: epoch for number, epoch in has.items() if number not in wants})
        _put(taken, topic_id, dict.fromkeys(free, group.assignment_epoch))
    if revoked and _owns_any(owned, revoked):
        return member.epoch, member.epoch, UNREVOKED, kept, revoked
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    return group.assignment_epoch, member.epoch, state, united(kept, taken), {}


def _drop_topics(group: ConsumerGroup, member: ConsumerGroupMember, owned: Owned | None) -> _After:
    """Revoke the partitions of topics that were dropped, before there is a new target."""
    subscribed = _subscribed_ids(group, member)
    kept = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed}
    dropped = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id not in subscribed}
    if not dropped:
        return member.epoch, member.previous_epoch, member.state, member.assigned, member.pending_revocation
    revoked = united(member.pending_revocation, dropped)
    if _owns_any(owned, revoked):
        return member.epoch, member.previous_epoch, UNREVOKED, kept, revoked
    return member.epoch, member.previous_epoch, member.state, kept, {}


def _put(where: dict[UUID, Mapping[int, int]], topic_id: UUID, partitions: Mapping[int, int]) -> None:
    if partitions:
        where[topic_id] = partitions
