"""One way to produce with each library: the same records and the same options, said in its words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

__all__ = ["PRODUCERS", "ProducerOptions", "Record"]

SECONDS = 30


class Record(NamedTuple):
    value: bytes
    key: bytes | None = None
    timestamp_ms: int = 0
    """0: the time of sending."""
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True)
class ProducerOptions:
    compression: str = "none"
    acks: int = -1
    idempotent: bool = False


def by_confluent(bootstrap: str, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int | None]:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": options.compression,
            "acks": options.acks,
            "enable.idempotence": options.idempotent,
            "linger.ms": 50,
        }
    )
    offsets: list[int | None] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is None:
            offsets.append(None if options.acks == 0 else message.offset())
        else:
            errors.append(error)

    for record in records:
        headers: Any = list(record.headers)
        given: Any = {"key": record.key, "headers": headers, "timestamp": record.timestamp_ms}
        producer.produce(topic, record.value, partition=0, on_delivery=delivered, **given)
    assert producer.flush(SECONDS) == 0
    assert not errors, errors
    return offsets


def by_kafka_python(
    bootstrap: str, topic: str, records: Sequence[Record], options: ProducerOptions
) -> list[int | None]:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=None if options.compression == "none" else options.compression,
        acks="all" if options.acks == -1 else options.acks,
        enable_idempotence=options.idempotent,
        linger_ms=50,
    )
    try:
        futures = [
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=list(record.headers),
                partition=0,
                timestamp_ms=record.timestamp_ms or None,
            )
            for record in records
        ]
        producer.flush(SECONDS)
        results = [future.get(SECONDS) for future in futures]
    finally:
        producer.close()
    return [None if options.acks == 0 else result.offset for result in results]


def by_aiokafka(bootstrap: str, topic: str, records: Sequence[Record], options: ProducerOptions) -> list[int | None]:
    async def produce() -> list[int | None]:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if options.compression == "none" else options.compression,
            acks="all" if options.acks == -1 else options.acks,
            enable_idempotence=options.idempotent,
            linger_ms=50,
        )
        await producer.start()
        try:
            futures = [
                await producer.send(
                    topic,
                    record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=0,
                    timestamp_ms=record.timestamp_ms or None,
                )
                for record in records
            ]
            results = [await asyncio.wait_for(future, SECONDS) for future in futures]
        finally:
            await producer.stop()
        return [None if options.acks == 0 else result.offset for result in results]

    return asyncio.run(produce())


PRODUCERS: Mapping[str, Callable[[str, str, Sequence[Record], ProducerOptions], list[int | None]]] = {
    "confluent": by_confluent,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}
