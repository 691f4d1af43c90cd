"""How the event loop is shared among connections: a flood from one of them does not hold up the others."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from itertools import count
from unittest.mock import Mock
from uuid import UUID

import pytest

from broker.speaker import Speaker
from coterie.broker.cluster import Cluster
from coterie.broker.io.clock import wall_ms
from coterie.broker.io.scheduling import FRAMES, READ_BYTES, SPARE
from coterie.broker.io.server import Listener, Server
from coterie.broker.io.sockets import Link
from coterie.coordinator.wall_clock import WallClock
from coterie.facts import Fact
from coterie.protocol.apis import api_versions, fetch, heartbeat
from coterie.protocol.messages import Heartbeat
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.listeners import Endpoint
from coterie.storage import MemoryFiles
from soak.watch import VERSIONS

MANY = 10_000
BEAT = Heartbeat(None, "g", "nobody", None, 1)


class Socket(asyncio.Transport, Speaker):
    """A transport that keeps what is written to it, and a client at its other end."""

    def __init__(self, server: Server) -> None:
        asyncio.Transport.__init__(self)
        Speaker.__init__(self)
        self.answers = 0
        self.written = 0
        self.reads = True
        self.link = Link(server, server.port)
        self.link.connection_made(self)

    def receives(self, *frames: bytes) -> None:
        """The broker reads these, with one system call."""
        assert self.reads, "the broker does not read from this connection now"
        self.link.data_received(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))

    def beats(self, count: int = 1) -> None:
        self.receives(*[self.frame_of(heartbeat, BEAT) for _ in range(count)])

    def asks(self, count: int = 1) -> None:
        self.receives(*[self.frame_of(api_versions, VERSIONS) for _ in range(count)])

    # --- as a transport -----------------------------------------------------------------------------------------------

    def write(self, _data: bytes | bytearray | memoryview) -> None:
        self.answers += 1

    def writelines(self, _parts: object) -> None:
        self.answers += 1

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 1), "socket": Mock()}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.link.connection_lost(None)

    abort = close

    # --- as a client --------------------------------------------------------------------------------------------------

    def send_frame(self, frame: bytes) -> None:
        self.receives(frame)

    def next_frame(self) -> bytes:
        raise NotImplementedError


def served(story: Callable[[Server], Awaitable[None]]) -> None:
    """A broker in memory, in a loop of its own."""
    facts: list[Fact] = []
    settings = BrokerSettings.of({"offsets.topic.num.partitions": 1})
    ids = map(UUID, (f"{number:032x}" for number in count(1)))

    def cluster(wall: WallClock) -> Cluster:
        return Cluster(MemoryFiles(), settings, wall_ms(), fresh_id=lambda: next(ids), sync=False, wall=wall)

    async def main() -> None:
        server = await Server.start(cluster, facts.append, [Listener(Endpoint("PLAINTEXT", "127.0.0.1", 0))], settings)
        try:
            await story(server)
        finally:
            await server.stop()

    asyncio.run(main())


async def until(condition: Callable[[], bool]) -> None:
    """So many turns of the loop: each of them does some of the work."""
    for _ in range(1_000_000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not happen")


@pytest.mark.parametrize("flood", [Socket.beats, Socket.asks], ids=["Heartbeat", "ApiVersions"])
@pytest.mark.parametrize("others", [Socket.beats, Socket.asks], ids=["Heartbeat", "ApiVersions"])
def test_a_request_beside_ten_thousand_is_answered_after_a_few_of_them(
    flood: Callable[[Socket, int], None], others: Callable[[Socket], None]
) -> None:
    async def story(server: Server) -> None:
        greedy, other = Socket(server), Socket(server)
        flood(greedy, MANY)
        others(other)
        assert other.answers == 1 and greedy.answers <= FRAMES
        assert not greedy.reads, "what it sends from now on stays in its own buffers"
        while greedy.answers < MANY:
            before = other.answers
            others(other)
            assert other.answers == before + 1, "it does not stand behind the flood"
            await asyncio.sleep(0)
        await until(lambda: greedy.reads)

    served(story)


def test_a_turn_of_the_loop_takes_a_bounded_time_with_many_floods() -> None:
    """Of some of them, a few requests are answered at once; all others wait for their turn."""

    async def story(server: Server) -> None:
        greedy, other = [Socket(server) for _ in range(100)], Socket(server)
        for each in greedy:
            each.asks(200)
        assert sum(each.answers for each in greedy) <= SPARE
        other.beats()
        assert other.answers == 1, "who sends one request does not wait for them"
        await until(lambda: all(each.answers == 200 for each in greedy))

    served(story)


def test_those_in_the_queue_are_served_in_turn() -> None:
    async def story(server: Server) -> None:
        greedy = [Socket(server) for _ in range(20)]
        for each in greedy:
            each.asks(200)
        while not all(each.answers == 200 for each in greedy):
            await asyncio.sleep(0)
            answers = [each.answers for each in greedy]
            assert max(answers) - min(answers) <= 2 * FRAMES

    served(story)


def test_what_stood_behind_a_parked_request_waits_for_its_turn_too() -> None:
    async def story(server: Server) -> None:
        maker, greedy, other = Socket(server), Socket(server), Socket(server)
        maker.send_create("t")
        await until(lambda: maker.answers == 1)
        greedy.send_fetch("t", 0, max_wait_ms=600_000)
        await until(lambda: greedy.reads)  # on a busy machine the fetch may have taken its time of this turn
        greedy.asks(MANY)
        assert greedy.answers == 0 and not greedy.reads
        maker.send_produce("t", b"wakes the fetch")
        await until(lambda: greedy.answers > 0)
        assert greedy.answers <= 1 + FRAMES
        other.beats()
        assert other.answers == 1
        await until(lambda: greedy.answers == 1 + MANY)

    served(story)


def test_who_sends_much_is_not_read_from_without_a_pause() -> None:
    """Even if no request is complete."""

    async def story(server: Server) -> None:
        large = Socket(server)
        large.link.data_received(struct.pack(">i", 50 << 20))
        part, read = bytes(READ_BYTES // 4), 0
        while large.reads:
            large.link.data_received(part)
            read += len(part)
        assert read <= READ_BYTES
        await until(lambda: large.reads)

    served(story)


def test_requests_are_answered_in_order_however_they_are_cut() -> None:
    async def story(server: Server) -> None:
        one = Socket(server)
        said: list[bytes] = []
        one.write = lambda data: said.append(bytes(data))  # type: ignore[method-assign,assignment]
        frames = [one.frame_of(api_versions, VERSIONS) for _ in range(500)]
        stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        for at in range(0, len(stream), 777):
            await until(lambda: one.reads)
            one.link.data_received(stream[at : at + 777])
        await until(lambda: len(said) == 500)
        assert [int.from_bytes(answer[4:8], "big") for answer in said] == list(range(1, 501))

    served(story)


def test_a_flood_that_hangs_up_is_forgotten() -> None:
    async def story(server: Server) -> None:
        greedy = Socket(server)
        greedy.asks(MANY)
        greedy.close()
        answered = greedy.answers
        await until(lambda: not server.scheduling.queue)
        assert greedy.answers == answered and not server.links

    served(story)


def test_nonsense_behind_a_flood_ends_the_connection() -> None:
    async def story(server: Server) -> None:
        greedy = Socket(server)
        frames = [greedy.frame_of(fetch, fetch.Request(topics=[], max_wait_ms=0, min_bytes=0), 12)] * 100
        stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
        greedy.link.data_received(stream + b"\xff\xff\xff\xff")
        await until(lambda: not server.links)

    served(story)
