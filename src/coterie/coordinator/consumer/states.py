"""The states of a consumer group and of its members, and how a member is reconciled with its target (K4, section 3).

The rules look up here what to do, tests walk every cell, and `docs/states.md` is printed from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum, StrEnum

from coterie.errors import ErrorCode


class GroupState(StrEnum):
    """The names that Kafka's tools print. A state is never set: it follows from the epochs (`ConsumerGroup.state`)."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


MEANING: Mapping[GroupState, str] = {
    GroupState.EMPTY: "it has no members",
    GroupState.ASSIGNING: "the group epoch is ahead of the assignment epoch: the target is to be computed",
    GroupState.RECONCILING: "some member is not Stable, or not at the assignment epoch",
    GroupState.STABLE: "all members are Stable at the assignment epoch",
    GroupState.DEAD: "there is no such group",
}


class MemberState(IntEnum):
    """The values in the records of `__consumer_offsets`."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


class Situation(Enum):
    """The situation of a member when its heartbeat is handled."""

    REACHED = "at the assignment epoch"
    REACHED_AND_CHANGED = "at the assignment epoch, its subscription has changed"
    BEHIND = "behind the assignment epoch"
    OWNS_REVOKED = "it has not reported that it gave up what it must"
    OWNS_REVOKED_AND_CHANGED = "it has not reported that, and its subscription has changed"
    GAVE_UP = "it reported what it owns, without anything that it must give up"
    WAITS = "any heartbeat"


class Step(Enum):
    NOTHING = "nothing"
    DROP_TOPICS = "revoke the partitions of topics that it does not subscribe to any more"
    NEXT = "revoke what is not in its target; if there is nothing to revoke, take what is free"


ON_RECONCILE: Mapping[MemberState, Mapping[Situation, Step]] = {
    MemberState.STABLE: {
        Situation.REACHED: Step.NOTHING,
        Situation.REACHED_AND_CHANGED: Step.DROP_TOPICS,
        Situation.BEHIND: Step.NEXT,
    },
    MemberState.UNREVOKED_PARTITIONS: {
        Situation.OWNS_REVOKED: Step.NOTHING,
        Situation.OWNS_REVOKED_AND_CHANGED: Step.DROP_TOPICS,
        Situation.GAVE_UP: Step.NEXT,
    },
    MemberState.UNRELEASED_PARTITIONS: {
        Situation.WAITS: Step.NEXT,
    },
}


class ClassicSituation(Enum):
    """The situation of a classic member when it asks whether to rejoin (K25)."""

    MUST_GIVE_UP = "it has partitions to give up"
    BEHIND = "behind the assignment epoch"
    CAN_TAKE_ALL = "all that it waits for is free"
    UP_TO_DATE = "any other"


ON_CLASSIC_HEARTBEAT: Mapping[ClassicSituation, ErrorCode] = {
    ClassicSituation.MUST_GIVE_UP: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicSituation.BEHIND: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicSituation.CAN_TAKE_ALL: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicSituation.UP_TO_DATE: ErrorCode.NONE,
}
ON_CLASSIC_SYNC: Mapping[ClassicSituation, ErrorCode] = {
    ClassicSituation.MUST_GIVE_UP: ErrorCode.NONE,  # the assignment says what it keeps
    ClassicSituation.BEHIND: ErrorCode.REBALANCE_IN_PROGRESS,
    ClassicSituation.CAN_TAKE_ALL: ErrorCode.NONE,
    ClassicSituation.UP_TO_DATE: ErrorCode.NONE,
}

BIDIRECTIONAL, UPGRADE, DOWNGRADE, DISABLED = "bidirectional", "upgrade", "downgrade", "disabled"
"""The values of `group.consumer.migration.policy`."""
MAY_UPGRADE = frozenset({BIDIRECTIONAL, UPGRADE})
MAY_DOWNGRADE = frozenset({BIDIRECTIONAL, DOWNGRADE})
