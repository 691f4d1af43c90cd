"""Committing by itself, every auto.commit.interval.ms, during a poll: only then is what poll returned processed."""

from __future__ import annotations

from coterie.client.member.committing import ask_commit
from coterie.client.member.effects import Arm, AskPositions, Effects
from coterie.client.member.events import AutoCommitDue, PositionsAnswered
from coterie.client.member.member import Member
from coterie.client.member.member_timers import AUTO_COMMIT
from coterie.client.member.pending_requests import Kind
from coterie.client.member.states import Stage

__all__ = ["auto_commit_due", "auto_commit_if_due", "positions_for_auto_commit", "restart_auto_commit"]


def restart_auto_commit(member: Member, now_ms: int) -> Effects:
    if not member.settings.enable_auto_commit:
        return []
    member.auto_commit_at_ms = now_ms + member.settings.auto_commit_interval_ms
    return [Arm(AUTO_COMMIT, member.auto_commit_at_ms, AutoCommitDue())]


def auto_commit_due(member: Member, _event: AutoCommitDue, now_ms: int) -> Effects:
    return auto_commit_if_due(member, now_ms) if member.polling else []  # else the next poll sees that it is due


def auto_commit_if_due(member: Member, now_ms: int) -> Effects:
    if not member.settings.enable_auto_commit or (member.subscribed and member.stage is not Stage.STABLE):
        return []
    if member.auto_commit_at_ms is None:  # partitions assigned by hand: nothing else starts the clock
        return restart_auto_commit(member, now_ms)
    if now_ms < member.auto_commit_at_ms or member.ending is not None:
        return []
    if member.subscribed and member.reason_to_rejoin is not None:
        return []  # the rebalance that is about to begin commits by itself
    effects = restart_auto_commit(member, now_ms)
    if not (
        member.pending_requests
        and any(pending.kind is Kind.AUTO_COMMIT for pending in member.pending_requests.values())
    ):
        member.auto_asked = then = PositionsAnswered()
        effects.append(AskPositions(then))
    return effects


def positions_for_auto_commit(member: Member, event: PositionsAnswered, now_ms: int) -> Effects:
    """A member whose offsets are all committed says nothing: they do not expire while it is there (rule 23).

    Without a subscription they do, so there everything is said again.
    """
    offsets = event.reply or {}
    if not offsets or (member.subscribed and (offsets == member.auto_committed or not member.is_settled)):
        return []
    return ask_commit(member, Kind.AUTO_COMMIT, None, offsets, None, now_ms)
