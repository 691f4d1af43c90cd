"""The tables of rules of classic groups: the function that handles each event, and the checks before it.

It is a module of its own because `coterie.coordinator.offsets` needs the groups of this package, and has rules itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.coordinator.classic import effects
from coterie.coordinator.classic.describe_group import describe_group
from coterie.coordinator.classic.effects import Effects
from coterie.coordinator.classic.group import Group
from coterie.coordinator.classic.heartbeat import heartbeat, session_due
from coterie.coordinator.classic.join_group import creation_written, join_group, join_precheck, static_member_written
from coterie.coordinator.classic.join_phase import join_phase_due
from coterie.coordinator.classic.leave_group import leave_group
from coterie.coordinator.classic.lifecycle import delete_group, deletion_written, empty_written
from coterie.coordinator.classic.sync_group import assignment_written, sync_group, sync_phase_due, sync_precheck
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
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    DeleteGroup,
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
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

RULES: Mapping[type, Callable[[Group, Any, int], Effects]] = {
    # requests
    JoinGroup: join_group,
    SyncGroup: sync_group,
    Heartbeat: heartbeat,
    LeaveGroup: leave_group,
    OffsetCommit: offset_commit,
    OffsetFetch: offset_fetch,
    OffsetDelete: offset_delete,
    DeleteGroup: delete_group,
    DescribeGroup: describe_group,
    # timers that rang
    effects.SessionDue: session_due,
    effects.JoinPhaseDue: join_phase_due,
    effects.SyncPhaseDue: sync_phase_due,
    effects.ExpiryDue: expiry_due,
    # writes that ended
    effects.CreationWritten: creation_written,
    effects.EmptyWritten: empty_written,
    effects.AssignmentWritten: assignment_written,
    effects.StaticMemberWritten: static_member_written,
    effects.OffsetsWritten: offsets_written,
    effects.TombstonesWritten: tombstones_written,
    effects.DeletionWritten: deletion_written,
    # news from elsewhere
    effects.TransactionEnded: transaction_ended,
    TopicsDeleted: topics_deleted,
}


def _needs_group_id(request: Any, _settings: GroupCoordinatorSettings) -> ErrorCode:
    return ErrorCode.NONE if request.group_id else ErrorCode.INVALID_GROUP_ID


# What is wrong with a request on any node: checked before the question who coordinates its group (section 2).
PRECHECKS: Mapping[type, Callable[[Any, GroupCoordinatorSettings], ErrorCode]] = {
    JoinGroup: join_precheck,
    SyncGroup: sync_precheck,
    Heartbeat: _needs_group_id,
    LeaveGroup: _needs_group_id,
    OffsetDelete: _needs_group_id,
}
