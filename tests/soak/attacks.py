"""What hostile clients do to a broker: a table of attacks. `adversary.py` runs them beside a member that behaves.

An attack is a generator: it connects, and each `next` does a little more harm. It runs in a process of its own, for as
long as it is told to; when it is closed, its connections close.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from itertools import count
from types import ModuleType
from typing import Any

from broker.peer import Peer
from broker.speaker import commit_request, fetch_request, list_request, produce_request
from coterie.protocol.apis import (
    api_versions,
    delete_topics,
    describe_groups,
    fetch,
    find_coordinator,
    heartbeat,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from coterie.protocol.messages import DescribeGroup, Heartbeat, ListGroups, OffsetFetch
from soak.watch import VERSIONS

__all__ = ["ATTACKS", "FLOODS", "Attack", "flood", "prepare"]

Attack = Callable[[str], Iterator[None]]
"""From the broker's address to what is done, a little at a time."""

MIB = 1 << 20
RESET = struct.pack("ii", 1, 0)
TOPIC = "adversary"
LARGE_TOPIC = "adversary-large"
GROUP = "adversary-group"


def prepare(bootstrap: str) -> None:
    """Create what the attacks ask for."""
    with Peer(bootstrap) as peer:
        peer.find_coordinator(GROUP)
        peer.create(TOPIC)
        peer.create(LARGE_TOPIC)
        for _ in range(20):
            assert not peer.produce(LARGE_TOPIC, bytes(500_000)).error
        assert not peer.produce(TOPIC, b"one").error


def hang_up(peer: Peer, *, reset: bool) -> None:
    """Close the connection; with `reset`, as a crashed machine does."""
    if reset:
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    peer.close()


def nothing(_bootstrap: str) -> Iterator[None]:
    """For comparison."""
    while True:
        time.sleep(0.01)
        yield


# --- requests that are aborted ----------------------------------------------------------------------------------------


def half_frames(bootstrap: str, *, size: int, sent: int, at_once: int) -> Iterator[None]:
    """Announce a frame, send a part of it, and close."""
    part = bytes(MIB)
    for number in count():
        with ExitStack() as stack:
            peers = [stack.enter_context(Peer(bootstrap)) for _ in range(at_once)]
            for peer in peers:
                with suppress(OSError):  # the broker may refuse what all together make it hold
                    peer.socket.sendall(struct.pack(">i", size))
                    for _ in range(0, sent, len(part)):
                        peer.socket.sendall(part[:sent])
                        yield
                hang_up(peer, reset=number % 2 == 1)
        yield


