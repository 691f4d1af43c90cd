"""Requests of the classic protocol to a consumer group: its classic members keep using them (K25).

The generation of a classic member is its member epoch. A join takes the member's next step towards its target, as a
heartbeat of a consumer member does; a sync brings what it is assigned; a heartbeat says whether it has to join again.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from uuid import UUID

from coterie.coordinator.classic.effects import Arm, Disarm, Effects, Reply
from coterie.coordinator.classic.fenced_facts import report_fenced
from coterie.coordinator.classic.join_group import join_precheck
from coterie.coordinator.classic.member_bytes import OVERHEAD, bytes_of_protocols
from coterie.coordinator.classic.sync_group import sync_precheck
from coterie.coordinator.consumer.conversion import (
    classic_protocols,
    downgrade,
    downgrade_empty,
    may_downgrade,
    written_for,
)
from coterie.coordinator.consumer.group import NEVER, ConsumerGroup, ConsumerGroupMember, RejoinDue, SyncDue
from coterie.coordinator.consumer.group_change import ConsumerGroupChange
from coterie.coordinator.consumer.heartbeat import NEW, too_large
from coterie.coordinator.consumer.leave import remove
from coterie.coordinator.consumer.reconciliation import reconcile
from coterie.coordinator.consumer.states import (
    DISABLED,
    ON_CLASSIC_HEARTBEAT,
    ON_CLASSIC_SYNC,
    ClassicSituation,
    MemberState,
)
from coterie.errors import ErrorCode, MalformedError
from coterie.facts import Cause, MemberJoined, MemberLeft
from coterie.protocol.consumer_group_records import MemberMetadata
from coterie.protocol.messages import (
    CONSUMER,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    LeftGroup,
    LeftMember,
    SyncedGroup,
    SyncGroup,
)
from coterie.protocol.subscription import Subscription, read_subscription
from coterie.structs import replace

# --- JoinGroup --------------------------------------------------------------------------------------------------------


def join_of_classic(group: ConsumerGroup, request: JoinGroup, now_ms: int) -> Effects:
    """Take a classic member in, or its next step. A join without id turns an Empty group into a classic one (K26)."""
    error = join_precheck(request, group.settings)
    if not error and not group.members:
        if not request.member_id:
            return downgrade_empty(group, request, now_ms)
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error:
        return [Reply(request.token, JoinedGroup(error, request.member_id))]
    error = _join_refused(group, request)
    member_id = request.member_id or _made(request.fresh_id)
    if not error and not request.member_id and request.needs_member_id and request.instance_id is None:
        return [Reply(request.token, JoinedGroup(ErrorCode.MEMBER_ID_REQUIRED, member_id))]  # and nothing is kept
    error = error or _static_refused(group, request)
    reported = report_fenced(group, "JoinGroup", request.member_id, request.instance_id, error, now_ms)
    subscription = None if error else _subscription(request)
    if subscription is None:
        return [Reply(request.token, JoinedGroup(error or ErrorCode.UNKNOWN_SERVER_ERROR, "")), *reported]
    holder = None if request.instance_id is None else group.static.get(request.instance_id)
    return _accept(group, request, member_id, group.members.get(holder or member_id), subscription, now_ms)


def _subscription(request: JoinGroup) -> Subscription | None:
    try:
        return read_subscription(request.protocols[0].metadata)
    except MalformedError:
        return None


def _made(fresh_id: str) -> str:
    """Return a new id in the form that consumer groups give: a UUID in base64."""
    try:
        return urlsafe_b64encode(UUID(fresh_id).bytes).decode().rstrip("=")
    except ValueError:
        return fresh_id  # of a story, where ids have names


def _join_refused(group: ConsumerGroup, request: JoinGroup) -> ErrorCode:
    """Check in Kafka's order: policy, size, protocols."""
    settings = group.settings
    if settings.group_consumer_migration_policy == DISABLED:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if len(group.members) >= settings.group_consumer_max_size and request.member_id not in group.members:
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    shared = [name for name, count in group.classic_protocols.items() if count == group.classic_members]
    names = [protocol.name for protocol in request.protocols]
    if request.protocol_type != CONSUMER or not names or len(set(names)) < len(names):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.classic_members and set(names).isdisjoint(shared):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    size = OVERHEAD + len(request.member_id) + bytes_of_protocols(request.protocols)
    refusal = too_large(group, size)
    return ErrorCode.NONE if refusal is None else refusal[0]


