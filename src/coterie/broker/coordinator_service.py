"""The common part of both coordinators' services: partitions of an internal topic are loaded and given away.

A node that gains a partition reads what its log has while it serves others. It reads when all that the old leader has
written is durable, or lost: nothing must come back from what a disk may still refuse. It reads a piece at a time, on
the thread of the disk and between other changes. Until it has ended, the coordinator answers
COORDINATOR_LOAD_IN_PROGRESS (C3).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.flushing import Flusher
from coterie.broker.replica_manager import ReplicaManager
from coterie.coordinator.runtime import Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode, MalformedError
from coterie.storage import DataDirectory, DiskChange, LogError, LogReadError, PartitionLog

__all__ = ["Coordinator", "CoordinatorService", "LoadDue", "read_piece"]

LOAD_AGAIN_AFTER_MS = 500
"""The time until a log that could not be read is read again: it is being repaired, or the disk is not mounted."""
_READ_AT_ONCE = 1 << 20


class Coordinator(Protocol):
    """The part of a coordinator that its service needs to give it partitions and to take them away."""

    @property
    def shards(self) -> Collection[int]: ...

    def count_partitions(self, num_partitions: int) -> None: ...

    def gain(self, partition: int) -> Any: ...

    def is_loading(self, partition: int, replay: Any = None) -> bool: ...

    def lose(self, partition: int, now_ms: int) -> Any: ...


@dataclass(slots=True)
class _Load:
    """A partition that is being loaded, and how far it has been read."""

    partition: int
    log: PartitionLog
    replay: Any
    offset: int = 0


@dataclass(slots=True)
class LoadDue:
    """A partition that could not be loaded is to be loaded again, from the beginning."""

    service: CoordinatorService
    partition: int
    log: PartitionLog


@dataclass(frozen=True, slots=True, eq=False)
class CoordinatorService:
    coordinator: Coordinator
    replicas: ReplicaManager
    directory: DataDirectory
    flusher: Flusher
    changes: Changes
    timers: Timers[Any]
    reporter: Reporter
    wall: WallClock

    topic: ClassVar[str]
    """The internal topic of the coordinator."""

    def read_some(self, log: PartitionLog, offset: int, replay: Any) -> int:
        """Replay a piece of a log from `offset` on; return where the next one begins."""
        raise NotImplementedError

    def perform(self, effects: Any, now_ms: int) -> Effects:
        """Perform the coordinator's effects; return those that the driver has to perform."""
        raise NotImplementedError

    def loaded(self, partition: int, log: PartitionLog, now_ms: int) -> Effects:
        """All of a partition is read: its coordinator serves it now."""
        raise NotImplementedError

    def load_all(self, now_ms: int) -> Effects:
        """Read back what the node coordinates (C4). Nothing else is answered before this has ended."""
        effects: Effects = []
        topic = self.directory.topics.get(self.topic)
        if topic is None:
            return effects
        self.coordinator.count_partitions(topic.partitions)
        for partition in range(topic.partitions):
            log = self.replicas.log(self.topic, partition)
            if log is None:
                continue  # another node's
            replay = self.coordinator.gain(partition)
            offset = log.log_start_offset
            while offset < log.log_end_offset:
                offset = self.read_some(log, offset, replay)
            effects += self.loaded(partition, log, now_ms)
        return effects

    def gain(self, partition: int, log: PartitionLog) -> None:
        """Load a partition that this node leads now."""
        load = _Load(partition, log, self.coordinator.gain(partition))
        self.flusher.written(log, partial(self._all_written, load))

    def lose(self, partition: int, now_ms: int) -> Effects:
        """Another node leads the partition now: answer all waiting requests, and unload it."""
        return self.perform(self.coordinator.lose(partition, now_ms), now_ms)

    def lose_all(self, now_ms: int) -> Effects:
        return [effect for partition in list(self.coordinator.shards) for effect in self.lose(partition, now_ms)]

    def load_due(self, event: LoadDue, now_ms: int) -> Effects:
        if self.coordinator.is_loading(event.partition):
            self.coordinator.lose(event.partition, now_ms)
            self.gain(event.partition, event.log)
        return []

    def _all_written(self, load: _Load, error: ErrorCode, now_ms: int) -> Effects:
        if error:
            return self._load_again_later(load, now_ms)  # what the old leader wrote last is being cut off
        self.changes.ask(None, partial(self._begin, load))
        return []

    def _begin(self, load: _Load, now_ms: int) -> Effects:
        if not load.log.is_in_order:
            return self._load_again_later(load, now_ms)
        load.offset = load.log.log_start_offset
        return self._read_on(load, now_ms)

    def _read_on(self, load: _Load, now_ms: int) -> Effects:
        if not self.coordinator.is_loading(load.partition, load.replay):
            return []  # it has gone elsewhere meanwhile
        if load.offset < load.log.log_end_offset:
            return [Work(DiskChange(partial(self._read, load), int), partial(self._was_read, load))]
        return self.loaded(load.partition, load.log, now_ms)

    def _read(self, load: _Load) -> int:
        try:
            return self.read_some(load.log, load.offset, load.replay)
        except MalformedError as error:
            raise LogReadError(f"{load.log.path} cannot be read at offset {load.offset}: {error}", None) from error

    def _was_read(self, load: _Load, outcome: int | LogError, now_ms: int) -> Effects:
        if isinstance(outcome, LogError):
            trouble = self.reporter.trouble(str(outcome), now_ms)
            return [trouble, *self._load_again_later(load, now_ms)]
        load.offset = outcome
        return self._read_on(load, now_ms)

    def _load_again_later(self, load: _Load, now_ms: int) -> Effects:
        event = LoadDue(self, load.partition, load.log)
        self.timers.arm((self, load.partition), now_ms + LOAD_AGAIN_AFTER_MS, event)
        return []


def read_piece(log: PartitionLog, offset: int) -> bytes:
    """Read some batches of an internal topic from `offset` on, all of which must be there."""
    end = log.log_end_offset
    data = log.read(offset, _READ_AT_ONCE, end)
    if not data:  # to go on without them would be to lose what was acknowledged
        raise LogReadError(f"{log.path} ends at offset {offset}, though it should reach to {end}", None)
    return data
