"""The log lines of clients: a line for each event, from a table. Those of consumers are in `consumer/consumer_log.py`.

The loggers are `coterie.consumer`, `coterie.producer` and `coterie.admin`. Nothing is installed but a NullHandler: what
is shown, and where, is the application's choice. A line's event is on the record as `record.event`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from itertools import count
from logging import INFO, WARNING
from typing import Any, NamedTuple

from coterie.client.types import TopicPartition
from coterie.settings.client_settings import ClientSettings
from coterie.structs import DataStruct

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


def listed(partitions: Collection[TopicPartition]) -> str:
    shown = [str(one) for one in list(partitions)[:PARTITIONS_SHOWN]]
    more = len(partitions) - len(shown)
    return (", ".join(shown) or "no partitions") + (f" and {more} more" if more else "")


LINES: Mapping[type, Line] = {
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
        lambda event: (event.records, listed(event.partitions), event.why),
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
"""The level, the text and the fields of each event of any client, and of producers.

No text contains values of records or settings.
"""

_NUMBERS = {kind: count(1) for kind in ("consumer", "producer", "admin")}
for _kind in _NUMBERS:
    logging.getLogger(f"coterie.{_kind}").addHandler(logging.NullHandler())


class EventLog:
    """The log of one client. Its lines begin with `[client.id]`; without a client.id, it is given a number."""

    __slots__ = ("_lines", "_logger", "name")

    def __init__(
        self, kind: str, settings: ClientSettings, logger: str = "", lines: Mapping[type, Line] = LINES
    ) -> None:
        """`kind`: consumer, producer or admin."""
        self.name = settings.client_id or f"{kind}-{next(_NUMBERS[kind])}"
        self._logger = logging.getLogger(logger or f"coterie.{kind}")
        self._lines = lines

    def name_group(self, group_id: str, instance_id: str | None) -> None:
        """Let the lines begin with `[group/client.id]`."""
        self.name = f"{group_id}/{self.name}"
        if instance_id is not None:
            self.name += f" (instance {instance_id})"

    def write(self, event: object) -> None:
        level, template, values, _ = self._lines[type(event)]
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
