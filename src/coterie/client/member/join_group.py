"""JoinGroup: what comes before it (M3, M10), the request, and what its answer means (M4, M12).

Before it (Java's onJoinPrepare), once a rebalance and during a poll, the pattern is matched, offsets are committed and
partitions are revoked.
"""

from __future__ import annotations

from coterie.client.member.effects import (
    AskPositions,
    Effects,
    HoldPartitions,
    Listened,
    RefreshMetadata,
    SendRequest,
    StartTimer,
    StopTimer,
)
from coterie.client.member.events import JoinAnswered, MetadataAnswered, PositionsAnswered, PrepareDue
from coterie.client.member.facts import GroupJoined, PreparationCutShort, RebalanceBegan
from coterie.client.member.member import HEARTBEAT, PREPARE, MemberData, RequestKind, start_heartbeats
from coterie.client.member.offset_commit import ask_commit
from coterie.client.member.reset_generation import back_off, fail_rebalance, rebalance_failed
from coterie.client.member.states import ApiName, AssignorError, MemberState, code_of, enter, error_for
from coterie.client.member.subscription import call_listener, take_metadata, watch
from coterie.client.member.sync_group import on_leader_elected, send_sync_group
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.facts import Emit
from coterie.protocol.messages import CONSUMER, MAX_REASON, NO_GENERATION, JoinedGroup, JoinGroup, Protocol
from coterie.protocol.subscription import Subscription, write_subscription


def can_rejoin(member: MemberData) -> bool:
    return (
        member.polling
        and member.subscribed
        and member.reason_to_rejoin is not None
        and member.calling is None
        and not member.stalled
        and not member.is_backing_off
        and member.coordinator is not None
    )


def rejoin(member: MemberData, now_ms: int) -> Effects:
    reason = member.rejoin_reason = member.reason_to_rejoin or ""
    if member.is_prepared:
        enter(member, MemberState.JOINING, now_ms)
        return []
    enter(member, MemberState.PREPARING, now_ms)
    effects: Effects = [Emit(RebalanceBegan(now_ms, member.settings.group_id, reason))]
    if member.pattern is None:
        return [*effects, *_auto_commit(member, now_ms)]
    # All members that join now have seen the same topics: a new topic costs one rebalance, not one per member.
    member.waiting_for = then = MetadataAnswered()
    return [*effects, RefreshMetadata(None, then)]


def metadata_for_pattern(member: MemberData, event: MetadataAnswered, now_ms: int) -> Effects:
    if event.error is None:
        return [*take_metadata(member, event.reply), *_auto_commit(member, now_ms)]
    if isinstance(event.error, KafkaError) and event.error.retriable:
        enter(member, MemberState.UNJOINED, now_ms)
        return back_off(member, now_ms)
    return fail_rebalance(member, event.error, now_ms)


def _auto_commit(member: MemberData, now_ms: int) -> Effects:
    if not (member.settings.enable_auto_commit and member.is_settled and member.assigned):
        member.is_prepared = True
        return []
    effects: Effects = [StartTimer(PREPARE, now_ms + member.settings.max_poll_interval_ms, PrepareDue())]
    if not member.settings.is_cooperative:
        # Else a poll could return more records between the commit and the revocation, and the next owner again.
        effects.append(HoldPartitions(sorted(member.assigned)))
    member.waiting_for = then = PositionsAnswered()
    return [*effects, AskPositions(then)]


def positions_before_join(member: MemberData, event: PositionsAnswered, now_ms: int) -> Effects:
    """Retriable errors are retried for the whole rebalance timeout; the join must not come later than that."""
    until_ms = member.state_since_ms + member.settings.max_poll_interval_ms
    return ask_commit(member, RequestKind.COMMIT_BEFORE_JOIN, None, event.reply or {}, until_ms, now_ms)


def prepare_due(member: MemberData, _event: PrepareDue, now_ms: int) -> Effects:
    if member.state is not MemberState.PREPARING or member.is_prepared:
        return []
    member.is_prepared = True
    member.waiting_for = None
    return [Emit(PreparationCutShort(now_ms, member.settings.group_id, now_ms - member.state_since_ms))]


def can_revoke_before_join(member: MemberData) -> bool:
    return member.is_prepared and member.calling is None and (member.may_call or not _to_revoke(member))


def on_join_prepare(member: MemberData, now_ms: int) -> Effects:
    """Revoke partitions before the join. This is checked again after each call of the listener, which may take long."""
    if (revocation := _to_revoke(member)) is not None:
        member.is_revocation_announced = True
        return call_listener(member, *revocation, now_ms)
    member.is_revocation_announced = False
    enter(member, MemberState.JOINING, now_ms)
    return [StopTimer(PREPARE)]


