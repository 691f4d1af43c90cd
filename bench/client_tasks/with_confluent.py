from __future__ import annotations

from typing import Any

from client_tasks.task import Task, main
from confluent_kafka import Producer


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


if __name__ == "__main__":
    main({"produce": produce})
