"""One segment of a log: `.log` with whole batches one after the other, and its two sparse indexes.

The last segment of a log is active: it is appended to and has its indexes in memory. When it takes no more batches, the
indexes are written, on any thread, and it is sealed: its files are opened for each read. Indexes only speed up a
search; one that is missing or does not fit the log is built again from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.protocol.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    CorruptBatchError,
    MisplacedBatchError,
)
from coterie.protocol.buffer import Buffer
from coterie.protocol.records import records
from coterie.storage.files import BufferedFile, File, Files, Sync, read_file
from coterie.storage.segment_files import (
    INDEX,
    LOG,
    OFFSET_ROW,
    TIME_INDEX,
    TIME_ROW,
    TXN_INDEX,
    BatchInFile,
    FileRows,
    IndexRows,
    MemoryRows,
    headers,
    join,
    named,
    whole_batches,
)
from coterie.storage.transaction_index import (
    AbortedTransaction,
    decode_rows,
    encode_rows,
    rows_from,
    stored_rows_from,
)

MAX_RELATIVE = 2**31 - 1
"""Offsets and positions are int32 in the indexes."""


class TimestampedOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class Segment:
    """One segment of a log."""

    def __init__(self, files: Files, directory: str, base_offset: int, index_interval: int) -> None:
        self._files = files
        self._directory = directory
        self._ending = ""
        self._index_interval = index_interval
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size = 0
        self.first_timestamp: int | None = None
        """The latest timestamp of the first batch: the segment's age counts from it (`segment.ms`)."""
        self.last_write_ms = 0
        """The time of the last write that this process knows of: the age of a segment without timestamps."""
        self._file: File | None = None
        self.index_sizes = (0, 0)
        """The sizes of its index and of its time index on disk."""
        self.txn_index_size = 0
        """The size of its index of aborted transactions on disk; 0 if there is none."""
        self._aborted: list[AbortedTransaction] = []  # while it is open; else they are read from disk
        self._old_size = 0
        """The size that an earlier process wrote; this one has checked only `_checked` of it."""
        self._checked: tuple[int, int, int] | None = None
        """The positions between which it was checked, and the offset at which the next batch should begin."""
        self._reset_indexes()

    def _reset_indexes(self) -> None:
        self._offsets = MemoryRows(OFFSET_ROW)
        self._times = MemoryRows(TIME_ROW)
        self._since_last_row = 0
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_at = self.base_offset
        self._trusts_rows = True
        self._last_found = (self.base_offset, 0)
        """Offset and position of the batch that was found last: a consumer that follows the log reads the next."""

    # --- opening and closing ------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, files: Files, directory: str, base_offset: int, index_interval: int, *, ending: str = ""
    ) -> Segment:
        """Create an empty segment. The names of its files end in `ending` while they are not part of the log."""
        segment = cls(files, directory, base_offset, index_interval)
        segment._ending = ending
        segment._file = files.open(segment.path(LOG), create=True)
        if segment._file.size:  # a name left over from an append that failed
            segment._file.truncate(0)
        return segment

    @classmethod
    def sealed(cls, files: Files, directory: str, base_offset: int, next_offset: int, index_interval: int) -> Segment:
        """Return a sealed segment; `indexes_look_right` or `recover` finds its latest timestamp."""
        segment = cls(files, directory, base_offset, index_interval)
        segment.size = segment._old_size = files.size(segment.path(LOG))
        segment.find_txn_index()
        segment.next_offset = next_offset
        segment._trusts_rows = False
        return segment

    def activate(self) -> None:
        """Open for appending, with the indexes in memory; `BatchError` if they do not fit, or the end is torn."""
        self._file = self._files.open(self.path(LOG))
        self._reset_indexes()
        self._aborted = []
        if self.size == 0:
            return
        offsets = MemoryRows.decode(OFFSET_ROW, read_file(self._files, self.path(INDEX)))
        times = MemoryRows.decode(TIME_ROW, read_file(self._files, self.path(TIME_INDEX)))
        if not self._last_rows_are_true(self._file, offsets, times):
            raise CorruptBatchError(f"the indexes of {self.path(LOG)} do not fit it")
        self._offsets, self._times, self._trusts_rows = offsets, times, False
        self.index_sizes = offsets.encoded_size, times.encoded_size
        self._read_latest(times)
        start = offsets.row(len(offsets) - 1)[1] if len(offsets) else 0
        self._since_last_row = self.size - start
        for found in whole_batches(self._file, start, self.size, verify=True):
            self._note_timestamp(found.header)
            self.next_offset = found.header.next_offset
        self.first_timestamp = next(headers(self._file, 0, self.size))[1].max_timestamp
        self._aborted = self._read_txn_index()

    def seal(self) -> list[Sync]:
        """Write the indexes and close; return what must be synced for the segment to be durable."""
        assert self._file is not None, "sealed already"
        self.end()
        syncs = [self._file.later(), *self._write_indexes()]
        self.let_go()
        return syncs

    def end(self) -> None:
        """Complete the indexes in memory for `write_indexes`: the segment takes no more batches."""
        self._add_time_row()

    def write_indexes(self) -> None:
        """Write the indexes after `end`, on any thread, while it is read; do nothing if it was closed meanwhile."""
        if self._file is not None:
            for sync in self._write_indexes():
                sync.run()

    def let_go(self) -> None:
        """Close the files: from now on the indexes are read from disk."""
        self.close()
        self._offsets, self._times = MemoryRows(OFFSET_ROW), MemoryRows(TIME_ROW)
        self._aborted = []

    def _write_indexes(self) -> list[Sync]:
        return [*self._write_offset_indexes(), *self._write_txn_index(self._aborted)]

    def _write_offset_indexes(self) -> list[Sync]:
        syncs = []
        self.index_sizes = self._offsets.encoded_size, self._times.encoded_size
        for suffix, rows in ((INDEX, self._offsets), (TIME_INDEX, self._times)):
            file = self._files.open(self.path(suffix), create=True)
            try:
                file.truncate(0)
                file.append(rows.encode())
                syncs.append(file.later())
            finally:
                file.close()
        return syncs

    def close(self) -> None:
        """Close the file without writing anything."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def path(self, suffix: str) -> str:
        return join(self._directory, named(self.base_offset, suffix)) + self._ending

    def rename(self, ending: str) -> None:
        """Give its files another ending, the `.log` file last, so that it has its indexes. May be tried again."""
        for suffix in (TXN_INDEX, TIME_INDEX, INDEX, LOG):
            old, new = self.path(suffix), join(self._directory, named(self.base_offset, suffix)) + ending
            if self._files.exists(old):
                self._files.rename(old, new)
        self._ending = ending

    @property
    def paths(self) -> tuple[str, ...]:
        suffixes = (LOG, INDEX, TIME_INDEX, TXN_INDEX) if self.txn_index_size else (LOG, INDEX, TIME_INDEX)
        return tuple(self.path(suffix) for suffix in suffixes)

    def delete(self) -> None:
        self.close()
        for path in self.paths:
            self._files.delete(path)

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(self, data: Buffer, batch_headers: Iterable[BatchHeader], *, is_buffered: bool = False) -> None:
        """Append whole batches that have their offsets. If it raises `OSError`, `cut_tail` undoes it.

        `is_buffered`: the file need not have them until they are read or synced.
        """
        file = self._file
        assert file is not None, "a sealed segment takes no batches"
        if is_buffered and type(file) is not BufferedFile:
            self._file = file = BufferedFile(file)
        file.append(data)
        for header in batch_headers:
            self._note(header)

    def write_out(self) -> None:
        """Write what was only kept in memory so far to the file."""
        if type(self._file) is BufferedFile:
            self._file.write_out()

    def cut_tail(self) -> None:
        """Remove what a failed append may have left."""
        assert self._file is not None, "a sealed segment has no unfinished append"
        self._file.truncate(self.size)

    def cut_at(self, offset: int) -> None:
        """Keep the batches that end before `offset`; then the segment must be loaded again."""
        with self._opened() as file:
            found = self._find(file, offset)[1]
            if found is not None:
                file.truncate(found[0])
                file.sync()

    def later(self) -> Sync:
        assert self._file is not None, "a sealed segment was captured when it was sealed"
        return self._file.later()

    def _note(self, header: BatchHeader) -> None:
        if self.size == 0:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self._max_timestamp:
            self._note_timestamp(header)
        if self._since_last_row > self._index_interval:
            self._offsets.append(header.last_offset - self.base_offset, self.size)
            self._add_time_row()
            self._since_last_row = 0
        size = header.size
        self._since_last_row += size
        self.size += size
        self.next_offset = header.next_offset

    def _note_timestamp(self, header: BatchHeader) -> None:
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_at = header.last_offset

    def _add_time_row(self) -> None:
        last = self._times.row(len(self._times) - 1)[0] if len(self._times) else NO_TIMESTAMP
        if self._max_timestamp > last:
            self._times.append(self._max_timestamp, self._max_timestamp_at - self.base_offset)

    def can_take(self, last_offset: int, index_bytes: int) -> bool:
        """Return whether a batch that ends with `last_offset` still fits into the indexes."""
        largest = max(self._offsets.encoded_size, self._times.encoded_size + TIME_ROW.size)  # sealing adds one more
        return last_offset - self.base_offset <= MAX_RELATIVE and largest + TIME_ROW.size <= index_bytes

    # --- aborted transactions -----------------------------------------------------------------------------------------

    def note_aborted(self, row: AbortedTransaction) -> None:
        """Note a transaction whose marker was appended to this segment, which is open."""
        self._aborted.append(row)

    def aborted_from(self, from_offset: int) -> Iterator[AbortedTransaction]:
        """Yield the aborted transactions whose marker is in this segment, at `from_offset` or later."""
        if self._file is not None:
            yield from rows_from(self._aborted, from_offset)
        elif self.txn_index_size:
            with closing(self._files.open(self.path(TXN_INDEX))) as file:
                yield from stored_rows_from(file, from_offset)

    @property
    def has_aborted(self) -> bool:
        return bool(self._aborted if self._file is not None else self.txn_index_size)

    def find_txn_index(self) -> None:
        path = self.path(TXN_INDEX)
        self.txn_index_size = self._files.size(path) if self._files.exists(path) else 0

    def txn_index_looks_right(self, size: int | None = None) -> bool:
        """Return whether a sealed segment's index of transactions can be right; `size` is what it had, if known."""
        if size is not None and size != self.txn_index_size:
            return False
        try:
            self._read_txn_index()
        except BatchError:
            return False
        return True

    def replace_txn_index(self, rows: list[AbortedTransaction]) -> None:
        """Write the index of transactions of a sealed segment again."""
        for sync in self._write_txn_index(rows):
            sync.run()

    def _read_txn_index(self) -> list[AbortedTransaction]:
        self.find_txn_index()
        if not self.txn_index_size:
            return []
        try:
            return decode_rows(read_file(self._files, self.path(TXN_INDEX)), self.base_offset, self.next_offset)
        except MalformedError as error:
            raise CorruptBatchError(f"{self.path(TXN_INDEX)}: {error}") from None

    def _write_txn_index(self, rows: list[AbortedTransaction]) -> list[Sync]:
        path, data = self.path(TXN_INDEX), encode_rows(rows)
        if not data:
            if self.txn_index_size:
                self._files.delete(path)
                self.txn_index_size = 0
            return []
        file = self._files.open(path, create=True)
        try:
            file.truncate(0)
            file.append(data)
            self.txn_index_size = len(data)
            return [file.later()]
        finally:
            file.close()

    # --- recovering ---------------------------------------------------------------------------------------------------

    def recover(self, expected_offset: int, *, gaps_below: int | None = None) -> Iterator[BatchInFile]:
        """Read all batches, check their checksums and build the indexes, `size` and `next_offset` again.

        `gaps_below`: only durable records are compacted, so a batch behind a gap must end there at the latest. Without
        it, gaps may be as long as the indexes allow.

        Raises `BatchError` where the valid part ends; the segment is then what was read, and `cut_tail` removes the
        rest. It is a `MisplacedBatchError` if the next batch is whole.
        """
        if self._file is None:
            self._file = self._files.open(self.path(LOG))
        self._reset_indexes()
        self._aborted = []
        self.size = self._old_size = 0
        self.next_offset = self.base_offset
        latest = self.base_offset + MAX_RELATIVE + 1 if gaps_below is None else gaps_below
        for found in whole_batches(self._file, 0, self._file.size, verify=True):
            base_offset, next_offset = found.header.base_offset, found.header.next_offset
            if base_offset != expected_offset and not (expected_offset < base_offset and next_offset <= latest):
                raise MisplacedBatchError(
                    f"the batch at byte {found.position} starts at offset {base_offset}, "
                    f"where {expected_offset} or a little more should be next",
                    base_offset,
                )
            self._note(found.header)
            expected_offset = next_offset
            yield found

    def indexes_look_right(self, sizes: tuple[int, int] | None = None) -> bool:
        """Return whether both exist and their last rows are right; other rows are checked when they are used.

        `sizes` are the sizes they had, if known: an older copy has right rows, and fewer.
        """
        try:
            with self._opened() as file, self._rows(INDEX) as offsets, self._rows(TIME_INDEX) as times:
                if not self._last_rows_are_true(file, offsets, times):
                    return False
                self.index_sizes = offsets.encoded_size, times.encoded_size
                if sizes is not None and sizes != self.index_sizes:
                    return False
                self._read_latest(times)
        except (FileNotFoundError, BatchError):
            return False
        return True

    def last_end(self) -> int:
        """Return where the last batch of a sealed segment ends; `BatchError` if no batch ends where the file does."""
        end = self.base_offset
        with self._opened() as file, self._rows(INDEX) as rows:
            start = rows.row(len(rows) - 1)[1] if len(rows) else 0
            for at, header in headers(file, start, self.size, self._walk):
                end = header.next_offset
                if at + header.size > self.size:
                    raise CorruptBatchError(f"it ends in the middle of the batch at byte {at}")
        return end

    def _read_latest(self, times: IndexRows) -> None:
        if len(times):
            self._max_timestamp, relative = times.row(len(times) - 1)
            self._max_timestamp_at = self.base_offset + relative

    def _last_rows_are_true(self, file: File, offsets: IndexRows, times: IndexRows) -> bool:
        if not (offsets.ends_well() and times.ends_well()):
            return False
        start = 0
        if len(offsets):
            relative, start = offsets.row(len(offsets) - 1)
            if not _batch_ends_with(file, start, self.size, self.base_offset + relative):
                return False
        if not len(times):  # sealing writes the latest timestamp, so there is none
            return self.size == 0 or next(headers(file, 0, self.size))[1].max_timestamp == NO_TIMESTAMP
        timestamp, relative = times.row(len(times) - 1)
        slot = offsets.first_at_most(relative)
        start = offsets.row(slot)[1] if slot >= 0 else 0
        for _, header in headers(file, start, self.size, self._walk):
            if header.last_offset >= self.base_offset + relative:
                return header.last_offset == self.base_offset + relative and header.max_timestamp == timestamp
        return False

    def rebuild_indexes(self) -> None:
        """Build both indexes from the headers alone; those of a sealed segment are written at once."""
        size, next_offset = self.size, self.next_offset
        self._reset_indexes()
        self.size, self.next_offset = 0, self.base_offset
        try:
            with self._opened() as file:
                for at, header, _ in whole_batches(file, 0, size, verify=False):
                    if (
                        not self.next_offset
                        <= header.base_offset
                        <= header.last_offset
                        <= self.base_offset + MAX_RELATIVE
                    ):
                        raise CorruptBatchError(
                            f"the batch at byte {at} is not where its offset {header.base_offset} is"
                        )
                    self._note(header)
        finally:
            self.size, self.next_offset = size, next_offset
        if self._file is None:
            self._add_time_row()
            for sync in self._write_offset_indexes():
                sync.run()
            self._offsets, self._times = MemoryRows(OFFSET_ROW), MemoryRows(TIME_ROW)

    # --- reading ------------------------------------------------------------------------------------------------------

    @property
    def max_timestamp(self) -> int:
        return self._max_timestamp

    def first_stamp(self) -> int:
        """Return the latest timestamp of the first batch, read from disk if necessary; -1 if there is none."""
        if self.first_timestamp is None and self.size:
            with self._opened() as file:
                self.first_timestamp = next(headers(file, 0, self.size, HEADER_SIZE))[1].max_timestamp
        return NO_TIMESTAMP if self.first_timestamp is None else self.first_timestamp

    def read(self, from_offset: int, max_bytes: int, up_to: int, *, gapless: bool = False) -> bytes:
        """Return whole batches from the one with `from_offset`, all before `up_to`; the first one whatever its size.

        `BatchError` if the first one is damaged; the result ends before a later one that is. `gapless`: each batch
        must begin where the one before ends.
        """
        with self._opened() as file:
            walked_from, found = self._find(file, from_offset)
            if found is None:
                self._check_old(file, walked_from, self.size, self.size, gapless=gapless)
                return b""
            start, first = found
            is_old = walked_from < self._old_size
            if is_old:
                self._check_old(file, walked_from, start, start + first.size, gapless=gapless)
            if first.last_offset >= up_to:
                return b""
            end = self._end(file, start, start + first.size, max_bytes, up_to)
            if is_old:
                end = self._check_old(file, walked_from, start, end, gapless=gapless)
            return file.pread(end - start, start)

    def _check_old(self, file: File, walked_from: int, start: int, end: int, *, gapless: bool) -> int:
        """Check what an earlier process wrote, the first time it is read; return up to where it is valid.

        `BatchError` if that is not beyond `start`.
        """
        at, until = walked_from, min(end, self._old_size)
        first, expected = at, self.base_offset if at == 0 else -1
        if self._checked is not None and self._checked[0] <= at <= self._checked[1]:
            first, at, expected = self._checked
        behind_gap: tuple[int, int] | None = None
        """The position of the last batch, and what was expected there, if it did not begin with that."""
        try:
            for found in whole_batches(file, at, until, verify=True):
                self._check_place(found.position, found.header, expected, gapless=gapless)
                behind_gap = (at, expected) if found.header.base_offset != expected else None
                expected = found.header.next_offset
                at = found.position + found.header.size
            if behind_gap is not None and at < self._old_size:
                for position, header in headers(file, at, self._old_size, HEADER_SIZE):
                    self._check_place(position, header, expected, gapless=gapless)
                    break
        except BatchError as error:
            if behind_gap is not None and isinstance(error, MisplacedBatchError):
                at, expected = behind_gap  # the batch before it is the one that has a wrong offset
            if at <= start:
                raise
            end = at
        self._checked = first, at, expected
        return end

    def _check_place(self, position: int, header: BatchHeader, expected: int, *, gapless: bool) -> None:
        """Raise `MisplacedBatchError` if the batch does not continue the segment. `expected` -1: not known."""
        base = header.base_offset
        if base < expected or (gapless and base > expected >= 0) or header.next_offset > self.next_offset:
            raise MisplacedBatchError(
                f"the batch at byte {position} starts at offset {base}, "
                f"where {expected} or a little more should be next",
                base,
            )

    def _find(self, file: File, offset: int) -> tuple[int, tuple[int, BatchHeader] | None]:
        """Return from where the search began, and the first batch that ends with `offset` or later."""
        start = self._position_before(file, offset)
        found_offset, found_at = self._last_found
        if found_offset <= offset:  # nothing before it ends so late
            start = max(start, found_at)
        for at, header in headers(file, start, self.size, self._walk):
            if header.last_offset >= offset:
                self._last_found = (header.base_offset, at)
                return start, (at, header)
        return start, None

    def _position_before(self, file: File, offset: int) -> int:
        """Return a position at or before the batch with `offset`, by the index."""
        with self._rows(INDEX) as rows:
            slot = rows.first_at_most(offset - self.base_offset)
            if slot < 0:
                return 0
            relative, position = rows.row(slot)
        if self._trusts_rows or _batch_ends_with(file, position, self.size, self.base_offset + relative):
            return position
        self.rebuild_indexes()
        return self._position_before(file, offset)

    def _end(self, file: File, start: int, first_end: int, max_bytes: int, up_to: int) -> int:
        """Return where the last whole batch ends that is within `max_bytes` of `start` and before `up_to`."""
        limit = min(self.size, start + max_bytes)
        if limit == self.size and up_to >= self.next_offset:
            return self.size
        at = first_end
        with self._rows(INDEX) as rows:
            slot = min(rows.second_at_most(limit), rows.first_at_most(up_to - 1 - self.base_offset))
            if slot >= 0:
                relative, position = rows.row(slot)
                if self._trusts_rows or _batch_ends_with(file, position, self.size, self.base_offset + relative):
                    at = max(at, position)
        for position, header in headers(file, at, limit, self._walk):
            if header.last_offset >= up_to or position + header.size > limit:
                return position
            at = position + header.size
        return at

    @property
    def _walk(self) -> int:
        """The number of bytes to read to find a batch between two entries of the index."""
        return 2 * self._index_interval + 1024

    def find_timestamp(self, timestamp: int, from_offset: int, limit: int) -> TimestampedOffset | None:
        """Return the first record at or after `from_offset` that is not older than `timestamp`."""
        with self._rows(TIME_INDEX) as times:
            slot = times.first_at_most(timestamp)
            latest, relative = times.row(slot) if slot >= 0 else (NO_TIMESTAMP, 0)
        with self._opened() as file:
            known = self.base_offset
            if slot >= 0 and (self._trusts_rows or self._has_batch(file, self.base_offset + relative, latest)):
                known += relative
            start = self._position_before(file, max(known, from_offset))
            for at, header in headers(file, start, self.size):
                if header.max_timestamp < timestamp or header.last_offset < from_offset:
                    continue
                for record in records(file.pread(header.size, at), header, limit=limit):
                    if record.timestamp >= timestamp and record.offset >= from_offset:
                        return TimestampedOffset(record.offset, record.timestamp, header.leader_epoch)
        return None

    def _has_batch(self, file: File, last_offset: int, max_timestamp: int) -> bool:
        """Return whether a row of the time index is right."""
        found = self._find(file, last_offset)[1]
        return found is not None and (found[1].last_offset, found[1].max_timestamp) == (last_offset, max_timestamp)

    def replay(self, from_offset: int) -> Iterator[BatchInFile]:
        """Yield the batches from the one with `from_offset`, headers and markers only."""
        with self._opened() as file:
            yield from whole_batches(file, self._position_before(file, from_offset), self.size, verify=False)

    def _opened(self) -> AbstractContextManager[File]:
        return closing(self._files.open(self.path(LOG))) if self._file is None else nullcontext(self._file)

    def _rows(self, suffix: str) -> AbstractContextManager[IndexRows]:
        if self._file is None:
            return self._rows_on_disk(suffix)
        return nullcontext(self._offsets if suffix == INDEX else self._times)

    @contextmanager
    def _rows_on_disk(self, suffix: str) -> Iterator[IndexRows]:
        with closing(self._files.open(self.path(suffix))) as file:
            yield FileRows(OFFSET_ROW if suffix == INDEX else TIME_ROW, file)


def _batch_ends_with(file: File, position: int, size: int, offset: int) -> bool:
    try:
        return 0 <= position < size and next(headers(file, position, size, 64))[1].last_offset == offset
    except BatchError:
        return False
