"""Groups that change their type while they have members, or are Empty (K24, K26). Their offsets stay.

An upgrade is written together with the join that asks for it; the classic group returns if that fails. A downgrade
changes nothing before it is durable: the shard holds back requests till then, and gives them to the classic group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from coterie.coordinator.classic.effects import Arm, Disarm, Effects, Persist, Reply, SessionDue, Written
from coterie.coordinator.classic.group import NEVER, ClassicGroupMember, Group
from coterie.coordinator.classic.join_phase import start_rebalance, wait_for_joins
from coterie.coordinator.classic.states import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    enter,
    resume,
)
from coterie.coordinator.consumer.group import JOIN_EPOCH, ConsumerGroup, Target, Upgrade
from coterie.coordinator.consumer.group_change import ConsumerGroupChange
from coterie.coordinator.consumer.states import MAY_DOWNGRADE, MAY_UPGRADE, MemberState
from coterie.coordinator.consumer.topic_image import TopicsImage
from coterie.coordinator.offsets.offsets_group import HeldBytes
from coterie.errors import ErrorCode, MalformedError
from coterie.facts import AssignmentStored, Cause, Emit, Fact, GroupDowngraded, GroupUpgraded
from coterie.protocol.consumer_group_records import ClassicProtocol, MemberMetadata
from coterie.protocol.messages import (
    CONSUMER,
    ConsumerGroupHeartbeat,
    GroupRecord,
    JoinedGroup,
    JoinGroup,
    Protocol,
    Record,
    SyncedGroup,
)
from coterie.protocol.subscription import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    subscription_version,
    write_assignment,
)

Refusal = tuple[ErrorCode, str]


# --- upgrade (K24) ----------------------------------------------------------------------------------------------------


def become_consumer(
    group: Group,
    request: ConsumerGroupHeartbeat,
    image: TopicsImage | None,
    configs: Mapping[str, Mapping[str, str]] | None,
) -> ConsumerGroup | Group:
    """Return the consumer group that a heartbeat is for; the classic group itself if it stays what it is.

    The new group is kept if it accepts the heartbeat. Until then it counts for itself what it holds.
    """
    if group.is_dead:
        return ConsumerGroup(group.group_id, group.settings, group.wall, group.held_in_all, image, configs)
    if request.member_epoch != JOIN_EPOCH:
        return group
    held = HeldBytes()
    held.total = group.held_in_all.total - group.held_bytes
    new = ConsumerGroup(group.group_id, group.settings, group.wall, held, image, configs)
    new.stored, new.unwritten_commits = group.stored, group.unwritten_commits
    records = [] if group.is_empty else _upgraded(group, new)
    if isinstance(records, tuple):
        return group
    new.upgrade = Upgrade(group, group.state, records)
    return new


def upgrade_refusal(group: Group) -> Refusal:
    """Return why a classic group that has members does not become a consumer group."""
    tried = _upgraded(group, ConsumerGroup(group.group_id, group.settings, group.wall))
    assert isinstance(tried, tuple)
    return tried


def _upgraded(group: Group, new: ConsumerGroup) -> list[Record] | Refusal:
    """Give `new` the members of a classic group, with what they are assigned; return the records, or why it fails."""
    why = None
    if group.settings.group_consumer_migration_policy not in MAY_UPGRADE:
        why = "group.consumer.migration.policy does not allow it"
    elif group.protocol_type != CONSUMER:
        why = f"its protocol type is {group.protocol_type}, not {CONSUMER}"
    elif len(group.members) > group.settings.group_consumer_max_size:
        why = f"it has more members than group.consumer.max.size, {group.settings.group_consumer_max_size}"
    read: dict[str, tuple[Subscription, Assignment]] = {}
    try:
        if why is None:
            read = {member.member_id: _read(group, member) for member in group.in_map_order()}
    except MalformedError as error:
        why = str(error)
    shares = [
        (name, number) for _, given in read.values() for name, some in given.partitions.items() for number in some
    ]
    if any(assignment.user_data for _, assignment in read.values()):
        why = "its assignor adds user data to assignments, which would be lost"
    elif len(set(shares)) < len(shares):
        why = "a partition is assigned to two members"
    if why is not None:
        return ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group.group_id} is a classic group, and not upgraded: {why}."
    return _as_members(group, new, read)


def _read(group: Group, member: ClassicGroupMember) -> tuple[Subscription, Assignment]:
    """Return subscription and assignment; a member of a group that has none yet is assigned nothing."""
    metadata = member.metadata(group.protocol_name) or member.protocols[0].metadata
    assignment = read_assignment(member.assignment) if member.assignment else Assignment({})
    return read_subscription(metadata), assignment


def _as_members(group: Group, new: ConsumerGroup, read: Mapping[str, tuple[Subscription, Assignment]]) -> list[Record]:
    change = ConsumerGroupChange(new, 0)
    targets: dict[str, Target] = {}
    topics = new.image.topics
    for member in group.in_map_order():
        subscription, assignment = read[member.member_id]
        metadata = MemberMetadata(
            member.instance_id,
            subscription.rack,
            member.client_id,
            member.client_host,
            tuple(sorted(set(subscription.topics))),
            "",
            member.rebalance_timeout_ms,
            None,
            member.session_timeout_ms,
            classic_protocols(member.protocols),
        )
        change.set_member(member.member_id, metadata)
        targets[member.member_id] = {
            topics[name].id: tuple(sorted(numbers))
            for name, numbers in sorted(assignment.partitions.items())
            if name in topics and numbers
        }
    generation = group.generation_id
    change.set_group_epoch(generation)
    for member_id, target in targets.items():
        change.set_target_assignment(member_id, target)
    change.set_assignment_epoch(generation, 0)
    for member_id, target in targets.items():
        assigned = {topic_id: dict.fromkeys(numbers, generation) for topic_id, numbers in target.items()}
        change.set_current_assignment(new.members[member_id], generation, generation, MemberState.STABLE, assigned, {})
    return change.records


def classic_protocols(protocols: Sequence[Protocol]) -> tuple[ClassicProtocol, ...]:
    return tuple(ClassicProtocol(protocol.name, bytes(protocol.metadata)) for protocol in protocols)


def take_over(change: ConsumerGroupChange, member_id: str) -> Effects:
    """Take the place of a classic group, with the records of the upgrade: who waits there has to join again.

    `member_id` is the consumer member that joins.
    """
    group, now_ms = change.group, change.now_ms
    upgrade = group.upgrade
    if upgrade is None or upgrade.classic.is_dead:
        return []
    classic = upgrade.classic
    change.records += [GroupRecord(group.group_id, None), *upgrade.records]
    for member in classic.in_map_order():
        change.facts += [effect.fact for effect in classic.report_rejoin(member, now_ms) if isinstance(effect, Emit)]
    epochs = (classic.generation_id, group.group_epoch)
    change.facts.append(GroupUpgraded(now_ms, group.group_id, member_id, *epochs, list(classic.members)))
    group.is_rebalancing = classic.state in (PREPARING_REBALANCE, COMPLETING_REBALANCE)
    effects: Effects = []
    for member in classic.in_map_order():
        effects += classic.answer_join(member, JoinedGroup(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        if member.parked_sync is not None:
            effects.append(Reply(member.parked_sync, SyncedGroup(ErrorCode.REBALANCE_IN_PROGRESS)))
            member.parked_sync = None
    effects += [Disarm(key) for key in classic.timer_keys()]
    for each in classic.members:
        effects += group.expect(each, now_ms)
    enter(classic, DEAD, now_ms)
    group.held_in_all = classic.held_in_all
    group.held_in_all.total += group.held_bytes
    return effects


def upgrade_failed(upgrade: Upgrade, now_ms: int) -> Effects:
    """Restore a classic group whose upgrade could not be written. If the group itself was never written, it ends."""
    group = upgrade.classic
    if not (group.is_in_log or group.unwritten_commits):
        group.let_go()
        return []
    resume(group, upgrade.state, group.wall.at(now_ms))
    effects: Effects = []
    for member in group.in_map_order():
        member.alarm_ms = NEVER
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)
    for member_id, lapses_ms in group.pending.items():
        effects.append(Arm(group.session_key(member_id), lapses_ms, SessionDue(group.group_id, member_id)))
    if group.state is PREPARING_REBALANCE:
        effects.append(wait_for_joins(group, now_ms))
    elif group.state is COMPLETING_REBALANCE:
        effects += start_rebalance(group, now_ms, Cause.WRITE_FAILED)
    return effects


# --- downgrade (K26) --------------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class DowngradeWritten(Written):
    """The end of a consumer group, and the beginning of the classic group that follows."""

    successor: Group
    request: Any = None
    answer: Any = None
    """The response to the request, sent when the write is durable. None: the classic group handles the request."""
    cause: Cause | None = None
    """The cause of the rebalance that follows; None if none follows."""
    group_epoch: int
    """The last group epoch."""
    member_id: str = ""
    facts: Sequence[Fact] = ()


def downgrade_empty(group: ConsumerGroup, request: JoinGroup, now_ms: int) -> Effects:
    """Write the end of an Empty consumer group; the join is handled by the classic group that follows."""
    successor = _successor(group)
    resume(successor, EMPTY, group.wall.at(now_ms))
    written = DowngradeWritten(
        group_id=group.group_id,
        token=request.token,
        request=request,
        successor=successor,
        group_epoch=group.group_epoch,
    )
    return [Persist([*group.tombstones(), successor.record({})], written)]


def may_downgrade(group: ConsumerGroup) -> bool:
    """Return whether a group in which only classic members are left becomes a classic group."""
    return (
        0 < len(group.members) == group.classic_members <= group.settings.group_max_size
        and group.settings.group_consumer_migration_policy in MAY_DOWNGRADE
    )


def downgrade(change: ConsumerGroupChange, cause: Cause | None, member_id: str, request: Any, answer: Any) -> Effects:
    """Make a group of classic members a classic group, assigned as the target says. `cause`: of its rebalance."""
    group = change.group
    successor = _successor(group)
    successor.protocol_type = CONSUMER
    successor.generation_id = group.group_epoch
    for member in group.members.values():
        metadata = member.metadata
        assert metadata.classic_session_timeout_ms is not None
        successor.add(
            ClassicGroupMember(
                member.member_id,
                metadata.instance_id,
                metadata.client_id,
                metadata.client_host,
                metadata.classic_session_timeout_ms,
                metadata.rebalance_timeout_ms,
                [Protocol(protocol.name, protocol.metadata) for protocol in metadata.classic_protocols],
            )
        )
    successor.protocol_name = successor.vote()
    successor.note_subscriptions(successor.joined_members())
    for each in successor.members.values():
        target = group.targets.get(each.member_id, {})
        successor.assign(each, written_for(group, target, each.metadata(successor.protocol_name)))
    resume(successor, STABLE, group.wall.at(change.now_ms))
    assignments = {each.member_id: each.assignment for each in successor.members.values()}
    records = [*change.records, *group.tombstones(change.records), successor.record(assignments)]
    written = DowngradeWritten(
        group_id=group.group_id,
        token=None if request is None else request.token,
        successor=successor,
        request=request,
        answer=answer,
        cause=cause,
        group_epoch=group.group_epoch,
        member_id=member_id,
        facts=change.facts,
    )
    return [Persist(records, written)]


def written_for(group: ConsumerGroup, partitions: Mapping[UUID, Sequence[int]], subscription: bytes) -> bytes:
    """Return partitions in the bytes of an assignment, in the version of the member's subscription."""
    names = group.image.topic_names
    known = sorted((names[topic_id], sorted(numbers)) for topic_id, numbers in partitions.items() if topic_id in names)
    return write_assignment(Assignment(dict(known), version=subscription_version(subscription)))


def _successor(group: ConsumerGroup) -> Group:
    successor = Group(group.group_id, group.settings, group.wall, group.held_in_all)
    successor.stored, successor.unwritten_commits = group.stored, group.unwritten_commits
    successor.is_in_log = True
    return successor


def downgraded(written: DowngradeWritten, now_ms: int) -> Effects:
    """Start the classic group that follows a consumer group: the sessions of its members, and its rebalance."""
    group = written.successor
    effects: Effects = []
    if written.token is not None and written.answer is not None:
        effects.append(Reply(written.token, written.answer))
    effects += map(Emit, written.facts)
    assignments = {member.member_id: member.assignment for member in group.in_map_order()}
    epochs = (written.group_epoch, group.generation_id)
    effects.append(Emit(GroupDowngraded(now_ms, group.group_id, written.member_id, *epochs, list(assignments))))
    for member in group.in_map_order():
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)
    if written.cause is not None:
        effects += start_rebalance(group, now_ms, written.cause, written.member_id)
    elif assignments:
        effects.append(Emit(AssignmentStored(now_ms, group.group_id, group.generation_id, assignments)))
    return effects
