"""Asking what the group has committed (M6): the position of a partition that is new here."""

from __future__ import annotations

from coterie.client.member.effects import CommittedEnded, Effects
from coterie.client.member.events import CommittedAnswered, CommittedAsked
from coterie.client.member.member import Member
from coterie.client.member.pending_requests import Kind, PendingRequest
from coterie.client.member.sending import end, give, try_later
from coterie.client.member.states import Api, Do, on_error
from coterie.client.member.user_errors import code_of, error_for, said
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.messages import OffsetsFetched

__all__ = ["committed_answered", "committed_asked"]


def committed_asked(member: Member, event: CommittedAsked, _now_ms: int) -> Effects:
    if not event.partitions:
        return [CommittedEnded(event.token, {})]
    return give(member, Kind.COMMITTED, event.token, event.until_ms, {}, event.partitions)


def committed_answered(member: Member, event: CommittedAnswered, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or not pending.in_flight:
        return []
    pending.in_flight = False
    if event.error is not None:
        code, error = code_of(event.error), said(Api.OFFSET_FETCH, event.error, member.settings)
    else:
        code, about = _first_error(event.reply)
        if not code:
            return _found(member, pending, event.reply, now_ms)
        error = error_for(Api.OFFSET_FETCH, code, member.settings, about)
    if on_error(Api.OFFSET_FETCH, code) is not Do.FAIL and isinstance(error, KafkaError):
        return try_later(member, pending, Api.OFFSET_FETCH, error, now_ms)
    return end(member, pending, error, now_ms)


def _first_error(reply: OffsetsFetched) -> tuple[ErrorCode, str]:
    if reply.error:
        return reply.error, ""
    wrong = [one for one in reply.partitions if one.error]
    if not wrong:
        return ErrorCode.NONE, ""
    # What only takes time comes last: no use in waiting for it if something else is refused.
    fatal = [one for one in wrong if on_error(Api.OFFSET_FETCH, one.error) is Do.FAIL]
    first = (fatal or wrong)[0]
    return first.error, f"{first.topic}-{first.partition}"


def _found(member: Member, pending: PendingRequest, reply: OffsetsFetched, now_ms: int) -> Effects:
    offsets = {
        TopicPartition(one.topic, one.partition): OffsetAndMetadata(
            one.offset, one.metadata or "", leader_epoch=one.leader_epoch
        )
        for one in reply.partitions
        if one.offset >= 0
    }
    return end(member, pending, None, now_ms, offsets)
