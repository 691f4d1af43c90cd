"""The names of a member's timers, and the one that several rules start."""

from __future__ import annotations

from coterie.client.member.effects import Arm, Effects
from coterie.client.member.events import HeartbeatDue
from coterie.client.member.member import Member

__all__ = [
    "AUTO_COMMIT",
    "CLOSE",
    "FIND_RETRY",
    "HEARTBEAT",
    "JOIN_RETRY",
    "PENDING_REQUEST",
    "PREPARE",
    "resume_heartbeats",
    "start_heartbeats",
]

HEARTBEAT = "heartbeat"
FIND_RETRY = "find"
JOIN_RETRY = "join"
PREPARE = "prepare"
AUTO_COMMIT = "auto-commit"
CLOSE = "close"
PENDING_REQUEST = "pending"

DUE = HeartbeatDue()


def start_heartbeats(member: Member, now_ms: int) -> Effects:
    """With the answer to a join, before the sync (M3)."""
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_at_ms = now_ms + member.settings.heartbeat_interval_ms
    member.heartbeat_in_flight = None
    member.heartbeat_failures = 0
    return [Arm(HEARTBEAT, member.heartbeat_at_ms, DUE)]


def resume_heartbeats(member: Member, now_ms: int) -> Effects:
    """A coordinator was found again: its session has been running, so the next one goes out when it was due."""
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_at_ms = min(member.heartbeat_at_ms, now_ms + member.settings.heartbeat_interval_ms)
    return [Arm(HEARTBEAT, max(member.heartbeat_at_ms, now_ms), DUE)]
