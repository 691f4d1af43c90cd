"""Before a join (M3, M10), once a rebalance, during a poll: match the pattern, commit, revoke."""

from __future__ import annotations

from coterie.client.member.committing import ask_commit
from coterie.client.member.effects import (
    Arm,
    AskPositions,
    Disarm,
    Effects,
    HoldPartitions,
    Listened,
    RefreshMetadata,
    Tell,
)
from coterie.client.member.events import MetadataAnswered, PositionsAnswered, PrepareDue
from coterie.client.member.facts import PreparationCutShort, RebalanceBegan
from coterie.client.member.listener_calls import call_listener
from coterie.client.member.member import Member
from coterie.client.member.member_timers import PREPARE
from coterie.client.member.pending_requests import Kind
from coterie.client.member.rebalance_errors import back_off, fail_rebalance
from coterie.client.member.states import Stage, enter
from coterie.client.member.subscribing import take_metadata
from coterie.client.types import TopicPartition
from coterie.errors import KafkaError

__all__ = [
    "begin",
    "can_begin",
    "can_give_up",
    "give_up",
    "metadata_for_pattern",
    "positions_before_join",
    "prepare_due",
]


def can_begin(member: Member) -> bool:
    return (
        member.polling
        and member.subscribed
        and member.reason_to_rejoin is not None
        and member.calling is None
        and not member.stalled
        and not member.is_backing_off
        and member.coordinator is not None
    )


def begin(member: Member, now_ms: int) -> Effects:
    reason = member.rejoin_reason = member.reason_to_rejoin or ""
    if member.is_prepared:
        enter(member, Stage.JOINING, now_ms)
        return []
    enter(member, Stage.PREPARING, now_ms)
    effects: Effects = [Tell(RebalanceBegan(now_ms, member.settings.group_id, reason))]
    if member.pattern is None:
        return [*effects, *_commit(member, now_ms)]
    # Everybody who joins now has seen the same topics: one new topic costs one rebalance, not one per member.
    member.waiting_for = then = MetadataAnswered()
    return [*effects, RefreshMetadata(None, then)]


def metadata_for_pattern(member: Member, event: MetadataAnswered, now_ms: int) -> Effects:
    if event.error is None:
        return [*take_metadata(member, event.reply), *_commit(member, now_ms)]
    if isinstance(event.error, KafkaError) and event.error.retriable:
        enter(member, Stage.UNJOINED, now_ms)
        return back_off(member, now_ms)
    return fail_rebalance(member, event.error, now_ms)


def _commit(member: Member, now_ms: int) -> Effects:
    if not (member.settings.enable_auto_commit and member.is_settled and member.assigned):
        member.is_prepared = True
        return []
    effects: Effects = [Arm(PREPARE, now_ms + member.settings.max_poll_interval_ms, PrepareDue())]
    if not member.settings.is_cooperative:
        # Else a poll could return more records between the commit and the revocation, and the next owner again.
        effects.append(HoldPartitions(sorted(member.assigned)))
    member.waiting_for = then = PositionsAnswered()
    return [*effects, AskPositions(then)]


def positions_before_join(member: Member, event: PositionsAnswered, now_ms: int) -> Effects:
    """Retriable errors are retried for the whole rebalance timeout; the join must not come later than that."""
    until_ms = member.stage_since_ms + member.settings.max_poll_interval_ms
    return ask_commit(member, Kind.COMMIT_BEFORE_JOIN, None, event.reply or {}, until_ms, now_ms)


def prepare_due(member: Member, _event: PrepareDue, now_ms: int) -> Effects:
    if member.stage is not Stage.PREPARING or member.is_prepared:
        return []
    member.is_prepared = True
    member.waiting_for = None
    return [Tell(PreparationCutShort(now_ms, member.settings.group_id, now_ms - member.stage_since_ms))]


def can_give_up(member: Member) -> bool:
    return member.is_prepared and member.calling is None and (member.may_call or not _to_give_up(member))


def give_up(member: Member, now_ms: int) -> Effects:
    """Looked at again after each call: what was about to be revoked may have been lost meanwhile."""
    if (told := _to_give_up(member)) is not None:
        member.is_told = True
        return call_listener(member, *told, now_ms)
    member.is_told = False
    enter(member, Stage.JOINING, now_ms)
    return [Disarm(PREPARE)]


def _to_give_up(member: Member) -> tuple[Listened, frozenset[TopicPartition]] | None:
    if not member.has_generation:
        return (Listened.LOST, member.assigned) if member.assigned else None
    if member.settings.is_cooperative:
        gone = frozenset(one for one in member.assigned if one.topic not in member.topics)
        return (Listened.REVOKED, gone) if gone else None
    # An eager member is told even if it owns nothing, but not twice.
    return (Listened.REVOKED, member.assigned) if member.assigned or not member.is_told else None
