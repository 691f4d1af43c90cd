"""Many connections, and some that are up to no good: a member that behaves is answered, memory and log stay small."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from broker.peer import Peer
from coterie import Broker
from coterie.broker.broker_facts import ConnectionDropped, FactsLeftOut
from coterie.facts import Fact
from coterie.protocol.apis import api_versions
from soak.crowd import crowd, raise_file_limit
from soak.watch import LEAST_WATCHED, VERSIONS

pytestmark = pytest.mark.real_time

QUICK = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}
MIB = 1 << 20


def drops(facts: list[Fact]) -> list[str]:
    return [fact.why for fact in facts if isinstance(fact, ConnectionDropped)]


def dropped(facts: list[Fact]) -> int:
    """Those that were told one by one, and the sums."""
    return len(drops(facts)) + sum(fact.count for fact in facts if isinstance(fact, FactsLeftOut))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + 60
    while not condition():
        assert time.perf_counter() < deadline
        time.sleep(0.01)


def is_answered(peer: Peer) -> bool:
    return not peer.ask(api_versions, VERSIONS).error


def test_a_thousand_connections_of_which_three_in_four_mean_harm(tmp_path: Path) -> None:
    """Silent, slow, deaf, and good; `make soak` has ten thousand."""
    count = min(1_000, raise_file_limit(1_300) - 300)
    outcome = crowd(count, tmp_path / "log")
    assert outcome.answered >= 3 * (count // 4) and outcome.watched >= LEAST_WATCHED


def test_requests_that_never_end_do_not_fill_the_memory() -> None:
    """Forty times two of sixteen megabytes announced, where 32 may be held: those who began first are sent away."""
    facts: list[Fact] = []
    settings = {**QUICK, "queued.max.request.bytes": 32 * MIB, "socket.request.max.bytes": 16 * MIB}
    with Broker(settings=settings, on_fact=facts.append) as broker, ExitStack() as stack:
        good, *slow = (stack.enter_context(Peer(broker.bootstrap_servers)) for _ in range(41))
        for peer in slow:
            peer.socket.sendall(struct.pack(">i", 16 * MIB) + bytes(2 * MIB))
            assert is_answered(good)
        wait_until(lambda: dropped(facts) >= 24)
        assert all("queued.max.request.bytes" in why for why in drops(facts))
        assert slow[0].is_closed_by_broker()
        good.create("t")
        assert not good.produce("t", bytes(900_000)).error


def test_a_flood_of_connections_is_refused_and_does_not_fill_the_log() -> None:
    facts: list[Fact] = []
    settings = {**QUICK, "max.connections.per.ip": 3}
    with Broker(settings=settings, on_fact=facts.append) as broker:
        peers = [Peer(broker.bootstrap_servers) for _ in range(3)]
        assert all(map(is_answered, peers))
        for _ in range(300):
            with Peer(broker.bootstrap_servers) as refused:
                assert refused.is_closed_by_broker()
        assert all(map(is_answered, peers))
        for peer in peers:
            peer.close()
    assert dropped(facts) == 300, "all are accounted for"
    assert len(drops(facts)) < 250 and "max.connections.per.ip" in drops(facts)[0]


def test_a_request_that_takes_too_long_ends_its_connection() -> None:
    """connections.max.idle.ms: a byte now and then is no sign of life."""
    facts: list[Fact] = []
    settings = {**QUICK, "connections.max.idle.ms": 400}
    with Broker(settings=settings, on_fact=facts.append) as broker, Peer(broker.bootstrap_servers) as slow:
        slow.socket.sendall(struct.pack(">i", 1_000))
        slow.socket.settimeout(0.02)
        for _ in range(500):
            slow.socket.sendall(b"\0")
            with suppress(TimeoutError):
                assert slow.is_closed_by_broker()
                break
        assert any("one request took more than 400 ms" in why for why in drops(facts))


def test_a_client_that_stops_sending_in_the_middle_is_forgotten() -> None:
    """Half-closed: nothing more can come, so there is nobody to wait for."""
    with Broker(settings=QUICK) as broker, Peer(broker.bootstrap_servers) as half:
        half.socket.sendall(struct.pack(">i", 1_000) + bytes(500))
        half.socket.shutdown(socket.SHUT_WR)
        assert half.is_closed_by_broker()


def test_who_is_sent_away_does_not_have_to_read_first() -> None:
    """Else its answers would be held for as long as it likes."""
    facts: list[Fact] = []
    with Broker(settings={**QUICK, "max.connections": 2}, on_fact=facts.append) as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.create("t")
            for _ in range(10):
                assert not peer.produce("t", bytes(900_000)).error
        deaf = Peer(broker.bootstrap_servers)
        deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.send_fetch("t", 0, max_bytes=9 * MIB, partition_max_bytes=9 * MIB)
        deaf.socket.sendall(struct.pack(">i", -1))
        wait_until(lambda: bool(drops(facts)))

        def both_fit() -> bool:
            with Peer(broker.bootstrap_servers) as one, Peer(broker.bootstrap_servers) as other:
                try:
                    return is_answered(one) and is_answered(other)
                except ConnectionError:
                    return False

        wait_until(both_fit)
        deaf.close()
