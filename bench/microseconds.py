"""Where the microseconds of a heartbeat, a commit, a fetch of offsets, a join and a transaction go, from a profile.

    .venv/bin/python bench/microseconds.py [heartbeat commit fetch join transaction] [--partitions 1 10 100]
                                           [--functions 15]

A node without sockets is asked by 100 clients in turn; its logs are on disk, and every flush is done, in this thread.
First it is measured as it is: CPU of this process for a request, and how much of that is the disk's. Then again under
cProfile, without the disk: its shares, by room and by function. It makes Python slower and C not, so they are rough.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from transaction_frames import STEPS, TransactionFrames, answer_of

import coterie
from coterie.broker.broker_effects import Flush, Send, Starting, TimersDue, Work
from coterie.broker.calls import Connection
from coterie.broker.cluster import Cluster
from coterie.protocol.apis import (
    by_key,
    create_topics,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    offset_commit,
    offset_fetch,
)
from coterie.protocol.apis import sync_group as sync_group_api
from coterie.protocol.frames import read_response_header, request_frame
from coterie.protocol.messages import (
    CommitPartition,
    Heartbeat,
    JoinGroup,
    OffsetCommit,
    OffsetFetch,
    Protocol,
    SyncGroup,
)
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DiskFiles

CLIENTS = 100
REPEATS = 60
SRC = str(Path(coterie.__file__).parent)


class Bench:
    """A node and its clients; what it wants of the disk is done when all clients have asked."""

    def __init__(self, data: str) -> None:
        self.now_ms = 1_000
        self.outside_s: dict[str, float] = defaultdict(float)
        """Seconds of CPU of the disk, and of clients that prepare their requests."""
        self.profile: cProfile.Profile | None = None
        self.cluster = Cluster(DiskFiles(data), BrokerSettings(), self.now_ms, fresh_id=uuid4, sync=True, nodes=1)
        (self.node,) = self.cluster.nodes.values()
        self.answers: dict[Connection, bytes] = {}
        self._disk: list[Flush | Work] = []
        self._take(self.cluster.handle(Starting(), self.now_ms))

    def _take(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self.answers[effect.connection] = (
                    effect.data if isinstance(effect.data, bytes) else b"".join(effect.data)
                )
            elif isinstance(effect, Flush | Work):
                self._disk.append(effect)

    def ask(self, asked: Iterable[tuple[Connection, bytes]]) -> None:
        self.now_ms += 1
        for connection, frame in asked:
            self._take(self.node.received(connection, frame, self.now_ms))
        self.settle()

    def settle(self) -> None:
        while self._disk:
            work = self._disk.pop(0)
            with self.outside("disk"):
                ended = work.run()
            self._take(self.cluster.handle(ended, self.now_ms))

    @contextmanager
    def outside(self, what: str) -> Iterator[None]:
        """Count the time of what is not the node's, and leave it out of the profile."""
        if self.profile is not None:
            self.profile.disable()
        began = time.process_time()
        yield
        self.outside_s[what] += time.process_time() - began
        if self.profile is not None:
            self.profile.enable()

    def ring(self) -> None:
        """What waits for a little time, such as the first rebalance of a group."""
        self.now_ms += 5_000
        self._take(self.cluster.handle(TimersDue(), self.now_ms))
        self.settle()

    def say(self, connection: Connection, api: Any, request: Any, version: int) -> Any:
        self.ask([(connection, frame_of(api, api.write_request(request, version), version))])
        return self.heard(connection, api, version)

    def heard(self, connection: Connection, api: Any, version: int) -> Any:
        flexible = by_key[api.API.key].has_flexible_response_header(version)
        _, at = read_response_header(self.answers[connection][4:], flexible=flexible)
        return api.read_response(self.answers[connection][4:], at, version)


def frame_of(api: Any, body: bytes, version: int) -> bytes:
    flexible = version >= api.API.flexible
    return request_frame(api.API.key, version, 1, "bench", body, flexible=flexible)[4:]


class Member:
    """One of a group of its own, joined and synced."""

    def __init__(self, bench: Bench, number: int) -> None:
        self.bench = bench
        self.connection = Connection("127.0.0.1")
        self.group_id = f"group-{number}"
        self.member_id = ""
        self.generation_id = -1

    def join_frame(self) -> bytes:
        word = JoinGroup(
            None, self.group_id, self.member_id, None, "consumer", [Protocol("range", bytes(100))],
            45_000, 60_000, "", "bench", "", needs_member_id=True,
        )  # fmt: skip
        return frame_of(join_group, join_group.write_request(word, 9), 9)

    def joined(self) -> None:
        answer = self.bench.heard(self.connection, join_group, 9)
        self.member_id, self.generation_id = answer.member_id, answer.generation_id

    def sync_frame(self) -> bytes:
        word = SyncGroup(
            None, self.group_id, self.member_id, None, self.generation_id, [(self.member_id, bytes(100))],
            protocol_type="consumer", protocol_name="range",
        )  # fmt: skip
        return frame_of(sync_group_api, sync_group_api.write_request(word, 5), 5)


def members(bench: Bench) -> list[Member]:
    everybody = [Member(bench, number) for number in range(CLIENTS)]
    for _ in range(2):  # the first join is told a member id
        bench.ask([(member.connection, member.join_frame()) for member in everybody])
        bench.ring()
        for member in everybody:
            member.joined()
    bench.ask([(member.connection, member.sync_frame()) for member in everybody])
    return everybody


