"""What a node does by itself from time to time: old segments go, and how far each log is durable is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from coterie.log import LogError, remove_files

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["CHECKPOINT_EVERY_MS", "CheckpointDue", "RetentionDue", "check_retention"]

CHECKPOINT_EVERY_MS = 60_000


@dataclass(slots=True)
class CheckpointDue:
    pass


@dataclass(slots=True)
class RetentionDue:
    pass


def check_retention(node: Node, now_ms: int) -> None:
    for log in node.directory.logs.values():
        try:
            deleted = log.retain(now_ms, node.flusher.end_of(log))
        except LogError as error:
            node.tell_trouble(str(error), now_ms)
            continue
        if deleted:
            node.do_later(f"old segments of {log.path}", partial(remove_files, node.files, deleted))
        log.expire_producers(now_ms)
    every_ms = node.settings.log_retention_check_interval_ms
    node.coordinator.timers.arm("retention", now_ms + every_ms, RetentionDue())
