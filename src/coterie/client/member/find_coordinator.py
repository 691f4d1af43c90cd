"""Finding the coordinator, and forgetting it (M2, M11).

It is looked up only when a request needs it and it is not known. A lookup that fails is repeated after a back-off for
as long as a request needs it.
"""

from __future__ import annotations

from coterie.client.member.effects import Disconnect, Effects, Fail, FindCoordinator, StartTimer
from coterie.client.member.events import CoordinatorAnswered, RetryDue
from coterie.client.member.facts import CoordinatorFound, CoordinatorLost
from coterie.client.member.member import FIND_RETRY, MemberBase
from coterie.client.member.states import ApiName, ErrorAction, code_of, on_error, with_advice
from coterie.facts import Emit


def can_find(member: MemberBase) -> bool:
    if member.coordinator is not None or member.finding is not None or member.is_finding_later:
        return False
    return member.needs_coordinator


def find_coordinator(member: MemberBase, _now_ms: int) -> Effects:
    member.finding = CoordinatorAnswered()
    return [FindCoordinator(member.finding)]


def coordinator_answered(member: MemberBase, event: CoordinatorAnswered, now_ms: int) -> Effects:
    if event is not member.finding:
        return []
    member.finding = None
    if event.error is None:
        member.coordinator = event.reply
        member.find_failures = 0
        found = Emit(CoordinatorFound(now_ms, member.settings.group_id, str(event.reply)))
        return [found, *member.coordinator_found(now_ms)]
    at_ms = now_ms + member.backoff_ms(member.find_failures)
    member.find_failures += 1
    member.is_finding_later = True
    effects: Effects = [StartTimer(FIND_RETRY, at_ms, RetryDue(FIND_RETRY))]
    if on_error(ApiName.FIND_COORDINATOR, code_of(event.error)) is ErrorAction.RETRY:
        return effects
    if member.subscribed and member.ending is None and not member.stalled:
        member.stalled = True
        effects.append(Fail(with_advice(ApiName.FIND_COORDINATOR, event.error, member.settings)))
    return effects


def forget_coordinator(member: MemberBase, cause: str, now_ms: int) -> Effects:
    """Disconnect: requests in flight fail, and are then sent to the new coordinator."""
    if member.coordinator is None:
        return []
    node, member.coordinator = member.coordinator, None
    member.coordinator_lost()
    return [Disconnect(node), Emit(CoordinatorLost(now_ms, member.settings.group_id, str(node), cause))]
