"""What a broker does by itself from time to time: drop old segments, keep how far each log is durable, repair logs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coterie.broker.maintenance.directory_changes import Step
from coterie.storage import DeletedSegment, LogError, PartitionLog, remove_files

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster

__all__ = [
    "CHECKPOINT_EVERY_MS",
    "CheckpointDue",
    "RepairDue",
    "RetentionDue",
    "check_retention",
    "checkpoint",
    "repair",
]

CHECKPOINT_EVERY_MS = 60_000
REPAIR_EVERY_MS = 1_000


@dataclass(slots=True)
class CheckpointDue:
    pass


@dataclass(slots=True)
class RetentionDue:
    pass


@dataclass(slots=True)
class RepairDue:
    log: PartitionLog


def repair(cluster: Cluster, log: PartitionLog) -> None:
    """A log that the disk would not let us cut back is tried again and again: its readers wait for that."""

    def judge(now_ms: int) -> Step | None:
        is_there = log in cluster.directory.logs.values()
        return Step(log.repair(cluster.wall.surely(now_ms)), ended) if is_there and not log.is_in_order else None

    def ended(outcome: LogError | None, now_ms: int) -> None:
        if outcome is not None:
            cluster.timers.arm((log, "repair"), now_ms + REPAIR_EVERY_MS, RepairDue(log))
        else:
            cluster.fetches.advanced(log)

    cluster.changes.ask(None, judge)


def checkpoint(cluster: Cluster) -> None:
    """The segments are synced as well, so that the journal does not keep for ever what came long ago."""
    cluster.flusher.empty_journal()

    def ended(outcome: LogError | None, now_ms: int) -> None:
        if outcome is not None:
            cluster.tell_trouble(str(outcome), now_ms)
        cluster.timers.arm("checkpoint", now_ms + CHECKPOINT_EVERY_MS, CheckpointDue())

    cluster.changes.ask(None, lambda _now_ms: Step(cluster.directory.checkpoint(), ended))


def check_retention(cluster: Cluster) -> None:
    def judge(now_ms: int) -> Step | None:
        deleted: list[DeletedSegment] = []
        wall_ms = cluster.wall.surely(now_ms)
        for log in cluster.directory.logs.values():
            try:
                deleted += log.retain(wall_ms, cluster.flusher.end_of(log))
            except LogError as error:
                cluster.tell_trouble(str(error), now_ms)
            log.expire_producers(wall_ms)
        if deleted:
            return Step(cluster.directory.remove_segments(deleted), ended)
        ended(deleted, now_ms)
        return None

    def ended(outcome: list[DeletedSegment] | LogError, now_ms: int) -> None:
        if isinstance(outcome, LogError):
            cluster.tell_trouble(str(outcome), now_ms)
        elif outcome:
            cluster.do_later("old segments", partial(remove_files, cluster.files, outcome))
        every_ms = cluster.settings.log_retention_check_interval_ms
        cluster.timers.arm("retention", now_ms + every_ms, RetentionDue())

    cluster.changes.ask(None, judge)
