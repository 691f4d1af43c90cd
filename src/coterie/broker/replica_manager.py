"""The partitions that one node leads: reading their logs, appending to them, and how far they are durable."""

from __future__ import annotations

from coterie.broker.maintenance.flushing import Flusher, Waiter
from coterie.broker.placement import Partition
from coterie.errors import ErrorCode
from coterie.storage import DataDirectory, PartitionLog

__all__ = ["ReplicaManager"]


class ReplicaManager:
    def __init__(self, led: dict[Partition, PartitionLog], directory: DataDirectory, flusher: Flusher) -> None:
        self.led = led
        """The partitions this node leads, which `Leadership` changes."""
        self._directory = directory
        self._flusher = flusher
        self.high_watermark = flusher.high_watermark
        """Returns the high watermark of a log: how far consumers may read it (`Flusher.high_watermark`)."""

    @property
    def waits_for_disk(self) -> bool:
        """Return whether records are acknowledged only when the disk has them."""
        return self._flusher.sync

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """Return the log of a partition that this node leads; else `error_for` says what is wrong."""
        return self.led.get((topic, partition))

    def error_for(self, topic: str, partition: int) -> ErrorCode:
        if (topic, partition) in self._directory.logs:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def appended(self, log: PartitionLog, waiter: Waiter | None) -> None:
        """Have the log flushed; `waiter` is called when what was appended is durable, or lost."""
        self._flusher.written(log, waiter)
