"""Frames no client should send, a million of them: no crash, no hang, no mistake of ours, no memory that stays.

    make soak                                                     after the kills; FRAMES=1000000
    PYTHONPATH=tests python tests/soak/fuzz.py --frames 20000 --seed 7

Most go straight into a node on a disk in memory, which is what decides; some over sockets to a broker of its own, next
to a member that behaves and must be answered all the while. A failure names the seed and the frame.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from struct import Struct

from broker.driver import Client, World
from coterie.broker.calls import Call
from coterie.errors import ErrorCode
from coterie.protocol.apis import by_key, create_topics
from coterie.protocol.frames import read_response_header
from coterie.storage import StoredTopic
from soak.fuzz_sockets import fuzz_sockets
from soak.mutations import hostile
from soak.processes import rss_bytes
from soak.requests import Requests

__all__ = ["FuzzOutcome", "fuzz_node"]

REBALANCE = 20_000
"""Frames of one node's life. Then its clients go, their sessions end, and nothing of them may be left."""
CLIENTS = 8
LEARN_EVERY = 20
PATIENCE = 20
"""Requests a client sends behind one that is parked before it gives up and goes."""
SLOWEST_S = 5.0
"""Of the processor's time, for one frame."""
GROWTH = 64 << 20
"""Bytes the process may have more at the end than after its second rebalance."""
HANGS_AFTER_S = 120.0
HEADER = Struct(">hhi")
LONG_AFTER_MS = 8 * 86_400_000
SETTINGS = {
    "offsets.topic.num.partitions": 3,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.bytes": 1_048_576,
    "coterie.max.producers": 100,
}


@dataclass(slots=True)
class FuzzOutcome:
    frames: int = 0
    answers: int = 0
    by_api: Counter[str] = field(default_factory=Counter)
    """Answers."""
    reached: Counter[str] = field(default_factory=Counter)
    """What happened to groups and connections: that the frames got anywhere at all."""
    slowest_s: float = 0.0
    slowest: bytes = b""
    grown: int = 0
    """Bytes."""


class Fuzz:
    """One node, and clients that send it whatever the rng say."""

    def __init__(self, seed: int, outcome: FuzzOutcome) -> None:
        self.rng = Random(seed)
        self.seed = seed
        self.outcome = outcome
        self.requests = Requests(self.rng)
        self.world = World(settings=SETTINGS)
        self.clients = [self.world.client() for _ in range(CLIENTS)]
        self.asked: defaultdict[Client, dict[int, tuple[int, int]]] = defaultdict(dict)
        """Of each client: API and version by correlation id."""
        self._host = self.world.client()
        self._host.find_coordinator()
        self._others = _calls()
        """Of other tests in this process."""

    def learn(self) -> None:
        """What there is, so that some of it is asked about; what was deleted is made again."""
        for name in ("t", "u"):
            self.create(name)
        self.create("compact", create_topics.Config(name="cleanup.policy", value="compact"))
        known = self.requests.known
        shards = self.world.node.coordinator.shards.values()
        groups = [group for shard in shards for group in shard.classic_groups()]
        known.members = [
            (group.group_id, member_id, group.generation_id) for group in groups for member_id in group.members
        ][:50]
        topics: list[StoredTopic] = list(self.world.cluster.directory.topics.values())
        known.topic_ids = [topic.id for topic in topics][:10]

    def create(self, name: str, *configs: create_topics.Config) -> None:
        topic = create_topics.NewTopic(name=name, num_partitions=3, replication_factor=1, configs=configs)
        (made,) = self._host.ask(create_topics, create_topics.Request(topics=[topic])).topics
        assert made.error in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}, made.message

    def run(self, frames: int) -> None:
        for number in range(frames):
            if number % LEARN_EVERY == 0:
                self.learn()
            frame = hostile(self.requests.frame(), self.rng)
            began = time.thread_time()
            try:
                self.send(frame)
            except BaseException as problem:
                problem.add_note(f"seed {self.seed}, frame {number} of its run: {frame[:4000].hex()}")
                raise
            took = time.thread_time() - began
            if took > self.outcome.slowest_s:
                self.outcome.slowest_s, self.outcome.slowest = took, frame[:200]
            assert took < SLOWEST_S, f"{took:.1f} s for a frame, seed {self.seed}, {number}: {frame[:4000].hex()}"
            self.outcome.frames += 1

    def send(self, frame: bytes) -> None:
        rng, world = self.rng, self.world
        slot = rng.randrange(CLIENTS)
        client = self.clients[slot]
        if len(frame) >= HEADER.size:
            key, version, correlation_id = HEADER.unpack_from(frame)
            self.asked[client][correlation_id] = key, version
        client.send_frame(frame)
        if rng.random() < 0.05:
            world.advance(rng.choice((1, 50, 50, 500, 500, 3_000, 40_000)))
        for each in self.clients:
            self.read_answers(each)
        self.outcome.reached.update(type(fact).__name__ for fact in world.facts)
        world.facts.clear()
        for at, each in enumerate(self.clients):
            if each.closed is not None or len(each.connection.waiting) > PATIENCE:
                self.leave(each)
                self.clients[at] = world.client()
        if rng.random() < 0.002:
            self.leave(client)
            self.clients[slot] = world.client()
        if world.tasks:
            world.do_tasks()

    def read_answers(self, client: Client) -> None:
        """Whatever was asked, the answer is one a client can read."""
        while client.answers:
            frame = client.next_frame()
            correlation_id, at = read_response_header(frame, flexible=False)
            key, version = self.asked[client].pop(correlation_id)
            api = by_key[key]
            if not api.serves(version):
                version = 0  # only ApiVersions answers then
            if api.has_flexible_response_header(version):
                _, at = read_response_header(frame, flexible=True)
            api.module.read_response(frame, at, version)
            self.outcome.answers += 1
            self.outcome.by_api[api.name] += 1

    def leave(self, client: Client) -> None:
        if not client.connection.is_closed:
            self.world.node.disconnected(client.connection)
        self.world._clients.pop(client.connection, None)
        self.asked.pop(client, None)

    # --- what is left -------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """Everybody goes; a week later nothing of them is left but what they have written."""
        world = self.world
        for client in self.clients:
            self.leave(client)
        self.clients.clear()
        for _ in range(4):
            world.advance(LONG_AFTER_MS)
            world.facts.clear()
        assert not len(world.cluster.fetches), "fetches are parked whose readers are gone"
        assert not world.flushes and not world.ready
        calls = [one for one in _calls() if not any(one is other for other in self._others)]
        assert not calls, f"{len(calls)} requests of clients that are gone are kept"
        groups = [group for shard in world.node.coordinator.shards.values() for group in shard.classic_groups()]
        assert not [group for group in groups if group.members], "members outlive their sessions"
        assert len(world.cluster.timers) < 100 + len(groups)
        world.stop()


