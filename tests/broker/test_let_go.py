"""What a connection made the broker hold is freed when it ends: at once, without a garbage collection."""

from __future__ import annotations

import gc
import struct
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from broker.driver import World
from broker.peer import Peer
from broker.sasl_dialogues import plain, talk_to
from coterie import Broker
from coterie.broker.handlers.fetch import Parked
from coterie.broker.io.sockets import Link
from coterie.broker.security.sasl_server_authenticator import SaslServerAuthenticator
from coterie.protocol.apis import produce
from coterie.protocol.frames import FrameCutter
from secured_kafka import USERS
from soak.attacks import CHEAP, GROUP, TOPIC

pytestmark = pytest.mark.real_time

MIB = 1 << 20
TIMES = 10
KINDS = (Link, FrameCutter, Parked, SaslServerAuthenticator)
"""What holds bytes for a connection. A `Call` may stay for a while, as the key of a timer that was disarmed."""


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One that never collects."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}) as broker:
        with Peer(broker.bootstrap_servers) as peer:
            peer.find_coordinator()
            peer.create("t")
            for _ in range(4):
                assert not peer.produce("t", bytes(900_000)).error
        gc.collect()
        gc.disable()
        try:
            yield broker
        finally:
            tracemalloc.stop()
            gc.enable()


def census() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, KINDS))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.perf_counter() + 30
    while not condition():
        assert time.perf_counter() < deadline, census()
        time.sleep(0.01)


def half_a_frame(peer: Peer) -> None:
    peer.socket.sendall(struct.pack(">i", 50 * MIB) + bytes(3 * MIB))


def half_a_size(peer: Peer) -> None:
    peer.socket.sendall(b"\0\0")


def half_a_produce(peer: Peer) -> None:
    frame = peer.frame_of(produce, produce.Request(acks=1, timeout_ms=1, topics=[]), 9)
    peer.socket.sendall(struct.pack(">i", 10 * MIB) + frame + bytes(3 * MIB))


def a_parked_fetch(peer: Peer) -> None:
    peer.send_fetch("t", 4, max_wait_ms=600_000)


def requests_behind_a_parked_fetch(peer: Peer) -> None:
    a_parked_fetch(peer)
    for _ in range(3):
        peer.send_produce("t", bytes(200_000))


def an_answer_that_is_not_read(peer: Peer) -> None:
    for _ in range(8):
        peer.send_fetch("t", 0, max_bytes=4 * MIB, partition_max_bytes=4 * MIB)
    peer.socket.recv(1)


def an_answer_to_a_commit(peer: Peer) -> None:
    peer.send_commit("g", {("t", 0): 1})


def nonsense(peer: Peer) -> None:
    peer.socket.sendall(struct.pack(">i", 4) + b"\x7f\xff\0\0" + bytes(1000))
    peer.is_closed_by_broker()


ENDS = [
    half_a_frame,
    half_a_size,
    half_a_produce,
    a_parked_fetch,
    requests_behind_a_parked_fetch,
    an_answer_that_is_not_read,
    an_answer_to_a_commit,
    nonsense,
]


@pytest.mark.parametrize("ends", ENDS, ids=lambda one: one.__name__)
@pytest.mark.parametrize("reset", [False, True], ids=["closed", "reset"])
def test_a_connection_that_ends_leaves_no_bytes(broker: Broker, ends: Callable[[Peer], None], reset: bool) -> None:
    before = census()
    tracemalloc.start()
    traced, _ = tracemalloc.get_traced_memory()
    for _ in range(TIMES):
        with Peer(broker.bootstrap_servers) as peer:
            if reset:
                peer.socket.setsockopt(1, 13, struct.pack("ii", 1, 0))  # SO_LINGER: closing resets
            with suppress(ConnectionError):
                ends(peer)
    with Peer(broker.bootstrap_servers) as peer:
        peer.find_coordinator()  # all that came before has been accepted
    wait_until(lambda: census() <= before)  # the fixture's own connection may have been there still
    wait_until(lambda: tracemalloc.get_traced_memory()[0] < traced + MIB)


def test_a_join_that_is_parked_keeps_its_token_and_nothing_of_its_socket(broker: Broker) -> None:
    """It counts until its session ends (rule 9)."""
    before = census()
    with Peer(broker.bootstrap_servers) as one, Peer(broker.bootstrap_servers) as two:
        one.enter("g")
        two.send_join("g", version=3)
        two.socket.sendall(struct.pack(">i", 50 * MIB) + bytes(3 * MIB))
    wait_until(lambda: census() <= before)


def test_a_connection_that_does_not_log_in_leaves_nothing(broker: Broker) -> None:
    before = census()
    with Broker(users=USERS) as secured:
        for _ in range(TIMES):
            with Peer(secured.bootstrap_servers) as silent, talk_to(secured.bootstrap_servers) as talk:
                talk.handshake("PLAIN")
                talk.authenticate(plain("alice", "wrong"))
                talk.ends()
                silent.socket.sendall(b"\0\0")
        wait_until(lambda: census() <= before)


@pytest.mark.parametrize("name", CHEAP)
def test_an_answered_request_leaves_no_cycle(name: str) -> None:
    """A collection after a hundred thousand of them would take as long as a thousand requests."""
    module, request, version = CHEAP[name]
    client = World().client()
    client.find_coordinator(GROUP)
    client.create(TOPIC)
    client.send(module, request, version)  # what is made once
    gc.collect()
    gc.disable()
    try:
        for _ in range(TIMES):
            client.send(module, request, version)
        assert gc.collect() < TIMES
    finally:
        gc.enable()
