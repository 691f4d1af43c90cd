"""Leading a rebalance (M5): the voted assignor, over all members' subscriptions and the metadata of all their topics.

What an assignor answers is checked before anybody is given it: a partition that is read twice, or a member that rejects
its assignment and rejoins for ever, is worse than an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors import Assignment, Assignor, Topic
from coterie.assignors import Member as Subscriber
from coterie.client.member.effects import Effects, RefreshMetadata
from coterie.client.member.events import MetadataAnswered
from coterie.client.member.member import Member
from coterie.client.member.rebalance_errors import back_off, fail_rebalance
from coterie.client.member.states import Stage, enter
from coterie.client.member.subscribing import watch
from coterie.client.member.syncing import sync
from coterie.client.member.user_errors import AssignorError
from coterie.errors import KafkaError, MalformedError
from coterie.protocol import subscription as wire
from coterie.protocol.messages import JoinedGroup

__all__ = ["ask_metadata", "can_ask_metadata", "group_metadata_there", "lead"]

_KNOWS_GENERATIONS = "cooperative-sticky"
"""It looks at the generation of each claim itself, and so may hand out what only a stale claim holds."""


def lead(member: Member, reply: JoinedGroup, now_ms: int) -> Effects:
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
    enter(member, Stage.LEADING, now_ms)
    return watch(member)


def can_ask_metadata(member: Member) -> bool:
    return member.waiting_for is None and not member.is_backing_off


def ask_metadata(member: Member, _now_ms: int) -> Effects:
    member.waiting_for = then = MetadataAnswered()
    return [RefreshMetadata(member.group_topics, then)]


def group_metadata_there(member: Member, event: MetadataAnswered, now_ms: int) -> Effects:
    if event.error is not None:
        if isinstance(event.error, KafkaError) and event.error.retriable:
            return back_off(member, now_ms)
        return fail_rebalance(member, event.error, now_ms)
    topics = {name: topic for name, topic in event.reply.items() if name in member.group_topics}
    member.snapshot, member.is_stale = topics, False
    if member.skips_assignment:
        return sync(member, (), now_ms)  # KIP-814: back before anybody noticed; it only watches
    try:
        assignments = _assign(member, topics)
    except AssignorError as error:
        return fail_rebalance(member, error, now_ms)
    return sync(member, assignments, now_ms)


def _assign(member: Member, topics: Mapping[str, Topic]) -> list[tuple[str, bytes]]:
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
        what = _nonsense(assignor, answer, member.subscribers, topics)
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


def _nonsense(
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
    """KIP-429: what somebody still owns is first given to nobody."""
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
