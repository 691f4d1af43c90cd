"""Writes the markers of transactions to the logs of their partitions, whichever node leads them.

Kafka's coordinator sends WriteTxnMarkers to other brokers. Here the nodes are in one process, and a marker is written
directly. Those of `__consumer_offsets` go through the group coordinator, whose pending offsets count or are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coterie.broker.broker_effects import Effects
from coterie.broker.broker_facts import Reporter
from coterie.broker.group_service import GroupService
from coterie.broker.leadership import Leadership
from coterie.broker.maintenance.flushing import Flusher
from coterie.broker.placement import NO_LEADER, Partition
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.messages import TransactionMarker
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.records import EndMarker
from coterie.storage import DataDirectory, LogError

__all__ = ["Marker", "MarkerWriter"]

Marked = Callable[[ErrorCode, int], Effects]
"""Called once, with the time: NONE when the marker is durable, or why it is not written."""


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    is_strict: bool = False
    """It must have a higher epoch than the producer's last batch, unless nothing is open (KIP-890)."""


class MarkerWriter:
    def __init__(
        self,
        directory: DataDirectory,
        leadership: Leadership,
        groups_of: Callable[[int], GroupService],
        flusher: Flusher,
        reporter: Reporter,
        wall: WallClock,
    ) -> None:
        """`groups_of` returns the group coordinator of a node."""
        self._directory = directory
        self._leadership = leadership
        self._groups_of = groups_of
        self._flusher = flusher
        self._reporter = reporter
        self._wall = wall

    def write(self, partition: Partition, marker: Marker, done: Marked, now_ms: int) -> Effects:
        """Write a marker. A topic that was deleted is UNKNOWN_TOPIC_OR_PARTITION."""
        log = self._directory.logs.get(partition)
        if log is None:
            return done(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, now_ms)
        leader = self._leadership.leader_of(partition)
        if leader == NO_LEADER:
            return done(ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
        topic, number = partition
        if topic == OFFSETS_TOPIC:
            return self._groups_of(leader).ask(
                TransactionMarker(
                    done,
                    marker.producer_id,
                    marker.producer_epoch,
                    marker.committed,
                    number,
                    marker.coordinator_epoch,
                    marker.is_strict,
                ),
                now_ms,
            )
        at_ms = self._wall.at(now_ms)
        end = EndMarker(marker.committed, marker.coordinator_epoch)
        try:
            log.append_marker(end, (marker.producer_id, marker.producer_epoch), at_ms, is_strict=marker.is_strict)
        except LogError as error:
            effects: Effects = []
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                effects.append(self._reporter.trouble(str(error), now_ms))
            return [*effects, *done(error.code, now_ms)]
        self._flusher.written(log, done)
        return []
