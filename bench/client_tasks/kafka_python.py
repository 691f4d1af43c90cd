from __future__ import annotations

from typing import Any

from client_tasks.task import Task, main
from kafka import KafkaProducer


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


if __name__ == "__main__":
    main({"produce": produce})
