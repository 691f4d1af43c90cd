"""Rows of a transaction that another process has begun and will end.

The other process gives its producer id and epoch (`TransactionDriver.share`). Many workers may write, each on its own
connections, and to any partition. A broker counts sequences for each producer id and partition, so workers take turns
at a partition: who has the turn knows the next sequence, and gives the turn back, with the sequence that follows, when
all it has sent is acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Protocol

from coterie.client.producer.accumulator_events import ProducerIdGiven
from coterie.client.producer.arrow_columns import ColumnProducer, WrittenRows
from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.types import TopicPartition
from coterie.protocol.records import BatchBuilder
from coterie.settings.producer_settings import ProducerSettings

__all__ = ["TransactionWorker", "Turns"]

AT_ONCE = 4 * 1024 * 1024
"""The bytes of batches that a worker gathers before it asks for turns."""


class Turns(Protocol):
    """Gives a worker its turns at partitions."""

    def take(self, wanted: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Wait for turns at one or more of these partitions, and return the next sequence of each."""

    def give_back(self, sequences: Mapping[TopicPartition, int]) -> None:
        """Give back all turns, each with the next sequence of its partition."""


class TransactionWorker(ColumnProducer):
    """It has a turn only while it sends, and never while it waits for rows. So no worker waits for a slow one."""

    def __init__(self, settings: ProducerSettings, identity: ProducerIdAndEpoch, turns: Turns) -> None:
        """`settings` are those of the producer that has the transaction, with its transactional.id."""
        super().__init__(settings)
        self._sender.transactions = None  # it begins and ends nothing
        self._identity = identity
        self._turns = turns
        self._gathered: dict[TopicPartition, list[BatchBuilder]] = {}
        self._gathered_bytes = 0
        self._background.run(self._adopt())

    async def _adopt(self) -> None:
        self._sender.handle(ProducerIdGiven(self._identity))

    def deliver(self) -> list[WrittenRows]:
        self._hand_over_the_rest()
        while self._gathered:
            self._send_in_turn()
        return []

    def _drop_rows(self) -> None:
        super()._drop_rows()
        self._gathered.clear()

    def _hand_over(self, topic: str, batches: Iterable[tuple[int, BatchBuilder]]) -> None:
        for partition, builder in batches:
            self._gathered.setdefault(TopicPartition(topic, partition), []).append(builder)
            self._gathered_bytes += builder.plain_size
            while self._gathered_bytes >= AT_ONCE:
                self._send_in_turn()

    def _send_in_turn(self) -> None:
        """Send what was gathered for the partitions at which it gets a turn."""
        queues = {
            where: self._sender.accumulator.topics[where.topic].queues[where.partition] for where in self._gathered
        }
        most_first = sorted(self._gathered, key=lambda where: -len(self._gathered[where]))
        mine = self._turns.take(most_first)
        with self._sender.lock:
            for where, sequence in mine.items():
                queues[where].resume(self._identity, sequence)
        found = [[(where, builder) for builder in self._gathered.pop(where)] for where in mine]
        for each in chain.from_iterable(zip_longest(*found)):  # a request has a batch of each partition
            if each is not None:
                (topic, partition), builder = each
                self._gathered_bytes -= builder.plain_size
                self._handed_over.append(self._lined_up(topic, partition, builder))
        self.flush()
        self._raise_what_failed()
        self._turns.give_back({where: queues[where].next_sequence for where in mine})
