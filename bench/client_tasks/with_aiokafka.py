from __future__ import annotations

import asyncio
from typing import Any

import uvloop
from aiokafka import AIOKafkaProducer
from client_tasks.task import Task, main

NAMES = {"batch_size": "max_batch_size"}


async def _produce(task: Task) -> int:
    settings: dict[str, Any] = {NAMES.get(name, name): value for name, value in task.settings.items()}
    producer = AIOKafkaProducer(bootstrap_servers=task.bootstrap, enable_idempotence=True, acks="all", **settings)
    await producer.start()
    value = task.value
    for _ in range(task.records):
        delivery = await producer.send(task.topic, value)
    await producer.flush()
    await delivery
    await producer.stop()
    return task.records


def produce(task: Task) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_produce(task))


if __name__ == "__main__":
    main({"produce": produce})
