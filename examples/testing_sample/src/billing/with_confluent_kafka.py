"""The service with confluent-kafka."""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from billing.book import GROUP, ORDERS, Book, PoisonRecordError

NOT_OURS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._ASSIGNMENT_LOST,  # noqa: SLF001
        KafkaError._FATAL,  # noqa: SLF001  a static member that was fenced
    }
)
"""Errors of a commit after which the record is another member's, or is read again."""
TRY_AGAIN = frozenset(
    {
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
    }
)


class Billing:
    """Bill each order, commit after it, and send what is not an order to the dead letters."""

    def __init__(
        self, book: Book, bootstrap_servers: str, client_id: str = "billing", topic: str = ORDERS, **settings: Any
    ) -> None:
        self._book = book
        self._topic = topic
        self._stopping = threading.Event()
        self._both = {"bootstrap.servers": bootstrap_servers, "client.id": client_id}
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self._settings = {
            **self._both,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **given,
        }

    def stop(self) -> None:
        """Let `run` end after the record that it is at; from any thread."""
        self._stopping.set()

    def run(self) -> None:
        """Bill orders until `stop`."""
        consumer = Consumer(self._settings)
        # With a callback the consumer rebalances in `poll`, so never between an order and its commit.
        consumer.subscribe([self._topic], on_revoke=lambda _consumer, _partitions: None)
        try:
            while not self._stopping.is_set():
                record = consumer.poll(0.02)
                if record is not None and record.error() is None:
                    self._process(record)
                    self._commit(consumer, record)
        finally:
            consumer.close()

    def _process(self, record: Message) -> None:
        try:
            self._book.bill(record.value())
        except PoisonRecordError as problem:
            self._bury(record, problem)

    def _bury(self, record: Message, problem: PoisonRecordError) -> None:
        failed: list[KafkaError] = []
        producer = Producer({**self._both, "enable.idempotence": True, "linger.ms": 0})
        producer.produce(
            f"{self._topic}.dead",
            record.value(),
            headers={"problem": str(problem)},
            on_delivery=lambda error, _record: failed.append(error) if error else None,
        )
        producer.flush()
        if failed:
            raise KafkaException(failed[0])

    def _commit(self, consumer: Consumer, record: Message) -> None:
        while True:
            try:
                consumer.commit(message=record, asynchronous=False)
            except KafkaException as problem:
                code = problem.args[0].code()
                if code in NOT_OURS:
                    return
                if code not in TRY_AGAIN:
                    raise
            else:
                return
