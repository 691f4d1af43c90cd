"""The events of a member.

Three kinds. What the user does comes from the driver as it happens. News of the cluster likewise. Everything at the end
of the file is the answer to an effect: the driver gets the object inside the effect (`then`), sets `reply` or `error`
on it, and hands it in, once. A timer's `then` is handed in as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from re import Pattern
from typing import Any

from coterie.assignors import Topic
from coterie.client.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


# --- what the user does -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Subscribed:
    """`topics`, or all topics whose whole name matches `pattern`. Replaces what was subscribed before.

    In the protocol of KIP-848, `remote_pattern` may be given instead, which the broker matches, and `fresh_id` is the
    id of a member that has none yet: a new UUID, which the driver makes, since rules have no randomness.
    """

    topics: Collection[str] = ()
    pattern: Pattern[str] | None = None
    remote_pattern: str | None = None
    fresh_id: str = ""


@dataclass(slots=True)
class UnsubscribeAsked:
    """Give everything up and leave. `Ended` says when it is done; listeners may be called until then."""


@dataclass(slots=True)
class PollBegan:
    """The user called poll: everything before it is processed. Only here rebalances begin and listeners are called."""


@dataclass(slots=True)
class PollEnded:
    """The user has what poll returned; from now on max.poll.interval.ms runs."""


@dataclass(slots=True)
class CommitAsked:
    """The user commits offsets; `CommitEnded` with this token is the answer.

    `until_ms` None is Kafka's commitAsync: sent once, never repeated. Else retriable errors are retried until then.
    With `are_positions` a partition whose topic was deleted is left out, because the user did not name it. Otherwise
    the commit fails.
    """

    token: Hashable
    offsets: Offsets
    until_ms: int | None = None
    are_positions: bool = False


@dataclass(slots=True)
class CommittedAsked:
    """Fetch the committed offsets of these. Retried until `until_ms`; answered by `CommittedEnded`."""

    token: Hashable
    partitions: Collection[TopicPartition]
    until_ms: int


@dataclass(slots=True)
class RejoinAsked:
    """Start a rebalance at the next poll (Kafka's enforceRebalance). The join carries the reason (KIP-800)."""

    reason: str = "rebalance enforced by user"


@dataclass(slots=True)
class CloseAsked:
    """Commit (if auto-commit is on), give up, leave. `Ended` comes at `until_ms` at the latest, whatever happens.

    `leave` None: a dynamic member leaves, a static one stays. True or False override either (KIP-1092).
    """

    until_ms: int
    leave: bool | None = None


# --- news of the cluster ----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MetadataChanged:
    """The metadata of the topics of the last `WatchTopics`; a topic that is missing does not exist."""

    topics: Mapping[str, Topic]


# --- answers to effects -----------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Answer:
    """Set one of the two, then hand it in."""

    reply: Any = field(default=None, kw_only=True)
    error: Exception | None = field(default=None, kw_only=True)


@dataclass(slots=True)
class CoordinatorAnswered(Answer):
    """`reply`: the node, as the driver wants it back in `SendRequest.to`. Opaque here."""


@dataclass(slots=True)
class MetadataAnswered(Answer):
    """`reply`: topics by name, `Mapping[str, coterie.assignors.Topic]`, those that exist."""


@dataclass(slots=True)
class TopicsAnswered(Answer):
    """`reply`: as of `MetadataAnswered`, of the topics whose offsets the coordinator refused."""

    number: int
    """The number of the pending request that asked."""


@dataclass(slots=True)
class TopicIdsAnswered(Answer):
    """`reply`: the names of the topics by id, `Mapping[UUID, str]`, those that are known."""


@dataclass(slots=True)
class PositionsAnswered(Answer):
    """`reply`: `Offsets`, the positions of all assigned partitions that have one."""


@dataclass(slots=True)
class ListenerAnswered(Answer):
    """The listener has returned, or raised `error`."""

    kind: str
    partitions: frozenset[TopicPartition] = frozenset()


@dataclass(slots=True)
class _OfALife(Answer):
    """An answer to a request: it belongs to the generation and the id with which that was sent (KAFKA-9823)."""

    generation_id: int
    member_id: str


@dataclass(slots=True)
class JoinAnswered(_OfALife):
    """`reply`: `messages.JoinedGroup`."""


@dataclass(slots=True)
class SyncAnswered(_OfALife):
    """`reply`: `messages.SyncedGroup`."""


@dataclass(slots=True)
class HeartbeatAnswered(_OfALife):
    """`reply`: an ErrorCode."""


@dataclass(slots=True)
class ConsumerHeartbeatAnswered(Answer):
    """`reply`: `consumer_group_heartbeat.Response`."""

    member_epoch: int
    """The epoch of the request; 0: a join; -1 and -2: a leave."""
    was_member: bool
    """True if an earlier join of this member may have been accepted."""


@dataclass(slots=True)
class LeaveAnswered(_OfALife):
    """`reply`: `messages.LeftGroup`."""


@dataclass(slots=True)
class CommitAnswered(_OfALife):
    """`reply`: `messages.OffsetsCommitted`."""

    number: int


@dataclass(slots=True)
class CommittedAnswered(Answer):
    """`reply`: `messages.OffsetsFetched`."""

    number: int


# --- timers that rang -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class HeartbeatDue:
    """Time to look at the heartbeat, the session and the last poll."""


@dataclass(slots=True)
class RetryDue:
    """A back-off is over: look up, join, commit or ask again, whatever waits for it."""

    what: str
    number: int = 0
    """The number of the pending request, if it is one."""


@dataclass(slots=True)
class PrepareDue:
    """The time for the commit before a join is over (M3): continue without it."""


@dataclass(slots=True)
class AutoCommitDue:
    pass


@dataclass(slots=True)
class CloseDue:
    """The time for closing is over."""
