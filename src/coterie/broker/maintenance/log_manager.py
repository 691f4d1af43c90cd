"""LogManager deletes old segments, records how far logs are durable, and repairs logs, without being asked."""

from __future__ import annotations

from functools import partial

from coterie.broker.broker_effects import DeleteFiles, Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.handlers.fetch import Fetches
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.flushing import Flusher
from coterie.coordinator.runtime import Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DataDirectory, DeletedSegment, Files, LogError, PartitionLog, remove_files
from coterie.structs import DataStruct

__all__ = ["CheckpointDue", "LogManager", "RepairDue", "RetentionDue"]

CHECKPOINT_EVERY_MS = 60_000
REPAIR_EVERY_MS = 1_000


class CheckpointDue(DataStruct):
    pass


class RetentionDue(DataStruct):
    pass


class RepairDue(DataStruct):
    log: PartitionLog


class LogManager(DataStruct, frozen=True, eq=False):
    files: Files
    directory: DataDirectory
    settings: BrokerSettings
    changes: Changes
    flusher: Flusher
    fetches: Fetches
    timers: Timers[object]
    reporter: Reporter
    wall: WallClock

    def start(self, now_ms: int) -> None:
        self._checkpoint_at(now_ms + CHECKPOINT_EVERY_MS)
        self._retain_at(now_ms + self.settings.log_retention_check_interval_ms)

    def _checkpoint_at(self, at_ms: int) -> None:
        self.timers.arm("checkpoint", at_ms, CheckpointDue())

    def _retain_at(self, at_ms: int) -> None:
        self.timers.arm("retention", at_ms, RetentionDue())

    # --- repair -------------------------------------------------------------------------------------------------------

    def repair_all(self) -> None:
        """Repair the logs that need it now, and not when their turn comes: a log can only be closed in order."""
        for log in self.directory.logs.values():
            if not log.is_in_order:
                self.repair(log)

    def repair(self, log: PartitionLog) -> Effects:
        """Repair a log that the disk would not cut back, again and again: its readers wait for that."""

        def judge(now_ms: int) -> Effects:
            is_there = log in self.directory.logs.values()
            return [Work(log.repair(self.wall.surely(now_ms)), ended)] if is_there and not log.is_in_order else []

        def ended(outcome: LogError | None, now_ms: int) -> Effects:
            if outcome is None:
                return self.fetches.advanced(log, now_ms)
            self.timers.arm((log, "repair"), now_ms + REPAIR_EVERY_MS, RepairDue(log))
            return []

        self.changes.ask(None, judge)
        return []

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint(self) -> Effects:
        """Record how far logs are durable. The segments are synced as well, so that the journal does not grow old."""
        self.flusher.empty_journal()

        def ended(outcome: LogError | None, now_ms: int) -> Effects:
            self._checkpoint_at(now_ms + CHECKPOINT_EVERY_MS)
            return [] if outcome is None else [self.reporter.trouble(str(outcome), now_ms)]

        self.changes.ask(None, lambda _now_ms: [Work(self.directory.checkpoints.write(), ended)])
        return []

    # --- retention ----------------------------------------------------------------------------------------------------

    def check_retention(self) -> Effects:
        self.changes.ask(None, self._retain)
        return []

    def _retain(self, now_ms: int) -> Effects:
        deleted: list[DeletedSegment] = []
        effects: Effects = []
        wall_ms = self.wall.surely(now_ms)
        for log in self.directory.logs.values():
            try:
                deleted += log.retain(wall_ms, self.flusher.high_watermark(log))
            except LogError as error:
                effects.append(self.reporter.trouble(str(error), now_ms))
            log.expire_producers(wall_ms)
        if deleted:
            return [*effects, Work(self.directory.remove_segments(deleted), self._retained)]
        return [*effects, *self._retained(deleted, now_ms)]

    def _retained(self, outcome: list[DeletedSegment] | LogError, now_ms: int) -> Effects:
        self._retain_at(now_ms + self.settings.log_retention_check_interval_ms)
        if isinstance(outcome, LogError):
            return [self.reporter.trouble(str(outcome), now_ms)]
        return [DeleteFiles("old segments", partial(remove_files, self.files, outcome))] if outcome else []
