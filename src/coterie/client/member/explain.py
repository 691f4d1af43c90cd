"""What a member is doing, in words: for people who look at a consumer that does nothing and want to know why."""

from __future__ import annotations

from coterie.client.member.events import (
    JoinAnswered,
    LeaveAnswered,
    MetadataAnswered,
    PositionsAnswered,
    SyncAnswered,
)
from coterie.client.member.member import Member
from coterie.client.member.states import DOING, MemberState

__all__ = ["explain"]

_ANSWERS = {
    JoinAnswered: "the answer to JoinGroup, which comes when all members have joined or the rebalance timeout is over",
    SyncAnswered: "the answer to SyncGroup, which comes when the leader has assigned the partitions",
    MetadataAnswered: "metadata from the cluster",
    PositionsAnswered: "the positions to commit",
    LeaveAnswered: "the answer to LeaveGroup",
}


def explain(member: Member, now_ms: int) -> str:
    who = f'member "{member.member_id}"' if member.member_id else "a consumer without a member id"
    if member.settings.group_instance_id is not None:
        who += f' (instance "{member.settings.group_instance_id}")'
    since = f" for {_seconds(now_ms - member.state_since_ms)}" if member.state_since_ms else ""
    sentences = [f'{who} of group "{member.settings.group_id}" is {member.state}{since}: it {DOING[member.state]}']
    if member.has_generation:
        sentences.append(f"generation {member.generation_id}, {_count(len(member.assigned), 'partition')}")
    elif member.assigned:
        sentences.append(f"it has lost {_count(len(member.assigned), 'partition')}; the next poll tells the listener")
    if member.failure is not None:
        sentences.append(str(member.failure))
    if waits := _waits_for(member, now_ms):
        sentences.append(f"it waits for {waits}")
    if member.state in {MemberState.STABLE, MemberState.UNJOINED} and member.subscribed and member.reason_to_rejoin:
        sentences.append(f"it wants to rejoin: {member.reason_to_rejoin}")
    if member.pending_requests:
        kinds = sorted({pending.kind.value for pending in member.pending_requests.values()})
        sentences.append(f"{_count(len(member.pending_requests), 'request')} pending ({', '.join(kinds)})")
    return "; ".join(sentences) + "."


def _seconds(ms: int) -> str:
    return f"{round(ms / 1000, 2):g} s"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _waits_for(member: Member, now_ms: int) -> str | None:
    if member.state is MemberState.CLOSED:
        return None
    if member.calling is not None:
        return f"the rebalance listener to return ({member.calling.kind})"
    if member.waiting_for is not None:
        return _ANSWERS[type(member.waiting_for)]
    if member.coordinator is None and member.is_finding_later:
        return f"the next FindCoordinator request ({member.find_failures} failed)"
    if member.coordinator is None and member.finding is not None:
        return "the answer to FindCoordinator"
    if member.is_backing_off:
        return f"the end of a back-off after {_count(member.failures, 'failed attempt')}"
    if member.state is MemberState.PREPARING and not member.is_prepared:
        return "the commit before the join"
    if member.state is MemberState.LEAVING and member.pending_requests:
        return "the answers to its commits"
    if member.state is MemberState.UNJOINED and not member.subscribed:
        return "a subscription"
    if member.state is MemberState.STABLE and member.reason_to_rejoin is None:
        overdue_ms = now_ms - member.poll_deadline_ms + member.settings.max_poll_interval_ms
        return None if member.polling else f"the next poll (the last one ended {_seconds(overdue_ms)} ago)"
    return None if member.polling else "the next poll"
