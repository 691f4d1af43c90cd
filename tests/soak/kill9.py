"""`kill -9` under load, again and again: what was acknowledged is there afterwards, whole, once.

    make soak                                              300 kills
    PYTHONPATH=tests python tests/soak/kill9.py --kills 20 --seed 7

The page cache outlives a killed process, so this finds what a process loses, not what a power cut loses; for that there
is tests/broker/test_crash.py.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event, Thread

from broker.peer import Peer, Serving
from soak.workers import IdempotentProducer, Member, PlainProducer, SimpleCommitter, Worker

__all__ = ["Outcome", "kill_again_and_again"]

PARTITIONS = 3
NODES = (1, 3)
"""Every other life has three: then leaders are elsewhere than in the life before."""
TELLS_EVERY = 10
SETTINGS = [
    "--set=group.initial.rebalance.delay.ms=0",
    "--set=offsets.topic.num.partitions=3",
    "--set=log.segment.bytes=1048576",
    "--set=offsets.topic.segment.bytes=1048576",
    "--set=log.cleaner.backoff.ms=20",  # whenever it dies, something is being compacted
    "--set=coterie.offsets.roll.bytes=1000",
]


@dataclass(slots=True)
class Outcome:
    kills: int = 0
    acknowledged: int = 0
    idle_lives: int = 0
    """Lives in which some worker was not told anything: the load was too short to say much."""
    start_s: list[float] = field(default_factory=list)


def make_workers(seed: int) -> list[Worker]:
    return [
        *(PlainProducer(f"plain-{number}", seed, "plain", number) for number in range(2)),
        *(IdempotentProducer(f"idempotent-{number}", seed, "idempotent", number) for number in range(2)),
        *(SimpleCommitter(f"simple-{number}", seed, "plain", PARTITIONS) for number in range(2)),
        *(Member(f"member-{number}", seed, "plain") for number in range(2)),
    ]


def kill_again_and_again(
    data: Path,
    kills: int,
    seed: int,
    log: Path,
    flush: str = "sync",
    nodes: Sequence[int] = NODES,
    *,
    tells: bool = False,
) -> Outcome:
    """Raises `AssertionError` at the first thing that is not as it was acknowledged.

    `nodes`: how many, in one life after another; `tells`: how far it is.
    """
    rng = Random(seed)
    workers = make_workers(seed)
    outcome = Outcome()
    for life in range(kills + 1):
        began = time.perf_counter()
        count = str(nodes[life % len(nodes)])
        with Serving(data, *SETTINGS, "--flush", flush, "--nodes", count, log=log) as broker:
            bootstrap, *_ = broker.ready().split(",")
            outcome.start_s.append(time.perf_counter() - began)
            if life == 0:
                with Peer(bootstrap) as peer:
                    peer.find_coordinator()
                    peer.create("plain", PARTITIONS)
                    peer.create("idempotent", PARTITIONS)
            for worker in workers:
                worker.check_at(bootstrap)
            if life < kills:
                _live(broker, bootstrap, workers, rng.uniform(0.05, 0.5), outcome)
                if tells and outcome.kills % TELLS_EVERY == 0:
                    print(f"{outcome.kills} of {kills} kills, {outcome.acknowledged} acknowledged", flush=True)
            else:
                _read_all_again(bootstrap, workers)
                broker.signal()
                status, _ = broker.ended()
                assert status == 0, f"the last stop ended with {status}"
    assert (data / "cleaner-offset-checkpoint").exists(), "nothing was compacted"
    said = log.read_text()
    assert "Traceback" not in said and "Mistake" not in said, said[-2_000:]
    return outcome


def _live(broker: Serving, bootstrap: str, workers: list[Worker], seconds: float, outcome: Outcome) -> None:
    """Load for so long, then kill the broker in the middle of it."""
    before = [worker.acknowledged for worker in workers]
    stop, problems = Event(), []

    def run(worker: Worker) -> None:
        try:
            worker.run(bootstrap, stop)
        except BaseException as problem:  # noqa: BLE001  raised again where it is seen
            problems.append(problem)

    threads = [Thread(target=run, args=(worker,), name=worker.name) for worker in workers]
    for thread in threads:
        thread.start()
    stop.wait(seconds)
    broker.kill()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    told = [worker.acknowledged - was for worker, was in zip(workers, before, strict=True)]
    outcome.kills += 1
    outcome.acknowledged += sum(told)
    outcome.idle_lives += not all(told)


def _read_all_again(bootstrap: str, workers: list[Worker]) -> None:
    """Once more from the start, also what earlier lives had been asked for."""
    for worker in workers:
        if isinstance(worker, PlainProducer):
            before, worker.seen = worker.seen, {}
            worker.told = dict(before)
            worker.check_at(bootstrap)
            assert worker.seen == before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--flush", choices=["sync", "os"], default="sync")
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES, help="of one life after another: 1 3")
    options = parser.parse_args()
    print(f"seed {options.seed}, {options.kills} kills", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        data, log = Path(directory, "data"), Path(directory, "log")
        outcome = kill_again_and_again(data, options.kills, options.seed, log, options.flush, options.nodes, tells=True)
        size = sum(file.stat().st_size for file in data.rglob("*") if file.is_file())
    slowest = max(outcome.start_s)
    print(f"{outcome.kills} kills, {outcome.acknowledged} acknowledged and found again, {size / 2**20:.1f} MiB;")
    print(f"{outcome.idle_lives} lives too short for some worker; slowest start {slowest:.2f} s")


if __name__ == "__main__":
    main()
