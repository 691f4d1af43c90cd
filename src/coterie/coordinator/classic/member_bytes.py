"""The bytes that members make a coordinator hold: ids, protocol metadata and assignments. They are bounded.

A join that would exceed a bound is refused before anything is kept. The bounds are for one member, for a group, and for
all groups together. Groups that are read from the log are taken as they are, since they were within bounds once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie.protocol.messages import JoinGroup, Protocol

if TYPE_CHECKING:
    from coterie.coordinator.classic.group import ClassicGroupMember, Group

OVERHEAD = 256
"""Bytes that a member, an id or a protocol costs beside its content."""


def bytes_of_protocols(protocols: Sequence[Protocol]) -> int:
    size = 0
    for protocol in protocols:
        size += OVERHEAD + len(protocol.name) + len(protocol.metadata)
    return size


def bytes_of_id(member_id: str) -> int:
    """An id that was given out and has not joined yet."""
    return OVERHEAD + len(member_id)


def bytes_of_member(member: ClassicGroupMember) -> int:
    names = (member.member_id, member.instance_id or "", member.client_id, member.client_host)
    return OVERHEAD + sum(map(len, names)) + bytes_of_protocols(member.protocols) + len(member.assignment)


def count_held(group: Group) -> int:
    """Count from scratch what `group.held_bytes` must be."""
    return sum(map(bytes_of_member, group.members.values())) + sum(map(bytes_of_id, group.pending))


def why_too_large(group: Group, request: JoinGroup) -> str | None:
    """Return which bound a join would exceed, by how much, and the name of the setting; None if it fits."""
    settings = group.settings
    size = bytes_of_protocols(request.protocols)
    if size > settings.coterie_group_member_max_bytes:
        return (
            f"its protocols have {size} bytes of metadata, more than {settings.coterie_group_member_max_bytes} "
            "(coterie.group.member.max.bytes)"
        )
    if (
        request.member_id in group.members  # it holds at most this much more
        and group.held_bytes + size <= settings.coterie_group_max_bytes
        and group.held_in_all.total + size <= settings.coterie_groups_max_bytes
    ):
        return None
    more = _more(group, request, size)
    if more > 0 and group.held_bytes + more > settings.coterie_group_max_bytes:
        return (
            f"with its {size} bytes of metadata the group would hold more than {settings.coterie_group_max_bytes} "
            "(coterie.group.max.bytes)"
        )
    if more > 0 and group.held_in_all.total + more > settings.coterie_groups_max_bytes:
        return (
            f"with its {size} bytes of metadata all groups would hold more than {settings.coterie_groups_max_bytes} "
            "(coterie.groups.max.bytes)"
        )
    return None


def _more(group: Group, request: JoinGroup, size: int) -> int:
    """Return how many more bytes the group would hold; `size` is the size of the protocols."""
    member_id = request.member_id
    if not member_id and request.instance_id is not None:
        member_id = group.static.get(request.instance_id, "")
    member = group.members.get(member_id)
    if member is not None:
        return size - bytes_of_protocols(member.protocols)
    instance_id = request.instance_id or ""
    new_id = member_id or f"{instance_id or request.client_id}-{request.fresh_id}"
    given = bytes_of_id(member_id) if member_id in group.pending else 0
    names = (new_id, instance_id, request.client_id, request.client_host)
    return OVERHEAD + sum(map(len, names)) + size - given
