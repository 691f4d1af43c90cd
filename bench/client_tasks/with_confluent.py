from __future__ import annotations

from typing import Any

from client_tasks.task import Task, main
from confluent_kafka import Consumer, Producer


def produce(task: Task) -> int:
    settings: dict[str, Any] = {name.replace("_", "."): value for name, value in task.settings.items()}
    producer = Producer({"bootstrap.servers": task.bootstrap, "enable.idempotence": True, **settings})
    value = task.value
    for number in range(task.records):
        while True:
            try:
                producer.produce(task.topic, value)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        if number % 1_000 == 0:
            producer.poll(0)
    left: int = producer.flush(120)
    return task.records - left


def _consumer(task: Task) -> Consumer:
    consumer = Consumer({"bootstrap.servers": task.bootstrap, "group.id": task.group, "auto.offset.reset": "earliest"})
    consumer.subscribe([task.topic])
    return consumer


def consume(task: Task) -> int:
    done = size = 0
    consumer = _consumer(task)
    while done < task.records:
        for record in consumer.consume(500, 1.0):
            size += len(record.value() or b"")
            done += 1
    consumer.close()
    return task.seen(done, size)


def iterate(task: Task) -> int:
    """It has no iteration; one record a poll is what its users write."""
    done = size = 0
    consumer = _consumer(task)
    while done < task.records:
        record = consumer.poll(1.0)
        if record is not None:
            size += len(record.value() or b"")
            done += 1
    consumer.close()
    return task.seen(done, size)


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "iterate": iterate})
