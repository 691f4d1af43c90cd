"""The events of a member.

Three kinds. What the user does comes from the driver as it happens. News of the cluster likewise. Everything at the end
of the file is the answer to an effect: the driver gets the object inside the effect (`then`), sets `reply` or `error`
on it, and hands it in, once. A timer's `then` is handed in as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from re import Pattern
from typing import Any

from coterie.assignors import Topic
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.structs import DataStruct

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


# --- what the user does -----------------------------------------------------------------------------------------------


class Subscribed(DataStruct):
    """`topics`, or all topics whose whole name matches `pattern`. Replaces what was subscribed before.

    In the protocol of KIP-848, `remote_pattern` may be given instead, which the broker matches, and `fresh_id` is the
    id of a member that has none yet: a new UUID, which the driver makes, since rules have no randomness.
    """

    topics: Collection[str] = ()
    pattern: Pattern[str] | None = None
    remote_pattern: str | None = None
    fresh_id: str = ""


class UnsubscribeAsked(DataStruct):
    """Give everything up and leave. `Ended` says when it is done; listeners may be called until then."""


class PollBegan(DataStruct):
    """The user called poll: everything before it is processed. Only here rebalances begin and listeners are called."""


class PollEnded(DataStruct):
    """The user has what poll returned; from now on max.poll.interval.ms runs."""


class CommitAsked(DataStruct):
    """The user commits offsets; `CommitEnded` with this token is the answer.

    `until_ms` None is Kafka's commitAsync: sent once, never repeated. Else retriable errors are retried until then.
    With `are_positions` a partition whose topic was deleted is left out, because the user did not name it. Otherwise
    the commit fails.
    """

    token: Hashable
    offsets: Offsets
    until_ms: int | None = None
    are_positions: bool = False


class CommittedAsked(DataStruct):
    """Fetch the committed offsets of these. Retried until `until_ms`; answered by `CommittedEnded`."""

    token: Hashable
    partitions: Collection[TopicPartition]
    until_ms: int


class RejoinAsked(DataStruct):
    """Start a rebalance at the next poll (Kafka's enforceRebalance). The join carries the reason (KIP-800)."""

    reason: str = "rebalance enforced by user"


class CloseAsked(DataStruct):
    """Commit (if auto-commit is on), give up, leave. `Ended` comes at `until_ms` at the latest, whatever happens.

    `leave` None: a dynamic member leaves, a static one stays. True or False override either (KIP-1092).
    """

    until_ms: int
    leave: bool | None = None


# --- news of the cluster ----------------------------------------------------------------------------------------------


class MetadataChanged(DataStruct):
    """The metadata of the topics of the last `WatchTopics`; a topic that is missing does not exist."""

    topics: Mapping[str, Topic]


# --- answers to effects -----------------------------------------------------------------------------------------------


class Answer(DataStruct, kw_only=True):
    """Set one of the two, then hand it in."""

    reply: Any = None
    error: Exception | None = None


class CoordinatorAnswered(Answer):
    """`reply`: the node, as the driver wants it back in `SendRequest.to`. Opaque here."""


class MetadataAnswered(Answer):
    """`reply`: topics by name, `Mapping[str, coterie.assignors.Topic]`, those that exist."""


class TopicsAnswered(Answer):
    """`reply`: as of `MetadataAnswered`, of the topics whose offsets the coordinator refused."""

    number: int
    """The number of the pending request that asked."""


class TopicIdsAnswered(Answer):
    """`reply`: the names of the topics by id, `Mapping[UUID, str]`, those that are known."""


class PositionsAnswered(Answer):
    """`reply`: `Offsets`, the positions of all assigned partitions that have one."""


class ListenerAnswered(Answer):
    """The listener has returned, or raised `error`."""

    kind: str
    partitions: frozenset[TopicPartition] = frozenset()


class _OfALife(Answer):
    """An answer to a request: it belongs to the generation and the id with which that was sent (KAFKA-9823)."""

    generation_id: int
    member_id: str


class JoinAnswered(_OfALife):
    """`reply`: `messages.JoinedGroup`."""


class SyncAnswered(_OfALife):
    """`reply`: `messages.SyncedGroup`."""


class HeartbeatAnswered(_OfALife):
    """`reply`: an ErrorCode."""


class ConsumerHeartbeatAnswered(Answer):
    """`reply`: `consumer_group_heartbeat.Response`."""

    member_epoch: int
    """The epoch of the request; 0: a join; -1 and -2: a leave."""
    was_member: bool
    """True if an earlier join of this member may have been accepted."""


class LeaveAnswered(_OfALife):
    """`reply`: `messages.LeftGroup`."""


class CommitAnswered(_OfALife):
    """`reply`: `messages.OffsetsCommitted`."""

    number: int


class CommittedAnswered(Answer):
    """`reply`: `messages.OffsetsFetched`."""

    number: int


# --- timers that rang -------------------------------------------------------------------------------------------------


class HeartbeatDue(DataStruct):
    """Time to look at the heartbeat, the session and the last poll."""


class RetryDue(DataStruct):
    """A back-off is over: look up, join, commit or ask again, whatever waits for it."""

    what: str
    number: int = 0
    """The number of the pending request, if it is one."""


class PrepareDue(DataStruct):
    """The time for the commit before a join is over (M3): continue without it."""


class AutoCommitDue(DataStruct):
    pass


class CloseDue(DataStruct):
    """The time for closing is over."""
