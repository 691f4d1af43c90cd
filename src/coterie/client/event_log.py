"""The log lines of clients: a line for each event, from one table.

The loggers are `coterie.consumer`, `coterie.producer` and `coterie.admin`. Nothing is installed but a NullHandler: what
is shown, and where, is the application's choice. A line's event is on the record as `record.event`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import count
from logging import DEBUG, INFO, WARNING
from typing import Any, NamedTuple

from coterie.client.consumer.fetch_requests import LogTruncated
from coterie.client.member import facts
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode
from coterie.settings.client_settings import ClientSettings
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.structs import DataStruct

__all__ = [
    "LINES",
    "ClientAuthenticationFailed",
    "ClosedWithRecords",
    "DeliveryFailed",
    "EventLog",
    "NodeDisconnected",
    "NodeReached",
    "NodeUnreachable",
    "ProduceResumed",
    "ProduceRetried",
    "ProducerIdObtained",
    "TransactionFailed",
]

PARTITIONS_SHOWN = 20


# --- what happens to the connections of any client --------------------------------------------------------------------


class NodeDisconnected(DataStruct):
    node: str
    why: str


class NodeUnreachable(DataStruct):
    """The first of several failed attempts to connect to a node; further ones are not logged."""

    node: str
    why: str


class ClientAuthenticationFailed(DataStruct):
    """A node and this client do not accept each other, for the first time of several; it is raised, too."""

    node: str
    why: str


class NodeReached(DataStruct):
    """A node was connected to, after `NodeUnreachable` or `ClientAuthenticationFailed`."""

    node: str
    attempts: int


# --- what happens to a producer ---------------------------------------------------------------------------------------


class ProducerIdObtained(DataStruct):
    producer_id: int
    epoch: int


class ProduceRetried(DataStruct):
    """Records of a partition are sent again; logged once until the partition accepts records."""

    partition: TopicPartition
    why: str


class ProduceResumed(DataStruct):
    """A partition takes records again, after `ProduceRetried`."""

    partition: TopicPartition


class DeliveryFailed(DataStruct):
    records: int
    partitions: Collection[TopicPartition]
    why: str


class TransactionFailed(DataStruct):
    """A transaction can only be aborted, or its producer cannot go on; the error says which."""

    transactional_id: str
    why: str


class ClosedWithRecords(DataStruct):
    records: int
    timeout_s: float | None


# --- the lines --------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    level: Callable[[Any], int] | int
    template: str
    values: Callable[[Any], tuple[object, ...]]
    when: str
    """The occasion on which the line is written, for the documentation."""


def _listed(partitions: Collection[TopicPartition]) -> str:
    shown = [str(one) for one in list(partitions)[:PARTITIONS_SHOWN]]
    more = len(partitions) - len(shown)
    return (", ".join(shown) or "no partitions") + (f" and {more} more" if more else "")


def _assigned(fact: facts.AssignmentTaken) -> tuple[object, ...]:
    return _listed(fact.partitions), _added(fact), fact.generation_id


def _added(fact: facts.AssignmentTaken | facts.AssignmentReconciled) -> str:
    return "" if len(fact.added) in {0, len(fact.partitions)} else f" (added {_listed(fact.added)})"


_DROPPED = {
    ErrorCode.ILLEGAL_GENERATION: "the group has a newer generation, which this member is not in",
    ErrorCode.UNKNOWN_MEMBER_ID: "its session has expired (session.timeout.ms), or it was removed from the group",
    ErrorCode.FENCED_MEMBER_EPOCH: "the coordinator has another epoch for it",
}


def _dropped(fact: facts.IdentityDropped) -> tuple[object, ...]:
    why = _DROPPED.get(fact.code, "")
    return fact.why, f": {why}" if why else ""


def _left(fact: facts.GroupLeft) -> tuple[object, ...]:
    unsent = "; LeaveGroup could not be sent, and the coordinator will notice after session.timeout.ms"
    return fact.reason, "" if fact.leave_sent else unsent


_MISSING = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "does not exist: nothing is read of it until it is created",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "may not be read: the principal needs READ and DESCRIBE on it",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "cannot exist: its name is not a valid one",
}


def _missing(fact: facts.TopicMissing) -> tuple[object, ...]:
    return fact.topic, _MISSING.get(fact.error, "cannot be read"), fact.error.name


LINES: Mapping[type, Line] = {
    facts.RebalanceBegan: Line(
        INFO, "joining the group: %s", lambda fact: (fact.reason or "subscribed",), "a rebalance begins, and why"
    ),
    facts.GroupJoined: Line(
        INFO,
        "joined generation %d as member %s (%s, assignor %s)",
        lambda fact: (
            fact.generation_id,
            fact.member_id,
            "leader" if fact.leads else "follower",
            fact.protocol_name,
        ),
        "the coordinator has answered the join",
    ),
    facts.AssignmentTaken: Line(INFO, "assigned %s%s in generation %d", _assigned, "partitions are assigned"),
    facts.GroupEntered: Line(
        INFO,
        "joined the group as member %s in epoch %d",
        lambda fact: (fact.member_id, fact.member_epoch),
        "the coordinator has answered the first heartbeat of a member (KIP-848)",
    ),
    facts.RebalanceNotEnforced: Line(
        WARNING,
        "enforce_rebalance() does nothing with group.protocol=consumer: the broker assigns the partitions",
        lambda _: (),
        "a rebalance was asked for in the protocol of KIP-848",
    ),
    facts.ReconciliationBegan: Line(
        DEBUG,
        "reconciling in epoch %d: adding %s, revoking %s",
        lambda fact: (fact.member_epoch, _listed(fact.added), _listed(fact.revoked)),
        "the member begins to take another assignment (KIP-848)",
    ),
    facts.AssignmentReconciled: Line(
        INFO,
        "assigned %s%s in epoch %d",
        lambda fact: (_listed(fact.partitions), _added(fact), fact.member_epoch),
        "partitions are assigned (KIP-848)",
    ),
    facts.TopicIdsUnknown: Line(
        INFO,
        "assigned partitions of topics that the metadata does not have yet (ids %s); they are read when it has them",
        lambda fact: (", ".join(fact.topic_ids),),
        "partitions wait for metadata (KIP-848)",
    ),
    facts.PartitionsGivenUp: Line(
        INFO,
        "%s %s: %s",
        lambda fact: ("lost" if fact.lost else "revoked", _listed(fact.partitions), fact.why),
        "partitions are revoked or lost, and why",
    ),
    facts.GroupLeft: Line(INFO, "left the group: %s%s", _left, "the member leaves, and why"),
    facts.CoordinatorFound: Line(INFO, "coordinator is %s", lambda fact: (fact.node,), "the coordinator was found"),
    facts.CoordinatorLost: Line(
        INFO,
        "coordinator %s was lost: %s",
        lambda fact: (fact.node, fact.cause),
        "the coordinator was lost, and why; it is looked up again",
    ),
    facts.CoordinatorUnreachable: Line(
        WARNING,
        "the coordinator has not answered for %.1f s%s; commits and rebalances wait for it, and a member that cannot "
        "send heartbeats loses its partitions after session.timeout.ms",
        lambda fact: (fact.waited_ms / 1000, f" ({fact.why})" if fact.why else ""),
        "the coordinator has not answered for 10 s; once, until it answers",
    ),
    facts.CoordinatorReached: Line(
        INFO,
        "the coordinator answers again, after %.1f s",
        lambda fact: (fact.after_ms / 1000,),
        "the coordinator answers again",
    ),
    facts.IdentityDropped: Line(
        lambda fact: WARNING if fact.code else DEBUG,
        "fenced: %s%s. The partitions are lost; the next poll joins again",
        _dropped,
        "the coordinator no longer knows the generation or the member",
    ),
    facts.Fenced: Line(
        WARNING,
        'fenced: another consumer has joined with group.instance.id "%s". Close this one, and give every consumer an '
        "instance id of its own",
        lambda fact: (fact.instance_id,),
        "another consumer has taken the `group.instance.id`",
    ),
    facts.PollIntervalExceeded: Line(
        WARNING, "%s", lambda fact: (fact,), "poll was not called for `max.poll.interval.ms`"
    ),
    facts.PollResumed: Line(
        INFO,
        "poll was called again, %.1f s after max.poll.interval.ms had passed",
        lambda fact: (fact.late_ms / 1000,),
        "poll is called again after that, and how much too late",
    ),
    facts.PreparationCutShort: Line(
        WARNING,
        "the commit before the join was not answered for %.1f s; joining without it",
        lambda fact: (fact.waited_ms / 1000,),
        "a rebalance goes on without its commit",
    ),
    facts.ListenerFailed: Line(
        WARNING,
        "the rebalance listener raised %s in the call for %s partitions",
        lambda fact: (fact.error, fact.kind),
        "a rebalance listener raised",
    ),
    facts.AutoCommitFailed: Line(
        WARNING, "auto-commit failed: %s", lambda fact: (fact.error,), "an automatic commit failed, and why"
    ),
    facts.CommitFailed: Line(
        WARNING, "commit failed: %s", lambda fact: (fact.error,), "a commit that was asked for failed, and why"
    ),
    facts.CommitLeftOut: Line(
        WARNING,
        "the offsets of %s are not committed: the topic was deleted",
        lambda fact: (_listed(sorted(fact.partitions)),),
        "a commit is made without the partitions of a deleted topic",
    ),
    LogTruncated: Line(
        WARNING, "%s", lambda event: (event,), "a log was truncated before the position (KIP-320), and where it goes on"
    ),
    facts.TopicMissing: Line(
        WARNING, 'subscribed topic "%s" %s (%s)', _missing, "a subscribed topic does not exist; once a topic"
    ),
    facts.TopicFound: Line(
        INFO, 'subscribed topic "%s" is there now', lambda fact: (fact.topic,), "such a topic was created"
    ),
    NodeDisconnected: Line(
        INFO, "disconnected from %s: %s", lambda event: (event.node, event.why), "a connection was lost, and why"
    ),
    NodeUnreachable: Line(
        WARNING,
        "cannot connect to %s: %s; trying again",
        lambda event: (event.node, event.why),
        "a node cannot be connected to; once, until it can",
    ),
    ClientAuthenticationFailed: Line(
        WARNING,
        "cannot connect to %s: %s",
        lambda event: (event.node, event.why),
        "TLS or the login failed, which is not tried again by itself",
    ),
    NodeReached: Line(
        INFO,
        "connected to %s, after %d failed attempts",
        lambda event: (event.node, event.attempts),
        "it can be connected to again",
    ),
    ProducerIdObtained: Line(
        INFO,
        "producer id is %d, epoch %d",
        lambda event: (event.producer_id, event.epoch),
        "an idempotent producer has its id",
    ),
    ProduceRetried: Line(
        WARNING,
        "sending to %s failed, and is tried again until delivery.timeout.ms: %s",
        lambda event: (event.partition, event.why),
        "records are sent again, and why; once a partition, until it takes records",
    ),
    ProduceResumed: Line(
        INFO, "%s takes records again", lambda event: (event.partition,), "the partition takes records again"
    ),
    DeliveryFailed: Line(
        WARNING,
        "%d records were not delivered to %s: %s",
        lambda event: (event.records, _listed(event.partitions), event.why),
        "records were given up, and why",
    ),
    TransactionFailed: Line(
        WARNING,
        'a transaction of "%s" failed: %s',
        lambda event: (event.transactional_id, event.why),
        "a transaction can only be aborted, or its producer cannot go on",
    ),
    ClosedWithRecords: Line(
        WARNING,
        "closed with %d records that were not delivered within %s s",
        lambda event: (event.records, event.timeout_s),
        "close() could not deliver everything",
    ),
}
"""The level, the text and the fields of each event. No text contains values of records or settings."""

_NUMBERS = {kind: count(1) for kind in ("consumer", "producer", "admin")}
for _kind in _NUMBERS:
    logging.getLogger(f"coterie.{_kind}").addHandler(logging.NullHandler())


class EventLog:
    """The log of one client. Its lines begin with `[group/client.id]`; without a client.id, it is given a number."""

    __slots__ = ("_logger", "name")

    def __init__(self, kind: str, settings: ClientSettings, logger: str = "") -> None:
        """`kind`: consumer, producer or admin."""
        client_id = settings.client_id or f"{kind}-{next(_NUMBERS[kind])}"
        self.name = client_id
        if isinstance(settings, ConsumerSettings) and settings.group_id is not None:
            self.name = f"{settings.group_id}/{client_id}"
            if settings.group_instance_id is not None:
                self.name += f" (instance {settings.group_instance_id})"
        self._logger = logging.getLogger(logger or f"coterie.{kind}")

    def write(self, event: object) -> None:
        level, template, values, _ = LINES[type(event)]
        if not isinstance(level, int):
            level = level(event)
        if self._logger.isEnabledFor(level):
            text = f"[%s] {template}"
            self._logger.log(level, text, self.name, *values(event), extra={"event": event})

    def warn(self, problem: object) -> None:
        """Write something that has no event of its own."""
        self._logger.warning("[%s] %s", self.name, problem)

    def debug(self, detail: object) -> None:
        self._logger.debug("[%s] %s", self.name, detail)
