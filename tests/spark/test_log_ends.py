"""Looks at where partitions end: the same answer is the same object, and costs neither reading nor writing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coterie.client.network.runtime import background
from coterie.client.types import TopicPartition
from coterie.protocol.apis import list_offsets
from coterie.spark import log_ends
from coterie.spark.log_ends import LogEnds
from coterie.spark.offsets import OffsetReader
from coterie.spark.options import SourceOptions, Use
from spark.topics import Topic

pytestmark = pytest.mark.real_time


@contextmanager
def ends_of(topic: Topic) -> Iterator[LogEnds]:
    given = {"kafka.bootstrap.servers": topic.address, "subscribe": topic.name}

    async def begin() -> OffsetReader:
        return OffsetReader(SourceOptions.of(given, Use.STREAM))

    reader = background().run(begin())
    yield LogEnds(reader)
    background().run(reader.close())


def partitions(topic: Topic) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic.name, number) for number in range(topic.partitions))


def test_what_is_new_is_seen_and_what_is_not_is_the_same_object(topic: Topic) -> None:
    wanted = partitions(topic)
    with ends_of(topic) as ends:
        first = background().run(ends.look(wanted))
        assert first == dict.fromkeys(wanted, 0)
        assert background().run(ends.look(wanted)) is first
        topic.write(6)
        second = background().run(ends.look(wanted))
        assert [second[each] for each in sorted(wanted)] == [2, 2, 1, 1]
        assert background().run(ends.look(wanted)) is second
        fewer = frozenset(sorted(wanted)[:1])
        assert background().run(ends.look(fewer)) == {TopicPartition(topic.name, 0): 2}
        assert background().run(ends.look(frozenset())) == {}


def test_the_same_request_is_written_once_and_the_same_response_read_once(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = partitions(topic)
    done: list[str] = []

    def counted(name: str) -> None:
        real = getattr(list_offsets, name)

        def call(*args: Any) -> Any:
            done.append(name)
            return real(*args)

        monkeypatch.setattr(list_offsets, name, call)

    with ends_of(topic) as ends:
        for _ in range(2):  # the first has no metadata yet, and asks as an admin does
            background().run(ends.look(wanted))
        for name in ("write_request", "read_response"):
            counted(name)
        for _ in range(10):
            background().run(ends.look(wanted))
        assert done == []
        topic.write(1)
        background().run(ends.look(wanted))
        assert done == ["read_response"]


def test_a_topic_that_is_deleted_is_left_out_and_found_again(topic: Topic) -> None:
    wanted = partitions(topic)
    with ends_of(topic) as ends:
        for _ in range(2):
            background().run(ends.look(wanted))
        topic.admin.delete_topics([topic.name])
        assert background().run(ends.look(wanted)) == {}
        again = Topic(topic.address, topic.name, topic.partitions)
        again.write(4)
        assert background().run(ends.look(wanted)) == dict.fromkeys(wanted, 1)
        again.close()


def test_a_broker_that_was_away_is_asked_again(tmp_path: Path) -> None:
    with Topic.on_a_broker(tmp_path) as topic, ends_of(topic) as ends:
        wanted = partitions(topic)
        topic.write(4)
        for _ in range(2):
            known = background().run(ends.look(wanted))
        assert topic.broker is not None
        topic.broker.stop()
        topic.broker.start()
        assert background().run(ends.look(wanted)) == known


def test_looks_without_news_are_followed_by_a_pause_that_is_longer_the_longer_they_take(
    topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, now = partitions(topic), [0.0]
    slept: list[float] = []

    class Reader:
        """Each look takes so long."""

        took_s = 0.02

        async def known_offsets(self, asked: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
            now[0] += self.took_s
            return dict.fromkeys(asked, 7)

    async def sleep(seconds: float) -> None:
        slept.append(round(seconds, 3))
        now[0] += seconds

    async def look(ends: LogEnds) -> None:
        await ends.pause()
        await ends.look(wanted)

    async def looks() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now[0])
        monkeypatch.setattr(asyncio, "sleep", sleep)
        reader = Reader()
        ends = LogEnds(reader)  # type: ignore[arg-type]
        monkeypatch.setattr(ends, "_ask", _nothing)
        for _ in range(3):
            await look(ends)
        reader.took_s = 3.0
        for _ in range(2):
            await look(ends)

    asyncio.run(looks())
    assert slept == [0, 0, 0.2, 0.2, log_ends.LONGEST_PAUSE_S]


async def _nothing(_partitions: object) -> None:
    return None
