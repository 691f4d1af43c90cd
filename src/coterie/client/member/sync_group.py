"""SyncGroup: the leader assigns (M5), all members sync and take their assignment (M6, M10).

What an assignor answers is checked before it is sent: a partition that is read twice, or a member that rejects
its assignment and rejoins for ever, is worse than an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors import Assignment, Assignor, Topic
from coterie.assignors import Member as Subscriber
from coterie.client.member.effects import Effects, Fail, Listened, RefreshMetadata, SendRequest, SetAssignment
from coterie.client.member.events import MetadataAnswered, SyncAnswered
from coterie.client.member.facts import AssignmentTaken
from coterie.client.member.member import MemberData
from coterie.client.member.offset_commit import restart_auto_commit
from coterie.client.member.reset_generation import back_off, fail_rebalance, rebalance_failed
from coterie.client.member.states import ApiName, AssignorError, MemberState, code_of, enter, error_for
from coterie.client.member.subscription import call_listener, watch
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError, MalformedError
from coterie.facts import Emit
from coterie.protocol import subscription as wire
from coterie.protocol.messages import CONSUMER, JoinedGroup, SyncedGroup, SyncGroup
from coterie.protocol.subscription import read_assignment


def send_sync_group(member: MemberData, assignments: Sequence[tuple[str, bytes]], now_ms: int) -> Effects:
    enter(member, MemberState.SYNCING, now_ms)
    if member.coordinator is None:
        return rebalance_failed(member, ApiName.SYNC_GROUP, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)
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
    return [SendRequest(member.coordinator, request, member.settings.request_timeout_ms, then)]


def sync_answered(member: MemberData, event: SyncAnswered, now_ms: int) -> Effects:
    if event is not member.waiting_for:
        return []
    member.waiting_for = None
    reply: SyncedGroup = event.reply
    code = code_of(event.error) if event.error is not None else reply.error
    if event.error is not None or code:
        return rebalance_failed(member, ApiName.SYNC_GROUP, code, now_ms, event.error)
    if reply.protocol_type not in {None, CONSUMER} or reply.protocol_name not in {None, member.protocol_name}:
        about = f'the answer is of protocol "{reply.protocol_type}", "{reply.protocol_name}"; '
        about += f'joined was "{CONSUMER}", "{member.protocol_name}"'
        error = error_for(ApiName.SYNC_GROUP, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member.settings, about)
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
    enter(member, MemberState.COMPLETING, now_ms)
    return []


def can_complete_join(member: MemberData) -> bool:
    return member.may_call


def on_join_complete(member: MemberData, now_ms: int) -> Effects:
    """Take the assignment, during a poll. This is not called if a heartbeat has announced another rebalance (M10)."""
    foreign = {one.topic for one in member.given} - member.topics
    if member.pattern is not None:
        matching = {topic for topic in foreign if member.pattern.fullmatch(topic)}
        foreign -= matching
    if foreign:
        member.is_prepared = False
        member.rejoin_reason = "received assignment does not match the current subscription"
        enter(member, MemberState.STABLE, now_ms)
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


def _take(member: MemberData, now_ms: int) -> Effects:
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
    except Exception as raised:  # noqa: BLE001  an assignor is the user's code
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
        Emit(
            AssignmentTaken(
                now_ms, member.settings.group_id, member.generation_id, sorted(member.assigned), sorted(added)
            )
        ),
        *call_listener(member, Listened.ASSIGNED, added, now_ms),
    ]


# --- the leader: the voted assignor, over all subscriptions and the metadata of all their topics ----------------------

_KNOWS_GENERATIONS = "cooperative-sticky"
"""The assignor that compares the generations of members itself."""


def on_leader_elected(member: MemberData, reply: JoinedGroup, now_ms: int) -> Effects:
    try:
        subscriptions = wire.read_subscriptions([one.metadata for one in reply.members])
    except MalformedError as malformed:
        error = AssignorError(
            f"this member leads and cannot assign: the subscription of a member is malformed ({malformed}). "
            "Look for a client in the group that is no consumer"
        )
        error.__cause__ = malformed
        return fail_rebalance(member, error, now_ms)
    member.subscribers = [
        Subscriber.of(one.member_id, subscription, one.instance_id)
        for one, subscription in zip(reply.members, subscriptions, strict=True)
    ]
    member.skips_assignment = reply.skip_assignment
    member.group_topics = frozenset().union(*(subscription.topics for subscription in subscriptions))
    enter(member, MemberState.LEADING, now_ms)
    return watch(member)


def can_ask_metadata(member: MemberData) -> bool:
    return member.waiting_for is None and not member.is_backing_off


def ask_metadata(member: MemberData, _now_ms: int) -> Effects:
    member.waiting_for = then = MetadataAnswered()
    return [RefreshMetadata(member.group_topics, then)]


def group_metadata_there(member: MemberData, event: MetadataAnswered, now_ms: int) -> Effects:
    if event.error is not None:
        if isinstance(event.error, KafkaError) and event.error.retriable:
            return back_off(member, now_ms)
        return fail_rebalance(member, event.error, now_ms)
    topics = {name: topic for name, topic in event.reply.items() if name in member.group_topics}
    member.snapshot, member.is_stale = topics, False
    if member.skips_assignment:
        return send_sync_group(member, (), now_ms)  # KIP-814: it only watches the topics
    try:
        assignments = _assign(member, topics)
    except AssignorError as error:
        return fail_rebalance(member, error, now_ms)
    return send_sync_group(member, assignments, now_ms)


def _assign(member: MemberData, topics: Mapping[str, Topic]) -> list[tuple[str, bytes]]:
    assignor = member.assignor(member.protocol_name)
    assert assignor is not None  # M12, looked at when the join was answered
    try:
        answer = assignor.assign(member.subscribers, topics)
    except Exception as raised:
        raise AssignorError(
            f'assignor "{assignor.name}" raised {raised!r}; nobody is given anything until it does not, or until this '
            "member leaves. Correct it, or take it out of partition.assignment.strategy"
        ) from raised
    try:
        what = _assignment_error(assignor, answer, member.subscribers, topics)
    except Exception as raised:
        raise _refuse(assignor, f"it answered {type(answer).__name__} that cannot be read ({raised!r})") from raised
    if what:
        raise _refuse(assignor, what)
    return [(one.id, wire.write_assignment(wire.Assignment(answer.get(one.id, {})))) for one in member.subscribers]


def _refuse(assignor: Assignor, what: str) -> AssignorError:
    return AssignorError(
        f'the answer of assignor "{assignor.name}" makes no sense: {what}. An assignment gives partitions that exist '
        "to members that subscribe to their topic, each to one; correct the assignor"
    )


def _assignment_error(
    assignor: Assignor, answer: Assignment, subscribers: Sequence[Subscriber], topics: Mapping[str, Topic]
) -> str | None:
    by_id = {one.id: one for one in subscribers}
    owner: dict[str, list[str | None]] = {}
    for member_id, shares in answer.items():
        if member_id not in by_id:
            return f'there is no member "{member_id}"'
        subscribed = by_id[member_id].topics
        for topic, partitions in shares.items():
            count = topics[topic].partitions if topic in topics else 0
            if topic not in subscribed and len(partitions):
                return f'"{member_id}" does not subscribe to topic "{topic}"'
            owners = owner.setdefault(topic, [None] * count)
            for partition in partitions:
                if not 0 <= partition < count:
                    return f'topic "{topic}" has no partition {partition} (it has {count})'
                if owners[partition] is not None:
                    return f'{topic}-{partition} is given to "{owners[partition]}" and to "{member_id}"'
                owners[partition] = member_id
    if assignor.cooperative and assignor.name != _KNOWS_GENERATIONS:
        return _taken_too_early(subscribers, owner)
    return None


def _taken_too_early(subscribers: Sequence[Subscriber], owner: Mapping[str, Sequence[str | None]]) -> str | None:
    """KIP-429: a partition that a member still owns is first assigned to no member."""
    for one in subscribers:
        for topic, partitions in one.owned.items():
            owners = owner.get(topic, ())
            for partition in partitions:
                now = owners[partition] if partition < len(owners) else None
                if now is not None and now != one.id:
                    return (
                        f'{topic}-{partition} is given to "{now}" while "{one.id}" still owns it; a cooperative '
                        "assignor withholds it for a rebalance (KIP-429)"
                    )
    return None
