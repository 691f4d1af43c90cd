"""Rows of a transaction that another process has begun and will end.

The other process gives its producer id and epoch (`TransactionDriver.share`). Many workers may write, each on its own
connections, if each partition has one worker: sequences are counted for each producer id and partition, from 0.
"""

from __future__ import annotations

from coterie.client.producer.accumulator_events import ProducerIdGiven
from coterie.client.producer.arrow_columns import ColumnProducer
from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.settings.producer_settings import ProducerSettings


class TransactionWorker(ColumnProducer):
    def __init__(self, settings: ProducerSettings, identity: ProducerIdAndEpoch) -> None:
        """`settings` are those of the producer that has the transaction, with its transactional.id."""
        super().__init__(settings)
        self._sender.transactions = None  # it begins and ends nothing
        self._background.run(self._adopt(identity))

    async def _adopt(self, identity: ProducerIdAndEpoch) -> None:
        self._sender.handle(ProducerIdGiven(identity))
