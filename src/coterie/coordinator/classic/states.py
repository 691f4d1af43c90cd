"""The states of a group, and what each state answers to each request.

These tables are section 2 of `docs/semantics.md`. Only this file assigns `group.state`. The rules look their
answers up here, the generated tests walk every cell, and `docs/states.md` is printed from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from coterie.errors import ErrorCode, IllegalTransitionError

if TYPE_CHECKING:
    from coterie.coordinator.classic.group import Group


class ClassicGroupState(StrEnum):
    """The names every Kafka tool prints. `Dead` is also what a client sees of a group that does not exist."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = ClassicGroupState


class GroupAction(Enum):
    """The reaction of a state to a request, other than an error."""

    CREATE = "create the group, as Empty, and ask again"
    START_REBALANCE = "start a rebalance"
    PARK = "park the join, and see whether the phase is complete"
    REPEAT = "repeat the current answer"
    COLLECT = "park the sync; the leader's is persisted, then all are answered"
    RECHECK = "see whether the join phase is complete"
    REPLACE = "persist the new id, then answer with the current generation"
    TAKE = "take it"
    TAKE_IF_CONSUMER = "take it if the protocol type is consumer, else NON_EMPTY_GROUP"
    NOTHING = "nothing"


Answer = ErrorCode | GroupAction

NEXT: Mapping[ClassicGroupState, frozenset[ClassicGroupState]] = {
    DEAD: frozenset({EMPTY}),
    EMPTY: frozenset({PREPARING_REBALANCE, DEAD}),
    PREPARING_REBALANCE: frozenset({EMPTY, COMPLETING_REBALANCE, DEAD}),
    COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE, STABLE, DEAD}),
    STABLE: frozenset({PREPARING_REBALANCE, DEAD}),
}

# A newcomer: no member id, or an id it was just given (rule 3).
ON_JOIN_NEW: Mapping[ClassicGroupState, Answer] = {
    EMPTY: GroupAction.START_REBALANCE,
    PREPARING_REBALANCE: GroupAction.PARK,
    COMPLETING_REBALANCE: GroupAction.START_REBALANCE,
    STABLE: GroupAction.START_REBALANCE,
    DEAD: GroupAction.CREATE,
}
ON_JOIN_UNCHANGED: Mapping[ClassicGroupState, Answer] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: GroupAction.PARK,
    COMPLETING_REBALANCE: GroupAction.REPEAT,  # its answer was lost on the way
    STABLE: GroupAction.REPEAT,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
ON_JOIN_UNCHANGED_LEADER: Mapping[ClassicGroupState, Answer] = {
    **ON_JOIN_UNCHANGED,
    STABLE: GroupAction.START_REBALANCE,  # the leader's way of saying that topics have changed
}
ON_JOIN_CHANGED: Mapping[ClassicGroupState, Answer] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: GroupAction.PARK,
    COMPLETING_REBALANCE: GroupAction.START_REBALANCE,
    STABLE: GroupAction.START_REBALANCE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
# A known instance id without a member id (KIP-345). In Empty and Dead no instance is known: it is a newcomer there.
ON_JOIN_STATIC_RETURN: Mapping[ClassicGroupState, Answer] = {
    EMPTY: GroupAction.START_REBALANCE,
    PREPARING_REBALANCE: GroupAction.PARK,
    COMPLETING_REBALANCE: GroupAction.START_REBALANCE,  # the leader may be assigning to the old id (KAFKA-9801)
    STABLE: GroupAction.REPLACE,  # unless the vote would change: then a rebalance (rule 19)
    DEAD: GroupAction.CREATE,
}
ON_SYNC: Mapping[ClassicGroupState, Answer] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    COMPLETING_REBALANCE: GroupAction.COLLECT,
    STABLE: GroupAction.REPEAT,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
