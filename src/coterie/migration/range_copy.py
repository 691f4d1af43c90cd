"""Copy a range of a partition, as a task of Spark; see `spark_jobs.py`.

A task reads as format("coterie") does, without an object for each record, and writes from the columns. Each of its
transactions has records and their progress, as those of the ordinary copy have. Its transactional id is that of the
partition. So when Spark runs a task again, the second attempt fences the first, and goes on where its last committed
transaction ended: no record is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from coterie.client.admin import LATEST, checked
from coterie.client.network.runtime import clock_ms
from coterie.client.producer.arrow_columns import ColumnProducer, WrittenRows
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, KafkaError, TransactionAbortableError
from coterie.migration.clusters import POLL_S, Side
from coterie.migration.copier import transactional_id
from coterie.migration.progress import Entry, Progress, chunk_entry, position_entry, read_progress, spark_entry
from coterie.migration.translation import Chunk, OffsetTable, Segment, segments_of_runs
from coterie.spark.batch_plan import OffsetRange
from coterie.spark.options import SourceOptions, Use
from coterie.spark.partition_reader import read_range
from coterie.spark.sink import columns_of, headers_of

if TYPE_CHECKING:
    import pyarrow as pa

TRANSACTION_MS = 1_000
TRANSACTION_BYTES = 64 << 20
"""A transaction is committed when it has lasted so long, or has so much."""
PROGRESS_WITHIN_MS = 180_000
"""How long a task waits for transactions of others that hold back the progress. A dead one is aborted in a minute."""
MICROSECONDS = 1_000
"""Columns have microseconds, and records have milliseconds."""


@dataclass(frozen=True)
class CopyJob:
    """The settings that all tasks share."""

    source: Side
    target: Side
    name: str
    """The progress topic."""
    compression: str
    run: str
    """The token of this run. When the progress has another one, another migration has taken over."""


class CopyRange(NamedTuple):
    """The range that one task copies, and the stored progress of its partition when the task was made."""

    partition: TopicPartition
    from_offset: int
    until_offset: int
    chunks: tuple[Chunk, ...]
    most_segments: int
    since: int
    """The offset in the progress topic behind what was read for this."""


class CopiedRange(NamedTuple):
    """The result of one task."""

    records: int
    is_superseded: bool = False
    """True if another migration has taken over."""


def copy_range(job: CopyJob, piece: CopyRange) -> CopiedRange:
    """Copy a range, or what is left of it."""
    settings = job.target.producer_settings(transactional_id(job.name, piece.partition), job.compression)
    with ColumnProducer(settings) as producer:
        producer.keeps_offsets = True
        producer.init_transactions()  # nothing of an earlier attempt is written or committed after this
        progress = _progress_now(job, piece)
        if progress.spark_run != job.run:
            return CopiedRange(0, is_superseded=True)
        begin = max(progress.position(piece.partition) or 0, piece.from_offset)
        if begin >= piece.until_offset:
            return CopiedRange(0)
        chunks = progress.table(piece.partition).chunks
        copy = _Copy(job, piece.partition, producer, OffsetTable(chunks, limit=piece.most_segments))
        source = OffsetRange(*piece.partition, begin, piece.until_offset)
        for rows in read_range(_source_options(job.source, piece.partition.topic), source):
            copy.add(rows)
        copy.commit([position_entry(piece.partition, piece.until_offset)])
        return CopiedRange(copy.records)


def _source_options(side: Side, topic: str) -> SourceOptions:
    given = {"kafka.bootstrap.servers": side.bootstrap, "subscribe": topic, "includeHeaders": "true"}
    return replace(SourceOptions.of(given, Use.BATCH), client=side.consumer_settings())


def _progress_now(job: CopyJob, piece: CopyRange) -> Progress:
    """Return the progress of this partition: what the driver has read, and what was stored since.

    Open transactions of other tasks hold back what is behind them. So this reads up to where the topic ends now.
    """
    stored = [spark_entry(job.run), *(chunk_entry(piece.partition, one) for one in piece.chunks)]
    return read_progress([*stored, *_entries_since(job.target, job.name, piece.since)])


def _entries_since(side: Side, name: str, since: int) -> Iterator[tuple[bytes | None, bytes | None]]:
    place = TopicPartition(name, 0)
    with side.admin() as admin:
        end = checked(admin.list_offsets({place: LATEST}))[place].offset
    if since >= end:
        return
    with side.consumer() as consumer:
        consumer.assign([place])
        consumer.seek(place, since)
        until = clock_ms() + PROGRESS_WITHIN_MS
        while consumer.position(place) < end:
            if clock_ms() > until:
                raise KafkaError(f"a transaction in {name} does not end", ErrorCode.REQUEST_TIMED_OUT)
            yield from ((one.key, one.value) for one in consumer.poll(POLL_S))


class _Copy:
    """The open transaction of a task, and how much was committed."""

    def __init__(self, job: CopyJob, partition: TopicPartition, producer: ColumnProducer, table: OffsetTable) -> None:
        self._job = job
        self._partition = partition
        self._producer = producer
        self._table = table
        self._sources: list[pa.Array] = []
        self._bytes = 0
        self._began: int | None = None
        self.records = 0

    def add(self, rows: pa.RecordBatch) -> None:
        import pyarrow as pa
        from pyarrow import compute

        self._begin()
        columns = columns_of(rows)
        times = compute.divide(columns["timestamp"].cast(pa.int64()), MICROSECONDS)
        self._producer.send_columns(
            self._partition.topic,
            columns["value"],
            keys=columns["key"],
            partitions=columns["partition"],
            headers=headers_of(columns["headers"]),
            timestamps=times,
        )
        self._sources.append(columns["offset"])
        self._bytes += rows.nbytes
        assert self._began is not None
        if self._bytes >= TRANSACTION_BYTES or clock_ms() - self._began >= TRANSACTION_MS:
            self.commit()

    def _begin(self) -> None:
        if self._began is None:
            self._producer.begin_transaction()
            self._began = clock_ms()

    def commit(self, entries: list[Entry] | None = None) -> None:
        """Commit the rows and where they are."""
        self._begin()
        written = self._producer.deliver()
        count = sum(len(one) for one in self._sources)
        if sum(one.rows for one in written) != count:
            raise TransactionAbortableError(f"{count} records of {self._partition} were sent, and others written")
        stored = list(entries or ())
        if count:
            chunks = self._table.add(segments_of_rows(self._sources, written))
            stored += [chunk_entry(self._partition, one) for one in chunks]
        for key, value in stored:
            self._producer.send(self._job.name, value, key=key, partition=0)
        self._producer.commit_transaction()
        self.records += count
        self._sources, self._bytes, self._began = [], 0, None


def segments_of_rows(sources: list[pa.Array], written: list[WrittenRows]) -> list[Segment]:
    """Return the segments of rows: their offsets in the source, in columns, and where their batches are."""
    import numpy as np

    if any(one.offset < 0 for one in written):
        raise TransactionAbortableError("the target did not say at which offsets the records are")
    here = np.concatenate([one.to_numpy() for one in sources])
    there = np.concatenate([np.arange(one.offset, one.offset + one.rows) for one in written])
    firsts = [0, *(np.flatnonzero((np.diff(here) != 1) | (np.diff(there) != 1)) + 1).tolist()]
    counts = np.diff([*firsts, len(here)]).tolist()
    return segments_of_runs(zip(here[firsts].tolist(), there[firsts].tolist(), counts, strict=True))
