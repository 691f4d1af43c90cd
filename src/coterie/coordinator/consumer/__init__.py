"""The rules of one consumer group of KIP-848, pure: a rule takes group, event and time, and returns effects.

Read `states.py` first (the tables), then `group.py` (what a group is), `change.py` (how records are written), and
`heartbeat.py`, the one request of a member. RULES says which function handles what.
"""

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
from coterie.coordinator.consumer.conversion import DowngradeWritten, become_consumer, downgraded, upgrade_failed
from coterie.coordinator.consumer.describe_group import describe_as_classic, describe_consumer_group
from coterie.coordinator.consumer.group import (
    ConsumerGroup,
    ConsumerGroupWritten,
    ConsumerSessionDue,
    RejoinDue,
    RevocationDue,
    SyncDue,
)
from coterie.coordinator.consumer.heartbeat import consumer_group_heartbeat, heartbeat_refusal, heartbeat_to_classic
from coterie.coordinator.consumer.leave import consumer_session_due, rejoin_due, revocation_due, sync_due
from coterie.coordinator.consumer.lifecycle import (
    consumer_group_loaded,
    consumer_group_written,
    downgrade_failed,
    restore_consumer_group,
    target_computed,
    target_late,
    unload_consumer_group,
)
from coterie.coordinator.consumer.regex_refresh import RegexDue, regex_due
from coterie.coordinator.consumer.states import GroupState, MemberState
from coterie.coordinator.consumer.steady_heartbeat import says_nothing_new, steady_heartbeat
from coterie.coordinator.consumer.target import TargetComputed, TargetLate
from coterie.coordinator.consumer.topic_image import TopicsImage
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

__all__ = [
    "OF_CLASSIC_GROUPS",
    "RULES",
    "ConsumerGroup",
    "ConsumerGroupWritten",
    "DowngradeWritten",
    "GroupState",
    "MemberState",
    "TopicsImage",
    "become_consumer",
    "consumer_group_loaded",
    "downgraded",
    "heartbeat_refusal",
    "restore_consumer_group",
    "says_nothing_new",
    "steady_heartbeat",
    "unload_consumer_group",
    "upgrade_failed",
]

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
    DowngradeWritten: downgrade_failed,
    effects.OffsetsWritten: offsets_written,
    effects.TombstonesWritten: tombstones_written,
    effects.DeletionWritten: deletion_written,
    # news from elsewhere
    TargetComputed: target_computed,
    effects.TransactionEnded: transaction_ended,
    TopicsDeleted: topics_deleted,
}

OF_CLASSIC_GROUPS: Mapping[type, Callable[[Any, Any, int], Effects]] = {
    ConsumerGroupHeartbeat: heartbeat_to_classic,
    DescribeConsumerGroup: describe_consumer_group,
}
"""The answers of classic groups to the requests of this protocol."""
