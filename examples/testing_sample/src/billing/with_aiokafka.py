"""The service with aiokafka."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from billing.book import DEAD_LETTERS, GROUP, ORDERS, Book, PoisonRecordError


class Billing:
    """Bill each order, commit after it, and send what is not an order to the dead letters."""

    def __init__(self, book: Book, bootstrap_servers: str, client_id: str = "billing", **settings: Any) -> None:
        self._book = book
        self._stopping = threading.Event()
        self._both = {"bootstrap_servers": bootstrap_servers, "client_id": client_id}
        self._settings = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            **settings,
        }

    def stop(self) -> None:
        """Let `run` end after the record that it is at; from any thread."""
        self._stopping.set()

    def run(self) -> None:
        """Bill orders until `stop`."""
        asyncio.run(self.bill_orders())

    async def bill_orders(self) -> None:
        """Bill orders until `stop`, in a program with asyncio."""
        consumer = AIOKafkaConsumer(**self._both, **self._settings)
        at_work = asyncio.Lock()
        consumer.subscribe([ORDERS], listener=_AfterTheCommit(at_work))
        await consumer.start()
        try:
            while not self._stopping.is_set():
                fetched = await consumer.getmany(timeout_ms=20, max_records=1)  # none while it rebalances
                async with at_work:
                    for partition, records in fetched.items():
                        for record in records:
                            await self._process(record)
                            await self._commit(consumer, partition, record.offset + 1)
        finally:
            with suppress(asyncio.CancelledError):  # aiokafka raises it if a fetch was waiting for its next attempt
                await consumer.stop()

    async def _process(self, record: ConsumerRecord[Any, Any]) -> None:
        try:
            await asyncio.to_thread(self._book.bill, record.value)  # heartbeats go on meanwhile
        except PoisonRecordError as problem:
            async with AIOKafkaProducer(**self._both, enable_idempotence=True) as producer:
                headers = [("problem", str(problem).encode())]
                await producer.send_and_wait(DEAD_LETTERS, record.value, headers=headers)

    async def _commit(self, consumer: AIOKafkaConsumer, partition: TopicPartition, offset: int) -> None:
        while True:
            try:
                await consumer.commit({partition: offset})
            except (CommitFailedError, IllegalStateError):
                return  # the partition is another member's, or the record is read again
            except KafkaError as problem:
                if not problem.retriable:
                    raise
            else:
                return


class _AfterTheCommit(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka has no types
    """Lets a rebalance wait until the order at hand is committed: aiokafka rebalances in a task of its own."""

    def __init__(self, at_work: asyncio.Lock) -> None:
        self._at_work = at_work

    async def on_partitions_revoked(self, _revoked: list[TopicPartition]) -> None:
        async with self._at_work:
            pass

    async def on_partitions_assigned(self, _assigned: list[TopicPartition]) -> None:
        pass
