"""What the core costs: heartbeat, commit, a rebalance by group size, memory of an idle member. No I/O, one process.

    make bench-core                 # or: .venv/bin/python bench/core.py [--json FILE] [--sizes 10 1000 ...]

Times are CPU time of this process. A plain dict look-up is timed beside them, so that a reader can scale the figures
to another machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.coordinator.classic import Group
from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.runtime import Append, Shard, Timers
from coterie.errors import ErrorCode
from coterie.protocol.messages import CommitPartition, Heartbeat, JoinGroup, OffsetCommit, Protocol, SyncGroup
from coterie.protocol.subscription import Subscription, write_subscription
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

# The log's own cost is not measured: an append is durable at once.
SETTINGS = GroupCoordinatorSettings(group_initial_rebalance_delay_ms=0, coterie_max_record_bytes=1 << 30)
SUBSCRIPTION = write_subscription(Subscription(["orders", "payments"], user_data=bytes(60)))
ASSIGNMENT = bytes(100)


class Driver:
    """A shard, and a log that only counts."""

    def __init__(self) -> None:
        self.timers: Timers[Any] = Timers()
        self.shard = Shard(0, SETTINGS, self.timers)
        self.written = 0
        self.answers: dict[Any, Any] = {}

    def send(self, event: Any, now_ms: int) -> None:
        todo: list[Any] = list(self.shard.handle(event, now_ms))
        for effect in todo:
            if isinstance(effect, Reply):
                self.answers[effect.token] = effect.answer
            elif isinstance(effect, Append):
                batch = effect.batch()
                assert batch is not None
                batch.then.base_offset = self.written
                self.written += len(batch.records)
                todo.extend(self.shard.handle(batch.then, now_ms))

    def ring(self, now_ms: int) -> None:
        for event in self.timers.due(now_ms):
            self.send(event, now_ms)

    def join(self, group_id: str, ids: list[str], now_ms: int) -> None:
        for number, member_id in enumerate(ids):
            request = JoinGroup(
                (group_id, number), group_id, member_id, None, "consumer", [Protocol("range", SUBSCRIPTION)],
                1_000_000, 2_000_000, str(number), "bench", "/127.0.0.1", needs_member_id=False,
            )  # fmt: skip
            self.send(request, now_ms)

    def group(self, group_id: str) -> Group:
        found = self.shard.groups[group_id]
        assert isinstance(found, Group)
        return found

    def sync(self, group_id: str, now_ms: int) -> None:
        group = self.group(group_id)
        leader = group.leader_id
        given = [(member_id, ASSIGNMENT) for member_id in group.members]
        for member_id in [*(m for m in group.members if m != leader), leader]:
            assert member_id is not None
            assignments = given if member_id == leader else []
            self.send(SyncGroup(member_id, group_id, member_id, None, group.generation_id, assignments), now_ms)
        assert group.state == "Stable", group.state

    def stable(self, group_id: str, members: int) -> list[str]:
        self.join(group_id, [""] * members, 0)
        self.ring(0)
        self.sync(group_id, 0)
        return list(self.shard.groups[group_id].members)


def cpu_per(action: Callable[[], Any], count: int, runs: int = 5) -> float:
    """The least of several runs, in microseconds for one of `count` things that `action` does."""
    gc.collect()
    best = float("inf")
    for _ in range(runs):
        began = time.process_time()
        action()
        best = min(best, time.process_time() - began)
    return best / count * 1e6


def dict_lookup() -> float:
    table = {str(number): number for number in range(1_000)}
    keys = list(table) * 200

    def look() -> None:
        for key in keys:
            table[key]

    return cpu_per(look, len(keys))


def heartbeat() -> float:
    driver = Driver()
    ids = driver.stable("g", 1_000)
    requests = [Heartbeat(1, "g", member_id, None, 1) for member_id in ids] * 50
    handle = driver.shard.handle

    def beat() -> None:
        for request in requests:
            handle(request, 1_000)

    microseconds = cpu_per(beat, len(requests))
    (reply,) = handle(requests[0], 1_000)
    assert isinstance(reply, Reply) and reply.answer is ErrorCode.NONE
    return microseconds


def commit(partitions: int) -> float:
    """Through the shard and back from the log: record encoded, joined into an append, applied, answered."""
    driver = Driver()
    (member_id,) = driver.stable("g", 1)
    offsets = [CommitPartition("orders", number, 12_345, 3, "") for number in range(partitions)]
    rebalances = 20_000 // partitions

    def commit_all() -> None:
        for _ in range(rebalances):
            driver.send(OffsetCommit(1, "g", member_id, None, 1, offsets), 1_000)

    microseconds = cpu_per(commit_all, rebalances)
    assert driver.answers[1].errors == [ErrorCode.NONE] * partitions
    return microseconds


def rebalance_of(members: int) -> float:
    """Microseconds per member: everybody rejoins (the leader starts it), everybody syncs."""
    driver = Driver()
    ids = driver.stable("g", members)
    group = driver.group("g")
    leader = group.leader_id
    order = [str(leader), *(member_id for member_id in ids if member_id != leader)]

    def play() -> None:
        driver.join("g", order, 1_000)
        driver.sync("g", 1_000)

    generation = group.generation_id
    runs = 5 if members <= 10_000 else 3
    repeat = max(1, 1_000 // members)

    def play_many() -> None:
        for _ in range(repeat):
            play()

    microseconds = cpu_per(play_many, members * repeat, runs)
    assert group.generation_id == generation + runs * repeat
    return microseconds


def bytes_per_idle_member(members: int = 20_000) -> float:
    """Of members that have joined and synced, in groups of ten, with all their timers; requests are gone."""
    tracemalloc.start()
    driver = Driver()
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(members // 10):
        driver.stable(f"group-{number}", 10)
    driver.answers.clear()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (after - before) / members


def commit_hash() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[10, 1_000, 10_000, 100_000], help="members of a rebalance"
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    figures: dict[str, float] = {}

    def report(name: str, value: float, unit: str) -> None:
        figures[f"{name} [{unit}]"] = round(value, 3)
        print(f"{name:<44}{value:>12.2f} {unit}", flush=True)

    print(f"Python {platform.python_version()}, {platform.machine()}, commit {commit_hash()}")
    report("dict look-up", dict_lookup(), "us")
    report("heartbeat, 1 000 members", heartbeat(), "us")
    for partitions in (1, 10, 100):
        report(f"commit of {partitions} partitions", commit(partitions), "us")
    for size in options.sizes:
        report(f"rebalance of {size} members, per member", rebalance_of(size), "us")
    report("idle member", bytes_per_idle_member(), "bytes")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        about = {"commit": commit_hash(), "python": platform.python_version(), "machine": platform.machine()}
        options.json.write_text(json.dumps({**about, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
