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
from coterie.client.member.states import DOING, Stage

__all__ = ["explain"]

_ANSWERS = {
    JoinAnswered: "the coordinator to answer its join, which it does when every member has joined or their time is up",
    SyncAnswered: "the coordinator to answer its sync, which it does when the leader has assigned",
    MetadataAnswered: "metadata from the cluster",
    PositionsAnswered: "the positions that are to be committed",
    LeaveAnswered: "the coordinator to answer its leave",
}


def explain(member: Member, now_ms: int) -> str:
    who = f'member "{member.member_id}"' if member.member_id else "a consumer without a member id"
    if member.settings.group_instance_id is not None:
        who += f' (instance "{member.settings.group_instance_id}")'
    sentences = [f'{who} of group "{member.settings.group_id}" {DOING[member.stage]}{_since(member, now_ms)}']
    if member.has_generation:
        sentences.append(f"generation {member.generation_id}, {len(member.assigned)} partitions")
    elif member.assigned:
        sentences.append(f"{len(member.assigned)} partitions are lost, which the next poll will say")
    if member.failure is not None:
        sentences.append(str(member.failure))
    if waits := _waits_for(member, now_ms):
        sentences.append(f"it waits for {waits}")
    if member.stage in {Stage.STABLE, Stage.UNJOINED} and member.subscribed and member.wish:
        sentences.append(f"it wants to rejoin: {member.wish}")
    if member.pending_requests:
        kinds = sorted({pending.kind.value for pending in member.pending_requests.values()})
        sentences.append(f"{len(member.pending_requests)} pending_requests are under way ({', '.join(kinds)})")
    return "; ".join(sentences) + "."


def _since(member: Member, now_ms: int) -> str:
    return f", for {(now_ms - member.stage_since_ms) / 1000:g} s"


def _waits_for(member: Member, now_ms: int) -> str | None:
    if member.stage is Stage.CLOSED:
        return None
    if member.calling is not None:
        return f"the rebalance listener to return ({member.calling.kind})"
    if member.waiting_for is not None:
        return _ANSWERS[type(member.waiting_for)]
    if member.coordinator is None and member.is_finding_later:
        return f"{member.find_failures} lookups of the coordinator have failed; the next one"
    if member.coordinator is None and member.finding is not None:
        return "the coordinator to be found"
    if member.is_backing_off:
        return f"a back-off to end: {member.failures} attempts have failed"
    if member.stage is Stage.PREPARING and not member.is_prepared:
        return "the commit before the join"
    if member.stage is Stage.LEAVING and member.pending_requests:
        return "commits to be answered"
    if member.stage is Stage.UNJOINED and not member.subscribed:
        return "a subscription"
    if member.stage is Stage.STABLE and member.wish is None:
        overdue_ms = now_ms - member.poll_deadline_ms + member.settings.max_poll_interval_ms
        return None if member.polling else f"the next poll (the last one ended {overdue_ms / 1000:g} s ago)"
    return None if member.polling else "poll to be called"
