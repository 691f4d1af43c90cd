"""Where the last record of each key is, in the part of a log that was not compacted yet.

Records of a transaction count when it is committed, by their own place. Of one that has not ended yet nothing is known:
compaction leaves its batches alone, and comes back to them.

Memory is bounded by the number of keys: a long one is known by its digest, so each takes less than `KEY_BYTES`. When
it is full, the log is compacted as far as that, and the rest is for another time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from enum import Enum, auto
from hashlib import blake2b

from coterie.protocol.batch import BatchHeader
from coterie.protocol.records import EndMarker, Record

__all__ = ["KEY_BYTES", "Fate", "LatestOffsets", "name_of"]

KEY_BYTES = 256
"""What one key takes at most: its bytes or digest, its offset, and its share of the table."""
_LONG = 64


class Fate(Enum):
    """Of a transaction."""

    COMMITTED = auto()
    ABORTED = auto()
    OPEN = auto()


def name_of(key: bytes) -> bytes:
    """What stands for a key: no short one is as long as what stands for a long one."""
    return key if len(key) <= _LONG else b"#" + blake2b(key).digest()


class LatestOffsets:
    def __init__(self, start: int, capacity: int) -> None:
        """`start` is where the uncompacted part begins, `capacity` how many keys there may be."""
        self.start = self.end = start
        """Between these everything is known."""
        self.of: dict[bytes, int] = {}
        """By `name_of` a key."""
        self.unread: set[int] = set()
        """Where batches begin whose records cannot be read."""
        self._capacity = max(capacity, 1)
        self._pending: dict[int, tuple[int, dict[bytes, int]]] = {}
        self._pending_count = 0
        self._aborted: dict[int, list[tuple[int, int]]] = {}

    @property
    def is_full(self) -> bool:
        return len(self.of) + self._pending_count >= self._capacity

    @property
    def known_to(self) -> int:
        """From here on it must be looked at again: the end, or where the oldest open transaction began."""
        return min([self.end, *(start for start, _ in self._pending.values())])

    # --- reading the log ----------------------------------------------------------------------------------------------

    def skip(self, header: BatchHeader) -> None:
        """A batch that cannot be read."""
        self.unread.add(header.base_offset)
        self.end = header.next_offset

    def add(self, header: BatchHeader, records: Iterable[Record]) -> None:
        if header.is_transactional:
            _, offsets = self._pending.setdefault(header.producer_id, (header.base_offset, {}))
            self._pending_count -= len(offsets)
            _put(offsets, records)
            self._pending_count += len(offsets)
        else:
            _put(self.of, records)
        self.end = header.next_offset

    def end_transaction(self, header: BatchHeader, marker: EndMarker | None) -> None:
        """`marker` is that of a control batch; None if it has none any more, or is of another kind."""
        self.end = header.next_offset
        if marker is None or header.producer_id not in self._pending:
            return
        start, offsets = self._pending.pop(header.producer_id)
        self._pending_count -= len(offsets)
        if not marker.committed:
            self._aborted.setdefault(header.producer_id, []).append((start, header.last_offset))
            return
        for name, offset in offsets.items():
            if offset > self.of.get(name, -1):
                self.of[name] = offset

    # --- what was found -----------------------------------------------------------------------------------------------

    def fate_of(self, header: BatchHeader) -> Fate:
        """How the transaction ended that a batch belongs to. Those that ended before `start` were dealt with then."""
        offset = header.base_offset
        if offset >= self.end:
            return Fate.OPEN
        pending = self._pending.get(header.producer_id)
        if pending is not None and offset >= pending[0]:
            return Fate.OPEN
        aborted = self._aborted.get(header.producer_id, ())
        slot = bisect_right(aborted, offset, key=lambda ends: ends[0]) - 1
        return Fate.ABORTED if slot >= 0 and offset <= aborted[slot][1] else Fate.COMMITTED


def _put(offsets: dict[bytes, int], records: Iterable[Record]) -> None:
    for record in records:
        key = record.key
        if key is not None:
            offsets[key if len(key) <= _LONG else name_of(key)] = record.offset
