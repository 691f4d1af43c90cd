"""A join and a sync as most are in a rebalance: few checks, then what the plain rules do.

A member that is known joins a Stable group or one that prepares a rebalance, or it syncs in the generation of the
group. The checks are those of `join_group.py` and `sync_group.py` that can refuse such a request. If one does, or
anything else is unusual, the answer is None, and nothing has changed: the plain rules must handle the request. A
property test holds both equal.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.join_group import rejoin
from coterie.coordinator.classic.member_bytes import bytes_of_protocols
from coterie.coordinator.classic.states import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE
from coterie.coordinator.classic.sync_group import take_sync
from coterie.protocol.messages import JoinGroup, SyncGroup


def quick_join(group: Group, request: JoinGroup, now_ms: int) -> Effects | None:
    """Handle a join without an instance id; None: `join_group` must."""
    member, state, settings = group.members.get(request.member_id), group.state, group.settings
    if member is None or (state is not STABLE and state is not PREPARING_REBALANCE):
        return None
    if state is PREPARING_REBALANCE and group.parked_joins >= settings.group_max_size:
        return None
    size = bytes_of_protocols(request.protocols)
    if (
        not settings.group_min_session_timeout_ms <= request.session_timeout_ms <= settings.group_max_session_timeout_ms
        or size > settings.coterie_group_member_max_bytes
        or group.held_bytes + size > settings.coterie_group_max_bytes
        or group.held_in_all.total + size > settings.coterie_groups_max_bytes
        or not group.supports(request.protocol_type, request.protocols)
    ):
        return None
    return rejoin(group, member, request, now_ms)


def quick_sync(group: Group, request: SyncGroup, now_ms: int) -> Effects | None:
    """Handle a sync without an instance id, which names type and protocol; None: `sync_group` must."""
    member, state = group.members.get(request.member_id), group.state
    if (
        member is None
        or request.generation_id != group.generation_id
        or (state is not COMPLETING_REBALANCE and state is not STABLE)
        or request.protocol_type != group.protocol_type
        or request.protocol_name != group.protocol_name
    ):
        return None
    return take_sync(group, member, request, now_ms)
