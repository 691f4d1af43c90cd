from __future__ import annotations

from typing import Any

from client_tasks.task import Task, main
from kafka import KafkaConsumer, KafkaProducer


def produce(task: Task) -> int:
    settings: dict[str, Any] = dict(task.settings)
    producer = KafkaProducer(bootstrap_servers=task.bootstrap, **settings)
    value = task.value
    for _ in range(task.records):
        delivery = producer.send(task.topic, value)
    producer.flush()
    delivery.get(timeout=60)
    producer.close()
    return task.records


def _consumer(task: Task) -> KafkaConsumer:
    return KafkaConsumer(
        task.topic, bootstrap_servers=task.bootstrap, group_id=task.group, auto_offset_reset="earliest"
    )


def consume(task: Task) -> int:
    done = size = 0
    consumer = _consumer(task)
    while done < task.records:
        for records in consumer.poll(timeout_ms=1_000).values():
            for record in records:
                size += len(record.value or b"")
                done += 1
    consumer.close()
    return task.seen(done, size)


def iterate(task: Task) -> int:
    done = size = 0
    consumer = _consumer(task)
    for record in consumer:
        size += len(record.value or b"")
        done += 1
        if done == task.records:
            break
    consumer.close()
    return task.seen(done, size)


if __name__ == "__main__":
    main({"produce": produce, "consume": consume, "iterate": iterate})
