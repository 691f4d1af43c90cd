"""The states of a member, their transitions, its reaction to every error, and the errors that its user gets.

These tables are rules M4, M7, M8 and M13 of `docs/semantics.md`. Only this file assigns `member.state`; the rules look
up here what an error means, the generated tests walk every cell, and the tables of `docs/member.md` are printed from
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from coterie.errors import (
    AuthorizationError,
    CommitFailedError,
    ErrorCode,
    FencedInstanceError,
    IllegalTransitionError,
    KafkaError,
)

if TYPE_CHECKING:
    from coterie.client.member.member import MemberData, MemberSettings


class MemberState(StrEnum):
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


UNJOINED, PREPARING, JOINING, LEADING, SYNCING, COMPLETING, STABLE, LEAVING, FENCED, CLOSED = MemberState

DOING: Mapping[MemberState, str] = {
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

NEXT: Mapping[MemberState, frozenset[MemberState]] = {
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


class ApiName(StrEnum):
    FIND_COORDINATOR = "FindCoordinator"
    JOIN_GROUP = "JoinGroup"
    SYNC_GROUP = "SyncGroup"
    HEARTBEAT = "Heartbeat"
    OFFSET_COMMIT = "OffsetCommit"
    OFFSET_FETCH = "OffsetFetch"
    LEAVE_GROUP = "LeaveGroup"


class ErrorAction(Enum):
    """The reaction of a member to an error."""

    RETRY = "back off, then try again"
    FIND_COORDINATOR = "look the coordinator up, back off, then try again"
    TAKE_ID = "join again at once, with the id it was given"
    REJOIN = "join again"
    DROP_GENERATION = "drop the generation, keep the id, join again: what it owned is lost"
    DROP_IDENTITY = "drop generation and id, join again: what it owned is lost"
    FATAL = "failed for good: every poll raises the error"
    RELEASE = "release the instance id and join again, if it may be its own; else it is fatal"
    FAIL = "the caller gets the error (of a join, sync or heartbeat: the caller of poll)"
    IGNORE = "nothing"


_COORDINATOR = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorAction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: ErrorAction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
    # Not said by coordinators: the connection was lost, or nothing was heard for the request timeout.
    ErrorCode.NETWORK_EXCEPTION: ErrorAction.FIND_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT: ErrorAction.FIND_COORDINATOR,
}

ON_ERROR: Mapping[ApiName, Mapping[ErrorCode, ErrorAction]] = {
    ApiName.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorAction.RETRY,
        ErrorCode.NOT_COORDINATOR: ErrorAction.RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorAction.RETRY,
        ErrorCode.NETWORK_EXCEPTION: ErrorAction.RETRY,
        ErrorCode.REQUEST_TIMED_OUT: ErrorAction.RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    },
    ApiName.JOIN_GROUP: {
        **_COORDINATOR,
        ErrorCode.MEMBER_ID_REQUIRED: ErrorAction.TAKE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: ErrorAction.DROP_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
        ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FATAL,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ErrorAction.FAIL,
        ErrorCode.INVALID_SESSION_TIMEOUT: ErrorAction.FAIL,
        ErrorCode.INVALID_GROUP_ID: ErrorAction.FAIL,
        ErrorCode.GROUP_MAX_SIZE_REACHED: ErrorAction.FAIL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
        ErrorCode.UNSUPPORTED_VERSION: ErrorAction.FAIL,
    },
    ApiName.SYNC_GROUP: {
        **_COORDINATOR,  # Kafka's client does not expect a coordinator that loads here, and raises; C3 says it happens
        ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: ErrorAction.DROP_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FATAL,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ErrorAction.FAIL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    },
    ApiName.HEARTBEAT: {
        **_COORDINATOR,
        ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,  # a sign of life; ignored unless settled (M8)
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: ErrorAction.DROP_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    },
    ApiName.OFFSET_COMMIT: {
        **_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.RETRY,
        ErrorCode.REBALANCE_IN_PROGRESS: ErrorAction.REJOIN,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.DROP_IDENTITY,
        ErrorCode.ILLEGAL_GENERATION: ErrorAction.DROP_GENERATION,
        ErrorCode.GROUP_ID_NOT_FOUND: ErrorAction.DROP_IDENTITY,  # version 9: the group is gone, and with it the member
        ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.FAIL,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorAction.FAIL,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorAction.FAIL,
    },
    ApiName.OFFSET_FETCH: {
        **_COORDINATOR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorAction.RETRY,  # a transaction is about to decide
        ErrorCode.UNKNOWN_TOPIC_ID: ErrorAction.RETRY,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorAction.FAIL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FAIL,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.FAIL,
    },
    ApiName.LEAVE_GROUP: {},
}

OTHERWISE: Mapping[ApiName, ErrorAction] = {
    ApiName.FIND_COORDINATOR: ErrorAction.FAIL,
    ApiName.JOIN_GROUP: ErrorAction.FAIL,
    ApiName.SYNC_GROUP: ErrorAction.FAIL,
    ApiName.HEARTBEAT: ErrorAction.RETRY,
    ApiName.OFFSET_COMMIT: ErrorAction.FAIL,
    ApiName.OFFSET_FETCH: ErrorAction.FAIL,
    ApiName.LEAVE_GROUP: ErrorAction.IGNORE,  # whatever the answer, it is gone (M13)
}
"""The reaction to every error that is not listed above."""


def on_error(api: ApiName, code: ErrorCode) -> ErrorAction:
    return ON_ERROR[api].get(code, OTHERWISE[api])


def enter(member: MemberData, state: MemberState, now_ms: int) -> None:
    """Move `member` along an arrow of NEXT."""
    if state not in NEXT[member.state]:
        raise IllegalTransitionError(
            f"a member cannot go from {member.state} to {state}: "
            f"from {member.state} only {', '.join(sorted(NEXT[member.state])) or 'nothing'} can be reached"
        )
    member.state = state
    member.state_since_ms = now_ms


class AssignorError(KafkaError):
    """An assignor raised, or its answer is invalid."""


class ListenerError(KafkaError):
    """A rebalance listener raised. The cause is what it raised; the assignment is not affected (M14)."""


def code_of(error: Exception) -> ErrorCode:
    return error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR


_ADVICE = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs READ on the group; ask for that ACL",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs READ on the topic; ask for that ACL",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "all members must share an assignor (partition.assignment.strategy); give this one an assignor that the others "
        "have, or stop the others first"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms must lie within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms"
    ),
    ErrorCode.INVALID_GROUP_ID: "a member needs a group.id that is not empty",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "the group has group.max.size members; stop one, or raise that on the broker",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old; without group.instance.id it may do",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of a commit may be offset.metadata.max.bytes long",
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer has joined with the same group.instance.id, and the later one wins; close this consumer, and "
        "give every consumer an instance id of its own"
    ),
}


def error_for(
    api: str, code: ErrorCode, settings: MemberSettings, about: str = "", advice: str | None = None
) -> KafkaError:
    """Return the error for the user, with the usual advice for this code unless another is given."""
    advice = _ADVICE.get(code, "") if advice is None else advice
    message = f'{api} of group "{settings.group_id}" was refused with {code.name}' + (f" ({about})" if about else "")
    message += f": {advice}" if advice else ""
    if code in {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}:
        return AuthorizationError(message, code)
    if code is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceError(message, code)
    if api is ApiName.OFFSET_COMMIT and code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH}:
        return CommitFailedError(message, code)
    return KafkaError(message, code)


def with_advice(api: ApiName, error: Exception, settings: MemberSettings) -> Exception:
    """Add the advice to an error that arrived instead of an answer, if it has only a code."""
    return error_for(api, error.code, settings, str(error)) if type(error) is KafkaError else error
