"""One socket: versions, order, time, and what comes of brokers that misbehave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest

from client.peers import HANG_UP, Asked, Peer, Run, answer_to, until, versions
from coterie.client.network.connection import BrokerConnection
from coterie.errors import (
    ConnectionLostError,
    ErrorCode,
    IllegalArgumentError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from coterie.protocol.apis import heartbeat, metadata, produce
from coterie.protocol.frames import response_frame
from coterie.protocol.messages import Heartbeat
from coterie.settings.client_settings import ClientSettings

pytestmark = pytest.mark.real_time

BEAT = Heartbeat(None, "g", "m", None, 1)


def beaten(asked: Asked) -> bytes:
    return answer_to(asked, ErrorCode.NONE)


def test_requests_go_out_together_and_answers_come_back_in_order(run: Run) -> None:
    async def story() -> None:
        held: list[bytes] = []

        def script(asked: Asked) -> object:
            held.append(answer_to(asked, [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION][len(held)]))
            return held if len(held) == 2 else None

        async with Peer(script) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            beats = [connection.send(heartbeat, BEAT, timeout_ms=5_000) for _ in range(2)]
            assert await asyncio.gather(*beats) == [ErrorCode.NONE, ErrorCode.ILLEGAL_GENERATION]
            assert not connection.in_flight and not connection.is_closed
            await connection.close()
            await connection.close()
            with pytest.raises(ConnectionLostError, match="was closed by this client"):
                await connection.send(heartbeat, BEAT, timeout_ms=5_000)

    run(story())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _: HANG_UP, "closed the connection; Heartbeat had not been answered"),
        (lambda asked: [beaten(asked)[:7], HANG_UP], "in the middle of an answer, of which 7 bytes had come"),
        (lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n", "a frame of 1213486160 bytes was announced"),
        (lambda _: b"\x15\x03\x03\0\2\2\x28", "without TLS?"),
        (lambda _: b"\xff\xff\xff\xff", "a frame of -1 bytes was announced"),
        (lambda _: b"\x7f\xff\xff\xff" + bytes(100), "a frame of 2147483647 bytes was announced"),
        (lambda _: response_frame(99, bytes(6), flexible=True), "the answer to request 99 came where that to 2"),
        (lambda _: b"\0\0\0\2ab", "ends within its response header"),
        (lambda asked: response_frame(asked.correlation_id, b"", flexible=True), "with what cannot be read"),
    ],
)
def test_what_is_no_answer_ends_the_connection_and_says_why(
    run: Run, answer: Callable[[Asked], object], says: str
) -> None:
    async def story() -> None:
        async with Peer(answer) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            with pytest.raises(ConnectionLostError, match=re.escape(says)) as caught:
                await connection.send(heartbeat, BEAT, timeout_ms=5_000)
            assert caught.value.retriable and f"127.0.0.1:{peer.port}" in str(caught.value)
            assert connection.is_closed and not connection.in_flight
            await connection.close()

    run(story())


def test_bytes_that_nobody_asked_for_end_the_connection(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: [beaten(asked), b"\0\0\0\4abcd"]) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            assert await connection.send(heartbeat, BEAT, timeout_ms=5_000) is ErrorCode.NONE
            await until(lambda: connection.is_closed)
            assert "nothing had been asked" in str(connection.error)

    run(story())


def test_a_broker_that_never_answers_costs_the_request_and_the_connection(run: Run) -> None:
    """As in Java: answers come in order, so that what stands behind it cannot be answered either."""

    async def story() -> None:
        async with Peer(lambda _: None) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            first = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=20))
            second = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=60_000))
            with pytest.raises(RequestTimedOutError, match="did not answer Heartbeat within 20 ms") as caught:
                await first
            assert caught.value.retriable
            with pytest.raises(ConnectionLostError, match="so that the connection was closed"):
                await second

    run(story())


def test_whoever_is_cancelled_leaves_the_connection_in_order(run: Run) -> None:
    async def story() -> None:
        asked_before: list[Asked] = []

        def script(asked: Asked) -> object:
            asked_before.append(asked)
            return [beaten(each) for each in asked_before] if len(asked_before) == 2 else None

        async with Peer(script) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            impatient = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=5_000))
            await until(lambda: bool(asked_before))
            impatient.cancel()
            assert await connection.send(heartbeat, BEAT, timeout_ms=5_000) is ErrorCode.NONE
            assert not connection.in_flight
            await connection.close()

    run(story())


def test_a_request_whose_asker_was_cancelled_still_ends_in_time(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda _: None) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            impatient = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=200))
            while not connection.in_flight:  # noqa: ASYNC110  a turn or two of the loop, much less than its 200 ms
                await asyncio.sleep(0)
            impatient.cancel()
            await until(lambda: connection.is_closed)
            assert not connection.in_flight

    run(story())


def test_a_produce_without_acks_has_no_answer(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda asked: beaten(asked) if asked.key == heartbeat.API.key else None) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            request = produce.Request(transactional_id=None, acks=0, timeout_ms=1, topics=[])
            sent = await connection.send(produce, request, timeout_ms=1, expects_answer=False)
            assert sent is None and not connection.in_flight
            assert await connection.send(heartbeat, BEAT, timeout_ms=5_000) is ErrorCode.NONE
            assert [asked.key for asked in peer.asked][1:] == [0, 12]
            await connection.close()

    run(story())


def test_the_highest_version_both_speak_is_taken(run: Run) -> None:
    async def story() -> None:
        ranges = {12: (0, 2), 3: (20, 30), 18: (0, 4)}
        async with Peer(lambda asked: versions(asked, ranges), handshakes=False) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            assert connection.version_of(heartbeat) == 2 and connection.version_of(heartbeat, at_most=1) == 1
            with pytest.raises(UnsupportedVersionError, match="speaks Metadata in versions 20 to 30, we in 0 to 13"):
                connection.version_of(metadata)
            with pytest.raises(UnsupportedVersionError, match="does not speak Produce at all, of which we speak"):
                connection.version_of(produce)
            await connection.close()

    run(story())


def test_an_older_broker_says_which_handshake_it_knows(run: Run) -> None:
    """KIP-511: a version it does not know is answered in version 0, with its own range."""

    async def story() -> None:
        def script(asked: Asked) -> object:
            if asked.version <= 2:
                return versions(asked)
            body = b"\0\x23" + b"\0\0\0\1" + b"\0\x12\0\0\0\2"
            return response_frame(asked.correlation_id, body, flexible=False)

        async with Peer(script, handshakes=False) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            assert [asked.version for asked in peer.asked] == [4, 2]
            assert connection.version_of(heartbeat) == 4
            await connection.close()

    run(story())


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda _: HANG_UP, "ApiVersions had not been answered"),
        (lambda _: b"SSH-2.0-OpenSSH_9.2p1\r\n", "is not an answer of a Kafka broker"),
        (lambda asked: response_frame(asked.correlation_id, b"\0\0\7", flexible=False), "ApiVersions with what cannot"),
        (lambda asked: response_frame(asked.correlation_id, b"\0\x2a\1\0\0\0\0\0", flexible=False), "INVALID_REQUEST"),
        (lambda _: None, "did not answer ApiVersions within 1000 ms"),
    ],
)
def test_a_handshake_that_fails_says_why(run: Run, answer: Callable[[Asked], object], says: str) -> None:
    async def story() -> None:
        async with Peer(answer, handshakes=False) as peer:
            with pytest.raises(KafkaError, match=re.escape(says)):
                await BrokerConnection.open("127.0.0.1", peer.port, peer.settings(**{"request.timeout.ms": 1000}))

    run(story())


def test_nobody_listens_or_the_name_is_not_known(run: Run) -> None:
    async def story() -> None:
        async with Peer(lambda _: None) as peer:
            port = peer.port
        with pytest.raises(ConnectionLostError, match=f"cannot connect to 127.0.0.1:{port}: connection refused"):
            await BrokerConnection.open("127.0.0.1", port, ClientSettings.of())
        with pytest.raises(ConnectionLostError, match="cannot connect to"):
            await BrokerConnection.open("x" * 70, 9092, ClientSettings.of())

    run(story())


def test_a_connection_that_is_not_used_is_closed(run: Run) -> None:
    async def story() -> None:
        async with Peer(beaten) as peer:
            settings = peer.settings(**{"connections.max.idle.ms": 30})
            connection = await BrokerConnection.open("127.0.0.1", peer.port, settings)
            await until(lambda: connection.is_closed)
            assert "without use" in str(connection.error)
            patient = await BrokerConnection.open(
                "127.0.0.1", peer.port, peer.settings(**{"connections.max.idle.ms": -1})
            )
            assert not patient.is_closed
            await patient.close()

    run(story())


def test_a_value_that_does_not_fit_is_the_callers_mistake_and_harms_nobody(run: Run) -> None:
    async def story() -> None:
        async with Peer(beaten) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            with pytest.raises(IllegalArgumentError, match="Heartbeat version 4: a value does not fit its field"):
                await connection.send(heartbeat, Heartbeat(None, "g", "m", None, 2**40), timeout_ms=5_000)
            with pytest.raises(IllegalArgumentError, match=r"Heartbeat version 4: .*surrogates not allowed"):
                await connection.send(heartbeat, Heartbeat(None, "\ud800", "m", None, 1), timeout_ms=5_000)
            assert await connection.send(heartbeat, BEAT, timeout_ms=5_000) is ErrorCode.NONE
            await connection.close()

    run(story())


def test_an_announced_size_allocates_nothing(run: Run) -> None:
    """200 MiB are announced and some bytes come: those are held, and room for a little more."""

    async def story() -> None:
        async with Peer(lambda _: [(200 << 20).to_bytes(4, "big"), bytes(1_000)]) as peer:
            connection = await BrokerConnection.open("127.0.0.1", peer.port, peer.settings())
            asked = asyncio.ensure_future(connection.send(heartbeat, BEAT, timeout_ms=60_000))
            await until(lambda: connection._frames.held == 1_000)
            await connection.close()
            with pytest.raises(ConnectionLostError):
                await asked
            assert connection._frames.held == 0

    run(story())
