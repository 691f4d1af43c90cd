"""The effects that a member returns. An effect that takes time has in `then` the event that it comes back as.

A driver owes a member three things. Every `then` of a request comes back exactly once, with a reply or an error, at
the latest after `timeout_ms`. `CallListener` is run before the poll, unsubscribe or close that is under way returns.
Effects are performed in the order given, all of them before the next event is handed in.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from enum import StrEnum
from typing import Any
from uuid import UUID

from coterie.client.member.events import (
    Answer,
    CloseAsked,
    CoordinatorAnswered,
    ListenerAnswered,
    MetadataAnswered,
    Offsets,
    PositionsAnswered,
    TopicIdsAnswered,
    TopicsAnswered,
    UnsubscribeAsked,
)
from coterie.client.types import TopicPartition
from coterie.facts import Emit
from coterie.protocol.apis.consumer_group_heartbeat import Request as ConsumerGroupHeartbeat
from coterie.protocol.messages import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, OffsetFetch, SyncGroup
from coterie.structs import DataStruct

Request = JoinGroup | SyncGroup | Heartbeat | ConsumerGroupHeartbeat | LeaveGroup | OffsetCommit | OffsetFetch
COORDINATOR_LANE = "coordinator"
"""The connection of a member to its coordinator, apart from the one that fetches from the same node (M11)."""
LEAVING_LANE = "leaving"
"""A leave does not queue behind the join or sync that is parked on the other connection (C6)."""


class Listened(StrEnum):
    """The methods of a rebalance listener."""

    REVOKED = "revoked"
    """The partitions are about to be given up, and the member still owns them: the listener may commit."""
    ASSIGNED = "assigned"
    """New ones only, and also if there are none."""
    LOST = "lost"
    """Already lost: another member may read them."""


class SendRequest(DataStruct):
    """Send it to the coordinator `to`, on the connection `lane`, in order. The `token` of the request is not used."""

    to: Any
    request: Request
    timeout_ms: int
    then: Answer
    lane: str = COORDINATOR_LANE


class FindCoordinator(DataStruct):
    """Ask one node, once; the member backs off and asks again by itself. Refresh metadata if it failed before."""

    then: CoordinatorAnswered


class Disconnect(DataStruct):
    """Close the lanes to this coordinator: what is under way there comes back as lost."""

    node: Any


class StartTimer(DataStruct):
    """Hand `then` in at `at_ms`. A key that is armed again is replaced; coterie.coordinator.Timers does that."""

    key: str
    at_ms: int
    then: Any


class StopTimer(DataStruct):
    key: str


class CallListener(DataStruct):
    """Call the listener, in the thread or task that polls. Without a listener: answer at once."""

    kind: Listened
    partitions: Collection[TopicPartition]
    then: ListenerAnswered


class HoldPartitions(DataStruct):
    """Return no more records of these partitions to the user: they are about to be committed and given up."""

    partitions: Collection[TopicPartition]


class SetAssignment(DataStruct):
    """Read these partitions from now on, and no others. Only `added` need a position: `CommittedAsked`, then reset."""

    partitions: Collection[TopicPartition]
    added: Collection[TopicPartition]


class WatchTopics(DataStruct):
    """Keep metadata of these fresh (None: of all topics) and hand in `MetadataChanged` whenever it has changed.

    A driver whose exclude.internal.topics is on leaves internal topics out where None is asked for.
    """

    topics: frozenset[str] | None


class RefreshMetadata(DataStruct):
    """Ask the cluster now, about these topics (None: all). `may_create` False: in no case have them created by it."""

    topics: frozenset[str] | None
    then: MetadataAnswered | TopicsAnswered
    may_create: bool = True


class ResolveTopicIds(DataStruct):
    """Look these ids up in the metadata; ask the cluster if one is not known. Answer with the names that are known."""

    topic_ids: frozenset[UUID]
    then: TopicIdsAnswered


class AskPositions(DataStruct):
    """Get the positions to commit. Answer at once: the positions after the last records that poll has returned."""

    then: PositionsAnswered


class CommitEnded(DataStruct):
    token: Hashable
    error: Exception | None = None


class CommittedEnded(DataStruct):
    """`offsets` has no entry for a partition the group never committed."""

    token: Hashable
    offsets: Offsets
    error: Exception | None = None


class Fail(DataStruct):
    """Raised by the poll that is under way, or by the next one. Polling on is allowed, and tries again."""

    error: Exception


class Ended(DataStruct):
    """The unsubscribe or close has ended; `error` if a listener raised."""

    asked: UnsubscribeAsked | CloseAsked
    error: Exception | None = None


Effect = (
    SendRequest
    | FindCoordinator
    | Disconnect
    | StartTimer
    | StopTimer
    | CallListener
    | HoldPartitions
    | SetAssignment
    | WatchTopics
    | RefreshMetadata
    | ResolveTopicIds
    | AskPositions
    | CommitEnded
    | CommittedEnded
    | Fail
    | Ended
    | Emit
)
Effects = list[Effect]
