"""What a shard wants done, beside the replies and facts it passes up: appends to its partition of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.errors import ErrorCode
from coterie.group.effects import Reply, Tell, Written

__all__ = ["Append", "Appended", "ExpiryCheckDue", "MarkerWritten", "Outward", "WriteLate"]


@dataclass(slots=True)
class Appended:
    """An append has ended. With an error, nothing of it was written."""

    partition: int
    ticket: int
    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1


@dataclass(slots=True)
class Append:
    """Write these to the partition as one batch, all or none, durably; then hand `then` back."""

    partition: int
    records: Sequence[tuple[bytes, bytes | None]]
    then: Appended
    producer_id: int | None = None
    producer_epoch: int = -1
    marker: bool | None = None
    """Instead of records: the end of the producer's transaction. True is commit, False is abort."""


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
