"""The tasks of a `TransactionalSink`: some encode rows as batches, others write the batches of a partition.

Batches are few where rows are many, so it costs little that Spark carries them from one task to the other.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from pyspark import TaskContext

from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.producer.transaction_worker import BatchEncoder, TransactionWorker
from coterie.errors import CoterieError
from coterie.settings.producer_settings import ProducerSettings
from coterie.spark.sink import headers_of

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["encoding", "writing"]

Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

AT_ONCE = 1_048_576
"""The bytes of batches that are handed to Spark at a time."""


def encoding(settings: ProducerSettings, partitions: int) -> Task:
    """Return a function that encodes rows as batches, each for one partition of the topic."""

    def encode(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        encoder = BatchEncoder(settings, partitions, first=context.partitionId() if context is not None else 0)
        return _in_rows(_batches(encoder, rows))

    return encode


def _batches(encoder: BatchEncoder, rows: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytearray]]:
    for some in rows:
        columns = {name.lower(): some.column(at) for at, name in enumerate(some.schema.names)}
        yield from encoder.add(
            columns["value"],
            time.time_ns() // 1_000_000,
            keys=columns.get("key"),
            partitions=columns.get("partition"),
            headers=headers_of(columns["headers"]) if "headers" in columns else None,
        )
    yield from encoder.rest()


def _in_rows(batches: Iterable[tuple[int, bytearray]]) -> Iterator[pa.RecordBatch]:
    partitions: list[int] = []
    found: list[bytearray] = []
    size = 0
    for partition, batch in batches:
        partitions.append(partition)
        found.append(batch)
        size += len(batch)
        if size >= AT_ONCE:
            yield _rows(partitions, found)
            partitions, found, size = [], [], 0
    if found:
        yield _rows(partitions, found)


def _rows(partitions: list[int], batches: list[bytearray]) -> pa.RecordBatch:
    """Return a row for each batch; the column is made of buffers, which is faster than of objects."""
    import pyarrow as pa

    ends = array("i", accumulate(map(len, batches), initial=0))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(batches))]
    column = pa.Array.from_buffers(pa.binary(), len(batches), buffers, null_count=0)
    return pa.RecordBatch.from_arrays([pa.array(partitions, pa.int32()), column], ["partition", "batch"])


def writing(settings: ProducerSettings, topic: str, identity: ProducerIdAndEpoch) -> Task:
    """Return a function that writes batches as a part of the transaction, and returns how many there were."""

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise CoterieError(
                "a task of a transaction cannot be run a second time: the whole batch is written again, in the next one"
            )
        count = 0
        with TransactionWorker(settings, identity) as producer:
            for some in rows:
                partitions, batches = some.column(0).to_pylist(), some.column(1).to_pylist()
                producer.send_batches(topic, zip(partitions, batches, strict=True))
                count += len(batches)
            producer.deliver()
        yield pa.RecordBatch.from_pydict({"batches": pa.array([count], pa.int64())})

    return write