def rebalances_of(bench: Bench, what: str, partitions: int) -> Callable[[], None]:
    """One call: every client asks once."""
    everybody = members(bench)
    if what == "join":

        def rejoin() -> None:
            bench.ask([(member.connection, member.join_frame()) for member in everybody])
            for member in everybody:
                member.joined()
            bench.ask([(member.connection, member.sync_frame()) for member in everybody])

        return rejoin
    if what == "transaction":
        return transactions_of(bench, everybody)
    asked = [(member.connection, _frame(member, what, partitions)) for member in everybody]
    if what == "fetch":
        bench.ask([(member.connection, _frame(member, "commit", partitions)) for member in everybody])
    return lambda: bench.ask(asked)


def transactions_of(bench: Bench, everybody: Sequence[Member]) -> Callable[[], None]:
    """One call: every client commits one transaction."""
    bench.say(everybody[0].connection, find_coordinator, find_coordinator.Request(keys=["p"], key_type=1), 1)
    open_ones = []
    for number, member in enumerate(everybody):
        request = init_producer_id.Request(transactional_id=member.group_id, transaction_timeout_ms=60_000)
        ids = bench.say(member.connection, init_producer_id, request, 5)
        assert not ids.error, ids.error
        partitions = [(number + more) % 12 for more in range(3)]
        who = member.member_id, member.generation_id
        frames = TransactionFrames(member.group_id, "orders", partitions, member.group_id, who, bench.now_ms)
        frames.begin(ids.producer_id, ids.producer_epoch)
        open_ones.append((member.connection, frames))

    def commit_all() -> None:
        for step in range(len(STEPS)):
            bench.ask([(connection, bytes(frames.frames[step][4:])) for connection, frames in open_ones])
            with bench.outside("clients"):
                for connection, frames in open_ones:
                    error, answer = answer_of(step, bench.answers[connection][4:])
                    assert not error, error
                    if step == len(STEPS) - 1:
                        frames.begin(answer.producer_id, answer.producer_epoch)

    return commit_all


def _frame(member: Member, what: str, partitions: int) -> bytes:
    if what == "heartbeat":
        beat = Heartbeat(None, member.group_id, member.member_id, None, member.generation_id)
        return frame_of(heartbeat, heartbeat.write_request(beat, 4), 4)
    if what == "commit":
        content = [CommitPartition("orders", partition, 1_000 + partition) for partition in range(partitions)]
        commit = OffsetCommit(None, member.group_id, member.member_id, None, member.generation_id, content)
        return frame_of(offset_commit, offset_commit.write_request(commit, 8), 8)
    fetch = OffsetFetch(None, member.group_id, [("orders", list(range(partitions)))])
    return frame_of(offset_fetch, offset_fetch.write_request([fetch], 8), 8)


def room_of(file: str) -> str:
    if not file.startswith(SRC):
        return "Python and C"
    return "/".join(Path(file).relative_to(SRC).parts[:1]).removesuffix(".py")


def profiled(bench: Bench, action: Callable[[], None], functions: int) -> str:
    profile = bench.profile = cProfile.Profile()
    profile.enable()
    for _ in range(REPEATS // 3):
        action()
    profile.disable()
    stats: dict[Any, Any] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    own = {where: row[2] for where, row in stats.items()}
    total = sum(own.values())
    rooms: Counter[str] = Counter()
    for (file, _, _), seconds in own.items():
        rooms[room_of(file)] += seconds
    lines = ["  " + ", ".join(f"{room} {100 * seconds / total:.0f}%" for room, seconds in rooms.most_common(8))]
    for (file, line, name), seconds in sorted(own.items(), key=lambda item: -item[1])[:functions]:
        where = f"{Path(file).relative_to(SRC)}:{line} " if file.startswith(SRC) else ""
        lines.append(f"    {100 * seconds / total:4.1f}%  {where}{name}")
    return "\n".join(lines)


def measure(what: str, partitions: int, functions: int) -> str:
    with tempfile.TemporaryDirectory() as data:
        gc.freeze()  # as in `coterie serve`: else a collection falls into one profile or the other
        gc.set_threshold(100_000, 20, 50)
        bench = Bench(data)
        admin = Connection("127.0.0.1")
        bench.say(admin, find_coordinator, find_coordinator.Request(keys=["g"]), 1)
        topic = create_topics.NewTopic(name="orders", num_partitions=100, replication_factor=1)
        bench.say(admin, create_topics, create_topics.Request(topics=[topic]), 5)
        action = rebalances_of(bench, what, partitions)
        for _ in range(3):
            action()
        bench.outside_s.clear()
        began = time.process_time()
        for _ in range(REPEATS):
            action()
        spent = time.process_time() - began - bench.outside_s["clients"]
        per_request = 1e6 / (REPEATS * CLIENTS)
        of = f" of {partitions} partitions" if what in {"commit", "fetch"} else ""
        disk_s = bench.outside_s["disk"]
        head = f"{what}{of}: {spent * per_request:.1f} us, of these {disk_s * per_request:.1f} for the disk"
        return f"{head}\n{profiled(bench, action, functions)}" if functions else head


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["heartbeat", "commit", "fetch", "join"])
    parser.add_argument("--partitions", nargs="+", type=int, default=[1, 10, 100])
    parser.add_argument("--functions", type=int, default=12, help="lines of each profile; 0: only what it costs")
    options = parser.parse_args(arguments)
    for what in options.what:
        for partitions in options.partitions if what in {"commit", "fetch"} else [1]:
            print(measure(what, partitions, options.functions), flush=True)


if __name__ == "__main__":
    main()