def half_produces(bootstrap: str) -> Iterator[None]:
    """Close in the middle of a produce request whose beginning is sound; a whole one was sent before it."""
    for number in count():
        with Peer(bootstrap) as peer, suppress(OSError):
            peer.send_produce(TOPIC, bytes(10_000), acks=1)
            frame = peer.frame_of(produce, produce_request(TOPIC, bytes(2 * MIB)), 9)
            peer.socket.sendall(struct.pack(">i", len(frame)) + frame[: len(frame) // 2])
            hang_up(peer, reset=number % 2 == 1)
        yield


def parked_requests(bootstrap: str) -> Iterator[None]:
    """Close while a join, a sync or a fetch is parked, with more requests behind it."""
    for number in count():
        reset = number % 2 == 1
        group = f"{GROUP}-{number % 10}"
        with Peer(bootstrap) as one, Peer(bootstrap) as two, Peer(bootstrap) as three, suppress(OSError):
            one.send_join(group, session_timeout_ms=6_000, rebalance_timeout_ms=1_000, version=3)
            two.send_join(group, session_timeout_ms=6_000, rebalance_timeout_ms=1_000, version=3)
            three.send_fetch(TOPIC, 1_000_000_000, max_wait_ms=600_000, min_bytes=MIB)
            three.send_fetch(TOPIC, 0, max_wait_ms=600_000, min_bytes=50 * MIB)
            for peer in (one, two, three):
                for _ in range(3):
                    peer.send_produce(TOPIC, bytes(100_000))
            for peer in (one, two, three):
                hang_up(peer, reset=reset)
        yield


def half_answers(bootstrap: str) -> Iterator[None]:
    """Ask for megabytes, read a little of the answer, and close."""
    ask = fetch_request({LARGE_TOPIC: {0: 0}}, max_bytes=50 * MIB, partition_max_bytes=50 * MIB)
    for number in count():
        with Peer(bootstrap) as peer, suppress(OSError):
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(3):
                peer.send(fetch, ask, 12)
            peer.socket.recv(1_000)
            hang_up(peer, reset=number % 2 == 1)
        yield


# --- connections that cost nothing ------------------------------------------------------------------------------------


def slow_senders(bootstrap: str) -> Iterator[None]:
    """A hundred connections send a large request a few bytes at a time; some stop in the middle of its size."""
    with ExitStack() as stack:
        peers = [stack.enter_context(Peer(bootstrap)) for _ in range(100)]
        for number, peer in enumerate(peers):
            peer.socket.sendall(b"\0\0" if number % 4 == 0 else struct.pack(">i", 50 * MIB))
        while True:
            for number, peer in enumerate(peers):
                if number % 4:
                    with suppress(OSError):
                        peer.socket.sendall(bytes(1 + number))
                yield


def silent_connections(bootstrap: str) -> Iterator[None]:
    """Connections that send nothing: three hundred that stay, and one after the other that goes at once."""
    with ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(Peer(bootstrap))
        for number in count():
            hang_up(Peer(bootstrap), reset=number % 2 == 1)
            yield


# --- much of what a broker keeps --------------------------------------------------------------------------------------


def topic_storm(bootstrap: str) -> Iterator[None]:
    """Have hundreds of topics created by asking for them, and delete them."""
    for number in count():
        names = [f"{TOPIC}-storm-{number}-{each}" for each in range(300)]
        asked = metadata.Request(topics=[metadata.Topic(name=name) for name in names], allow_auto_topic_creation=True)
        gone = delete_topics.Request(topics=[delete_topics.Topic(name=name) for name in names], timeout_ms=60_000)
        with Peer(bootstrap, timeout_s=60) as peer:
            peer.ask(metadata, asked)
            yield
            peer.ask(delete_topics, gone)
            yield


def huge_metadata(bootstrap: str) -> Iterator[None]:
    """Join with 20 MB of metadata, which is refused, and with 3 MB, which is taken until it is too much."""
    for number in count():
        with Peer(bootstrap) as peer, suppress(OSError):
            for size in (20 * MIB, 3 * MIB):
                peer.send_join(
                    f"{GROUP}-huge-{number % 50}",
                    protocols={"range": bytes(size)},
                    session_timeout_ms=6_000,
                    rebalance_timeout_ms=1_000,
                    version=3,
                )
                yield
            peer.answer()


# --- floods -----------------------------------------------------------------------------------------------------------

CHEAP: Mapping[str, tuple[ModuleType, Any, int]] = {
    "Heartbeat": (heartbeat, Heartbeat(None, GROUP, "nobody", None, 1), 4),
    "ApiVersions": (api_versions, VERSIONS, 3),
    "Metadata": (metadata, metadata.Request(topics=[metadata.Topic(name=TOPIC)]), 9),
    "FindCoordinator": (find_coordinator, find_coordinator.Request(keys=[GROUP]), 4),
    "OffsetFetch": (offset_fetch, [OffsetFetch(None, GROUP, [(TOPIC, [0])])], 8),
    "OffsetCommit": (offset_commit, commit_request(GROUP, {(TOPIC, 0): 1}), 8),
    "ListOffsets": (list_offsets, list_request(TOPIC, -1), 7),
    "DescribeGroups": (describe_groups, [DescribeGroup(None, GROUP)], 5),
    "ListGroups": (list_groups, ListGroups(None), 4),
    "Fetch": (fetch, fetch_request({TOPIC: {0: 0}}, max_wait_ms=0, max_bytes=1_000), 12),
    "Produce acks=0": (produce, produce_request(TOPIC, b"v", acks=0), 9),
}
BLOCK = 200
"""Requests that a flood sends with one system call."""


def flood(bootstrap: str, *, api: str, connections: int) -> Iterator[None]:
    """Send one request as fast as it is taken, on some connections, and read all answers."""
    module, request, version = CHEAP[api]
    selector = selectors.DefaultSelector()
    with ExitStack() as stack:
        for _ in range(connections):
            peer = stack.enter_context(Peer(bootstrap))
            frame = peer.frame_of(module, request, version)
            peer.socket.setblocking(False)
            block = (struct.pack(">i", len(frame)) + frame) * BLOCK
            selector.register(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, [block, 0])
        while True:
            for key, events in selector.select(1):
                _flood_once(key, events)
            yield


def _flood_once(key: selectors.SelectorKey, events: int) -> None:
    connection: Any = key.fileobj
    block, at = key.data
    if events & selectors.EVENT_READ and not connection.recv(1 << 18):
        raise ConnectionError("the broker closed a connection of the flood")
    if events & selectors.EVENT_WRITE:
        with suppress(BlockingIOError):
            key.data[1] = (at + connection.send(block[at:])) % len(block)


ATTACKS: Mapping[str, Attack] = {
    "nothing": nothing,
    "60 of 100 MB, then closed, four at a time": partial(half_frames, size=100 * MIB, sent=60 * MIB, at_once=4),
    "1 of 2 MB, then closed, ten at a time": partial(half_frames, size=2 * MIB, sent=MIB, at_once=10),
    "half a produce, then closed": half_produces,
    "closed while requests are parked": parked_requests,
    "closed while the answer is sent": half_answers,
    "slow senders": slow_senders,
    "connections that send nothing": silent_connections,
    "topic storm": topic_storm,
    "huge metadata": huge_metadata,
}
FLOODS: Mapping[str, Attack] = {
    f"flood of {api}, {connections} connections": partial(flood, api=api, connections=connections)
    for api in CHEAP
    for connections in (1, 2, 10, 100)
}
