"""Finding the coordinator, and forgetting it (M2, M11).

It is looked up only when somebody needs it and it is not known. A lookup that fails is repeated after a back-off for as
long as somebody needs it.
"""

from __future__ import annotations

from coterie.client.member.effects import Disconnect, Effects, Emit, Fail, FindCoordinator, StartTimer
from coterie.client.member.events import CoordinatorAnswered, RetryDue
from coterie.client.member.facts import CoordinatorFound, CoordinatorLost
from coterie.client.member.member import FIND_RETRY, Member, resume_heartbeats
from coterie.client.member.states import ApiName, ErrorAction, MemberState, on_error
from coterie.client.member.user_errors import code_of, said

__all__ = ["can_find", "coordinator_answered", "find_coordinator", "forget_coordinator"]

_WAITING_TO_JOIN = frozenset({MemberState.UNJOINED, MemberState.STABLE})


def can_find(member: Member) -> bool:
    if member.coordinator is not None or member.finding is not None or member.is_finding_later:
        return False
    return (
        member.has_generation
        or bool(member.pending_requests)
        or member.state is MemberState.JOINING
        or (
            member.polling
            and member.subscribed
            and not member.stalled
            and member.state in _WAITING_TO_JOIN
            and member.reason_to_rejoin is not None
        )
    )


def find_coordinator(member: Member, _now_ms: int) -> Effects:
    member.finding = CoordinatorAnswered()
    return [FindCoordinator(member.finding)]


def coordinator_answered(member: Member, event: CoordinatorAnswered, now_ms: int) -> Effects:
    if event is not member.finding:
        return []
    member.finding = None
    if event.error is None:
        member.coordinator = event.reply
        member.find_failures = 0
        member.beat = None
        found = Emit(CoordinatorFound(now_ms, member.settings.group_id, str(event.reply)))
        return [found, *resume_heartbeats(member, now_ms)] if member.is_beating else [found]
    at_ms = now_ms + member.backoff_ms(member.find_failures)
    member.find_failures += 1
    member.is_finding_later = True
    effects: Effects = [StartTimer(FIND_RETRY, at_ms, RetryDue(FIND_RETRY))]
    if on_error(ApiName.FIND_COORDINATOR, code_of(event.error)) is ErrorAction.RETRY:
        return effects
    if member.subscribed and member.ending is None and not member.stalled:
        member.stalled = True
        effects.append(Fail(said(ApiName.FIND_COORDINATOR, event.error, member.settings)))
    return effects


def forget_coordinator(member: Member, cause: str, now_ms: int) -> Effects:
    """What is under way there comes back as lost, and is then tried again elsewhere."""
    if member.coordinator is None:
        return []
    node, member.coordinator = member.coordinator, None
    member.beat = member.heartbeat_in_flight = None
    return [Disconnect(node), Emit(CoordinatorLost(now_ms, member.settings.group_id, str(node), cause))]
