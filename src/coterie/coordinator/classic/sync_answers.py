"""Answering the syncs that wait: with the assignment, or with the reason why there is none."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.classic.group import Group
from coterie.errors import ErrorCode
from coterie.protocol.messages import SyncedGroup

__all__ = ["answer_parked_syncs"]


def answer_parked_syncs(group: Group, error: ErrorCode, now_ms: int) -> Effects:
    """Each gets its own assignment, and a new session: while it waited it could not expire (rules 9, 14)."""
    effects: Effects = []
    for member in group.members.values():
        token = member.parked_sync
        if token is None:
            continue
        member.parked_sync = None
        if error:
            effects.append(Reply(token, SyncedGroup(error)))
        else:
            answer = SyncedGroup(error, member.assignment, group.protocol_type, group.protocol_name)
            effects.append(Reply(token, answer))
        effects += group.expect_by(member, now_ms + member.session_timeout_ms)
    return effects
