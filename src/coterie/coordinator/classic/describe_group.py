"""DescribeGroups and ListGroups: what can be seen of a group from outside (rule 25)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.states import DEAD, STABLE
from coterie.coordinator.offsets.offsets_group import OffsetsGroup
from coterie.errors import ErrorCode
from coterie.protocol.messages import DescribedGroup, DescribedMember, DescribeGroup, ListedGroup


def describe_group(group: Group, request: DescribeGroup, _now_ms: int) -> Effects:
    """Describe a group. Protocol and metadata are shown only while it is Stable, assignments always."""
    stable = group.state is STABLE
    described = DescribedGroup(
        group.group_id,
        group.state.value,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        [
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if stable else b"",
                member.assignment,
            )
            for member in group.in_map_order()
        ],
        ErrorCode.NONE,
        exists=group.state is not DEAD,
    )
    return [Reply(request.token, described)]


def listed(group: OffsetsGroup, states: Sequence[str], types: Sequence[str]) -> ListedGroup | None:
    """Return the group's line in a list; None if a filter leaves it out. Filters ignore case."""
    row = group.listed()
    if states and row.state.lower() not in {state.lower() for state in states}:
        return None
    if types and row.group_type not in {kind.lower() for kind in types}:
        return None
    return row