def _to_revoke(member: MemberData) -> tuple[Listened, frozenset[TopicPartition]] | None:
    if not member.has_generation:
        return (Listened.LOST, member.assigned) if member.assigned else None
    if member.settings.is_cooperative:
        gone = frozenset(one for one in member.assigned if one.topic not in member.topics)
        return (Listened.REVOKED, gone) if gone else None
    # The listener of an eager member is called even if the member owns nothing, but not twice.
    return (Listened.REVOKED, member.assigned) if member.assigned or not member.is_revocation_announced else None


# --- the request and its answer ---------------------------------------------------------------------------------------

JOIN_TIMEOUT_LAPSE_MS = 5_000
MAX_TIMEOUT_MS = 2**31 - 1


def can_join(member: MemberData) -> bool:
    return member.waiting_for is None and member.coordinator is not None and not member.is_backing_off


def send_join_group(member: MemberData, now_ms: int) -> Effects:
    """Send the join. Only its own answer counts; heartbeats pause until it arrives (KAFKA-10134)."""
    settings = member.settings
    member.is_settled = False
    member.heartbeat_in_flight = None
    effects: Effects = [StopTimer(HEARTBEAT)]
    try:
        protocols = _protocols(member)
    except Exception as raised:  # noqa: BLE001  an assignor is the user's code
        return [*effects, *fail_rebalance(member, _user_data_failed(raised), now_ms)]
    member.joined_topics = member.topics
    member.snapshot, member.is_stale, member.group_topics = None, False, frozenset()
    request = JoinGroup(
        token=None,
        group_id=settings.group_id,
        member_id=member.member_id,
        instance_id=settings.group_instance_id,
        protocol_type=CONSUMER,
        protocols=protocols,
        session_timeout_ms=settings.session_timeout_ms,
        rebalance_timeout_ms=settings.max_poll_interval_ms,
        fresh_id="",
        client_id=settings.client_id,
        reason=(member.rejoin_reason or "")[:MAX_REASON],
    )
    # The coordinator parks it for up to the rebalance timeout.
    timeout_ms = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_TIMEOUT_LAPSE_MS)
    member.waiting_for = then = JoinAnswered(member.generation_id, member.member_id)
    return [*effects, *watch(member), SendRequest(member.coordinator, request, min(timeout_ms, MAX_TIMEOUT_MS), then)]


def _protocols(member: MemberData) -> list[Protocol]:
    topics = sorted(member.topics)
    owned: dict[str, list[int]] = {}
    for topic, partition in sorted(member.assigned):
        owned.setdefault(topic, []).append(partition)
    rack, generation_id = member.settings.client_rack, member.generation_id
    protocols = []
    for assignor in member.settings.assignors:
        user_data = assignor.user_data(topics, member.last_owned, member.last_generation_id)
        subscription = Subscription(topics, user_data, owned, generation_id, rack)
        protocols.append(Protocol(assignor.name, write_subscription(subscription)))
    return protocols


def _user_data_failed(raised: Exception) -> AssignorError:
    error = AssignorError(
        f"an assignor raised {raised!r} when asked for the user data of the subscription, so the member cannot join; "
        "correct Assignor.user_data"
    )
    error.__cause__ = raised
    return error


def join_answered(member: MemberData, event: JoinAnswered, now_ms: int) -> Effects:
    if event is not member.waiting_for:
        return []  # no longer joining: the user has unsubscribed, say (M10)
    member.waiting_for = None
    if event.error is not None:
        return rebalance_failed(member, ApiName.JOIN_GROUP, code_of(event.error), now_ms, event.error)
    reply: JoinedGroup = event.reply
    if reply.error:
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            member.member_id, member.generation_id = reply.member_id, NO_GENERATION
        return rebalance_failed(member, ApiName.JOIN_GROUP, reply.error, now_ms)
    if reply.protocol_type not in {None, CONSUMER}:
        about = f'the group\'s protocol type is "{reply.protocol_type}", a consumer\'s is "{CONSUMER}"'
        return fail_rebalance(member, _inconsistent(member, about), now_ms)
    leads = reply.leader_id == reply.member_id
    name = reply.protocol_name or ""
    member.member_id, member.generation_id, member.protocol_name = reply.member_id, reply.generation_id, name
    member.heartbeat_request = None
    member.subscribers = ()
    effects: Effects = [
        Emit(GroupJoined(now_ms, member.settings.group_id, reply.member_id, reply.generation_id, name, leads)),
        *start_heartbeats(member, now_ms),
    ]
    if not member.polling:
        member.poll_deadline_ms = now_ms + member.settings.max_poll_interval_ms
    if member.assignor(name) is None:
        names = ", ".join(assignor.name for assignor in member.settings.assignors)
        about = f'the group voted for assignor "{name}", this member has {names}'
        return [*effects, *fail_rebalance(member, _inconsistent(member, about), now_ms)]
    return [*effects, *(on_leader_elected(member, reply, now_ms) if leads else send_sync_group(member, (), now_ms))]


def _inconsistent(member: MemberData, about: str) -> KafkaError:
    return error_for(ApiName.JOIN_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.settings, about)
