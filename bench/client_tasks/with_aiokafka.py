from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
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


def _consumer(task: Task) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        task.topic, bootstrap_servers=task.bootstrap, group_id=task.group, auto_offset_reset="earliest"
    )


async def _consume(task: Task) -> int:
    done = size = 0
    consumer = _consumer(task)
    await consumer.start()
    while done < task.records:
        for records in (await consumer.getmany(timeout_ms=1_000, max_records=500)).values():
            for record in records:
                size += len(record.value or b"")
                done += 1
    await consumer.stop()
    return task.seen(done, size)


async def _iterate(task: Task) -> int:
    done = size = 0
    consumer = _consumer(task)
    await consumer.start()
    async for record in consumer:
        size += len(record.value or b"")
        done += 1
        if done == task.records:
            break
    await consumer.stop()
    return task.seen(done, size)


def _in_loop(work: Callable[[Task], Coroutine[Any, Any, int]]) -> Callable[[Task], int]:
    def run(task: Task) -> int:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(work(task))

    return run


if __name__ == "__main__":
    main({"produce": _in_loop(_produce), "consume": _in_loop(_consume), "iterate": _in_loop(_iterate)})
