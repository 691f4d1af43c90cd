"""Rows of a transaction that another process has begun and will end.

The other process gives its producer id and epoch (`TransactionDriver.share`). Many workers may write, each on its own
connections, if each partition has one worker: sequences are counted for each producer id and partition, from 0. So rows
are first encoded as batches, wherever they are (`BatchEncoder`), and the batches go to the worker of their partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING

from coterie.client.producer.accumulator_events import ProducerIdGiven
from coterie.client.producer.arrow_columns import ColumnProducer
from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.producer.record_appender import next_ratio
from coterie.client.producer.sender import rules_of
from coterie.errors import IllegalArgumentError
from coterie.protocol.arrow import ArrowWriter
from coterie.protocol.batch import HEADER_SIZE
from coterie.protocol.buffer import Buffer
from coterie.protocol.records import BatchBuilder, EncodedBatch, Header
from coterie.settings.producer_settings import ProducerSettings

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BatchEncoder", "TransactionWorker"]


class BatchEncoder:
    """Encodes rows as transactional batches for the partitions of a topic; it sends nothing."""

    def __init__(self, settings: ProducerSettings, partitions: int, first: int = 0) -> None:
        """Rows without a key and a partition fill a batch for partition `first`, then one for the next."""
        self._rules = rules_of(settings)
        self._partitions = partitions
        self._ratio = 1.0
        anywhere = count(first)
        self._writer = ArrowWriter(
            partitions, self._new_batch, lambda: next(anywhere) % partitions, ignores_keys=self._rules.ignores_keys
        )

    def add(
        self,
        values: pa.Array,
        now_ms: int,
        *,
        keys: pa.Array | None = None,
        partitions: pa.Array | None = None,
        headers: Sequence[Sequence[Header]] | None = None,
    ) -> Iterator[tuple[int, bytearray]]:
        """Add rows of the time `now_ms`, and yield a partition and its batch for each that has become full."""
        import pyarrow as pa

        self._check(partitions)
        keys = pa.nulls(len(values), pa.binary()) if keys is None else keys
        yield from self._encoded(self._writer.add(keys, values, now_ms, partitions, headers))

    def rest(self) -> Iterator[tuple[int, bytearray]]:
        """Yield the batches that are not full."""
        yield from self._encoded(self._writer.rest())

    def _new_batch(self) -> BatchBuilder:
        return BatchBuilder(self._rules.batch_size, self._rules.compression, self._ratio, self._rules.level)

    def _encoded(self, batches: Iterable[tuple[int, BatchBuilder]]) -> Iterator[tuple[int, bytearray]]:
        for partition, builder in batches:
            data = builder.finish(is_transactional=True)
            self._ratio = next_ratio(self._ratio, (len(data) - HEADER_SIZE) / builder.plain_size)
            yield partition, data

    def _check(self, partitions: pa.Array | None) -> None:
        strangest = ColumnProducer.strangest(partitions)
        if strangest is not None and not 0 <= strangest < self._partitions:
            raise IllegalArgumentError(
                f"a row is for partition {strangest}, and the topic has {self._partitions} partitions, from 0"
            )


class TransactionWorker(ColumnProducer):
    def __init__(self, settings: ProducerSettings, identity: ProducerIdAndEpoch) -> None:
        """`settings` are those of the producer that has the transaction, with its transactional.id."""
        super().__init__(settings)
        self._sender.transactions = None  # it begins and ends nothing
        self._background.run(self._adopt(identity))

    async def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        self._sender.handle(ProducerIdGiven(identity))

    def send_batches(self, topic: str, batches: Iterable[tuple[int, Buffer]]) -> None:
        """Send batches of a `BatchEncoder` to their partitions. Waits for room, as `send_columns` does."""
        for partition, data in batches:
            if not self._knows(topic, partition):
                self._background.run(self._sender.know(topic, partition))
            self._hand_over(topic, [(partition, EncodedBatch(data))])
