"""Commits and questions for committed offsets: who asked, until when it is tried, and where it stands."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from coterie.client.member.events import Offsets
from coterie.client.types import TopicPartition

__all__ = ["Kind", "PendingRequest"]


class Kind(StrEnum):
    COMMIT = "commit"
    COMMIT_POSITIONS = "commit of all positions"
    AUTO_COMMIT = "auto-commit"
    COMMIT_BEFORE_JOIN = "commit before the join"
    COMMIT_ON_CLOSE = "commit on close"
    COMMITTED = "question for committed offsets"


@dataclass(slots=True)
class PendingRequest:
    number: int
    kind: Kind
    token: Hashable
    until_ms: int | None
    """None: sent once. Else retriable errors are retried until then."""
    offsets: Offsets
    partitions: Collection[TopicPartition]
    generation_id: int
    """A commit belongs to the generation in which it was asked, and is not repeated in another."""
    member_id: str
    failures: int = 0
    in_flight: bool = False
    sent_to: Any = None
    waits_until_ms: int | None = None
    """Backing off."""
    times_missing: int = 0
    """How often in a row fresh metadata did not have a partition that the coordinator does not know either."""

    @property
    def timer(self) -> str:
        return f"pending {self.number}"
