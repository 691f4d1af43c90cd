"""An Empty group becomes one of the other type (K24, K26): its offsets stay, its epochs start anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.coordinator.classic.effects import Effects, Persist, Written
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import EMPTY, resume
from coterie.coordinator.consumer.group import JOIN_EPOCH, ConsumerGroup
from coterie.coordinator.consumer.heartbeat import heartbeat_refusal, refused
from coterie.coordinator.consumer.topic_image import TopicImage
from coterie.errors import ErrorCode
from coterie.protocol.messages import ConsumerGroupHeartbeat, JoinGroup


@dataclass(slots=True, kw_only=True)
class Retired(Written):
    """The tombstones of an Empty consumer group, which a classic group follows."""

    request: JoinGroup
    successor: Group


def become_consumer(
    group: Group,
    request: ConsumerGroupHeartbeat,
    image: TopicImage | None,
    configs: Mapping[str, Mapping[str, str]] | None,
) -> ConsumerGroup | Group:
    """Return the consumer group that a heartbeat is for; a classic group that has members stays what it is."""
    if not (group.is_dead or group.is_empty):
        return group
    new = ConsumerGroup(group.group_id, group.settings, group.wall, group.held_in_all, image, configs)
    if group.is_empty and request.member_epoch == JOIN_EPOCH:
        new.stored, new.unwritten_commits = group.stored, group.unwritten_commits
        new.was_classic = group
    return new


def heartbeat_to_classic(group: Group, request: ConsumerGroupHeartbeat, _now_ms: int) -> Effects:
    """A classic group that has members takes no member of the other protocol."""
    why = f"Group {request.group_id} is a classic group."
    if request.member_epoch == JOIN_EPOCH:
        why = f"Group {request.group_id} is a classic group with members, which cannot be upgraded."
    return refused(request, heartbeat_refusal(request, group.settings) or (ErrorCode.GROUP_ID_NOT_FOUND, why))


def retire(group: ConsumerGroup, request: JoinGroup, now_ms: int) -> Effects:
    """Write the end of an Empty consumer group; the join is handled by the classic group that follows."""
    successor = Group(group.group_id, group.settings, group.wall, group.held_in_all)
    successor.stored, successor.unwritten_commits = group.stored, group.unwritten_commits
    become_classic(successor, now_ms)
    return [Persist(group.tombstones(), Retired(group_id=group.group_id, request=request, successor=successor))]


def become_classic(group: Group, now_ms: int) -> Group:
    """Make a classic group Empty: it follows a consumer group, or returns since that could not be written."""
    group.is_in_log = True
    resume(group, EMPTY, group.wall.at(now_ms))
    return group
