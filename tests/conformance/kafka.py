"""A case on Apache Kafka, over sockets and in real time.

How long to wait for what a step sets off? Our own broker plays along and says which answers to expect; when they have
come, a moment more is given to those that were not expected. It decides nothing else: what Kafka says is written down.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from apache_kafka import ApacheKafka
from conformance.asking import Known, request_frame
from conformance.hearing import Ears, Heard
from conformance.ours import OurBroker
from conformance.profiles import TOPICS, Profile
from conformance.script import Step
from raw_kafka import frame_of, read_answer

__all__ = ["KafkaCase", "Patience", "RunningKafka"]

AT_A_TIME = 6
"""Requests, however many cases are under way."""


@dataclass(frozen=True)
class Patience:
    """In seconds: for an answer that should come, for one that should not, and for a request that is to be parked."""

    expected: float
    unexpected: float
    parked: float


QUICK = Patience(1.0, 0.006, 0.03)
STEADY = Patience(2.0, 0.02, 0.1)
"""For cases that cannot be played again by themselves."""
SLOW = Patience(3.0, 0.05, 0.2)
"""For a case that did not go as expected the first time: was it Kafka, or the machine?"""


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, frame: bytes) -> None:
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive(self) -> bytes:
        """No bytes: the connection is closed."""
        try:
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""


class RunningKafka:
    """What all cases share: the process, its topics, and connections nobody uses at the moment."""

    def __init__(self, kafka: ApacheKafka, profile: Profile) -> None:
        self.kafka = kafka
        self.profile = profile
        self.topic_ids: dict[str, UUID] = {}
        self._idle: list[_Connection] = []
        self._barrier: asyncio.Barrier | None = None
        self.ours = OurBroker(profile)
        self.turns = asyncio.Semaphore(AT_A_TIME)

    async def prepare(self) -> None:
        for name, partitions in TOPICS.items():
            self.topic_ids[name] = await self.create_topic(name, partitions)
        await self._wait_for_groups([""])

    def will_restart(self, cases: int) -> None:
        """So many wait for each other before the broker is restarted under all of them."""
        self._barrier = asyncio.Barrier(cases) if cases else None

    async def connection(self) -> _Connection:
        if self._idle:
            return self._idle.pop()
        return _Connection(*await asyncio.open_connection("127.0.0.1", self.kafka.port))

    def give_back(self, connection: _Connection) -> None:
        self._idle.append(connection)

    async def ask(self, api: str, version: int, **values: object) -> object:
        connection = await self.connection()
        connection.send(frame_of(api, version, 0, "recorder", values))
        frame = await connection.receive()
        self.give_back(connection)
        return read_answer(api, version, frame)

    async def create_topic(self, name: str, partitions: int = 1) -> UUID:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
        answer: object = await self.ask("create_topics", 7, topics=(topic,), timeout=10_000, validate_only=False)
        (made,) = answer.topics  # type: ignore[attr-defined]
        assert not made.error_code, made
        topic_id: UUID = made.topic_id
        return topic_id

    async def drop_topic(self, name: str) -> None:
        asked = ({"name": name, "topic_id": None},)
        answer: object = await self.ask("delete_topics", 6, topics=asked, timeout=10_000)
        (dropped,) = answer.responses  # type: ignore[attr-defined]
        assert not dropped.error_code, dropped

    async def _wait_for_groups(self, groups: Sequence[str]) -> None:
        """Until their coordinator is there and has read them."""
        await self.ask("find_coordinator", 4, key_type=0, coordinator_keys=tuple(groups))
        while True:
            answer: object = await self.ask(
                "describe_groups", 5, groups=tuple(groups), include_authorized_operations=False
            )
            if not any(group.error_code for group in answer.groups):  # type: ignore[attr-defined]
                return
            await asyncio.sleep(0.05)

    async def restart(self, groups: Sequence[str]) -> None:
        """Of all cases that are there at the same step, the last one restarts the broker."""
        assert self._barrier is not None, "no case of this profile restarts"
        if await self._barrier.wait() == 0:
            for connection in self._idle:
                connection.writer.close()
            self._idle.clear()
            await asyncio.to_thread(self._restart_process)
        await self._barrier.wait()
        await self._wait_for_groups(groups)
        await self._barrier.wait()

    def _restart_process(self) -> None:
        (self.kafka.kill if self.profile.kill else self.kafka.stop)()
        self.kafka.properties.update(self.profile.settings_after_restart)
        self.kafka._write_properties()
        self.kafka.start()


class KafkaCase:
    """One case, step by step. Kafka's ids are in `ears.made` when it is over."""

    def __init__(self, running: RunningKafka, name: str, steps: Sequence[Step], patience: Patience) -> None:
        self._running = running
        self._steps = dict(enumerate(steps, 1))
        self._patience = patience
        self._known = Known(f"{name}-", dict(running.topic_ids), log_dir=str(running.kafka.data_dir))
        self.ears = Ears(self._known, self._steps)
        self._ours = running.ours.case(steps)
        self._waiting: dict[int, tuple[_Connection, asyncio.Task[bytes]]] = {}

    async def play(self) -> AsyncIterator[Heard]:
        for number in self._steps:
            try:
                to_come = set(self._ours.step(number))
            except (KeyError, AssertionError, ValueError):
                to_come = set()  # we have lost the thread, since something was not as expected
            if self._steps[number].kind is None:
                await self._do(number)
                frames = await self._collect(number, to_come)
            else:
                async with self._running.turns:
                    await self._do(number)
                    frames = await self._collect(number, to_come)
            yield self.ears.hear(frames)
        for connection, task in self._waiting.values():
            task.cancel()
            connection.writer.close()

    async def _do(self, number: int) -> None:
        step = self._steps[number]
        it = step.args.get("it", "")
        if step.kind is not None:
            connection = await self._running.connection()
            connection.send(request_frame(step, self._known, number))
            self._waiting[number] = (connection, asyncio.create_task(connection.receive()))
        elif step.what == "wait":
            await asyncio.sleep(int(it) / 1000)
        elif step.what == "create":
            self._known.topic_ids[it] = await self._running.create_topic(self._known.topic(it))
        elif step.what == "drop":
            await self._running.drop_topic(self._known.topic(it))
        else:
            await self._running.restart([self._known.group("g")])
            for connection, task in self._waiting.values():
                task.cancel()
                connection.writer.close()
            self._waiting.clear()

    async def _collect(self, number: int, to_come: set[int]) -> dict[int, bytes]:
        patience = self._patience
        expected = [task for waiting, (_, task) in self._waiting.items() if waiting in to_come]
        if expected:
            await asyncio.wait(expected, timeout=patience.expected)
        if self._steps[number].kind is not None:
            await asyncio.sleep(patience.unexpected if number in self._answered() else patience.parked)
        frames = {}
        for answered, frame in self._answered().items():
            connection, _ = self._waiting.pop(answered)
            frames[answered] = frame
            if frame:
                self._running.give_back(connection)
        return frames

    def _answered(self) -> Mapping[int, bytes]:
        return {number: task.result() for number, (_, task) in self._waiting.items() if task.done()}
