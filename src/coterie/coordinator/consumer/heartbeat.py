"""ConsumerGroupHeartbeat: a member joins, reports its state and gets its assignment (section 2)."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Arm, Effects, Reply
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.member_bytes import OVERHEAD
from coterie.coordinator.consumer.conversion import Refusal, take_over, upgrade_refusal
from coterie.coordinator.consumer.group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NEVER,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerGroupMember,
)
from coterie.coordinator.consumer.group_change import ConsumerGroupChange, has_same_partitions, partitions_of
from coterie.coordinator.consumer.leave import leave
from coterie.coordinator.consumer.quick_heartbeat import answer_quickly
from coterie.coordinator.consumer.reconciliation import Owned, reconcile
from coterie.coordinator.consumer.regex import why_invalid
from coterie.coordinator.consumer.regex_refresh import RegexDue, last_resolved_ms, needs_refresh
from coterie.errors import ErrorCode
from coterie.facts import Cause, GroupCreated, MemberJoined
from coterie.protocol.consumer_group_records import MemberMetadata
from coterie.protocol.messages import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatAnswer
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.structs import replace

_INVALID = ErrorCode.INVALID_REQUEST


def heartbeat_refusal(request: ConsumerGroupHeartbeat, settings: GroupCoordinatorSettings) -> Refusal | None:
    """Return what is wrong with a request by itself, in Kafka's order (K5)."""
    epoch = request.member_epoch
    if not request.member_id and (request.needs_member_id or epoch > 0 or epoch == LEAVE_EPOCH):
        return _INVALID, "MemberId must not be empty."
    if not request.group_id:
        return _INVALID, "GroupId must not be empty."
    if request.instance_id == "":
        return _INVALID, "InstanceId must not be empty."
    if request.rack_id == "":
        return _INVALID, "RackId must not be empty."
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            return _INVALID, "RebalanceTimeoutMs must be given by a member that joins."
        if request.owned is None or request.owned:
            return _INVALID, "TopicPartitions must be an empty list for a member that joins."
        if request.topics is None and request.pattern is None:
            return _INVALID, "SubscribedTopicNames or SubscribedTopicRegex must be given by a member that joins."
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return _INVALID, "InstanceId must be given by a static member that leaves for a while."
    if epoch < STATIC_LEAVE_EPOCH:
        return _INVALID, f"MemberEpoch is {epoch}; it must be at least {STATIC_LEAVE_EPOCH}."
    known = settings.group_consumer_assignors
    if request.assignor is not None and request.assignor not in known:
        return (
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported are: {', '.join(known)}.",
        )
    return None


def refused(request: ConsumerGroupHeartbeat, refusal: Refusal) -> Effects:
    error, message = refusal
    return [Reply(request.token, ConsumerGroupHeartbeatAnswer(error, message))]


def heartbeat_to_classic(group: Group, request: ConsumerGroupHeartbeat, _now_ms: int) -> Effects:
    """Refuse a heartbeat to a classic group that is not upgraded (K24)."""
    refusal = heartbeat_refusal(request, group.settings)
    if refusal is None and request.member_epoch == JOIN_EPOCH:
        refusal = upgrade_refusal(group)
    why = f"Group {request.group_id} is a classic group."
    return refused(request, refusal or (ErrorCode.GROUP_ID_NOT_FOUND, why))


