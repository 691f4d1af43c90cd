"""Reads of many TLS connections are answered together. Each is answered as if it were alone."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count as count_from
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.broker.broker_facts import ConnectionDropped
from coterie.broker.cluster import Cluster
from coterie.broker.io.clock import wall_ms
from coterie.broker.io.server import Listener, Server
from coterie.broker.io.sockets import FEW_READS, MOST_READS, READS_AT_ONCE, TlsLink
from coterie.broker.io.tls import SMALL
from coterie.coordinator.wall_clock import WallClock
from coterie.facts import Fact
from coterie.protocol.apis import heartbeat, metadata
from coterie.protocol.frames import FrameCutter, request_frame
from coterie.protocol.messages import Heartbeat
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.listeners import Endpoint
from coterie.storage import MemoryFiles
from secured_kafka import Certificates

BEAT = heartbeat.write_request(Heartbeat(None, "g", "nobody", None, 1), 4)
LONG = metadata.write_request(
    metadata.Request(topics=[metadata.Topic(name="t" * 200)] * (SMALL // 100), allow_auto_topic_creation=False), 4
)


class Files:
    def __init__(self, path: Path) -> None:
        certificates = Certificates(path)
        self.key_store = certificates.leaf("server", "localhost").both
        self.client = ssl.create_default_context(cafile=str(certificates.ca))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


class Socket(asyncio.Transport):
    """The broker's end of a connection, and a client that speaks TLS at the other end."""

    def __init__(self, server: Server, files: Files) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = files.client.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self._cutter = FrameCutter(1 << 20)
        self._is_closing = False
        self.writes = 0
        self.asked: list[int] = []
        self._answered: list[int] = []
        self.link = TlsLink(server, server.port)
        self.link.connection_made(self)
        for _ in range(2):
            with suppress(ssl.SSLWantReadError):
                self._tls.do_handshake()
            self.arrives(self._outgoing.read())
        self.writes = 0

    # --- as a client --------------------------------------------------------------------------------------------------

    def encrypted(self, module: Any, body: bytes) -> bytes:
        """A request that is not sent yet."""
        self.asked.append(len(self.asked))
        frame = request_frame(module.API.key, 4, self.asked[-1], "test", body, flexible=module is heartbeat)
        self._tls.write(frame)
        return self._outgoing.read()

    def beats(self) -> None:
        self.arrives(self.encrypted(heartbeat, BEAT))

    def arrives(self, data: bytes) -> None:
        """The broker reads it from the socket."""
        if data:
            self.link.data_received(data)

    @property
    def answered(self) -> list[int]:
        """The correlation ids of the answers."""
        try:
            while content := self._tls.read(1 << 16):
                frames = self._cutter.feed(content)
                self._answered += [struct.unpack_from(">i", frame)[0] for frame in frames]
        except ssl.SSLWantReadError:
            pass
        return self._answered

    # --- as a transport -----------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self._is_closing
        self.writes += 1
        self._incoming.write(data)

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("127.0.0.1", 1), "socket": Mock()}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            asyncio.get_running_loop().call_soon(self.link.connection_lost, None)

    abort = close


def served(files: Files, story: Callable[[Server], Awaitable[None]]) -> list[Fact]:
    """A broker in memory with a TLS listener, in a loop of its own."""
    facts: list[Fact] = []
    chosen = BrokerSettings.of({"offsets.topic.num.partitions": 1, "ssl.keystore.location": str(files.key_store)})

    ids = count_from(1)

    def cluster(wall: WallClock) -> Cluster:
        return Cluster(MemoryFiles(), chosen, wall_ms(), fresh_id=lambda: UUID(int=next(ids)), sync=False, wall=wall)

    async def main() -> None:
        server = await Server.start(cluster, facts.append, [Listener(Endpoint("SSL", "127.0.0.1", 0, "SSL"))], chosen)
        try:
            await story(server)
        finally:
            await server.stop()

    asyncio.run(main())
    return facts


async def until_answered(sockets: list[Socket]) -> None:
    for _ in range(100_000):
        if all(each.answered == each.asked for each in sockets):
            return
        await asyncio.sleep(0)
    raise AssertionError([(each.asked, each.answered) for each in sockets])


