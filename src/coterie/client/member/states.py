"""What a member can be doing, which step may follow which, and what it does about every error.

These tables are rules M4, M7, M8 and M13 of `docs/semantics.md`. Only this file assigns `member.stage`; the rules look
up here what an error means, the generated tests walk every cell, and the tables of `docs/member.md` are printed from
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from coterie.errors import ErrorCode, IllegalTransitionError

if TYPE_CHECKING:
    from coterie.client.member.member import Member

__all__ = ["DOING", "NEXT", "ON_ERROR", "OTHERWISE", "Api", "Do", "Stage", "enter", "on_error"]


class Stage(StrEnum):
    UNJOINED = "Unjoined"
    PREPARING = "Preparing"
    JOINING = "Joining"
    LEADING = "Leading"
    SYNCING = "Syncing"
    COMPLETING = "Completing"
    STABLE = "Stable"
    LEAVING = "Leaving"
    FENCED = "Fenced"
    CLOSED = "Closed"


UNJOINED, PREPARING, JOINING, LEADING, SYNCING, COMPLETING, STABLE, LEAVING, FENCED, CLOSED = Stage

DOING: Mapping[Stage, str] = {
    UNJOINED: "is not taking part in a rebalance",
    PREPARING: "commits and revokes partitions before it joins",
    JOINING: "sends JoinGroup and waits until all members have joined",
    LEADING: "is the leader: it gets the topics' metadata and assigns partitions",
    SYNCING: "sends SyncGroup and waits for its assignment",
    COMPLETING: "has its assignment and calls the rebalance listener",
    STABLE: "is a member and reads its partitions",
    LEAVING: "commits, revokes its partitions and leaves the group",
    FENCED: "is fenced: another consumer uses its group.instance.id",
    CLOSED: "is closed",
}

NEXT: Mapping[Stage, frozenset[Stage]] = {
    UNJOINED: frozenset({PREPARING, JOINING, LEAVING, FENCED}),
    PREPARING: frozenset({JOINING, UNJOINED, LEAVING, FENCED}),
    JOINING: frozenset({LEADING, SYNCING, UNJOINED, LEAVING, FENCED}),
    LEADING: frozenset({SYNCING, UNJOINED, LEAVING, FENCED}),
    SYNCING: frozenset({COMPLETING, JOINING, UNJOINED, LEAVING, FENCED}),
    COMPLETING: frozenset({STABLE, UNJOINED, LEAVING, FENCED}),
    STABLE: frozenset({PREPARING, UNJOINED, LEAVING, FENCED}),
    LEAVING: frozenset({UNJOINED, CLOSED}),
    FENCED: frozenset({LEAVING}),
    CLOSED: frozenset(),
}

IN_A_REBALANCE = frozenset({JOINING, LEADING, SYNCING})
"""The old generation is over and the new one is not there yet: nothing can be committed."""


class Api(StrEnum):
    FIND_COORDINATOR = "FindCoordinator"
    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    OFFSET_COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    LEAVE_GROUP = "LeaveGroup"


class Do(Enum):
    """What a member does about an error."""

    RETRY = "back off, then try again"
    FIND = "look the coordinator up, back off, then try again"
    TAKE_ID = "join again at once, with the id it was given"
    REJOIN = "join again"
    DROP_GENERATION = "drop the generation, keep the id, join again: what it owned is lost"
    DROP_IDENTITY = "drop generation and id, join again: what it owned is lost"
    GIVE_UP = "out for good: every poll raises it"
    FAIL = "whoever asked gets the error (of a join, sync or heartbeat: the caller of poll)"
    IGNORE = "nothing"


_COORDINATOR = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Do.FIND,
    ErrorCode.NOT_COORDINATOR: Do.FIND,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Do.RETRY,
    # Not said by coordinators: the connection was lost, or nothing was heard for the request timeout.
    ErrorCode.NETWORK_EXCEPTION: Do.FIND,
    ErrorCode.REQUEST_TIMED_OUT: Do.FIND,
}

ON_ERROR: Mapping[Api, Mapping[ErrorCode, Do]] = {
    Api.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Do.RETRY,
        ErrorCode.NOT_COORDINATOR: Do.RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Do.RETRY,
        ErrorCode.NETWORK_EXCEPTION: Do.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: Do.RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Do.FAIL,
    },
    Api.JOIN_GROUP: {
        **_COORDINATOR,
        ErrorCode.MEMBER_ID_REQUIRED: Do.TAKE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID: Do.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: Do.DROP_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS: Do.REJOIN,
        ErrorCode.FENCED_INSTANCE_ID: Do.GIVE_UP,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Do.FAIL,
        ErrorCode.INVALID_SESSION_TIMEOUT: Do.FAIL,
        ErrorCode.INVALID_GROUP_ID: Do.FAIL,
        ErrorCode.GROUP_MAX_SIZE_REACHED: Do.FAIL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Do.FAIL,
        ErrorCode.UNSUPPORTED_VERSION: Do.FAIL,
    },
    Api.SYNC_GROUP: {
        **_COORDINATOR,  # Kafka's client does not expect a coordinator that loads here, and raises; C3 says it happens
        ErrorCode.REBALANCE_IN_PROGRESS: Do.REJOIN,
        ErrorCode.UNKNOWN_MEMBER_ID: Do.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: Do.DROP_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID: Do.GIVE_UP,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Do.FAIL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Do.FAIL,
    },
    Api.HEARTBEAT: {
        **_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS: Do.REJOIN,  # a sign of life, too; ignored unless the member is settled (M8)
        ErrorCode.UNKNOWN_MEMBER_ID: Do.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: Do.DROP_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID: Do.GIVE_UP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Do.FAIL,
    },
    Api.OFFSET_COMMIT: {
        **_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Do.RETRY,
        ErrorCode.UNKNOWN_TOPIC_ID: Do.RETRY,
        ErrorCode.REBALANCE_IN_PROGRESS: Do.REJOIN,
        ErrorCode.UNKNOWN_MEMBER_ID: Do.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: Do.DROP_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND: Do.DROP_IDENTITY,  # version 9: the group is gone, and with it the member
        ErrorCode.FENCED_INSTANCE_ID: Do.GIVE_UP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Do.FAIL,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Do.FAIL,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Do.FAIL,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: Do.FAIL,
    },
    Api.OFFSET_FETCH: {
        **_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: Do.RETRY,  # a transaction is about to decide
        ErrorCode.UNKNOWN_TOPIC_ID: Do.RETRY,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Do.FAIL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Do.FAIL,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Do.FAIL,
    },
    Api.LEAVE_GROUP: {},
}

OTHERWISE: Mapping[Api, Do] = {
    Api.FIND_COORDINATOR: Do.FAIL,
    Api.JOIN_GROUP: Do.FAIL,
    Api.SYNC_GROUP: Do.FAIL,
    Api.HEARTBEAT: Do.RETRY,
    Api.OFFSET_COMMIT: Do.FAIL,
    Api.OFFSET_FETCH: Do.FAIL,
    Api.LEAVE_GROUP: Do.IGNORE,  # whatever the answer, it is gone (M13)
}
"""For every error that is not named above."""


def on_error(api: Api, code: ErrorCode) -> Do:
    return ON_ERROR[api].get(code, OTHERWISE[api])


def enter(member: Member, stage: Stage, now_ms: int) -> None:
    """Move `member` along an arrow of NEXT."""
    if stage not in NEXT[member.stage]:
        raise IllegalTransitionError(
            f"a member cannot go from {member.stage} to {stage}: "
            f"from {member.stage} only {', '.join(sorted(NEXT[member.stage])) or 'nothing'} can be reached"
        )
    member.stage = stage
    member.stage_since_ms = now_ms
