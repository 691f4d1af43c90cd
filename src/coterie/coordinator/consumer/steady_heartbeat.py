"""The hot path: a heartbeat of a member that has reconciled, in a group where nothing has changed.

`consumer_group_heartbeat` would answer the same; a property test holds the two equal.
"""

from __future__ import annotations

from coterie.coordinator.consumer.group import ConsumerGroup
from coterie.coordinator.consumer.regex_refresh import last_resolved_ms, needs_refresh
from coterie.coordinator.consumer.states import MemberState
from coterie.protocol.messages import ConsumerGroupHeartbeat


def says_nothing_new(request: ConsumerGroupHeartbeat) -> bool:
    """Return whether a heartbeat only says that the member is there: all else is unchanged (K7)."""
    said = (request.rack_id, request.topics, request.pattern, request.assignor, request.owned)
    return said == _UNCHANGED and request.rebalance_timeout_ms == -1 and request.member_epoch > 0


_UNCHANGED = (None,) * 5


def steady_heartbeat(group: ConsumerGroup, request: ConsumerGroupHeartbeat, now_ms: int) -> int | None:
    """Restart the member's session, and return the heartbeat interval for the answer.

    `request` says nothing new. None: there is more to do than that, and nothing of it is done yet.
    """
    member, epoch = group.members.get(request.member_id), request.member_epoch
    if (
        member is None
        or epoch != member.epoch
        or epoch != group.assignment_epoch
        or epoch != group.group_epoch
        or member.state is not MemberState.STABLE
        or group.unwritten
        or group.image_version != group.image.version
    ):
        return None
    metadata = member.metadata
    if (
        request.client_id != metadata.client_id
        or request.client_host != metadata.client_host
        or metadata.classic_session_timeout_ms is not None
        or (request.instance_id is not None and group.static.get(request.instance_id) != request.member_id)
    ):
        return None
    if group.pattern_members and not group.resolving and needs_refresh(group, last_resolved_ms(group), now_ms):
        return None
    session = group.sessions.get(request.member_id)
    deadline_ms = now_ms + group.session_timeout_ms
    if session is None or deadline_ms < session.alarm_ms:
        return None
    session.deadline_ms = deadline_ms
    return group.heartbeat_interval_ms