@pytest.mark.parametrize("count", [FEW_READS, MOST_READS, MOST_READS + FEW_READS])
def test_all_that_was_read_in_a_turn_is_answered_at_its_end(files: Files, count: int) -> None:
    async def story(server: Server) -> None:
        sockets = [Socket(server, files) for _ in range(count)]
        for _ in range(3):
            before = [each.writes for each in sockets]
            for each in sockets:
                each.beats()
            waiting = [each.writes for each in sockets[count // MOST_READS * MOST_READS :]]
            assert waiting == before[len(before) - len(waiting) :], "more than the most do not wait for the others"
            await asyncio.sleep(0)
            assert all(each.answered == each.asked for each in sockets)
            assert [each.writes for each in sockets] == [writes + 1 for writes in before]

    served(files, story)


def test_few_connections_do_not_wait_for_the_end_of_a_turn(files: Files) -> None:
    async def story(server: Server) -> None:
        alone = Socket(server, files)
        alone.beats()
        await asyncio.sleep(0)
        for _ in range(READS_AT_ONCE):
            alone.beats()
            assert alone.answered == alone.asked
        alone.beats()
        assert alone.answered == alone.asked[:-1], "now and then a turn is gathered"
        await asyncio.sleep(0)
        assert alone.answered == alone.asked

    served(files, story)


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["beat", "two", "halves", "long", "behind long"]), st.booleans()),
    min_size=1,
    max_size=40,
)


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_each_connection_gets_its_answers_in_order(files: Files, steps: list[tuple[int, str, bool]]) -> None:
    async def story(server: Server) -> None:
        sockets = [Socket(server, files) for _ in range(5)]
        for index, what, ends_turn in steps:
            socket = sockets[index]
            data = socket.encrypted(*((metadata, LONG) if "long" in what else (heartbeat, BEAT)))
            if what in ("two", "behind long"):
                data += socket.encrypted(heartbeat, BEAT)
            if what == "halves":
                socket.arrives(data[:40])
                data = data[40:]
            socket.arrives(data)
            if ends_turn:
                await asyncio.sleep(0)
        await until_answered(sockets)

    served(files, story)


def test_a_broken_record_closes_its_connection_alone(files: Files) -> None:
    async def story(server: Server) -> None:
        sockets = [Socket(server, files) for _ in range(FEW_READS)]
        bad = sockets.pop(1)
        for each in sockets:
            each.beats()
        record = bytearray(bad.encrypted(heartbeat, BEAT))
        record[-1] ^= 1
        bad.arrives(bytes(record))
        await asyncio.sleep(0)
        assert all(each.answered == each.asked for each in sockets)
        assert bad.is_closing()
        with pytest.raises(ssl.SSLError, match=r"(?i)alert bad record mac"):
            assert not bad.answered

    facts = served(files, story)
    (dropped,) = [fact for fact in facts if isinstance(fact, ConnectionDropped)]
    assert dropped.why == "TLS on listener SSL failed: decryption failed or bad record mac"


def test_a_mistake_of_ours_costs_one_connection(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(server: Server) -> None:
        told: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context))
        sockets = [Socket(server, files) for _ in range(FEW_READS)]
        bad = sockets[1]
        received = TlsLink.received

        def mistaken(link: TlsLink, data: bytes) -> None:
            if link is bad.link:
                raise ZeroDivisionError
            received(link, data)

        monkeypatch.setattr(TlsLink, "received", mistaken)
        for each in sockets:
            each.beats()
        await asyncio.sleep(0)
        assert [each.answered == each.asked for each in sockets] == [each is not bad for each in sockets]
        assert bad.is_closing()
        assert [type(context["exception"]) for context in told] == [ZeroDivisionError]

    served(files, story)


@pytest.mark.parametrize("end", [lambda socket: socket.link.eof_received(), lambda socket: socket.link.stop_reading()])
def test_what_was_read_is_answered_before_reading_ends(files: Files, end: Callable[[Socket], None]) -> None:
    async def story(server: Server) -> None:
        socket = Socket(server, files)
        socket.beats()
        assert not socket.answered
        end(socket)
        assert socket.answered == socket.asked

    served(files, story)
