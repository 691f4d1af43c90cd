"""The subscription of a member, the metadata of its topics (M5), and the calls of its rebalance listener (M14).

A listener is called only while the user is inside poll, unsubscribe or close, one call at a time. Partitions change
hands after the call that gives them up and before the call that brings them.
"""

from __future__ import annotations

from collections.abc import Mapping
from re import Pattern

from coterie.assignors import Topic
from coterie.client.member.effects import CallListener, Effects, Fail, Listened, SetAssignment, WatchTopics
from coterie.client.member.events import (
    CloseAsked,
    ListenerAnswered,
    MetadataChanged,
    RejoinAsked,
    Subscribed,
    UnsubscribeAsked,
)
from coterie.client.member.facts import ListenerFailed, PartitionsGivenUp
from coterie.client.member.member import MemberBase, MemberData
from coterie.client.member.states import ListenerError, MemberState, enter
from coterie.client.types import TopicPartition
from coterie.facts import Emit


def subscribe(member: MemberData, event: Subscribed, _now_ms: int) -> Effects:
    if member.ending is not None:
        member.next_subscription = event
        return []
    member.pattern = event.pattern
    member.topics = frozenset(event.topics) if event.pattern is None else matching(event.pattern, member.metadata)
    if not member.subscribed:
        member.subscribed = True
        member.rejoin_reason = ""
    return watch(member)


def rejoin_asked(member: MemberData, event: RejoinAsked, _now_ms: int) -> Effects:
    if member.subscribed:
        member.rejoin_reason = event.reason
    return []


def metadata_changed(member: MemberData, event: MetadataChanged, _now_ms: int) -> Effects:
    return take_metadata(member, event.topics)


def take_metadata(member: MemberData, topics: Mapping[str, Topic]) -> Effects:
    member.metadata = topics
    take_matching(member)
    if member.snapshot is not None:
        member.is_stale = _differ(member, member.snapshot, topics)
    return watch(member)


def take_matching(member: MemberBase) -> None:
    """Keep the object if the topics are the same, so that they need not be compared again."""
    if member.pattern is not None:
        found = matching(member.pattern, member.metadata)
        if found != member.topics:
            member.topics = found


def watch(member: MemberBase) -> Effects:
    """A leader watches the topics of the whole group, a pattern all topics."""
    wanted = None if member.pattern is not None else member.topics | member.group_topics
    if wanted == member.watched:
        return []
    member.watched = wanted
    return [WatchTopics(wanted)]


def matching(pattern: Pattern[str], topics: Mapping[str, Topic]) -> frozenset[str]:
    return frozenset(topic for topic in topics if pattern.fullmatch(topic))


def _differ(member: MemberData, before: Mapping[str, Topic], now: Mapping[str, Topic]) -> bool:
    """Return whether topics have changed. Racks count only for members that have one (KIP-881)."""
    has_rack = member.settings.client_rack is not None
    for name in member.group_topics:
        then, current = before.get(name), now.get(name)
        if then is None or current is None:
            if then is not current:
                return True
        elif then.partitions != current.partitions or (has_rack and then.racks != current.racks):
            return True
    return False


# --- the rebalance listener, and what follows when it returns or raises -----------------------------------------------

ENDING_REASON: Mapping[type, str] = {
    UnsubscribeAsked: "the consumer unsubscribed from all topics",
    CloseAsked: "the consumer is being closed",
}


def call_listener(member: MemberBase, kind: Listened, partitions: frozenset[TopicPartition], now_ms: int) -> Effects:
    member.calling = then = ListenerAnswered(kind, partitions)
    # A listener that never returns keeps partitions nobody reads: it has as long as the user's own code (M8).
    member.poll_deadline_ms = now_ms + member.settings.max_poll_interval_ms
    return [CallListener(kind, sorted(partitions), then)]


def listener_answered(member: MemberData, event: ListenerAnswered, now_ms: int) -> Effects:
    if event is not member.calling:
        return []
    member.calling = None
    effects: Effects = []
    if event.error is not None:
        effects += listener_failed(member, event, event.error, now_ms)
    if event.kind == Listened.ASSIGNED:
        if member.state is MemberState.COMPLETING:
            member.is_prepared = False
            enter(member, MemberState.STABLE, now_ms)
        return effects
    if member.state is MemberState.COMPLETING:
        # Another member waits for what was revoked: the next rebalance assigns it (KIP-429).
        member.rejoin_reason = "need to revoke partitions and re-join"
    return [*effects, *given_up(member, event, _why(member, lost=event.kind == Listened.LOST), now_ms)]


def listener_failed(member: MemberBase, event: ListenerAnswered, raised: Exception, now_ms: int) -> Effects:
    error = ListenerError(
        f"the rebalance listener raised {raised!r} in the call for {event.kind} partitions; the rebalance went on. "
        "Catch the error in the listener, or treat it where poll is called"
    )
    error.__cause__ = raised
    effects: Effects = [Emit(ListenerFailed(now_ms, member.settings.group_id, event.kind, repr(raised)))]
    if member.ending is None:
        return [*effects, Fail(error)]
    member.ending_error = member.ending_error or error
    return effects


def given_up(member: MemberBase, event: ListenerAnswered, why: str, now_ms: int) -> Effects:
    """The partitions are revoked after the call, not before: the listener could still commit."""
    if not event.partitions:
        return []
    member.assigned -= event.partitions
    member.auto_committed = None
    lost = event.kind == Listened.LOST
    return [
        SetAssignment(sorted(member.assigned), ()),
        Emit(PartitionsGivenUp(now_ms, member.settings.group_id, sorted(event.partitions), lost, why)),
    ]


def _why(member: MemberData, *, lost: bool) -> str:
    if member.ending is not None and not lost:
        return ENDING_REASON[type(member.ending)]
    if member.state is MemberState.COMPLETING:
        return f"generation {member.generation_id} does not assign them to this member"
    return member.rejoin_reason or ""
