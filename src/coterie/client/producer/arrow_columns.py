"""Rows of Arrow columns go to topics: a producer without an object for each record.

    with ColumnProducer(bootstrap_servers="localhost:9092") as producer:
        producer.send_columns("orders", table_values, keys=table_keys)
        producer.deliver()                         # all of it is acknowledged, or an error says why not

Batches are written straight from the columns (`protocol/arrow.py`) and then go the way of all batches: the rules
of idempotence, retries and `buffer.memory` are those of every producer, and so is the place of a key. For one thread.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Unpack

from coterie.client.network.runtime import clock_ms
from coterie.client.producer.partition_queue import Batch
from coterie.client.producer.producer import Producer
from coterie.client.settings_kwargs import ProducerKwargs
from coterie.protocol.arrow import ArrowWriter
from coterie.protocol.records import BatchBuilder, Header
from coterie.settings.producer_settings import ProducerSettings

if TYPE_CHECKING:
    import pyarrow as pa


class WrittenRows(NamedTuple):
    """Rows that are next to each other in a partition: the offset of the first, and how many they are."""

    partition: int
    offset: int
    rows: int


class ColumnProducer(Producer):
    keeps_offsets = False
    """Set it to have `deliver` return where rows are."""

    def __init__(
        self, settings: ProducerSettings | Mapping[str, object] | None = None, /, **more: Unpack[ProducerKwargs]
    ) -> None:
        super().__init__(settings, **more)
        self._writers: dict[str, ArrowWriter] = {}
        self._handed_over: deque[Batch] = deque()
        self._written: list[WrittenRows] = []

    def send_columns(
        self,
        topic: str,
        values: pa.Array,
        *,
        keys: pa.Array | None = None,
        partitions: pa.Array | None = None,
        headers: Sequence[Sequence[Header]] | None = None,
        timestamps: pa.Array | None = None,
    ) -> None:
        """Append rows to batches. Waits for room; a batch that is not full waits for more rows, or for `deliver`.

        Keys and values are text or binary, timestamps int64 milliseconds; without them it is now. If `partitions` is
        null in a row, the key decides; if the key is null too, it is the partition that is filled at the moment. Raises
        the error of rows that were handed over before.
        """
        import pyarrow as pa

        self._usable()
        if not len(values):
            return
        writer = self._writer(topic, partitions)
        times = time.time_ns() // 1_000_000 if timestamps is None else timestamps
        keys = pa.nulls(len(values), pa.binary()) if keys is None else keys
        self._hand_over(topic, writer.add(keys, values, times, partitions, headers))

    def deliver(self) -> list[WrittenRows]:
        """Return when every row so far is acknowledged; raise if one is not.

        With `keeps_offsets`, it returns where the rows since the last call are, in the order of each partition.
        """
        self._hand_over_the_rest()
        self.flush()
        self._raise_what_failed()
        written, self._written = self._written, []
        return written

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver every row so far, and commit the transaction."""
        self._hand_over_the_rest()
        super().commit_transaction(timeout)
        self._handed_over.clear()
        self._written.clear()

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction, and drop the rows that were not handed over."""
        self._drop_rows()
        super().abort_transaction(timeout)

    def close(self, timeout: float | None = None) -> None:
        try:
            if self.settings.transactional_id is not None:
                self._drop_rows()  # a transaction that is open is aborted
            elif not self._unusable:
                self._hand_over_the_rest()
        finally:
            super().close(timeout)

    def _drop_rows(self) -> None:
        self._writers.clear()
        self._handed_over.clear()
        self._written.clear()

    def _hand_over_the_rest(self) -> None:
        for topic, writer in self._writers.items():
            self._hand_over(topic, writer.rest())

    def _writer(self, topic: str, partitions: pa.Array | None) -> ArrowWriter:
        highest = self.strangest(partitions)
        if not self._knows(topic, highest):
            self._background.run(self._sender.know(topic, highest))
        accumulator = self._sender.accumulator
        if topic not in self._writers:

            def draw() -> int:
                with self._sender.lock:
                    writer.grow(accumulator.topics[topic].partitions)
                    return accumulator.draw(topic)

            self._writers[topic] = ArrowWriter(
                0, lambda: accumulator.new_batch(topic), draw, ignores_keys=self.settings.partitioner_ignore_keys
            )
        writer = self._writers[topic]
        writer.grow(accumulator.topics[topic].partitions)
        return writer

    @staticmethod
    def strangest(partitions: pa.Array | None) -> int | None:
        """Return the partition number that is least likely to exist."""
        if partitions is None or partitions.null_count == len(partitions):
            return None
        from pyarrow import compute

        low, high = (each.as_py() for each in compute.min_max(partitions).values())
        return int(low if low < 0 else high)

    def _hand_over(self, topic: str, batches: Iterable[tuple[int, BatchBuilder]]) -> None:
        for partition, builder in batches:
            self._raise_what_failed()
            self._handed_over.append(self._lined_up(topic, partition, builder))

    def _lined_up(self, topic: str, partition: int, builder: BatchBuilder) -> Batch:
        def append() -> Batch | None:
            return self._usable().append_batch(topic, partition, builder, clock_ms())

        with self._sender.lock:
            batch = append() or self._when_there_is_room(append)
            if self._sender.accumulator.wants_attention:
                self._wake()
            return batch

    def _raise_what_failed(self) -> None:
        """Raise the first error of the batches that are settled, and forget them."""
        while self._handed_over and _is_settled(self._handed_over[0]):
            for part in _parts(self._handed_over.popleft()):
                if part.error is not None:
                    raise type(part.error)(str(part.error), part.error.code)
                if self.keeps_offsets:
                    self._written.append(WrittenRows(part.where.partition, part.base_offset, len(part)))


def _parts(batch: Batch) -> Iterator[Batch]:
    if batch.parts is None:
        yield batch
    else:
        for part in batch.parts:
            yield from _parts(part)


def _is_settled(batch: Batch) -> bool:
    return all(part.is_settled for part in _parts(batch))