def consumer_group_heartbeat(group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: int) -> Effects:
    """Handle a heartbeat of any kind. `group` may be a new one that is not kept if the request is refused."""
    effects = answer_quickly(group, request, now_ms)
    if effects is not None:
        return effects
    refusal = heartbeat_refusal(request, group.settings)
    if refusal is not None:
        return refused(request, refusal)
    if group.is_dead and request.member_epoch != JOIN_EPOCH:
        return refused(request, (ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} does not exist."))
    if request.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
        return leave(group, request, now_ms)
    member_id = request.member_id or request.fresh_id
    found = _find_member(group, request, member_id)
    if isinstance(found, tuple):
        reported = report_fenced(group, "ConsumerGroupHeartbeat", member_id, request.instance_id, found[0], now_ms)
        return [*refused(request, found), *reported]
    return _accept(group, request, member_id, found, now_ms)


# --- which member it is -----------------------------------------------------------------------------------------------


def _find_member(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, member_id: str
) -> ConsumerGroupMember | Refusal | None:
    """Return the member that sent the request; None if it is new. A static member may have another id yet (K14)."""
    if len(group.members) >= group.settings.group_consumer_max_size and member_id not in group.members:
        most = group.settings.group_consumer_max_size
        return ErrorCode.GROUP_MAX_SIZE_REACHED, f"The group has {most} members, which is the most it may have."
    joins = request.member_epoch == JOIN_EPOCH
    if request.instance_id is None:
        member = group.members.get(member_id)
        if member is None and not joins:
            return ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    else:
        holder = group.static.get(request.instance_id)
        member = None if holder is None else group.members[holder]
        refusal = (_validate_join if joins else _validate_instance_id)(member, request, member_id)
        if refusal is not None:
            return refusal
        if member is None:
            member = group.members.get(member_id)
    if member is not None and not joins:
        refusal = _validate_member_epoch(member, request.member_epoch, request.owned)
        if refusal is not None:
            return refusal
    refusal = _regex_refused(group, member, request)
    if refusal is not None:
        return refusal
    return too_large(group, _size(request)) or member


def _validate_join(
    holder: ConsumerGroupMember | None, request: ConsumerGroupHeartbeat, _member_id: str
) -> Refusal | None:
    if holder is None or holder.is_away or holder.is_classic:
        return None
    return (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        f"Instance {request.instance_id} is used by member {holder.member_id}, which has not left.",
    )


def _validate_instance_id(
    holder: ConsumerGroupMember | None, request: ConsumerGroupHeartbeat, member_id: str
) -> Refusal | None:
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, f"Instance {request.instance_id} is not a member of the group."
    if holder.member_id != member_id:
        return (
            ErrorCode.FENCED_INSTANCE_ID,
            f"Instance {request.instance_id} is used by another member than {member_id}.",
        )
    return None


def _validate_member_epoch(member: ConsumerGroupMember, epoch: int, owned: Owned | None) -> Refusal | None:
    """Accept the member's epoch, or the one before if its last answer may have been lost (K8)."""
    if epoch == member.epoch:
        return None
    if epoch < member.epoch and epoch == member.previous_epoch and _is_within(owned, member):
        return None
    return (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"Epoch {epoch} is not that of the member, which is {member.epoch}: it must give up everything and join again.",
    )


def _is_within(owned: Owned | None, member: ConsumerGroupMember) -> bool:
    if owned is None:
        return False
    return all(number in member.assigned.get(topic_id, {}) for topic_id, numbers in owned.items() for number in numbers)


def _regex_refused(
    group: ConsumerGroup, member: ConsumerGroupMember | None, request: ConsumerGroupHeartbeat
) -> Refusal | None:
    pattern = request.pattern
    if not pattern or (member is not None and member.metadata.pattern == pattern) or pattern in group.pattern_members:
        return None
    why = why_invalid(pattern)
    if why is None:
        return None
    return ErrorCode.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex `{pattern[:200]}` is not valid: {why}."


def _size(request: ConsumerGroupHeartbeat) -> int:
    if request.topics is None and request.pattern is None:
        return 0
    names = (request.member_id, request.instance_id or "", request.pattern or "", *(request.topics or ()))
    return OVERHEAD + sum(map(len, names))


def too_large(group: ConsumerGroup, size: int) -> Refusal | None:
    """Bound what members make the coordinator hold, as a join to a classic group is bounded."""
    settings = group.settings
    if size and (
        size > settings.coterie_group_member_max_bytes
        or group.held_bytes + size > settings.coterie_group_max_bytes
        or group.held_in_all.total + size > settings.coterie_groups_max_bytes
    ):
        return ErrorCode.GROUP_MAX_SIZE_REACHED, f"The member needs {size} bytes, more than the coordinator may hold."
    return None


# --- what it changes --------------------------------------------------------------------------------------------------


def _accept(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeat,
    member_id: str,
    member: ConsumerGroupMember | None,
    now_ms: int,
) -> Effects:
    change = ConsumerGroupChange(group, now_ms)
    resolved_ms = last_resolved_ms(group)
    effects = take_over(change, member_id)
    if member is None and group.is_dead and group.upgrade is None:
        change.facts.append(GroupCreated(now_ms, group.group_id, simple=False))
    before = None if member is None else member.assigned
    cause = Cause.SUBSCRIPTION_CHANGED if member is not None else Cause.NEW_MEMBER
    old = NEW if member is None else member.metadata
    metadata = _updated(old, request)
    if member is None:
        change.facts.append(
            MemberJoined(now_ms, group.group_id, member_id, request.instance_id, request.client_id, request.client_host)
        )
    elif request.member_epoch == JOIN_EPOCH and (
        member.is_away or (member.is_classic and request.instance_id is not None)
    ):
        member = change.replace(member, member_id)
    if member is None or metadata != old:
        change.set_member(member_id, metadata)
        member = group.members[member_id]
        change.forget_pattern(old.pattern if old.pattern != metadata.pattern else None)
    names_changed = set(metadata.topics) != set(old.topics)
    regex_changed = metadata.pattern != old.pattern
    is_resolved = regex_changed and (not metadata.pattern or metadata.pattern in group.resolved)
    if names_changed or is_resolved:
        change.bump(cause, member_id)
    else:
        change.bump_if_topics_changed()
    effects += _refresh_regexes(group, request, resolved_ms, now_ms)
    change.compute_target_if_due()
    effects += reconcile(change, member, request.owned, subscription_changed=names_changed or regex_changed)
    effects += group.expect(member_id, now_ms)
    if old.classic_session_timeout_ms is not None:  # it was classic until now (K25)
        session = group.session(member_id)
        session.join_by_ms = session.sync_by_ms = NEVER
    answer = ConsumerGroupHeartbeatAnswer(ErrorCode.NONE, None, member_id, member.epoch, group.heartbeat_interval_ms)
    if _is_full(request) or not has_same_partitions(member.assigned, before or {}):
        answer.assignment = partitions_of(member.assigned)
    return effects + change.write(request.token, answer, request)


_UNCHANGED = (None,) * 5
NEW = MemberMetadata(None, None, "", "", (), "", -1, None)


def _updated(old: MemberMetadata, request: ConsumerGroupHeartbeat) -> MemberMetadata:
    """Return what the member says of itself now: null and -1 are unchanged (K7)."""
    said = (request.instance_id, request.rack_id, request.topics, request.pattern, request.assignor)
    client = (request.client_id, request.client_host, None)
    known = (old.client_id, old.client_host, old.classic_session_timeout_ms)
    if said == _UNCHANGED and request.rebalance_timeout_ms == -1 and client == known:
        return old  # as nearly always
    return replace(
        old,
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=old.topics if request.topics is None else tuple(sorted(set(request.topics))),
        pattern=old.pattern if request.pattern is None else request.pattern,
        rebalance_timeout_ms=(
            old.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        server_assignor=old.server_assignor if request.assignor is None else request.assignor,
        classic_session_timeout_ms=None,
        classic_protocols=(),
    )


def _is_full(request: ConsumerGroupHeartbeat) -> bool:
    """Return whether the member wants its assignment, changed or not (K9)."""
    if request.member_epoch == JOIN_EPOCH:
        return True
    subscribes = request.topics is not None or request.pattern is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.owned is not None


def _refresh_regexes(
    group: ConsumerGroup, request: ConsumerGroupHeartbeat, resolved_ms: int | None, now_ms: int
) -> Effects:
    """Have the expressions resolved; `resolved_ms` is when they were last, as this heartbeat found it."""
    if group.resolving or not needs_refresh(group, resolved_ms, now_ms):
        return []
    group.resolving = True
    return [Arm(group.regex_key(), now_ms, RegexDue(group.group_id, request.may_describe))]
