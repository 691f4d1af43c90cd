"""Members in one process that have nothing to do: `idle` pauses what they read, `waiting` lets them fetch."""

from __future__ import annotations

import asyncio
import time

import uvloop
from client_tasks.task import Task, cpu_s, main

from coterie.client.consumer.async_consumer import AsyncConsumer

MEMBERS_OF_A_GROUP = 10
SECONDS = 21
"""Seven heartbeats of each member."""


async def _members(task: Task, *, paused: bool) -> int:
    members = [
        AsyncConsumer(bootstrap_servers=task.bootstrap, group_id=f"{task.group}-{number // MEMBERS_OF_A_GROUP}")
        for number in range(task.records)
    ]
    for one in members:
        one.subscribe(task.topic)
    while not all(one.assignment() for one in members):
        await asyncio.gather(*(one.poll(0.5) for one in members))
    for one in members:
        await asyncio.gather(*(one.position(partition) for partition in one.assignment()))
        if paused:
            one.pause(*one.assignment())
    await asyncio.sleep(2)
    began, cpu = time.perf_counter(), cpu_s()
    await asyncio.sleep(SECONDS)
    task.tell(cpu_ms_per_member_second=(cpu_s() - cpu) * 1000 / len(members) / (time.perf_counter() - began))
    generations = [one.group_metadata().generation_id for one in members]
    await asyncio.gather(*(one.close(timeout=20) for one in members))
    return sum(generation > 0 for generation in generations)


def idle(task: Task) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_members(task, paused=True))


def waiting(task: Task) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_members(task, paused=False))


if __name__ == "__main__":
    main({"idle": idle, "waiting": waiting})
