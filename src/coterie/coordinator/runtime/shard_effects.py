"""What a shard wants done, beside the replies and facts it passes up: appends to its partition of the log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coterie.coordinator.classic.effects import Reply, Tell, Written
from coterie.errors import ErrorCode

__all__ = ["Append", "Appended", "Batch", "ExpiryCheckDue", "MarkerWritten", "Outward", "WriteLate"]


@dataclass(slots=True)
class Appended:
    """An append has ended. With an error, nothing of it was written."""

    partition: int
    ticket: int
    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1


@dataclass(slots=True)
class Batch:
    """Write these to the partition together, all or none, durably; then hand `then` back."""

    records: Sequence[tuple[bytes, bytes | None]]
    then: Appended
    producer_id: int | None = None
    producer_epoch: int = -1
    marker: bool | None = None
    """Instead of records: the end of the producer's transaction. True is commit, False is abort."""


@dataclass(slots=True)
class Append:
    """There is something to write to the partition; one of these at a time.

    What it is, `batch` says once, when it is about to be written: all that comes until then is in it. None: nothing
    any more, since the partition was lost.
    """

    partition: int
    batch: Callable[[], Batch | None]


@dataclass(slots=True)
class WriteLate:
    """`offsets.commit.timeout.ms` has passed since something was given to the log."""

    partition: int


@dataclass(slots=True)
class ExpiryCheckDue:
    partition: int


@dataclass(slots=True, kw_only=True)
class MarkerWritten(Written):
    producer_id: int
    committed: bool
    group_id: str = field(default="")


Outward = Reply | Tell | Append
