"""One client asks for very many topics: others are served, a stop is prompt, and nobody is locked out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from broker.driver import Client, World
from broker.peer import Peer, Serving
from coterie.broker.handlers.metadata import CREATED_WITHIN_MS
from coterie.errors import ErrorCode
from coterie.protocol.apis import create_partitions, create_topics, metadata
from coterie.protocol.apis.create_topics import NewTopic
from coterie.storage import SLICE, MemoryFiles
from logs import FaultyFiles

TIMEOUT_MS = 5_000
FILES = 150
"""That the system lets the broker open, in the test of a real one."""


class CountingFiles(MemoryFiles):
    def __init__(self) -> None:
        super().__init__()
        self.renamed: Counter[str] = Counter()

    def rename(self, old: str, new: str) -> None:
        self.renamed[new] += 1
        super().rename(old, new)


def names(count: int) -> list[str]:
    return [f"storm-{number:04}" for number in range(count)]


def send_creates(client: Client | Peer, topics: Sequence[str], partitions: int = 1) -> None:
    asked = [NewTopic(name=name, num_partitions=partitions, replication_factor=1) for name in topics]
    client.send(create_topics, create_topics.Request(topics=asked, timeout_ms=TIMEOUT_MS))


def send_wishes(client: Client | Peer, topics: Sequence[str]) -> None:
    asked = [metadata.Topic(name=name) for name in topics]
    client.send(metadata, metadata.Request(topics=asked, allow_auto_topic_creation=True))


def codes(answer: create_topics.Response | metadata.Response) -> list[ErrorCode]:
    return [topic.error for topic in answer.topics]


@pytest.mark.parametrize("send", [send_creates, send_wishes])
def test_the_file_of_topics_is_written_once_for_a_slice_of_them(send: object) -> None:
    """It was written for each: the cost of a request grew with the square of what it asked for."""
    files = CountingFiles()
    world = World(files)
    client = world.client()
    before = files.renamed["coterie-topics.json"]
    assert callable(send)
    send(client, names(5 * SLICE))
    assert codes(client.answer()) == [ErrorCode.NONE] * 5 * SLICE
    assert files.renamed["coterie-topics.json"] - before == 5
    world.cluster.directory.release()
    assert len(World(files, now_ms=2_000_000).cluster.directory.topics) == 5 * SLICE


def test_others_are_served_between_two_slices() -> None:
    world = World()
    stormy, calm = world.client(), world.client()
    calm.create("t")
    world.auto = False
    send_creates(stormy, names(3 * SLICE))
    calm.send_produce("t", b"x")
    world.flush()
    world.flush()
    assert calm.produced().error is ErrorCode.NONE
    assert not stormy.answers


def test_a_stop_ends_it_with_what_is_done() -> None:
    """Whoever asked is told to ask again; what was acknowledged is there."""
    world = World(auto=False)
    created, wanted = world.client(), world.client()
    send_creates(created, names(3 * SLICE))
    send_wishes(wanted, ["wanted"])
    world.cluster.changes.is_closing = True
    world.flush()
    assert not world.flushes
    assert codes(created.answer()) == [ErrorCode.NONE] * SLICE + [ErrorCode.NOT_CONTROLLER] * 2 * SLICE
    assert codes(wanted.answer()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    world.stop()
    again = World(world.files, now_ms=2_000_000)
    assert list(again.cluster.directory.topics) == names(SLICE) and not again.cluster.directory.opening.strays


def test_a_stop_in_the_middle_of_a_large_topic_leaves_nothing_of_it() -> None:
    world = World(auto=False)
    client = world.client()
    send_creates(client, ["large"], 3 * SLICE)
    world.flush()
    assert not client.answers and world.files.exists("large-0"), "it is created in slices as well"
    world.cluster.changes.is_closing = True
    while world.flushes:
        world.flush()
    assert codes(client.answer()) == [ErrorCode.NOT_CONTROLLER]
    assert not [name for name in world.files.names() if name.startswith("large")]


def test_a_disk_that_fails_in_the_middle_of_a_large_topic_leaves_nothing_of_it() -> None:
    files = FaultyFiles()
    world = World(files, auto=False)
    client = world.client()
    send_creates(client, ["large"], 2 * SLICE)
    world.flush()
    files.room = 0
    world.flush()
    files.room = None
    assert codes(client.answer()) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not [name for name in files.names() if name.startswith("large")]


@pytest.mark.parametrize(
    ("send", "within_ms", "late"),
    [
        (send_creates, TIMEOUT_MS, ErrorCode.REQUEST_TIMED_OUT),
        (send_wishes, CREATED_WITHIN_MS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_has_not_begun_in_time_is_refused(send: object, within_ms: int, late: ErrorCode) -> None:
    world = World(auto=False)
    client = world.client()
    assert callable(send)
    send(client, names(3 * SLICE))
    world.now_ms += within_ms
    world.flush()
    world.now_ms += 1
    world.flush()
    assert not world.flushes
    assert codes(client.answer()) == [ErrorCode.NONE] * 2 * SLICE + [late] * SLICE


def test_more_than_may_be_in_all_is_refused_by_the_name_of_the_setting() -> None:
    """Not what groups need: a client must not be able to take that away."""
    world = World(settings={"coterie.max.partitions": 4})
    client = world.client()
    client.create("t", 3)
    send_creates(client, ["u", "v"])
    first, second = client.answer().topics
    assert (first.error, second.error) == (ErrorCode.NONE, ErrorCode.POLICY_VIOLATION)
    assert "coterie.max.partitions" in second.message
    send_wishes(client, ["w"])
    assert codes(client.answer()) == [ErrorCode.POLICY_VIOLATION]
    grown = create_partitions.Request(topics=[create_partitions.Topic(name="t", count=4)])
    (result,) = client.ask(create_partitions, grown).results
    assert result.error is ErrorCode.POLICY_VIOLATION and "coterie.max.partitions" in (result.message or "")
    assert client.find_coordinator().error is ErrorCode.NONE
    assert client.delete("t") is ErrorCode.NONE


def test_a_request_for_more_than_kafka_takes_at_once_is_refused_as_a_whole() -> None:
    client = World().client()
    send_creates(client, ["a", "b"], 5_001)
    assert codes(client.answer()) == [ErrorCode.POLICY_VIOLATION] * 2


def test_nobody_is_locked_out_by_topics(tmp_path: Path) -> None:
    """There are twice as many as files can be open: connections are taken, also after a restart, and logs written."""
    for turn in range(2):
        with Serving(tmp_path, files=FILES) as serving:
            at = serving.ready()
            with Peer(at) as stormy:
                send_wishes(stormy, names(2 * FILES))
                assert codes(stormy.answer()) == [ErrorCode.NONE] * 2 * FILES
                for name in names(2 * FILES)[:: FILES // 10]:
                    assert stormy.produce(name, b"x").base_offset == turn
                with Peer(at) as admin:
                    assert admin.find_coordinator().error is ErrorCode.NONE
                    assert admin.delete(names(2 * FILES)[-1]) is ErrorCode.NONE
            serving.signal()
            assert serving.ended()[0] == 0
