"""Committing offsets (M7), and what every answer means. A commit belongs to the generation it was read in."""

from __future__ import annotations

from collections.abc import Hashable

from coterie.assignors import Topic
from coterie.client.member.effects import CommitEnded, Effects, RefreshMetadata, Tell
from coterie.client.member.events import CommitAnswered, CommitAsked, Offsets, TopicsAnswered
from coterie.client.member.facts import CommitLeftOut
from coterie.client.member.identity import DROPS, drop_for, fence
from coterie.client.member.member import Member
from coterie.client.member.pending_requests import Kind, PendingRequest
from coterie.client.member.sending import end, give, not_a_member, try_later
from coterie.client.member.states import IN_A_REBALANCE, Api, Do, on_error
from coterie.client.member.user_errors import code_of, error_for, said
from coterie.client.types import TopicPartition
from coterie.errors import NO_SUCH_TOPIC, CommitFailedError, ErrorCode, KafkaError, RebalanceInProgressError
from coterie.protocol.messages import NO_GENERATION, OffsetsCommitted

__all__ = ["ask_commit", "commit_answered", "commit_asked", "topics_answered"]

GONE_AFTER = 2
"""So often in a row must the metadata be without a partition until it is believed: news takes its time in a cluster."""


def commit_asked(member: Member, event: CommitAsked, now_ms: int) -> Effects:
    if not event.offsets:
        return [CommitEnded(event.token)]
    if member.subscribed and not member.is_settled:
        return [CommitEnded(event.token, member.failure or not_a_member(member))]
    kind = Kind.COMMIT_POSITIONS if event.are_positions else Kind.COMMIT
    return ask_commit(member, kind, event.token, event.offsets, event.until_ms, now_ms)


def ask_commit(
    member: Member, kind: Kind, token: Hashable, offsets: Offsets, until_ms: int | None, now_ms: int
) -> Effects:
    effects = give(member, kind, token, until_ms, dict(offsets), ())
    if not offsets:
        return [*effects, *end(member, member.pending_requests[member.pending_requests_given], None, now_ms)]
    return effects


def commit_answered(member: Member, event: CommitAnswered, now_ms: int) -> Effects:
    pending = member.pending_requests.get(event.number)
    if pending is None or not pending.in_flight:
        return []  # nobody waits for it any more
    pending.in_flight = False
    if event.error is not None:
        code, error = code_of(event.error), said(Api.OFFSET_COMMIT, event.error, member.settings)
    else:
        code, about = _first_error(event.reply)
        if not code:
            return end(member, pending, None, now_ms)
        error = error_for(Api.OFFSET_COMMIT, code, member.settings, about)
    what = on_error(Api.OFFSET_COMMIT, code)
    if what in {Do.RETRY, Do.FIND} and isinstance(error, KafkaError):
        effects = try_later(member, pending, Api.OFFSET_COMMIT, error, now_ms)
        if code in NO_SUCH_TOPIC and pending.number in member.pending_requests:
            topics = frozenset(one.topic for one in pending.offsets)
            effects.append(RefreshMetadata(topics, TopicsAnswered(pending.number), may_create=False))
        return effects
    if what is Do.FAIL:
        return end(member, pending, error, now_ms)
    return _not_taken(member, pending, code, what, now_ms)


def topics_answered(member: Member, event: TopicsAnswered, now_ms: int) -> Effects:
    """Leave out of the commit what was deleted. Java retries until the time is over, and the group waits for it."""
    pending = member.pending_requests.get(event.number)
    if pending is None or event.error is not None:
        return []
    gone = [one for one in pending.offsets if one.topic not in event.reply or _is_beyond(one, event.reply[one.topic])]
    pending.times_missing = pending.times_missing + 1 if gone else 0
    if pending.times_missing < GONE_AFTER:
        return []
    if pending.kind is Kind.COMMIT:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        named = ", ".join(str(one) for one in sorted(gone))
        about = f"{named}: the topic was deleted, or never was. Commit without it; the others are committed"
        return end(member, pending, error_for(Api.OFFSET_COMMIT, code, member.settings, about), now_ms)
    pending.offsets = {one: at for one, at in pending.offsets.items() if one not in gone}
    effects: Effects = [Tell(CommitLeftOut(now_ms, member.settings.group_id, gone))]
    return effects if pending.offsets else [*effects, *end(member, pending, None, now_ms)]


def _is_beyond(one: TopicPartition, topic: Topic) -> bool:
    return one.partition >= topic.partitions


def _first_error(reply: OffsetsCommitted) -> tuple[ErrorCode, str]:
    wrong = [(one, error) for one, error in zip(reply.partitions, reply.errors, strict=True) if error]
    if not wrong:
        return ErrorCode.NONE, ""
    # Rights are looked at last, as they concern some topics and the other errors the commit as a whole.
    _, code = next((pair for pair in wrong if pair[1] is not ErrorCode.TOPIC_AUTHORIZATION_FAILED), wrong[0])
    named = sorted({f"{one.topic}-{one.partition}" for one, error in wrong if error is code})
    return code, ", ".join(named)


def _not_taken(member: Member, pending: PendingRequest, code: ErrorCode, what: Do, now_ms: int) -> Effects:
    """The group does not take it from this member. Whose fault that is depends on what happened since it was sent."""
    if pending.generation_id == NO_GENERATION:
        error = CommitFailedError(
            f'the offsets were not committed ({code.name}): group "{member.settings.group_id}" has members, and takes '
            "offsets from them alone. Stop them, or use another group.id",
            code,
        )
        return end(member, pending, error, now_ms)
    is_current = (pending.generation_id, pending.member_id) == (member.generation_id, member.member_id)
    if member.stage in IN_A_REBALANCE or not is_current:
        return end(member, pending, not_a_member(member), now_ms)  # news of an older life resets nothing (KAFKA-9823)
    if what is Do.REJOIN:
        member.rejoin_reason = "offset commit failed since group is already rebalancing"
        rebalancing = RebalanceInProgressError(
            "the offsets were not committed: the group has begun to rebalance. Poll until it has ended, then commit "
            "again, if the partitions are still assigned",
            code,
        )
        return end(member, pending, rebalancing, now_ms)
    if what is Do.GIVE_UP:
        fenced = error_for(Api.OFFSET_COMMIT, code, member.settings)
        return [*fence(member, fenced, now_ms), *end(member, pending, fenced, now_ms)]
    assert what in DROPS
    effects = drop_for(member, Api.OFFSET_COMMIT, code, what, now_ms)
    return [*effects, *end(member, pending, not_a_member(member), now_ms)]
