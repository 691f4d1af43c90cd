"""QuickCommit: a commit as most are, one object from its request to its answer.

A member of a Stable classic group commits offsets of one topic, without metadata. `Shard.quick_commit` takes such a
commit if the rules of `offset_metadata_manager.py` accept it and nothing else follows from it. All others go by these
rules, and so does the end of a write that failed. A property test holds both equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from coterie.coordinator.classic.effects import OffsetsWritten
from coterie.errors import ErrorCode
from coterie.facts import OffsetsStored
from coterie.protocol.commit_rows import CommitRows, OffsetRows, StoredRows
from coterie.protocol.messages import OffsetRecord, Token
from coterie.protocol.records import OffsetPairs

if TYPE_CHECKING:
    from coterie.coordinator.classic.group import Group

__all__ = ["QuickCommit"]


class QuickCommit(OffsetsWritten):
    """Stands in the queue of a shard for what is to be written, and is the event of its end as well."""

    __slots__ = ("asked_ms", "group", "of", "pairs", "size")

    producer: tuple[int, int] | None = None
    marker: bool | None = None
    mark = None
    producer_id = None

    def __init__(
        self,
        group: Group,
        token: Token,
        member_id: str,
        records: OffsetRows,
        pairs: OffsetPairs,
        size: int,
        now_ms: int,
    ) -> None:
        """`pairs` are the keys and values of `records`, and `size` is the bytes of them."""
        self.group = group
        self.token = token
        self.member_id = member_id
        self.records: OffsetRows = records
        self.of = records.of
        self.pairs = pairs
        self.size = size
        self.asked_ms = now_ms
        self.error = ErrorCode.NONE
        self.position = -1

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def then(self) -> OffsetsWritten:
        return self

    @property
    def group_id(self) -> str:  # type: ignore[override]
        return self.group.group_id

    @property
    def partitions(self) -> CommitRows:  # type: ignore[override]
        return self.of

    @property
    def errors(self) -> Sequence[ErrorCode]:  # type: ignore[override]
        return [ErrorCode.NONE] * len(self.of.numbers)

    @property
    def applied(self) -> Sequence[OffsetRecord]:
        return self.records

    def stored_at(self, position: int) -> None:
        """Apply the records to the group, as `Group.apply` and `offsets_written` would: they are durable."""
        group = self.group
        del group.unwritten_commits[id(self)]
        group.is_in_log = True
        group.stored.apply_commit(self.records, position)

    def fact(self, now_ms: int) -> OffsetsStored:
        """Return the event that it is stored."""
        return OffsetsStored(now_ms, self.group.group_id, self.member_id, StoredRows(self.of), transactional=False)
