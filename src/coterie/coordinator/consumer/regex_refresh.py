"""Resolve the regular expressions of a group after the heartbeat that needs it was answered (K7)."""

from __future__ import annotations

from collections.abc import Callable

from coterie.coordinator.classic.effects import Effects
from coterie.coordinator.consumer.group import ConsumerGroup
from coterie.coordinator.consumer.group_change import ConsumerGroupChange
from coterie.coordinator.consumer.regex import resolve
from coterie.facts import Cause
from coterie.structs import DataStruct

MIN_INTERVAL_MS = 10_000
"""A group resolves no more often than this."""


class RegexDue(DataStruct):
    group_id: str
    may_describe: Callable[[str], bool] | None = None


def last_resolved_ms(group: ConsumerGroup) -> int | None:
    return max((resolved.resolved_ms for resolved in group.resolved.values()), default=None)


def needs_refresh(group: ConsumerGroup, last_ms: int | None, now_ms: int) -> bool:
    """Return whether an expression is new, topics have changed, or the last time was long ago."""
    if not group.pattern_members:
        return False
    wall_ms = group.wall.at(now_ms)
    if last_ms is None:
        return True
    if 0 <= wall_ms - last_ms <= MIN_INTERVAL_MS:
        return False
    if group.regex_version != group.image.version or group.pattern_members.keys() - group.resolved.keys():
        return True
    return wall_ms - last_ms > group.settings.group_consumer_regex_refresh_interval_ms


def regex_due(group: ConsumerGroup, event: RegexDue, now_ms: int) -> Effects:
    """Match all topics, and begin the next group epoch if the topics of an expression have changed."""
    group.resolving = False
    if not group.pattern_members:
        return []
    change = ConsumerGroupChange(group, now_ms)
    has_changed, new = False, set()
    group.regex_version = version = group.image.version
    for pattern, topics in resolve(group.pattern_members, group.image, event.may_describe).items():
        known = group.resolved.get(pattern)
        has_changed |= known is None or list(known.topics) != topics
        new |= {pattern} if known is None else set()
        change.set_resolved_regex(pattern, topics, version)
    if has_changed:
        who = (one.member_id for one in group.members.values() if one.metadata.pattern in new)
        change.bump(Cause.REGEX_RESOLVED, next(who, ""))
    return change.write(None, None, None)
