"""A node gains a partition of `__consumer_offsets` while it runs: its groups are read back while everybody is served.

It reads when all that the old leader has written is durable, or lost: groups must not come back from what a disk may
still refuse. A piece at a time, on the thread of the disk and between what that is asked for by others. Until it has
ended, the coordinator answers COORDINATOR_LOAD_IN_PROGRESS (C3).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coterie.broker.group_logs import read_some
from coterie.broker.maintenance.directory_changes import Step
from coterie.coordinator.runtime import Replay
from coterie.errors import ErrorCode, MalformedError
from coterie.storage import Change, LogError, LogReadError, PartitionLog

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["GroupLoads", "LoadDue"]

AGAIN_AFTER_MS = 500
"""When the log could not be read: it is being repaired, or the disk is away."""


@dataclass(slots=True)
class _Load:
    partition: int
    log: PartitionLog
    replay: Replay
    offset: int = 0


@dataclass(slots=True)
class LoadDue:
    """To be tried again, from the beginning."""

    loads: GroupLoads
    partition: int
    log: PartitionLog


class GroupLoads:
    def __init__(self, node: Node) -> None:
        self._node = node

    def gain(self, partition: int, log: PartitionLog) -> None:
        load = _Load(partition, log, self._node.coordinator.gain(partition))
        self._node.flusher.written(log, partial(self._written, load))

    def due(self, event: LoadDue, now_ms: int) -> None:
        if self._node.coordinator.is_loading(event.partition):
            self._node.coordinator.lose(event.partition, now_ms)
            self.gain(event.partition, event.log)

    def _written(self, load: _Load, error: ErrorCode, now_ms: int) -> None:
        if error:
            self._again_later(load, now_ms)  # what the old leader wrote last is being cut off
        else:
            self._node.changes.ask(None, partial(self._begin, load))

    def _begin(self, load: _Load, now_ms: int) -> Step | None:
        if not load.log.is_in_order:
            self._again_later(load, now_ms)
            return None
        load.offset = load.log.log_start
        return self._next(load, now_ms)

    def _next(self, load: _Load, now_ms: int) -> Step | None:
        node = self._node
        if not node.coordinator.is_loading(load.partition, load.replay):
            return None  # it has gone elsewhere meanwhile
        if load.offset < load.log.log_end:
            return Step(Change(partial(_read, load), int), partial(self._was_read, load))
        node.follow(node.coordinator.loaded(load.partition, now_ms), now_ms)
        return None

    def _was_read(self, load: _Load, outcome: int | LogError, now_ms: int) -> Step | None:
        if isinstance(outcome, LogError):
            self._node.tell_trouble(str(outcome), now_ms)
            self._again_later(load, now_ms)
            return None
        load.offset = outcome
        return self._next(load, now_ms)

    def _again_later(self, load: _Load, now_ms: int) -> None:
        event = LoadDue(self, load.partition, load.log)
        self._node.timers.arm((self, load.partition), now_ms + AGAIN_AFTER_MS, event)


def _read(load: _Load) -> int:
    try:
        return read_some(load.log, load.offset, load.replay)
    except MalformedError as error:
        raise LogReadError(f"{load.log.path} cannot be read at offset {load.offset}: {error}", None) from error
