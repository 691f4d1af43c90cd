"""The tables of rules of KIP-848: the function for each event of a consumer group, and for requests to classic ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.coordinator.classic import effects
from coterie.coordinator.classic.effects import Effects
from coterie.coordinator.classic.lifecycle import delete_group, deletion_written
from coterie.coordinator.consumer.classic_requests import (
    heartbeat_of_classic,
    join_of_classic,
    leave_of_classic,
    sync_of_classic,
)
from coterie.coordinator.consumer.conversion import DowngradeWritten
from coterie.coordinator.consumer.describe_group import describe_as_classic, describe_consumer_group
from coterie.coordinator.consumer.group import (
    ConsumerGroupWritten,
    ConsumerSessionDue,
    RejoinDue,
    RevocationDue,
    SyncDue,
)
from coterie.coordinator.consumer.heartbeat import consumer_group_heartbeat, heartbeat_to_classic
from coterie.coordinator.consumer.leave import consumer_session_due, rejoin_due, revocation_due, sync_due
from coterie.coordinator.consumer.lifecycle import (
    consumer_group_written,
    downgrade_failed,
    target_computed,
    target_late,
)
from coterie.coordinator.consumer.quick_heartbeat import CaughtUp
from coterie.coordinator.consumer.regex_refresh import RegexDue, regex_due
from coterie.coordinator.consumer.target_assignment import TargetComputation, TargetLate
from coterie.coordinator.offsets.offset_metadata_manager import (
    expiry_due,
    offset_commit,
    offset_delete,
    offset_fetch,
    offsets_written,
    tombstones_written,
    topics_deleted,
    transaction_ended,
)
from coterie.protocol.messages import (
    ConsumerGroupHeartbeat,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    SyncGroup,
    TopicsDeleted,
)

RULES: Mapping[type, Callable[[Any, Any, int], Effects]] = {
    # requests
    ConsumerGroupHeartbeat: consumer_group_heartbeat,
    DescribeConsumerGroup: describe_consumer_group,
    OffsetCommit: offset_commit,
    OffsetFetch: offset_fetch,
    OffsetDelete: offset_delete,
    DeleteGroup: delete_group,
    DescribeGroup: describe_as_classic,
    # requests of the classic protocol
    JoinGroup: join_of_classic,
    SyncGroup: sync_of_classic,
    Heartbeat: heartbeat_of_classic,
    LeaveGroup: leave_of_classic,
    # timers that rang
    ConsumerSessionDue: consumer_session_due,
    RevocationDue: revocation_due,
    RejoinDue: rejoin_due,
    SyncDue: sync_due,
    RegexDue: regex_due,
    TargetLate: target_late,
    effects.ExpiryDue: expiry_due,
    # writes that ended
    ConsumerGroupWritten: consumer_group_written,
    CaughtUp: consumer_group_written,
    DowngradeWritten: downgrade_failed,
    effects.OffsetsWritten: offsets_written,
    effects.TombstonesWritten: tombstones_written,
    effects.DeletionWritten: deletion_written,
    # news from elsewhere
    TargetComputation: target_computed,
    effects.TransactionEnded: transaction_ended,
    TopicsDeleted: topics_deleted,
}

OF_CLASSIC_GROUPS: Mapping[type, Callable[[Any, Any, int], Effects]] = {
    ConsumerGroupHeartbeat: heartbeat_to_classic,
    DescribeConsumerGroup: describe_consumer_group,
}
"""The functions that answer requests of this protocol to classic groups."""
