"""The events of a member, with their time. Drivers log them."""

from __future__ import annotations

from collections.abc import Collection

from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode
from coterie.facts import Fact

__all__ = [
    "AssignmentReconciled",
    "AssignmentTaken",
    "AutoCommitFailed",
    "CommitFailed",
    "CommitLeftOut",
    "CoordinatorFound",
    "CoordinatorLost",
    "CoordinatorReached",
    "CoordinatorUnreachable",
    "Fenced",
    "GroupEntered",
    "GroupJoined",
    "GroupLeft",
    "IdentityDropped",
    "ListenerFailed",
    "PartitionsGivenUp",
    "PollIntervalExceeded",
    "PollResumed",
    "PreparationCutShort",
    "RebalanceBegan",
    "RebalanceNotEnforced",
    "ReconciliationBegan",
    "TopicFound",
    "TopicIdsUnknown",
    "TopicMissing",
]


class CoordinatorFound(Fact):
    node: str


class CoordinatorLost(Fact):
    node: str
    cause: str


class RebalanceBegan(Fact):
    """The member prepares to join, for this reason."""

    reason: str


class PreparationCutShort(Fact):
    """The commit before the join had the whole rebalance timeout and did not end (M3)."""

    waited_ms: int


class GroupJoined(Fact):
    member_id: str
    generation_id: int
    protocol_name: str
    leads: bool


class AssignmentTaken(Fact):
    generation_id: int
    partitions: Collection[TopicPartition]
    added: Collection[TopicPartition]


class GroupEntered(Fact):
    """The coordinator has answered the first heartbeat of a member (KIP-848)."""

    member_id: str
    member_epoch: int


class RebalanceNotEnforced(Fact):
    """A rebalance was asked for, which only the broker can begin (KIP-848)."""

    reason: str


class ReconciliationBegan(Fact):
    """The member goes from what it owns to what it is assigned (KIP-848)."""

    member_epoch: int
    added: Collection[TopicPartition]
    revoked: Collection[TopicPartition]


class AssignmentReconciled(Fact):
    """The member has taken the partitions that the broker assigned (KIP-848)."""

    member_epoch: int
    partitions: Collection[TopicPartition]
    added: Collection[TopicPartition]


class TopicIdsUnknown(Fact):
    """The broker assigned partitions of topics that the metadata does not have: they wait (KIP-848)."""

    topic_ids: Collection[str]


class PartitionsGivenUp(Fact):
    """`lost`: they were gone before they could be given up."""

    partitions: Collection[TopicPartition]
    lost: bool
    why: str


class IdentityDropped(Fact):
    """The coordinator no longer knows this generation, or this member at all; `member_id` is the one that is kept."""

    why: str
    member_id: str
    code: ErrorCode = ErrorCode.NONE
    """The coordinator's error; NONE if the member drops its generation by itself."""


class PollIntervalExceeded(Fact):
    """No poll for max.poll.interval.ms: the member leaves, so that others get its partitions (M8)."""

    max_poll_interval_ms: int
    left: bool
    """False for a static member: it only falls silent."""

    def __str__(self) -> str:
        went = "has left its group" if self.left else "has stopped its heartbeats"
        return (
            f"the member {went}: poll was not called for max.poll.interval.ms ({self.max_poll_interval_ms} ms). "
            "Process less between two polls (max.poll.records) or allow more time (max.poll.interval.ms)"
        )


class PollResumed(Fact):
    """Poll was called again after max.poll.interval.ms was exceeded, this much too late."""

    late_ms: int


class ListenerFailed(Fact):
    kind: str
    error: str


class AutoCommitFailed(Fact):
    error: str


class CommitFailed(Fact):
    """A commit that the user asked for."""

    error: str


class CommitLeftOut(Fact):
    """The coordinator does not know these partitions, and the cluster's metadata does not have them any more."""

    partitions: Collection[TopicPartition]


class GroupLeft(Fact):
    member_id: str
    reason: str
    leave_sent: bool
    """False: LeaveGroup was not sent, and the coordinator will notice after the session timeout."""


class Fenced(Fact):
    instance_id: str


# --- what a driver notices --------------------------------------------------------------------------------------------


class CoordinatorUnreachable(Fact):
    """The coordinator was asked something and has not answered for so long."""

    waited_ms: int
    why: str


class CoordinatorReached(Fact):
    """The coordinator answers again, after `CoordinatorUnreachable`."""

    after_ms: int


class TopicMissing(Fact):
    """A subscribed topic does not exist, or may not be read."""

    topic: str
    error: ErrorCode


class TopicFound(Fact):
    """A topic that was missing is there now."""

    topic: str
