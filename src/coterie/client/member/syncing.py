"""Syncing, and taking what was assigned (M6, M10)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.client.member.auto_commit import restart_auto_commit
from coterie.client.member.effects import Effects, Fail, Listened, Send, SetAssignment, Tell
from coterie.client.member.events import SyncAnswered
from coterie.client.member.facts import AssignmentTaken
from coterie.client.member.listener_calls import call_listener
from coterie.client.member.member import Member
from coterie.client.member.rebalance_errors import fail_rebalance, rebalance_failed
from coterie.client.member.states import Api, Stage, enter
from coterie.client.member.subscribing import watch
from coterie.client.member.user_errors import AssignorError, code_of, error_for
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.messages import CONSUMER, SyncedGroup, SyncGroup
from coterie.protocol.subscription import read_assignment

__all__ = ["can_complete", "complete", "sync", "sync_answered"]


def sync(member: Member, assignments: Sequence[tuple[str, bytes]], now_ms: int) -> Effects:
    enter(member, Stage.SYNCING, now_ms)
    if member.coordinator is None:
        return rebalance_failed(member, Api.SYNC_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
    request = SyncGroup(
        token=None,
        group_id=member.settings.group_id,
        member_id=member.member_id,
        instance_id=member.settings.group_instance_id,
        generation_id=member.generation_id,
        assignments=assignments,
        protocol_type=CONSUMER,
        protocol_name=member.protocol_name,
    )
    member.waiting_for = then = SyncAnswered(member.generation_id, member.member_id)
    return [Send(member.coordinator, request, member.settings.request_timeout_ms, then)]


def sync_answered(member: Member, event: SyncAnswered, now_ms: int) -> Effects:
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    reply: SyncedGroup = event.reply
    code = code_of(event.error) if event.error is not None else reply.error
    if event.error is not None or code:
        return rebalance_failed(member, Api.SYNC_GROUP, code, now_ms, event.error)
    if reply.protocol_type not in {None, CONSUMER} or reply.protocol_name not in {None, member.protocol_name}:
        about = f'the answer is of protocol "{reply.protocol_type}", "{reply.protocol_name}"; '
        about += f'joined was "{CONSUMER}", "{member.protocol_name}"'
        error = error_for(Api.SYNC_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.settings, about)
        return fail_rebalance(member, error, now_ms)
    try:
        assignment = read_assignment(reply.assignment)
    except MalformedError as malformed:
        unreadable = AssignorError(
            f"the leader of the group gave this member an assignment that cannot be read ({malformed}); "
            "its assignor left this member out, or is of another kind. Look at the leader's assignor"
        )
        unreadable.__cause__ = malformed
        return fail_rebalance(member, unreadable, now_ms)
    member.given = frozenset(
        TopicPartition(topic, partition)
        for topic, partitions in assignment.partitions.items()
        for partition in partitions
    )
    member.is_settled = True
    member.rejoin_reason = None
    member.failures = 0
    enter(member, Stage.COMPLETING, now_ms)
    return []


def can_complete(member: Member) -> bool:
    return member.may_call


def complete(member: Member, now_ms: int) -> Effects:
    """The user is here. Whatever the heartbeat heard since the sync has taken the member elsewhere (M10)."""
    foreign = {one.topic for one in member.given} - member.topics
    if member.pattern is not None:
        matching = {topic for topic in foreign if member.pattern.fullmatch(topic)}
        foreign -= matching
    if foreign:
        member.is_prepared = False
        member.rejoin_reason = "received assignment does not match the current subscription"
        enter(member, Stage.STABLE, now_ms)
        return []
    if member.pattern is not None and matching:
        # The leader has seen topics that match before this member has: it obeys.
        followed = member.joined_topics is member.topics or member.joined_topics == member.topics
        member.topics |= matching
        member.joined_topics = member.topics if followed else (member.joined_topics or frozenset()) | matching
    gone = member.assigned - member.given
    if gone:  # cooperative: an eager member owns nothing by now
        return call_listener(member, Listened.REVOKED, gone, now_ms)
    return _take(member, now_ms)


def _take(member: Member, now_ms: int) -> Effects:
    effects: Effects = []
    added = member.given - member.assigned
    owned: dict[str, list[int]] = {}
    for topic, partition in sorted(member.given):
        owned.setdefault(topic, []).append(partition)
    member.last_owned, member.last_generation_id = owned, member.generation_id
    assignor = member.assignor(member.protocol_name)
    assert assignor is not None
    try:
        assignor.on_assignment(owned, member.generation_id)
    except Exception as raised:  # noqa: BLE001 somebody else's code
        error = AssignorError(
            f'assignor "{assignor.name}" raised {raised!r} in on_assignment; the assignment is taken all the same. '
            "Correct the assignor"
        )
        error.__cause__ = raised
        effects.append(Fail(error))
    member.assigned = member.given
    return [
        *effects,
        *watch(member),
        *restart_auto_commit(member, now_ms),
        SetAssignment(sorted(member.assigned), sorted(added)),
        Tell(
            AssignmentTaken(
                now_ms, member.settings.group_id, member.generation_id, sorted(member.assigned), sorted(added)
            )
        ),
        *call_listener(member, Listened.ASSIGNED, added, now_ms),
    ]
