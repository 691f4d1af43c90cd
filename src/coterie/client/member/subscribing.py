"""What the member wants to read, and what the cluster has of it (M5)."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.assignors import Topic
from coterie.client.member.effects import Effects, WatchTopics
from coterie.client.member.events import MetadataChanged, RejoinAsked, Subscribed
from coterie.client.member.member import Member

__all__ = ["metadata_changed", "rejoin_asked", "subscribe", "take_metadata", "watch"]


def subscribe(member: Member, event: Subscribed, _now_ms: int) -> Effects:
    if member.ending is not None:
        member.next_subscription = event
        return []
    member.pattern = event.pattern
    member.topics = frozenset(event.topics) if event.pattern is None else _matching(member, member.metadata)
    if not member.subscribed:
        member.subscribed = True
        member.rejoin_reason = ""
    return watch(member)


def rejoin_asked(member: Member, event: RejoinAsked, _now_ms: int) -> Effects:
    if member.subscribed:
        member.rejoin_reason = event.reason
    return []


def metadata_changed(member: Member, event: MetadataChanged, _now_ms: int) -> Effects:
    return take_metadata(member, event.topics)


def take_metadata(member: Member, topics: Mapping[str, Topic]) -> Effects:
    member.metadata = topics
    if member.pattern is not None:
        matching = _matching(member, topics)
        if matching != member.topics:
            member.topics = matching
    if member.snapshot is not None:
        member.is_stale = _differ(member, member.snapshot, topics)
    return watch(member)


def watch(member: Member) -> Effects:
    """A leader watches the topics of the whole group, a pattern all topics."""
    wanted = None if member.pattern is not None else member.topics | member.group_topics
    if wanted == member.watched:
        return []
    member.watched = wanted
    return [WatchTopics(wanted)]


def _matching(member: Member, topics: Mapping[str, Topic]) -> frozenset[str]:
    assert member.pattern is not None
    return frozenset(topic for topic in topics if member.pattern.fullmatch(topic))


def _differ(member: Member, before: Mapping[str, Topic], now: Mapping[str, Topic]) -> bool:
    """Racks count only for members that have one, as their assignors look at them (KIP-881)."""
    has_rack = member.settings.client_rack is not None
    for name in member.group_topics:
        then, current = before.get(name), now.get(name)
        if then is None or current is None:
            if then is not current:
                return True
        elif then.partitions != current.partitions or (has_rack and then.racks != current.racks):
            return True
    return False
