"""The service with kafka-python."""

from __future__ import annotations

import threading
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import CommitFailedError, KafkaError, RebalanceInProgressError

from billing.book import DEAD_LETTERS, GROUP, ORDERS, Book, PoisonRecordError


class _StoppedError(Exception):
    pass


class _Consumer(KafkaConsumer):  # type: ignore[misc]  # kafka-python has no types
    """A consumer whose `poll` ends when it is told to.

    kafka-python has no `wakeup`. And a `poll` with a short timeout is no way out: if it ends while the member joins,
    the member joins once more, or never has its partitions (3.0.12).
    """

    stopping: threading.Event

    def _poll_once(self, *args: Any, **options: Any) -> Any:
        if self.stopping.is_set():
            raise _StoppedError
        return super()._poll_once(*args, **options)


class Billing:
    """Bill each order, commit after it, and send what is not an order to the dead letters."""

    def __init__(self, book: Book, bootstrap_servers: str, client_id: str = "billing", **settings: Any) -> None:
        self._book = book
        self._stopping = threading.Event()
        self._both = {"bootstrap_servers": bootstrap_servers, "client_id": client_id}
        if "retry_backoff_ms" in settings:
            self._both["retry_backoff_ms"] = settings.pop("retry_backoff_ms")
        self._settings = {
            "group_id": GROUP,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "max_poll_records": 1,
            **settings,
        }

    def stop(self) -> None:
        """Let `run` end after the record that it is at; from any thread."""
        self._stopping.set()

    def run(self) -> None:
        """Bill orders until `stop`."""
        consumer = _Consumer(ORDERS, **self._both, **self._settings)
        consumer.stopping = self._stopping
        consumer.topics()  # else it joins before it knows the topic, gets nothing, and joins once more
        try:
            while not self._stopping.is_set():
                for partition, records in consumer.poll(timeout_ms=5_000).items():
                    for record in records:
                        self._process(record)
                        self._commit(consumer, partition, record.offset + 1)
        except _StoppedError:
            pass
        finally:
            consumer.close()

    def _process(self, record: Any) -> None:
        try:
            self._book.bill(record.value)
        except PoisonRecordError as problem:
            producer = KafkaProducer(**self._both, enable_idempotence=True)
            try:
                producer.send(DEAD_LETTERS, record.value, headers=[("problem", str(problem).encode())]).get()
            finally:
                producer.close()

    def _commit(self, consumer: KafkaConsumer, partition: TopicPartition, offset: int) -> None:
        while True:
            try:
                consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})
            except (CommitFailedError, RebalanceInProgressError):
                return  # the partition is another member's, or the record is read again
            except KafkaError as problem:
                if not problem.retriable:
                    raise
            else:
                return
