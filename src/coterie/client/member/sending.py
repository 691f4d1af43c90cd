"""Pending requests to the coordinator, commits and committed offsets: when they are sent, how often, how long."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping

from coterie.client.member.effects import Arm, CommitEnded, CommittedEnded, Disarm, Effects, Send, Tell
from coterie.client.member.events import (
    AutoCommitDue,
    CommitAnswered,
    CommittedAnswered,
    CoordinatorAnswered,
    Offsets,
    RetryDue,
)
from coterie.client.member.facts import AutoCommitFailed
from coterie.client.member.finding import forget_coordinator
from coterie.client.member.member import Member
from coterie.client.member.member_timers import AUTO_COMMIT, PENDING_REQUEST
from coterie.client.member.pending_requests import Kind, PendingRequest
from coterie.client.member.states import IN_A_REBALANCE, Api, Do, Stage, on_error
from coterie.client.member.user_errors import code_of, said
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, ErrorCode, KafkaError, RebalanceInProgressError, RequestTimedOutError
from coterie.protocol.messages import NO_GENERATION, CommitPartition, OffsetCommit, OffsetFetch

__all__ = [
    "can_send",
    "end",
    "give",
    "lookup_failed",
    "not_a_member",
    "pending_request_due",
    "send_pending_requests",
    "try_later",
]


def give(
    member: Member,
    kind: Kind,
    token: Hashable,
    until_ms: int | None,
    offsets: Offsets,
    partitions: Collection[TopicPartition],
) -> Effects:
    """A new pending, of the generation the member is in now. It is sent as soon as the coordinator is known."""
    member.pending_requests_given += 1
    belongs = kind is not Kind.COMMITTED and member.subscribed
    pending = PendingRequest(
        member.pending_requests_given,
        kind,
        token,
        until_ms,
        offsets,
        partitions,
        member.generation_id if belongs else NO_GENERATION,
        member.member_id if belongs else "",
    )
    member.pending_requests[pending.number] = pending
    member.unsent.append(pending)
    for partition in offsets:
        member.newest_commit[partition] = pending.number
    return [] if until_ms is None else [Arm(pending.timer, until_ms, RetryDue(PENDING_REQUEST, pending.number))]


def can_send(member: Member) -> bool:
    return bool(member.unsent) and member.coordinator is not None


def send_pending_requests(member: Member, now_ms: int) -> Effects:
    """In the order in which they were asked for, so that the last commit is the one that counts."""
    unsent, member.unsent = member.unsent, []
    effects: Effects = []
    for pending in unsent:
        if pending.kind is Kind.COMMITTED:
            effects.append(_question(member, pending))
        elif pending.generation_id != NO_GENERATION and not _is_current(member, pending):
            effects += end(member, pending, not_a_member(member), now_ms)
        elif partitions := _to_commit(member, pending):
            effects.append(_commit(member, pending, partitions))
        else:
            effects += end(member, pending, None, now_ms)  # a later commit has said more than this one would
    return effects


def _is_current(member: Member, pending: PendingRequest) -> bool:
    return member.is_settled and (pending.generation_id, pending.member_id) == (member.generation_id, member.member_id)


def _to_commit(member: Member, pending: PendingRequest) -> list[CommitPartition]:
    """What a later commit names is left out of a retry, or it would take the group back."""
    newest = member.newest_commit
    return [
        CommitPartition(partition.topic, partition.partition, at.offset, at.leader_epoch, at.metadata)
        for partition, at in sorted(pending.offsets.items())
        if not pending.failures or newest.get(partition) == pending.number
    ]


def _commit(member: Member, pending: PendingRequest, partitions: list[CommitPartition]) -> Send:
    settings = member.settings
    pending.in_flight, pending.sent_to = True, member.coordinator
    pending.waits_until_ms = None
    instance_id = settings.group_instance_id if pending.member_id else None
    request = OffsetCommit(None, settings.group_id, pending.member_id, instance_id, pending.generation_id, partitions)
    then = CommitAnswered(pending.generation_id, pending.member_id, pending.number)
    return Send(member.coordinator, request, settings.request_timeout_ms, then)


def _question(member: Member, pending: PendingRequest) -> Send:
    pending.in_flight, pending.sent_to = True, member.coordinator
    pending.waits_until_ms = None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(pending.partitions):
        topics.setdefault(topic, []).append(partition)
    request = OffsetFetch(None, member.settings.group_id, list(topics.items()), require_stable=True)
    then = CommittedAnswered(pending.number)
    return Send(member.coordinator, request, member.settings.request_timeout_ms, then)


def try_later(member: Member, pending: PendingRequest, api: Api, error: KafkaError, now_ms: int) -> Effects:
    """A retriable error: once more after a back-off, if the pending may be repeated and there is time."""
    effects: Effects = []
    if on_error(api, error.code) is Do.FIND and pending.sent_to is member.coordinator:
        effects = forget_coordinator(member, f"{error.code.name} in answer to {api}", now_ms)
    at_ms = now_ms + member.backoff_ms(pending.failures)
    pending.failures += 1
    if pending.until_ms is None or at_ms >= pending.until_ms:
        return [*effects, *end(member, pending, error, now_ms)]
    pending.waits_until_ms = at_ms
    return [*effects, Arm(pending.timer, at_ms, RetryDue(PENDING_REQUEST, pending.number))]


def pending_request_due(member: Member, event: RetryDue, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or pending.until_ms is None:
        return []
    if now_ms >= pending.until_ms:
        return end(member, pending, _too_late(member, pending), now_ms)
    if pending.waits_until_ms is not None:
        pending.waits_until_ms = None
        member.unsent.append(pending)
    return [Arm(pending.timer, pending.until_ms, RetryDue(PENDING_REQUEST, pending.number))]


def _too_late(member: Member, pending: PendingRequest) -> KafkaError:
    where = "the coordinator did not answer in time" if pending.in_flight else "the coordinator was not found in time"
    if pending.failures and not pending.in_flight:
        where = f"the coordinator refused it {pending.failures} times"
    group_id = member.settings.group_id
    return RequestTimedOutError(f'the {pending.kind} of group "{group_id}" was not done: {where}; try again')


def lookup_failed(member: Member, event: CoordinatorAnswered, now_ms: int) -> Effects:
    """What is sent only once does not wait for a second lookup; if that is no use, nobody does."""
    error = event.error
    if error is None or member.coordinator is not None:
        return []
    final = on_error(Api.FIND_COORDINATOR, code_of(error)) is not Do.RETRY
    waiting = [pending for pending in member.pending_requests.values() if not pending.in_flight]
    effects: Effects = []
    for pending in waiting:
        if final or pending.until_ms is None:
            effects += end(member, pending, said(Api.FIND_COORDINATOR, error, member.settings), now_ms)
    return effects


def not_a_member(member: Member) -> KafkaError:
    """M7: whether a poll alone will repair it, or the partitions belong to another member now."""
    if member.stage in IN_A_REBALANCE:
        return RebalanceInProgressError(
            "the offsets were not committed: the group is rebalancing. Poll until it has ended, then commit again, "
            "if the partitions are still assigned",
            ErrorCode.REBALANCE_IN_PROGRESS,
        )
    return CommitFailedError(
        "the offsets were not committed: this consumer is not, or no longer, a member of the generation it read them "
        "in, and the partitions may belong to somebody else. Poll to rejoin; if this happens often, poll more often "
        "than max.poll.interval.ms",
        ErrorCode.ILLEGAL_GENERATION,
    )


# --- the end of an pending --------------------------------------------------------------------------------------------


def end(
    member: Member, pending: PendingRequest, error: Exception | None, now_ms: int, offsets: Offsets | None = None
) -> Effects:
    del member.pending_requests[pending.number]
    if pending in member.unsent:
        member.unsent.remove(pending)
    if not member.pending_requests:
        member.newest_commit.clear()
    effects: Effects = [] if pending.until_ms is None else [Disarm(pending.timer)]
    if pending.kind is Kind.COMMITTED:
        return [*effects, CommittedEnded(pending.token, offsets or {}, error)]
    return [*effects, *_ENDED[pending.kind](member, pending, error, now_ms)]


def _commit_ended(member: Member, pending: PendingRequest, error: Exception | None, _now_ms: int) -> Effects:
    member.auto_committed = None
    return [CommitEnded(pending.token, error)]


def _auto_commit_ended(member: Member, pending: PendingRequest, error: Exception | None, now_ms: int) -> Effects:
    if error is None:
        member.auto_committed = pending.offsets
        return []
    if isinstance(error, KafkaError) and error.retriable:
        member.auto_commit_at_ms = now_ms + member.backoff_ms(0)
        return [Arm(AUTO_COMMIT, member.auto_commit_at_ms, AutoCommitDue())]
    return _told(member, error, now_ms)


def _commit_before_join_ended(
    member: Member, _pending_request: PendingRequest, error: Exception | None, now_ms: int
) -> Effects:
    """Whatever the result, the rebalance goes on (M3)."""
    if member.stage is Stage.PREPARING:
        member.is_prepared = True
    return _told(member, error, now_ms)


def _commit_on_close_ended(
    member: Member, _pending_request: PendingRequest, error: Exception | None, now_ms: int
) -> Effects:
    return _told(member, error, now_ms)


def _told(member: Member, error: Exception | None, now_ms: int) -> Effects:
    return [] if error is None else [Tell(AutoCommitFailed(now_ms, member.settings.group_id, str(error)))]


_ENDED: Mapping[Kind, Callable[[Member, PendingRequest, Exception | None, int], Effects]] = {
    Kind.COMMIT: _commit_ended,
    Kind.COMMIT_POSITIONS: _commit_ended,
    Kind.AUTO_COMMIT: _auto_commit_ended,
    Kind.COMMIT_BEFORE_JOIN: _commit_before_join_ended,
    Kind.COMMIT_ON_CLOSE: _commit_on_close_ended,
}