def _calls() -> list[Call]:
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Call)]


def fuzz_node(frames: int, seed: int, *, tell: bool = False) -> FuzzOutcome:
    """Raises at the first frame that does any harm."""
    outcome = FuzzOutcome()
    settled = 0
    for number, size in enumerate(_rebalances(frames)):
        faulthandler.dump_traceback_later(HANGS_AFTER_S + size / 50, exit=True)
        fuzz = Fuzz(seed + number, outcome)
        fuzz.run(size)
        fuzz.end()
        del fuzz
        gc.collect()
        faulthandler.cancel_dump_traceback_later()
        if number == 1:
            settled = rss_bytes()
        if tell and (number + 1) % 5 == 0:
            print(f"  {outcome.frames} frames, {outcome.answers} answers, {rss_bytes() >> 20} MiB", flush=True)
    if settled:
        outcome.grown = rss_bytes() - settled
        assert outcome.grown < GROWTH, f"{outcome.grown >> 20} MiB more than after the second rebalance"
    return outcome


def _rebalances(frames: int) -> Iterator[int]:
    while frames > 0:
        yield min(frames, REBALANCE)
        frames -= REBALANCE


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.frames} frames", flush=True)
    began = time.perf_counter()
    node = fuzz_node(options.frames, options.seed, tell=True)
    took = time.perf_counter() - began
    print(
        f"{node.frames} frames into a node in {took:.0f} s: {node.answers} answers, "
        f"{node.reached['ConnectionDropped']} connections dropped, slowest {node.slowest_s:.2f} s, "
        f"{node.grown / 2**20:+.1f} MiB since the second rebalance"
    )
    print("  " + ", ".join(f"{name} {count}" for name, count in node.reached.most_common()))
    with tempfile.TemporaryDirectory() as directory:
        wire = fuzz_sockets(options.frames // 50, options.seed, Path(directory, "data"), Path(directory, "log"))
    print(
        f"{wire.frames} frames over {wire.connections} connections; a member that behaves had {wire.watched} answers, "
        f"the slowest after {wire.slowest_s:.2f} s; the broker has {wire.grown / 2**20:+.1f} MiB"
    )


if __name__ == "__main__":
    main()
