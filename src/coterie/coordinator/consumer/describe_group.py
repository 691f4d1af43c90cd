"""ConsumerGroupDescribe: what can be seen of a consumer group from outside (K22)."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Effects, Reply
from coterie.coordinator.consumer.group import ConsumerGroup
from coterie.coordinator.consumer.group_change import partitions_of, united
from coterie.coordinator.consumer.target_assignment import preferred_server_assignor
from coterie.coordinator.offsets.offsets_group import OffsetsGroup
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribedConsumerMember,
    DescribedGroup,
    DescribeGroup,
)


def describe_consumer_group(group: OffsetsGroup, request: DescribeConsumerGroup, _now_ms: int) -> Effects:
    """Describe a group. A group that does not exist, or a classic one, is not found."""
    if not request.group_id:
        described = DescribedConsumerGroup("", ErrorCode.INVALID_GROUP_ID)
    elif not isinstance(group, ConsumerGroup) or group.is_dead:
        why = f"There is no consumer group {request.group_id}."
        described = DescribedConsumerGroup(request.group_id, ErrorCode.GROUP_ID_NOT_FOUND, why)
    else:
        described = _described(group)
    return [Reply(request.token, described)]


def _described(group: ConsumerGroup) -> DescribedConsumerGroup:
    return DescribedConsumerGroup(
        group.group_id,
        ErrorCode.NONE,
        None,
        group.state.value,
        group.group_epoch,
        group.assignment_epoch,
        preferred_server_assignor(group),
        [
            DescribedConsumerMember(
                member.member_id,
                member.metadata.instance_id,
                member.metadata.rack_id,
                member.epoch,
                member.metadata.client_id,
                member.metadata.client_host,
                member.metadata.topics,
                member.metadata.pattern or "",
                partitions_of(united(member.assigned, member.pending_revocation)),
                group.targets.get(member.member_id, {}),
                member.is_classic,
            )
            for member in group.members.values()
        ],
    )


def describe_as_classic(group: ConsumerGroup, request: DescribeGroup, _now_ms: int) -> Effects:
    """DescribeGroups knows no consumer groups (K23)."""
    return [Reply(request.token, DescribedGroup(group.group_id, "Dead", exists=False))]
