"""The states of a member of a KIP-848 group, their transitions, and its reaction to every error.

Only this file assigns `member.state`. The states are those of Java's `MemberState`, and `Closed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from coterie.client.member import states as classic
from coterie.client.member.states import ApiName, ErrorAction
from coterie.errors import ErrorCode, IllegalTransitionError

if TYPE_CHECKING:
    from coterie.client.member.consumer_protocol.member import ConsumerMemberData


class ConsumerMemberState(StrEnum):
    UNSUBSCRIBED = "Unsubscribed"
    JOINING = "Joining"
    RECONCILING = "Reconciling"
    ACKNOWLEDGING = "Acknowledging"
    STABLE = "Stable"
    FENCED = "Fenced"
    STALE = "Stale"
    FATAL = "Fatal"
    PREPARE_LEAVING = "PrepareLeaving"
    LEAVING = "Leaving"
    CLOSED = "Closed"


(
    UNSUBSCRIBED,
    JOINING,
    RECONCILING,
    ACKNOWLEDGING,
    STABLE,
    FENCED,
    STALE,
    FATAL,
    PREPARE_LEAVING,
    LEAVING,
    CLOSED,
) = ConsumerMemberState

DOING: Mapping[ConsumerMemberState, str] = {
    UNSUBSCRIBED: "is not a member",
    JOINING: "sends heartbeats with epoch 0 until one is answered",
    RECONCILING: "commits, revokes and takes partitions until it owns what the broker has assigned",
    ACKNOWLEDGING: "is about to report the partitions that it owns now",
    STABLE: "is a member and reads its partitions",
    FENCED: "was removed by the coordinator: it calls the listener for what it has lost, and joins again",
    STALE: "has left because poll was not called for max.poll.interval.ms; the next poll joins again",
    FATAL: "has failed for good: every poll raises the error",
    PREPARE_LEAVING: "commits and revokes its partitions before it leaves",
    LEAVING: "leaves the group",
    CLOSED: "is closed",
}

_OUT = frozenset({FENCED, FATAL, PREPARE_LEAVING})
NEXT: Mapping[ConsumerMemberState, frozenset[ConsumerMemberState]] = {
    UNSUBSCRIBED: frozenset({JOINING, PREPARE_LEAVING}),
    JOINING: frozenset({RECONCILING, STABLE}) | _OUT,
    RECONCILING: frozenset({ACKNOWLEDGING, STABLE}) | _OUT,
    ACKNOWLEDGING: frozenset({STABLE, RECONCILING}) | _OUT,
    STABLE: frozenset({RECONCILING}) | _OUT,
    FENCED: frozenset({JOINING, PREPARE_LEAVING}),
    STALE: frozenset({JOINING, PREPARE_LEAVING}),
    FATAL: frozenset({PREPARE_LEAVING}),
    PREPARE_LEAVING: frozenset({LEAVING}),
    LEAVING: frozenset({UNSUBSCRIBED, STALE, CLOSED}),
    CLOSED: frozenset(),
}

IN_THE_GROUP = frozenset({JOINING, RECONCILING, ACKNOWLEDGING, STABLE})
"""States in which it sends heartbeats, and wants to."""

HEARTBEAT_API = "ConsumerGroupHeartbeat"

_AGAIN = frozenset({ErrorAction.FIND_COORDINATOR, ErrorAction.RETRY})
_COORDINATOR = {code: what for code, what in classic.ON_ERROR[ApiName.HEARTBEAT].items() if what in _AGAIN}
ON_ERROR: Mapping[str, Mapping[ErrorCode, ErrorAction]] = {
    ApiName.FIND_COORDINATOR: classic.ON_ERROR[ApiName.FIND_COORDINATOR],
    HEARTBEAT_API: {
        **_COORDINATOR,
        ErrorCode.FENCED_MEMBER_EPOCH: ErrorAction.DROP_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.DROP_GENERATION,
        ErrorCode.UNRELEASED_INSTANCE_ID: ErrorAction.RELEASE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorAction.FAIL,
        ErrorCode.FENCED_INSTANCE_ID: ErrorAction.FATAL,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorAction.FATAL,
        ErrorCode.GROUP_ID_NOT_FOUND: ErrorAction.FATAL,
        ErrorCode.GROUP_MAX_SIZE_REACHED: ErrorAction.FATAL,
        ErrorCode.INVALID_REGULAR_EXPRESSION: ErrorAction.FATAL,
        ErrorCode.INVALID_REQUEST: ErrorAction.FATAL,
        ErrorCode.UNSUPPORTED_ASSIGNOR: ErrorAction.FATAL,
        ErrorCode.UNSUPPORTED_VERSION: ErrorAction.FATAL,
    },
    ApiName.OFFSET_COMMIT: {
        **{
            code: what
            for code, what in classic.ON_ERROR[ApiName.OFFSET_COMMIT].items()
            if what in _AGAIN | {ErrorAction.FAIL}
        },
        ErrorCode.STALE_MEMBER_EPOCH: ErrorAction.RETRY,  # with the epoch that a heartbeat has brought by then
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.FAIL,  # the next heartbeat says the same, and fences
    },
    ApiName.OFFSET_FETCH: {
        **classic.ON_ERROR[ApiName.OFFSET_FETCH],
        ErrorCode.STALE_MEMBER_EPOCH: ErrorAction.RETRY,
        ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.RETRY,
    },
}
OTHERWISE: Mapping[str, ErrorAction] = {
    ApiName.FIND_COORDINATOR: ErrorAction.FAIL,
    HEARTBEAT_API: ErrorAction.FATAL,
    ApiName.OFFSET_COMMIT: ErrorAction.FAIL,
    ApiName.OFFSET_FETCH: ErrorAction.FAIL,
}
"""The reaction to every error that is not listed above."""


def on_error(api: str, code: ErrorCode) -> ErrorAction:
    return ON_ERROR[api].get(code, OTHERWISE[api])


def enter(member: ConsumerMemberData, state: ConsumerMemberState, now_ms: int) -> None:
    """Move `member` along an arrow of NEXT."""
    if state not in NEXT[member.state]:
        raise IllegalTransitionError(
            f"a member cannot go from {member.state} to {state}: "
            f"from {member.state} only {', '.join(sorted(NEXT[member.state])) or 'nothing'} can be reached"
        )
    member.state = state
    member.state_since_ms = now_ms


ADVICE: Mapping[ErrorCode, str] = {
    ErrorCode.UNSUPPORTED_VERSION: (
        "group.protocol=consumer needs Apache Kafka 4.0 or newer (KIP-848); set group.protocol=classic, or leave it out"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another consumer with this group.instance.id is a member of the group, or one has died and its session has "
        "not ended yet. Give every consumer an instance id of its own; after a crash, start it again when the session "
        "is over (group.consumer.session.timeout.ms of the broker)"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "group.remote.assignor names an assignor that the broker does not have; its group.consumer.assignors are "
        "uniform and range, if nothing is set"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: (
        "the pattern is matched by the broker, in the syntax of RE2, which has no look-ahead and no back-references; "
        "a pattern of re.compile is matched by the client"
    ),
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the group does not exist any more, or its members use the classic protocol and it cannot be converted "
        "(group.consumer.migration.policy of the broker)"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group has group.consumer.max.size members; stop one, or raise that on the broker"
    ),
    ErrorCode.FENCED_INSTANCE_ID: (
        "another consumer uses this group.instance.id; close this consumer, and give every consumer an instance id of "
        "its own"
    ),
}