ON_HEARTBEAT: Mapping[ClassicGroupState, ErrorCode] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,  # how a member hears of a rebalance at all (rule 15)
    COMPLETING_REBALANCE: ErrorCode.NONE,  # old brokers said REBALANCE_IN_PROGRESS
    STABLE: ErrorCode.NONE,
    DEAD: ErrorCode.UNKNOWN_MEMBER_ID,
}
# What follows when a member is gone, by leave, expiry or removal.
ON_REMOVAL: Mapping[ClassicGroupState, Answer] = {
    EMPTY: GroupAction.NOTHING,
    PREPARING_REBALANCE: GroupAction.RECHECK,
    COMPLETING_REBALANCE: GroupAction.START_REBALANCE,
    STABLE: GroupAction.START_REBALANCE,
    DEAD: GroupAction.NOTHING,
}
# With the right ids and generation. Empty has no members, so nobody's ids are right.
ON_COMMIT: Mapping[ClassicGroupState, Answer] = {
    EMPTY: ErrorCode.UNKNOWN_MEMBER_ID,
    PREPARING_REBALANCE: GroupAction.TAKE,
    COMPLETING_REBALANCE: ErrorCode.REBALANCE_IN_PROGRESS,
    STABLE: GroupAction.TAKE,
    DEAD: ErrorCode.ILLEGAL_GENERATION,
}
# Generation < 0 and no ids at all: a consumer without membership, or an admin.
ON_SIMPLE_COMMIT: Mapping[ClassicGroupState, Answer] = {
    EMPTY: GroupAction.TAKE,
    PREPARING_REBALANCE: ErrorCode.UNKNOWN_MEMBER_ID,
    COMPLETING_REBALANCE: ErrorCode.UNKNOWN_MEMBER_ID,
    STABLE: ErrorCode.UNKNOWN_MEMBER_ID,
    DEAD: GroupAction.CREATE,
}
ON_TXN_COMMIT: Mapping[ClassicGroupState, Answer] = {**ON_COMMIT, COMPLETING_REBALANCE: GroupAction.TAKE}
ON_SIMPLE_TXN_COMMIT: Mapping[ClassicGroupState, Answer] = {
    **ON_SIMPLE_COMMIT,
    PREPARING_REBALANCE: GroupAction.TAKE,  # old clients had no ids to give
    COMPLETING_REBALANCE: GroupAction.TAKE,
    STABLE: GroupAction.TAKE,
}
ON_DELETE_GROUP: Mapping[ClassicGroupState, Answer] = {
    EMPTY: GroupAction.TAKE,
    PREPARING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
    COMPLETING_REBALANCE: ErrorCode.NON_EMPTY_GROUP,
    STABLE: ErrorCode.NON_EMPTY_GROUP,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}
ON_OFFSET_DELETE: Mapping[ClassicGroupState, Answer] = {
    EMPTY: GroupAction.TAKE,
    PREPARING_REBALANCE: GroupAction.TAKE_IF_CONSUMER,
    COMPLETING_REBALANCE: GroupAction.TAKE_IF_CONSUMER,
    STABLE: GroupAction.TAKE_IF_CONSUMER,
    DEAD: ErrorCode.GROUP_ID_NOT_FOUND,
}

TABLES: Mapping[str, Mapping[ClassicGroupState, Answer]] = {
    "JoinGroup, new member": ON_JOIN_NEW,
    "JoinGroup, known id, same protocols": ON_JOIN_UNCHANGED,
    "JoinGroup, the leader, same protocols": ON_JOIN_UNCHANGED_LEADER,
    "JoinGroup, known id, changed protocols": ON_JOIN_CHANGED,
    "JoinGroup, known instance, no id": ON_JOIN_STATIC_RETURN,
    "SyncGroup": ON_SYNC,
    "Heartbeat": ON_HEARTBEAT,
    "a member is gone": ON_REMOVAL,
    "OffsetCommit, right ids": ON_COMMIT,
    "OffsetCommit, no ids": ON_SIMPLE_COMMIT,
    "TxnOffsetCommit, right ids": ON_TXN_COMMIT,
    "TxnOffsetCommit, no ids": ON_SIMPLE_TXN_COMMIT,
    "DeleteGroups": ON_DELETE_GROUP,
    "OffsetDelete": ON_OFFSET_DELETE,
}


def enter(group: Group, state: ClassicGroupState, now_ms: int) -> None:
    """Change the state of `group`, as NEXT allows."""
    if state not in NEXT[group.state]:
        raise IllegalTransitionError(
            f"group {group.group_id!r} cannot go from {group.state} to {state}: "
            f"from {group.state} only {', '.join(sorted(NEXT[group.state]))} can be reached"
        )
    group.in_initial_delay = group.state is EMPTY and state is PREPARING_REBALANCE
    group.state = state
    group.state_timestamp_ms = group.wall.at(now_ms)


def resume(group: Group, state: ClassicGroupState, since_ms: int) -> None:
    """Set the state of a group that was read from the log. This is not a transition."""
    group.state = state
    group.state_timestamp_ms = since_ms
