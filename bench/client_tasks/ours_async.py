from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from client_tasks.task import Task, main

from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.producer.producer import AsyncProducer


async def _produce(task: Task) -> int:
    async with AsyncProducer(bootstrap_servers=task.bootstrap, **task.settings) as producer:
        value = task.value
        for _ in range(task.records):
            delivery = await producer.send(task.topic, value)
        await producer.flush()
        await delivery
    return task.records


async def _consume(task: Task) -> int:
    done = size = 0
    settings = {"bootstrap_servers": task.bootstrap, "group_id": task.group, "auto_offset_reset": "earliest"}
    async with AsyncConsumer(settings) as consumer:
        consumer.subscribe(task.topic)
        while done < task.records:
            for record in await consumer.poll():
                size += len(record.value or b"")
                done += 1
    return task.seen(done, size)


async def _iterate(task: Task) -> int:
    done = size = 0
    settings = {"bootstrap_servers": task.bootstrap, "group_id": task.group, "auto_offset_reset": "earliest"}
    async with AsyncConsumer(settings) as consumer:
        consumer.subscribe(task.topic)
        async for record in consumer:
            size += len(record.value or b"")
            done += 1
            if done == task.records:
                break
    return task.seen(done, size)


def _in_loop(work: Callable[[Task], Coroutine[Any, Any, int]]) -> Callable[[Task], int]:
    def run(task: Task) -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work(task))

    return run


if __name__ == "__main__":
    main({"produce": _in_loop(_produce), "consume": _in_loop(_consume), "iterate": _in_loop(_iterate)})
