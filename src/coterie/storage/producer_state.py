"""The state of idempotent producers in one partition, so that a batch sent twice is stored once (rule D1).

For each producer it has the epoch and the last five batches: a producer has at most five requests in flight, so what it
repeats is among them. Of open transactions it has the first offset, before which the last stable offset stays.

The state follows from the log: `note` is called with every batch, on append and when the log is read on opening. It is
saved in Kafka's `.snapshot` files. Kafka writes one row per producer and takes the last if there are several. Here
there is a row for each of the last five batches, oldest first: Kafka's tools can read the file, and after a restart a
repeated batch is still recognized.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.batch import MAX_SEQUENCE, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from coterie.protocol.checksums import crc32c
from coterie.protocol.records import EndMarker
from coterie.storage.compaction import LastRecord
from coterie.storage.files import Files, replace_file
from coterie.storage.log_errors import RefusedError
from coterie.storage.segment_files import SNAPSHOT, join, named, offsets_of
from coterie.storage.transaction_index import AbortedTransaction
from coterie.structs import DataStruct, field

REMEMBERED = 5


class BatchMetadata(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerStateEntry(DataStruct):
    """The state of one producer."""

    epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    stored: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=REMEMBERED))

    @property
    def last_sequence(self) -> int:
        return self.stored[-1].last_sequence if self.stored else NO_SEQUENCE

    def take_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.stored.clear()


class ProducerStateManager:
    """The producers of one partition, at most `max_producers`."""

    def __init__(self, max_producers: int, expiration_ms: int) -> None:
        self._max_producers = max_producers
        self._expiration_ms = expiration_ms
        self._by_id: dict[int, ProducerStateEntry] = {}  # the least recently used first
        self._open_since: dict[int, int] = {}  # producer id -> first offset, the lowest first
        self._ended: deque[tuple[int, int]] = (
            deque()
        )  # first offset and marker of those that ended, until it is durable

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[tuple[int, ProducerStateEntry]]:
        return iter(self._by_id.items())

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open_since.values())) if self._open_since else None

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction whose marker is not below the high watermark (TL3).

        A marker that a crash may still take away decides nothing.
        """
        self.decide(high_watermark)
        first = self.first_open_offset
        if not self._ended:
            return first
        first_ended = min(start for start, _ in self._ended)
        return first_ended if first is None else min(first, first_ended)

    def decide(self, high_watermark: int) -> None:
        """Forget the ended transactions whose marker is below the high watermark: they are stable."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()

    def epoch_of(self, producer_id: int) -> int:
        """Return the epoch of a producer; -1 if it is not known."""
        producer = self._by_id.get(producer_id)
        return NO_PRODUCER_EPOCH if producer is None else producer.epoch

    def open_since(self, producer_id: int) -> int | None:
        return self._open_since.get(producer_id)

    def last_ones(self) -> dict[int, LastRecord]:
        """Return the batch of each producer that compaction must keep, so that its state still follows from the log."""
        return {
            producer_id: LastRecord(producer.epoch, producer.stored[-1].last_offset if producer.stored else None)
            for producer_id, producer in self._by_id.items()
        }

    # --- deciding -----------------------------------------------------------------------------------------------------

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the same batch, if it is among the producer's last five."""
        producer = self._by_id.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for stored in producer.stored:
            if stored.first_sequence == first and stored.last_sequence == last:
                return stored
        return None

    def check_sequence(self, header: BatchHeader, *, starts_at_zero: bool = False) -> None:
        """Refuse a batch that does not follow the producer's last one.

        A new producer may start anywhere, unless `starts_at_zero` (TP6).
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            if starts_at_zero and header.base_sequence != 0:
                raise RefusedError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {header.producer_id} sent sequence {header.base_sequence}; it is new to this partition, "
                    "so its first sequence in a transaction is 0",
                )
            return
        self._check_epoch(header, producer)
        expected = 0 if header.producer_epoch != producer.epoch else (producer.last_sequence + 1) & MAX_SEQUENCE
        if header.base_sequence != expected:
            raise RefusedError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence} in epoch {header.producer_epoch}; "
                f"after {producer.last_sequence} in epoch {producer.epoch} comes {expected}",
            )
        if not header.is_transactional and header.producer_id in self._open_since:
            raise RefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} wrote outside of its transaction, which is open since offset "
                f"{self._open_since[header.producer_id]}",
            )

    def check_producer_epoch(
        self, header: BatchHeader, marker: EndMarker | None, *, must_bump_epoch: bool = False
    ) -> None:
        """Check a batch that a coordinator writes for a producer: it has no sequence, but an epoch.

        `must_bump_epoch`: a marker with the producer's epoch is a repeated one, so no transaction may be open (TL7).
        """
        producer = self._by_id.get(header.producer_id)
        if producer is None:
            return
        self._check_epoch(header, producer)
        if must_bump_epoch and header.producer_epoch == producer.epoch and header.producer_id in self._open_since:
            raise RefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker with epoch {header.producer_epoch}, which the open transaction of producer "
                f"{header.producer_id} has; the marker must have a higher one",
            )
        if marker is not None and marker.coordinator_epoch < producer.coordinator_epoch:
            raise RefusedError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker from coordinator epoch {marker.coordinator_epoch}; {producer.coordinator_epoch} was here",
            )

    @staticmethod
    def _check_epoch(header: BatchHeader, producer: ProducerStateEntry) -> None:
        if header.producer_epoch < producer.epoch:
            raise RefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} wrote with epoch {header.producer_epoch}; epoch {producer.epoch} "
                "has taken over",
            )

    # --- following the log --------------------------------------------------------------------------------------------

    def note(self, header: BatchHeader, marker: EndMarker | None = None) -> AbortedTransaction | None:
        """Note a batch that is in the log, with its final offset; return the transaction if the batch aborts one."""
        if not header.has_producer:
            return None
        aborted = None
        producer_id = header.producer_id
        producer = self._by_id.pop(producer_id, None) or ProducerStateEntry()
        self._by_id[producer_id] = producer
        producer.take_epoch(header.producer_epoch)
        producer.last_timestamp = header.max_timestamp
        if header.is_control:
            if marker is not None:
                producer.coordinator_epoch = marker.coordinator_epoch
                aborted = self._end_transaction(header, marker)
        else:
            if header.base_sequence != NO_SEQUENCE:
                stored = BatchMetadata(
                    header.base_sequence,
                    header.last_sequence,
                    header.base_offset,
                    header.last_offset,
                    header.max_timestamp,
                )
                producer.stored.append(stored)
            if header.is_transactional:
                self._open_since.setdefault(producer_id, header.base_offset)
        if len(self._by_id) > self._max_producers:
            self._forget_one()
        return aborted

    def _end_transaction(self, header: BatchHeader, marker: EndMarker) -> AbortedTransaction | None:
        first = self._open_since.pop(header.producer_id, None)
        if first is None:
            return None  # it wrote nothing to this partition
        self._ended.append((first, header.last_offset))
        if marker.committed:
            return None
        oldest = self.first_open_offset
        stable = header.next_offset if oldest is None else oldest
        return AbortedTransaction(header.producer_id, first, header.last_offset, stable)

    def restore(self, rows: Iterable[tuple[int, ProducerStateEntry, int | None]]) -> None:
        """Restore producers of a snapshot, with where their transaction began; rows of one producer in order."""
        for producer_id, producer, open_since in rows:
            known = self._by_id.setdefault(producer_id, producer)
            if known is not producer:
                known.take_epoch(producer.epoch)
                known.coordinator_epoch = producer.coordinator_epoch
                known.last_timestamp = producer.last_timestamp
                known.stored.extend(producer.stored)
            if open_since is not None:
                self._open_since[producer_id] = open_since
        self._open_since = dict(sorted(self._open_since.items(), key=lambda item: item[1]))
        for _ in range(len(self._by_id) - self._max_producers):
            self._forget_one()

    def expire(self, now_ms: int) -> list[int]:
        """Forget producers without an open transaction that have not written for `producer.id.expiration.ms`.

        Returns their ids.
        """
        gone = [
            producer_id
            for producer_id, producer in self._by_id.items()
            if now_ms - producer.last_timestamp >= self._expiration_ms and producer_id not in self._open_since
        ]
        for producer_id in gone:
            del self._by_id[producer_id]
        return gone

    def _forget_one(self) -> None:
        """Forget the least recently used producer without an open transaction; those with one move to the end."""
        for _ in range(len(self._by_id)):
            producer_id, producer = next(iter(self._by_id.items()))
            del self._by_id[producer_id]
            if producer_id not in self._open_since:
                return
            self._by_id[producer_id] = producer


_KEPT = 10
"""The number of snapshot files that are kept of a log."""

_HEAD = Struct(">hIi")  # version, checksum of all that follows it, number of rows
_ROWS_AT = 6
_ROW = Struct(">qhiqiqiq")
_VERSION = 1
_NONE = -1


def encode_snapshot(producers: ProducerStateManager) -> bytes:
    rows = []
    for producer_id, producer in producers:
        open_since = producers.open_since(producer_id)
        for stored in producer.stored or [
            BatchMetadata(NO_SEQUENCE, NO_SEQUENCE, _NONE, _NONE, producer.last_timestamp)
        ]:
            row = _ROW.pack(
                producer_id,
                producer.epoch,
                stored.last_sequence,
                stored.last_offset,
                stored.last_offset - stored.first_offset,
                stored.timestamp,
                producer.coordinator_epoch,
                _NONE if open_since is None else open_since,
            )
            rows.append(row)
    body = b"".join(rows)
    count = _HEAD.pack(0, 0, len(rows))[_ROWS_AT:]
    return _HEAD.pack(_VERSION, crc32c(count + body), len(rows)) + body


def snapshot_later(files: Files, directory: str, offset: int, producers: ProducerStateManager) -> Callable[[], None]:
    """Encode the producers now; the result writes them to a file. It saves the next opening from reading the log."""
    path, content = join(directory, named(offset, SNAPSHOT)), encode_snapshot(producers)

    def write() -> None:
        replace_file(files, path, content, sync=False)
        for old in offsets_of(files.names(directory), SNAPSHOT)[:-_KEPT]:
            files.delete(join(directory, named(old, SNAPSHOT)))

    return write


def decode_snapshot(data: bytes, producers: ProducerStateManager) -> None:
    """Restore all rows of a snapshot into `producers`; if it raises `MalformedError`, nothing was restored."""
    if len(data) < _HEAD.size:
        raise MalformedError(f"a producer snapshot of {len(data)} bytes; its head alone has {_HEAD.size}")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc32c(data[_ROWS_AT:]) != checksum or count * _ROW.size != len(data) - _HEAD.size:
        raise MalformedError(f"a producer snapshot of version {version} with {count} rows does not add up")
    producers.restore(map(_producer_of, _ROW.iter_unpack(data[_HEAD.size :])))


def _producer_of(row: tuple[int, ...]) -> tuple[int, ProducerStateEntry, int | None]:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, open_since = row
    stored: deque[BatchMetadata] = deque(maxlen=REMEMBERED)
    if last_offset >= 0 and last_sequence >= 0:
        first_sequence = (last_sequence - delta) & MAX_SEQUENCE
        stored.append(BatchMetadata(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
    return (
        producer_id,
        ProducerStateEntry(epoch, coordinator_epoch, timestamp, stored),
        open_since if open_since >= 0 else None,
    )
