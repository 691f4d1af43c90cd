"""Producer state as of an offset, in the format of Kafka's `.snapshot` files.

Kafka writes one row per producer and takes the last if there are several. We write a row for each of the last five
batches, oldest first: Kafka's tools read the file, and after a restart a repeated batch is still known as one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from struct import Struct

from crc32c import crc32c

from coterie.errors import MalformedError
from coterie.protocol.batch import MAX_SEQUENCE, NO_SEQUENCE
from coterie.storage.files import Files, replace_file
from coterie.storage.layout import SNAPSHOT, join, named, offsets_of
from coterie.storage.producers import REMEMBERED, Producer, Producers, Stored

__all__ = ["decode_snapshot", "encode_snapshot", "snapshot_later"]

_KEPT = 10
"""Files, of a log."""

_HEAD = Struct(">hIi")  # version, checksum of all that follows it, number of rows
_ROWS_AT = 6
_ROW = Struct(">qhiqiqiq")
_VERSION = 1
_NONE = -1


def encode_snapshot(producers: Producers) -> bytes:
    rows = []
    for producer_id, producer in producers:
        open_since = producers.open_since(producer_id)
        for stored in producer.stored or [Stored(NO_SEQUENCE, NO_SEQUENCE, _NONE, _NONE, producer.last_timestamp)]:
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


def snapshot_later(files: Files, directory: str, offset: int, producers: Producers) -> Callable[[], None]:
    """The producers as they are now, to be written later: it spares the next opening from reading the log."""
    path, content = join(directory, named(offset, SNAPSHOT)), encode_snapshot(producers)

    def write() -> None:
        replace_file(files, path, content, sync=False)
        for old in offsets_of(files.names(directory), SNAPSHOT)[:-_KEPT]:
            files.delete(join(directory, named(old, SNAPSHOT)))

    return write


def decode_snapshot(data: bytes, producers: Producers) -> None:
    """Restore all rows of a snapshot into `producers`; `MalformedError` before anything is restored."""
    if len(data) < _HEAD.size:
        raise MalformedError(f"a producer snapshot of {len(data)} bytes; its head alone has {_HEAD.size}")
    version, checksum, count = _HEAD.unpack_from(data)
    if version != _VERSION or crc32c(data[_ROWS_AT:]) != checksum or count * _ROW.size != len(data) - _HEAD.size:
        raise MalformedError(f"a producer snapshot of version {version} with {count} rows does not add up")
    producers.restore(map(_producer_of, _ROW.iter_unpack(data[_HEAD.size :])))


def _producer_of(row: tuple[int, ...]) -> tuple[int, Producer, int | None]:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, open_since = row
    stored: deque[Stored] = deque(maxlen=REMEMBERED)
    if last_offset >= 0 and last_sequence >= 0:
        first_sequence = (last_sequence - delta) & MAX_SEQUENCE
        stored.append(Stored(first_sequence, last_sequence, last_offset - delta, last_offset, timestamp))
    return producer_id, Producer(epoch, coordinator_epoch, timestamp, stored), open_since if open_since >= 0 else None
