from __future__ import annotations

import asyncio

import uvloop
from client_tasks.task import Task, main

from coterie.client.producer import AsyncProducer


async def _produce(task: Task) -> int:
    async with AsyncProducer(bootstrap_servers=task.bootstrap, **task.settings) as producer:
        value = task.value
        for _ in range(task.records):
            delivery = await producer.send(task.topic, value)
        await producer.flush()
        await delivery
    return task.records


def produce(task: Task) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_produce(task))


if __name__ == "__main__":
    main({"produce": produce})