def _static_refused(group: ConsumerGroup, request: JoinGroup) -> ErrorCode:
    """A static member is new only without an id; then it takes the place of the holder, if there is one."""
    if request.instance_id is None or not request.member_id:
        return ErrorCode.NONE
    holder = group.static.get(request.instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if holder == request.member_id else ErrorCode.FENCED_INSTANCE_ID


def _accept(
    group: ConsumerGroup,
    request: JoinGroup,
    member_id: str,
    member: ConsumerGroupMember | None,
    subscription: Subscription,
    now_ms: int,
) -> Effects:
    change = ConsumerGroupChange(group, now_ms)
    was_consumer = member is not None and not member.is_classic
    old = NEW if member is None else member.metadata
    if member is None:
        fact = MemberJoined(
            now_ms, group.group_id, member_id, request.instance_id, request.client_id, request.client_host
        )
        change.facts.append(fact)
    elif member.member_id != member_id:
        member = change.replace(member, member_id)
    metadata = _updated(old, request, subscription)
    if metadata != old:
        change.set_member(member_id, metadata)
        change.forget_pattern(old.pattern if old.pattern != metadata.pattern else None)
    member = group.members[member_id]
    has_changed = set(metadata.topics) != set(old.topics) or metadata.pattern != old.pattern
    topics = group.image.topics
    owned = {topics[name].id: numbers for name, numbers in subscription.owned.items() if name in topics}
    if was_consumer and request.instance_id is not None and may_downgrade(group):
        is_stale = has_changed or change.have_topics_changed() or group.assignment_epoch < group.group_epoch
        if not is_stale:
            reconcile(change, member, owned, subscription_changed=False)
        cause = Cause.STATIC_MEMBER_REPLACED if is_stale else None
        return downgrade(change, cause, member_id, request, _joined(member))
    if has_changed:
        change.bump(Cause.NEW_MEMBER if old is NEW else Cause.PROTOCOLS_CHANGED, member_id)
    else:
        change.bump_if_topics_changed()
    change.compute_target_if_due()
    effects = reconcile(change, member, owned, subscription_changed=has_changed)
    effects += group.expect(member_id, now_ms)
    session = group.session(member_id)
    session.join_by_ms = NEVER
    session.sync_by_ms = now_ms + request.rebalance_timeout_ms
    effects.append(Arm(group.sync_key(member_id), session.sync_by_ms, SyncDue(group.group_id, member_id)))
    return effects + change.write(request.token, _joined(member), request)


def _joined(member: ConsumerGroupMember) -> JoinedGroup:
    """The answer to a join: there is no leader, and the protocol is the first of the member's own list."""
    name = member.metadata.classic_protocols[0].name
    return JoinedGroup(ErrorCode.NONE, member.member_id, member.epoch, CONSUMER, name)


def _updated(old: MemberMetadata, request: JoinGroup, subscription: Subscription) -> MemberMetadata:
    """Return what the member says of itself now. It keeps its vote for an assignor, and no regular expression."""
    return replace(
        old,
        instance_id=old.instance_id if request.instance_id is None else request.instance_id,
        rack_id=old.rack_id if subscription.rack is None else subscription.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        topics=tuple(sorted(set(subscription.topics))),
        pattern="",
        rebalance_timeout_ms=(
            old.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms
        ),
        classic_session_timeout_ms=request.session_timeout_ms,
        classic_protocols=classic_protocols(request.protocols),
    )


# --- SyncGroup and Heartbeat ------------------------------------------------------------------------------------------


def sync_of_classic(group: ConsumerGroup, request: SyncGroup, now_ms: int) -> Effects:
    """Answer with the current assignment, in the version of the member's subscription."""
    error = sync_precheck(request, group.settings) or _refused(group, request)
    if error:
        reported = report_fenced(group, "SyncGroup", request.member_id, request.instance_id, error, now_ms)
        return [Reply(request.token, SyncedGroup(error)), *reported]
    member = group.members[request.member_id]
    protocol = member.metadata.classic_protocols[0]
    if request.protocol_type not in {None, CONSUMER} or request.protocol_name not in {None, protocol.name}:
        return [Reply(request.token, SyncedGroup(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))]
    error = ON_CLASSIC_SYNC[_situation(group, member)]
    if error:
        return [*_tell_to_rejoin(group, member, now_ms), Reply(request.token, SyncedGroup(error))]
    group.session(member.member_id).sync_by_ms = NEVER
    assigned = {topic_id: sorted(numbers) for topic_id, numbers in member.assigned.items()}
    assignment = written_for(group, assigned, protocol.metadata)
    answer = SyncedGroup(ErrorCode.NONE, assignment, request.protocol_type, request.protocol_name)
    return [
        Disarm(group.sync_key(member.member_id)),
        *group.expect(member.member_id, now_ms),
        *group.reply(request.token, answer, request),
    ]


def heartbeat_of_classic(group: ConsumerGroup, request: Heartbeat, now_ms: int) -> Effects:
    """Answer whether the member has to rejoin. The answer does not wait for a write: it can only be too early."""
    error = _refused(group, request)
    if error:
        reported = report_fenced(group, "Heartbeat", request.member_id, request.instance_id, error, now_ms)
        return [Reply(request.token, error), *reported]
    member = group.members[request.member_id]
    effects = group.expect(member.member_id, now_ms)
    error = ON_CLASSIC_HEARTBEAT[_situation(group, member)]
    if error:
        effects += _tell_to_rejoin(group, member, now_ms)
    return [*effects, Reply(request.token, error)]


def _refused(group: ConsumerGroup, request: SyncGroup | Heartbeat) -> ErrorCode:
    """Check instance, member and generation, as a classic group does."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if request.instance_id is not None:
        holder = group.static.get(request.instance_id)
        if holder is not None and holder != request.member_id:
            return ErrorCode.FENCED_INSTANCE_ID
        if holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
    member = group.members.get(request.member_id)
    if member is None or not member.is_classic:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if request.generation_id == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _situation(group: ConsumerGroup, member: ConsumerGroupMember) -> ClassicSituation:
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        return ClassicSituation.MUST_GIVE_UP
    if member.epoch < group.assignment_epoch:
        return ClassicSituation.BEHIND
    if member.state is MemberState.UNRELEASED_PARTITIONS and _can_take_all(group, member):
        return ClassicSituation.CAN_TAKE_ALL
    return ClassicSituation.UP_TO_DATE


def _can_take_all(group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
    return all(
        number in member.assigned.get(topic_id, {}) or group.holder(topic_id, number) is None
        for topic_id, numbers in group.targets.get(member.member_id, {}).items()
        for number in numbers
    )


def _tell_to_rejoin(group: ConsumerGroup, member: ConsumerGroupMember, now_ms: int) -> Effects:
    """Tell a classic member to rejoin. It has its rebalance timeout to join, from the first time that it is told."""
    session = group.session(member.member_id)
    if session.join_by_ms != NEVER:
        return []
    session.join_by_ms = now_ms + member.metadata.rebalance_timeout_ms
    then = RejoinDue(group.group_id, member.member_id)
    return [Arm(group.join_key(member.member_id), session.join_by_ms, then)]


# --- LeaveGroup -------------------------------------------------------------------------------------------------------


def leave_of_classic(group: ConsumerGroup, request: LeaveGroup, now_ms: int) -> Effects:
    """Remove members of both protocols, by id or instance; several are one group epoch (K25)."""
    change = ConsumerGroupChange(group, now_ms)
    answers: list[LeftMember] = []
    gone: dict[str, ConsumerGroupMember] = {}
    reported: Effects = []
    for leaving in request.members:
        member_id, error = _who(group, leaving)
        reported += report_fenced(group, "LeaveGroup", leaving.member_id, leaving.instance_id, error, now_ms)
        answers.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        if not error and member_id not in gone:
            member = gone[member_id] = group.members[member_id]
            fact = MemberLeft(now_ms, group.group_id, member_id, member.metadata.instance_id, leaving.reason)
            change.facts.append(fact)
    answer = LeftGroup(ErrorCode.NONE, answers)
    return [*reported, *remove(change, list(gone.values()), Cause.MEMBER_LEFT, request, answer)]


def _who(group: ConsumerGroup, leaving: LeavingMember) -> tuple[str, ErrorCode]:
    if leaving.instance_id is not None:
        holder = group.static.get(leaving.instance_id)
        if holder is None:
            return "", ErrorCode.UNKNOWN_MEMBER_ID
        if leaving.member_id and holder != leaving.member_id:
            return "", ErrorCode.FENCED_INSTANCE_ID
        return holder, ErrorCode.NONE
    if leaving.member_id in group.members:
        return leaving.member_id, ErrorCode.NONE
    return "", ErrorCode.UNKNOWN_MEMBER_ID
