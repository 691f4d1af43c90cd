"""OffsetCommit and OffsetFetch: commits of the user, auto-commits, and questions for committed offsets (M6, M7).

Each is a pending request: it is sent as soon as the coordinator is known, and repeated until its time is over. A commit
belongs to the generation in which its records were read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from coterie.client.member.effects import (
    AskPositions,
    CommitEnded,
    CommittedEnded,
    Effects,
    RefreshMetadata,
    SendRequest,
    StartTimer,
    StopTimer,
)
from coterie.client.member.events import (
    AutoCommitDue,
    CommitAnswered,
    CommitAsked,
    CommittedAnswered,
    CommittedAsked,
    CoordinatorAnswered,
    Offsets,
    PositionsAnswered,
    RetryDue,
    TopicsAnswered,
)
from coterie.client.member.facts import AutoCommitFailed, CommitLeftOut
from coterie.client.member.find_coordinator import forget_coordinator
from coterie.client.member.member import (
    AUTO_COMMIT,
    PENDING_REQUEST,
    MemberBase,
    MemberData,
    PendingRequest,
    RequestKind,
)
from coterie.client.member.reset_generation import DROPS, drop_for, fence
from coterie.client.member.states import (
    ApiName,
    ErrorAction,
    MemberState,
    code_of,
    error_for,
    on_error,
    with_advice,
)
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import (
    NO_SUCH_TOPIC,
    CommitFailedError,
    ErrorCode,
    KafkaError,
    RebalanceInProgressError,
    RequestTimedOutError,
)
from coterie.facts import Emit
from coterie.protocol.messages import (
    NO_GENERATION,
    CommitPartition,
    OffsetCommit,
    OffsetFetch,
    OffsetsCommitted,
    OffsetsFetched,
)


def add_request(
    member: MemberBase,
    kind: RequestKind,
    token: Hashable,
    until_ms: int | None,
    offsets: Offsets,
    partitions: Collection[TopicPartition],
) -> Effects:
    """Add a pending request, of the generation the member is in now. It is sent as soon as the coordinator is known."""
    member.pending_requests_given += 1
    belongs = kind is not RequestKind.COMMITTED and member.subscribed
    pending = PendingRequest(
        member.pending_requests_given,
        kind,
        token,
        until_ms,
        offsets,
        partitions,
        member.generation_id if belongs else NO_GENERATION,
        member.member_id if belongs else "",
        member.assigned.intersection(offsets),
    )
    member.pending_requests[pending.number] = pending
    member.unsent.append(pending)
    for partition in offsets:
        member.newest_commit[partition] = pending.number
    return [] if until_ms is None else [StartTimer(pending.timer, until_ms, RetryDue(PENDING_REQUEST, pending.number))]


def can_send(member: MemberBase) -> bool:
    return bool(member.unsent) and member.coordinator is not None


def send_pending_requests(member: MemberBase, now_ms: int) -> Effects:
    """Send pending requests in their order, so that the last commit counts."""
    unsent, member.unsent = member.unsent, []
    effects: Effects = []
    for pending in unsent:
        if pending.kind is RequestKind.COMMITTED:
            effects.append(_question(member, pending))
        elif pending.generation_id != NO_GENERATION and not member.may_still_commit(pending):
            effects += end(member, pending, not_a_member(member), now_ms)
        elif partitions := _to_commit(member, pending):
            effects.append(_commit(member, pending, partitions))
        else:
            effects += end(member, pending, None, now_ms)  # a later commit has said more than this one would
    return effects


def _to_commit(member: MemberBase, pending: PendingRequest) -> list[CommitPartition]:
    """Leave partitions of later commits out of a retry, which would set the group back."""
    newest = member.newest_commit
    return [
        CommitPartition(partition.topic, partition.partition, at.offset, at.leader_epoch, at.metadata)
        for partition, at in sorted(pending.offsets.items())
        if not pending.failures or newest.get(partition) == pending.number
    ]


def _commit(member: MemberBase, pending: PendingRequest, partitions: list[CommitPartition]) -> SendRequest:
    settings = member.settings
    pending.in_flight, pending.sent_to = True, member.coordinator
    pending.waits_until_ms = None
    instance_id = settings.group_instance_id if pending.member_id else None
    request = OffsetCommit(None, settings.group_id, pending.member_id, instance_id, pending.generation_id, partitions)
    then = CommitAnswered(pending.generation_id, pending.member_id, pending.number)
    return SendRequest(member.coordinator, request, settings.request_timeout_ms, then)


def _question(member: MemberBase, pending: PendingRequest) -> SendRequest:
    pending.in_flight, pending.sent_to = True, member.coordinator
    pending.waits_until_ms = None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(pending.partitions):
        topics.setdefault(topic, []).append(partition)
    member_id, epoch = member.asks_as
    request = OffsetFetch(
        None,
        member.settings.group_id,
        list(topics.items()),
        require_stable=True,
        member_id=member_id,
        member_epoch=epoch,
    )
    then = CommittedAnswered(pending.number)
    return SendRequest(member.coordinator, request, member.settings.request_timeout_ms, then)


def try_later(member: MemberBase, pending: PendingRequest, api: ApiName, error: KafkaError, now_ms: int) -> Effects:
    """A retriable error: once more after a back-off, if the request may be repeated and there is time."""
    effects: Effects = []
    if member.on_error(api, error.code) is ErrorAction.FIND_COORDINATOR and pending.sent_to is member.coordinator:
        effects = forget_coordinator(member, f"{error.code.name} in answer to {api}", now_ms)
    at_ms = now_ms + member.backoff_ms(pending.failures)
    pending.failures += 1
    if pending.until_ms is None or at_ms >= pending.until_ms:
        return [*effects, *end(member, pending, error, now_ms)]
    pending.waits_until_ms = at_ms
    return [*effects, StartTimer(pending.timer, at_ms, RetryDue(PENDING_REQUEST, pending.number))]


def pending_request_due(member: MemberBase, event: RetryDue, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or pending.until_ms is None:
        return []
    if now_ms >= pending.until_ms:
        return end(member, pending, _too_late(member, pending), now_ms)
    if pending.waits_until_ms is not None:
        pending.waits_until_ms = None
        member.unsent.append(pending)
    return [StartTimer(pending.timer, pending.until_ms, RetryDue(PENDING_REQUEST, pending.number))]


def _too_late(member: MemberBase, pending: PendingRequest) -> KafkaError:
    where = "the coordinator did not answer in time" if pending.in_flight else "the coordinator was not found in time"
    if pending.failures and not pending.in_flight:
        where = f"the coordinator refused it {pending.failures} times"
    group_id = member.settings.group_id
    return RequestTimedOutError(f'the {pending.kind} of group "{group_id}" was not done: {where}; try again')


def lookup_failed(member: MemberBase, event: CoordinatorAnswered, now_ms: int) -> Effects:
    """Fail requests without retries when a lookup fails, and all requests if the error is not retriable."""
    error = event.error
    if error is None or member.coordinator is not None:
        return []
    final = on_error(ApiName.FIND_COORDINATOR, code_of(error)) is not ErrorAction.RETRY
    waiting = [pending for pending in member.pending_requests.values() if not pending.in_flight]
    effects: Effects = []
    for pending in waiting:
        if final or pending.until_ms is None:
            effects += end(member, pending, with_advice(ApiName.FIND_COORDINATOR, error, member.settings), now_ms)
    return effects


def not_a_member(member: MemberBase) -> KafkaError:
    """M7: whether a poll alone will repair it, or the partitions belong to another member now."""
    if member.is_rebalancing:
        return RebalanceInProgressError(
            "the offsets were not committed: the group is rebalancing. Poll until it has ended, then commit again, "
            "if the partitions are still assigned",
            ErrorCode.REBALANCE_IN_PROGRESS,
        )
    return CommitFailedError(
        "the offsets were not committed: this consumer is not, or no longer, a member of the generation it read them "
        "in, and the partitions may belong to another member. Poll to rejoin; if this happens often, poll more often "
        "than max.poll.interval.ms",
        ErrorCode.ILLEGAL_GENERATION,
    )


# --- the end of a pending request -------------------------------------------------------------------------------------


def end(
    member: MemberBase, pending: PendingRequest, error: Exception | None, now_ms: int, offsets: Offsets | None = None
) -> Effects:
    del member.pending_requests[pending.number]
    if pending in member.unsent:
        member.unsent.remove(pending)
    if not member.pending_requests:
        member.newest_commit.clear()
    effects: Effects = [] if pending.until_ms is None else [StopTimer(pending.timer)]
    if pending.kind is RequestKind.COMMITTED:
        return [*effects, CommittedEnded(pending.token, offsets or {}, error)]
    return [*effects, *_ENDED[pending.kind](member, pending, error, now_ms)]


def _commit_ended(member: MemberBase, pending: PendingRequest, error: Exception | None, _now_ms: int) -> Effects:
    member.auto_committed = None
    return [CommitEnded(pending.token, error)]


def _auto_commit_ended(member: MemberBase, pending: PendingRequest, error: Exception | None, now_ms: int) -> Effects:
    if error is None:
        member.auto_committed = pending.offsets
        return []
    if isinstance(error, KafkaError) and error.retriable:
        member.auto_commit_at_ms = now_ms + member.backoff_ms(0)
        return [StartTimer(AUTO_COMMIT, member.auto_commit_at_ms, AutoCommitDue())]
    return _emit_failure(member, error, now_ms)


def _commit_before_join_ended(
    member: MemberBase, _pending_request: PendingRequest, error: Exception | None, now_ms: int
) -> Effects:
    """Continue the rebalance, whatever the result of the commit is (M3)."""
    if isinstance(member, MemberData) and member.state is MemberState.PREPARING:
        member.is_prepared = True
    return _emit_failure(member, error, now_ms)


def _last_commit_ended(
    member: MemberBase, _pending_request: PendingRequest, error: Exception | None, now_ms: int
) -> Effects:
    return _emit_failure(member, error, now_ms)


def _emit_failure(member: MemberBase, error: Exception | None, now_ms: int) -> Effects:
    return [] if error is None else [Emit(AutoCommitFailed(now_ms, member.settings.group_id, str(error)))]


_ENDED: Mapping[RequestKind, Callable[[MemberBase, PendingRequest, Exception | None, int], Effects]] = {
    RequestKind.COMMIT: _commit_ended,
    RequestKind.COMMIT_POSITIONS: _commit_ended,
    RequestKind.AUTO_COMMIT: _auto_commit_ended,
    RequestKind.COMMIT_BEFORE_JOIN: _commit_before_join_ended,
    RequestKind.COMMIT_BEFORE_REVOCATION: _last_commit_ended,
    RequestKind.COMMIT_ON_CLOSE: _last_commit_ended,
}


# --- commits, and what every answer means (M7) ------------------------------------------------------------------------

GONE_AFTER = 2
"""The number of refreshes in a row without a partition until it counts as deleted: metadata spreads slowly."""


def commit_asked(member: MemberBase, event: CommitAsked, now_ms: int) -> Effects:
    if not event.offsets:
        return [CommitEnded(event.token)]
    if member.subscribed and not member.is_settled:
        return [CommitEnded(event.token, member.failure or not_a_member(member))]
    kind = RequestKind.COMMIT_POSITIONS if event.are_positions else RequestKind.COMMIT
    return ask_commit(member, kind, event.token, event.offsets, event.until_ms, now_ms)


def ask_commit(
    member: MemberBase, kind: RequestKind, token: Hashable, offsets: Offsets, until_ms: int | None, now_ms: int
) -> Effects:
    effects = add_request(member, kind, token, until_ms, dict(offsets), ())
    if not offsets:
        return [*effects, *end(member, member.pending_requests[member.pending_requests_given], None, now_ms)]
    return effects


def commit_answered(member: MemberBase, event: CommitAnswered, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or not pending.in_flight:
        return []  # nobody waits for it any more
    pending.in_flight = False
    if event.error is not None:
        code, error = code_of(event.error), with_advice(ApiName.OFFSET_COMMIT, event.error, member.settings)
    else:
        code, about = _first_error(event.reply)
        if not code:
            return end(member, pending, None, now_ms)
        error = error_for(ApiName.OFFSET_COMMIT, code, member.settings, about)
    what = member.on_error(ApiName.OFFSET_COMMIT, code)
    if what in {ErrorAction.RETRY, ErrorAction.FIND_COORDINATOR} and isinstance(error, KafkaError):
        effects = try_later(member, pending, ApiName.OFFSET_COMMIT, error, now_ms)
        if code in NO_SUCH_TOPIC and pending.number in member.pending_requests:
            topics = frozenset(one.topic for one in pending.offsets)
            effects.append(RefreshMetadata(topics, TopicsAnswered(pending.number), may_create=False))
        return effects
    if what is ErrorAction.FAIL:
        return end(member, pending, error, now_ms)
    return _not_taken(member, pending, code, what, now_ms)


def topics_answered(member: MemberBase, event: TopicsAnswered, now_ms: int) -> Effects:
    """Leave out of the commit what was deleted. Java retries until the time is over, and the group waits for it."""
    pending = member.pending_requests.get(event.number)
    if pending is None or event.error is not None:
        return []
    topics = event.reply
    gone = [one for one in pending.offsets if one.topic not in topics or one.partition >= topics[one.topic].partitions]
    pending.times_missing = pending.times_missing + 1 if gone else 0
    if pending.times_missing < GONE_AFTER:
        return []
    if pending.kind is RequestKind.COMMIT:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        named = ", ".join(str(one) for one in sorted(gone))
        about = f"{named}: the topic was deleted, or never was. Commit without it; the others are committed"
        return end(member, pending, error_for(ApiName.OFFSET_COMMIT, code, member.settings, about), now_ms)
    pending.offsets = {one: at for one, at in pending.offsets.items() if one not in gone}
    effects: Effects = [Emit(CommitLeftOut(now_ms, member.settings.group_id, gone))]
    return effects if pending.offsets else [*effects, *end(member, pending, None, now_ms)]


def _first_error(reply: OffsetsCommitted) -> tuple[ErrorCode, str]:
    wrong = [(one, error) for one, error in zip(reply.partitions, reply.errors, strict=True) if error]
    if not wrong:
        return ErrorCode.NONE, ""
    # Rights are looked at last, as they concern some topics and the other errors the commit as a whole.
    _, code = next((pair for pair in wrong if pair[1] is not ErrorCode.TOPIC_AUTHORIZATION_FAILED), wrong[0])
    named = sorted({f"{one.topic}-{one.partition}" for one, error in wrong if error is code})
    return code, ", ".join(named)


def _not_taken(member: MemberBase, pending: PendingRequest, code: ErrorCode, what: ErrorAction, now_ms: int) -> Effects:
    """The group does not take it from this member. Whose fault that is depends on what happened since it was sent."""
    if pending.generation_id == NO_GENERATION:
        error = CommitFailedError(
            f'the offsets were not committed ({code.name}): group "{member.settings.group_id}" has members, and takes '
            "offsets from them alone. Stop them, or use another group.id",
            code,
        )
        return end(member, pending, error, now_ms)
    assert isinstance(member, MemberData), "in the other protocol a refused commit changes nothing else"
    is_current = (pending.generation_id, pending.member_id) == (member.generation_id, member.member_id)
    if member.is_rebalancing or not is_current:
        return end(member, pending, not_a_member(member), now_ms)  # news of an older life resets nothing (KAFKA-9823)
    if what is ErrorAction.REJOIN:
        member.rejoin_reason = "offset commit failed since group is already rebalancing"
        rebalancing = RebalanceInProgressError(
            "the offsets were not committed: the group has begun to rebalance. Poll until it has ended, then commit "
            "again, if the partitions are still assigned",
            code,
        )
        return end(member, pending, rebalancing, now_ms)
    if what is ErrorAction.FATAL:
        fenced = error_for(ApiName.OFFSET_COMMIT, code, member.settings)
        return [*fence(member, fenced, now_ms), *end(member, pending, fenced, now_ms)]
    assert what in DROPS
    effects = drop_for(member, ApiName.OFFSET_COMMIT, code, what, now_ms)
    return [*effects, *end(member, pending, not_a_member(member), now_ms)]


# --- what the group has committed: the position of a partition that is new here (M6) ----------------------------------


def committed_asked(member: MemberBase, event: CommittedAsked, _now_ms: int) -> Effects:
    if not event.partitions:
        return [CommittedEnded(event.token, {})]
    return add_request(member, RequestKind.COMMITTED, event.token, event.until_ms, {}, event.partitions)


def committed_answered(member: MemberBase, event: CommittedAnswered, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or not pending.in_flight:
        return []
    pending.in_flight = False
    if event.error is not None:
        code, error = code_of(event.error), with_advice(ApiName.OFFSET_FETCH, event.error, member.settings)
    else:
        code, about = _first_fetch_error(member, event.reply)
        if not code:
            return _found(member, pending, event.reply, now_ms)
        error = error_for(ApiName.OFFSET_FETCH, code, member.settings, about)
    if member.on_error(ApiName.OFFSET_FETCH, code) is not ErrorAction.FAIL and isinstance(error, KafkaError):
        return try_later(member, pending, ApiName.OFFSET_FETCH, error, now_ms)
    return end(member, pending, error, now_ms)


def _first_fetch_error(member: MemberBase, reply: OffsetsFetched) -> tuple[ErrorCode, str]:
    if reply.error:
        return reply.error, ""
    wrong = [one for one in reply.partitions if one.error]
    if not wrong:
        return ErrorCode.NONE, ""
    # What only takes time comes last: no use in waiting for it if something else is refused.
    fatal = [one for one in wrong if member.on_error(ApiName.OFFSET_FETCH, one.error) is ErrorAction.FAIL]
    first = (fatal or wrong)[0]
    return first.error, f"{first.topic}-{first.partition}"


def _found(member: MemberBase, pending: PendingRequest, reply: OffsetsFetched, now_ms: int) -> Effects:
    offsets = {
        TopicPartition(one.topic, one.partition): OffsetAndMetadata(
            one.offset, one.metadata or "", leader_epoch=one.leader_epoch
        )
        for one in reply.partitions
        if one.offset >= 0
    }
    return end(member, pending, None, now_ms, offsets)


# --- auto-commit, during a poll: only then is what the last poll returned processed -----------------------------------


def restart_auto_commit(member: MemberBase, now_ms: int) -> Effects:
    if not member.settings.enable_auto_commit:
        return []
    member.auto_commit_at_ms = now_ms + member.settings.auto_commit_interval_ms
    return [StartTimer(AUTO_COMMIT, member.auto_commit_at_ms, AutoCommitDue())]


def auto_commit_due(member: MemberBase, _event: AutoCommitDue, now_ms: int) -> Effects:
    return auto_commit_if_due(member, now_ms) if member.polling else []  # else the next poll sees that it is due


def auto_commit_if_due(member: MemberBase, now_ms: int) -> Effects:
    if not member.settings.enable_auto_commit or (member.subscribed and not member.may_auto_commit):
        return []
    if member.auto_commit_at_ms is None:  # partitions assigned by hand: nothing else starts the clock
        return restart_auto_commit(member, now_ms)
    if now_ms < member.auto_commit_at_ms or member.ending is not None:
        return []
    effects = restart_auto_commit(member, now_ms)
    if not (
        member.pending_requests
        and any(pending.kind is RequestKind.AUTO_COMMIT for pending in member.pending_requests.values())
    ):
        member.auto_asked = then = PositionsAnswered()
        effects.append(AskPositions(then))
    return effects


def positions_for_auto_commit(member: MemberBase, event: PositionsAnswered, now_ms: int) -> Effects:
    """A member whose offsets are all committed says nothing: they do not expire while it is there (rule 23).

    Without a subscription they do, so there everything is said again.
    """
    offsets = event.reply or {}
    if not offsets or (member.subscribed and (offsets == member.auto_committed or not member.is_settled)):
        return []
    return ask_commit(member, RequestKind.AUTO_COMMIT, None, offsets, None, now_ms)
