"""Heartbeats when nothing else happens: what `heartbeat.py` does then, in two steps without effects.

An idle member does nothing but this. The plain rules return a list of effects, and afterwards every step of the state
is tried. Here the caller sends the request and starts the timer by itself. No step becomes possible by it: none looks
at what these functions change. Anything unusual is left to the plain rules.
"""

from __future__ import annotations

from coterie.client.member.effects import SendRequest
from coterie.client.member.events import Answer
from coterie.client.member.member import MemberData
from coterie.client.member.states import MemberState
from coterie.errors import ErrorCode
from coterie.protocol.messages import NO_GENERATION


def quick_due(member: MemberData, now_ms: int) -> SendRequest | None:
    """Return the heartbeat to send now; the timer is to ring again at `heartbeat_at_ms`. None: handle the event."""
    request = member.heartbeat_request
    next_ms = now_ms + member.settings.heartbeat_interval_ms
    if (
        request is None
        or member.state is not MemberState.STABLE
        or member.coordinator is None
        or member.heartbeat_in_flight is not None
        or now_ms < member.heartbeat_at_ms
        or next_ms >= member.session_deadline_ms
        or next_ms >= member.poll_deadline_ms
        or next_ms <= now_ms
        or member.generation_id == NO_GENERATION
        or not member.member_id
    ):
        return None
    then = request.then
    then.reply = then.error = None
    member.heartbeat_in_flight = then
    member.heartbeat_at_ms = next_ms
    return request


def quick_answer(member: MemberData, event: Answer, reply: object, now_ms: int) -> bool:
    """Take the answer to the last heartbeat, if all is well. False: handle the event."""
    if event is not member.heartbeat_in_flight or reply is not ErrorCode.NONE or member.state is MemberState.CLOSED:
        return False
    event.reply, event.error = ErrorCode.NONE, None
    member.heartbeat_in_flight = None
    member.session_deadline_ms = now_ms + member.settings.session_timeout_ms
    member.heartbeat_failures = 0
    return True
