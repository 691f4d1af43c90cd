"""What a member can do now, whatever happened last.

A rule changes data and answers its event. Afterwards the agenda is gone through: is there a step that can be taken in
this state? So no step has to be called from everywhere it could become possible, and none is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coterie.client.member.effects import Effects, Fail, Listened
from coterie.client.member.find_coordinator import can_find, find_coordinator
from coterie.client.member.join_group import begin, can_begin, can_give_up, can_join, give_up, join
from coterie.client.member.leave_group import can_go_on_leaving, go_on_leaving, start_leaving
from coterie.client.member.member import Member
from coterie.client.member.offset_commit import can_send, send_pending_requests
from coterie.client.member.states import MemberState
from coterie.client.member.subscription import call_listener
from coterie.client.member.sync_group import ask_metadata, can_ask_metadata, can_complete, complete
from coterie.errors import IllegalTransitionError

__all__ = ["AGENDA", "go_on"]

Step = Callable[[Member, int], Effects]


def _can_say_fenced(member: Member) -> bool:
    return member.may_call and not member.stalled


def _say_fenced(member: Member, now_ms: int) -> Effects:
    """To every poll."""
    assert member.failure is not None
    if member.assigned:
        return call_listener(member, Listened.LOST, member.assigned, now_ms)
    member.stalled = True
    return [Fail(member.failure)]


AGENDA: Mapping[MemberState, tuple[Callable[[Member], bool], Step] | None] = {
    MemberState.UNJOINED: (can_begin, begin),
    MemberState.PREPARING: (can_give_up, give_up),
    MemberState.JOINING: (can_join, join),
    MemberState.LEADING: (can_ask_metadata, ask_metadata),
    MemberState.SYNCING: None,
    MemberState.COMPLETING: (can_complete, complete),
    MemberState.STABLE: (can_begin, begin),
    MemberState.LEAVING: (can_go_on_leaving, go_on_leaving),
    MemberState.FENCED: (_can_say_fenced, _say_fenced),
    MemberState.CLOSED: None,
}
_MOST_STEPS = 50
_ENDING_ALREADY = frozenset({MemberState.LEAVING, MemberState.CLOSED})


def go_on(member: Member, effects: Effects, now_ms: int) -> None:
    """Take every step that can be taken; what follows is appended to `effects`."""
    steps = 0
    while (step := _next(member)) is not None:
        steps += 1
        if steps > _MOST_STEPS:
            raise IllegalTransitionError(f"a member goes round in circles in {member.state}: a defect of ours")
        effects += step(member, now_ms)


def _next(member: Member) -> Step | None:
    if member.coordinator is None:
        if can_find(member):
            return find_coordinator
    elif member.unsent and can_send(member):
        return send_pending_requests
    if member.ending is not None and member.state not in _ENDING_ALREADY:
        return start_leaving if member.calling is None else None
    entry = AGENDA[member.state]
    if entry is not None and entry[0](member):
        return entry[1]
    return None
