"""Attack a broker, one attack after the other, and show what each does to its memory and to a member that behaves.

    make soak                                                     a part of it
    PYTHONPATH=tests python tests/soak/adversary.py --seconds 5 --only flood
    PYTHONPATH=tests python tests/soak/adversary.py --floor       the floods against a server that does next to nothing

The attacks are the tables of `attacks.py`. Each runs in a process of its own. The member sends 200 heartbeats a second
with a session of ten seconds. With two CPUs or more the broker has one for itself, and the attackers share the others
with the member, which goes first. Latencies count from when a heartbeat was due; `work` is how long the broker's
process worked while one waited, p99.9: what else runs on the machine does not change it. The warm-up runs each attack
once, for a moment. The member must never be expired, and at the end the broker's memory must be within a tenth of what
it was after the warm-up: else the exit status is 1. Before memory is measured, the broker works off what an attack has
sent: its connections are closed then.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from broker.peer import Peer, Serving
from soak.attacks import ATTACKS, FLOODS, Attack, prepare
from soak.processes import open_sockets, rss_bytes
from soak.steady_member import SteadyMember

__all__ = [
    "MOST_GROWN",
    "SAMPLE_S",
    "SETTLES_S",
    "AdversaryOutcome",
    "Row",
    "adversary",
    "first",
    "lowest",
    "pin",
    "quantile",
    "set_priority",
    "settled",
]

SETTINGS = (
    "--set=group.initial.rebalance.delay.ms=0",
    "--set=offsets.topic.num.partitions=3",
    "--flush=os",
)
SAMPLE_S = 0.01
SETTLES_S = 60.0
"""How long memory may take to come back after an attack: what was sent before its end is answered first."""
STEADY_S = 2.0
"""Memory that has not fallen for so long is what the warm-up left."""
MOST_GROWN = 1.1
SLOWEST_S = 5.0
"""Half a session: with a longer wait the member is nearly expired."""
WARM_UP_S = 1.0
FIRST = -10
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(slots=True)
class Row:
    """What one attack did. Memory in bytes, times in seconds."""

    name: str
    before: int
    peak: int
    after: int
    beats: int
    p999_s: float
    slowest_s: float
    work_p999_s: float
    """Time for which the broker worked while a heartbeat waited."""
    problem: str | None

    def __str__(self) -> str:
        memory = "".join(f"{each / 2**20:7.0f}" for each in (self.before, self.peak, self.after))
        times = f"{self.beats:7d}" + "".join(
            f"{each * 1000:9.1f}" for each in (self.p999_s, self.slowest_s, self.work_p999_s)
        )
        return f"{self.name:44}{memory}{times}  {self.problem or 'no'}"


HEADER = f"{'attack':44}{'before':>7}{'peak':>7}{'after':>7}{'beats':>7}{'p99.9':>9}{'slowest':>9}{'work':>9}  expired"
UNITS = f"{'':44}{'MiB':>7}{'MiB':>7}{'MiB':>7}{'':7}{'ms':>9}{'ms':>9}{'ms':>9}"


@dataclass(slots=True)
class AdversaryOutcome:
    rows: list[Row]
    start: int
    """Memory after the warm-up."""
    end: int

    @property
    def problems(self) -> list[str]:
        found = [f"{row.name}: the member has ended: {row.problem}" for row in self.rows if row.problem]
        found += [
            f"{row.name}: the member waited {row.slowest_s:.1f} s; {SLOWEST_S:.0f} s is the limit"
            for row in self.rows
            if row.slowest_s > SLOWEST_S
        ]
        if self.end > self.start * MOST_GROWN:
            found.append(f"memory grew from {self.start >> 20} to {self.end >> 20} MiB; a tenth more is the limit")
        return found


def set_priority(nice: int) -> None:
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)


@contextmanager
def first() -> Iterator[None]:
    """Run the member before other processes, where that is allowed: else it measures what else the machine does."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    set_priority(FIRST)
    try:
        yield
    finally:
        set_priority(before)


def pin(pid: int, *, is_broker: bool) -> None:
    """Give the broker the first CPU, and everybody else the others: else a flood competes with it for its CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) > 1:
        os.sched_setaffinity(pid, cpus[:1] if is_broker else cpus[1:])


def _attack(attack: Attack, bootstrap: str, seconds: float) -> None:
    """The main function of an attacker's process."""
    set_priority(0)
    pin(0, is_broker=False)
    until = time.monotonic() + seconds
    with closing(attack(bootstrap)) as steps:  # type: ignore[type-var]
        for _ in steps:
            if time.monotonic() > until:
                break


def _measure(
    name: str,
    attack: Attack,
    bootstrap: str,
    pid: int,
    member: SteadyMember,
    seconds: float,
    settles_s: float = SETTLES_S,
) -> Row:
    before, open_before = rss_bytes(pid), open_sockets(pid)
    peak = before
    attacker = _SPAWN.Process(target=_attack, args=(attack, bootstrap, seconds), daemon=True)
    member.mark()
    attacker.start()
    while attacker.is_alive():
        peak = max(peak, rss_bytes(pid))
        attacker.join(SAMPLE_S)
    latencies, work = member.mark()
    problem = member.problem
    if attacker.exitcode:
        problem = f"the attacker failed (exit status {attacker.exitcode})"
    after = settled(pid, before, open_before, settles_s)
    return Row(
        *(name, before, peak, after, len(latencies)),
        *(quantile(latencies, 0.999), quantile(latencies, 1.0), quantile(work, 0.999)),
        problem,
    )


def quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else 0.0


def settled(pid: int, wanted: int, sockets: int, settles_s: float = SETTLES_S) -> int:
    """Wait until the attacker's connections are closed and memory is near what it was; return what it is then."""
    deadline = time.monotonic() + settles_s
    while time.monotonic() < deadline and (open_sockets(pid) > sockets or rss_bytes(pid) > wanted * MOST_GROWN):
        time.sleep(SAMPLE_S)
    return rss_bytes(pid)


def lowest(pid: int) -> int:
    """Wait until memory falls no more: what the warm-up still holds must not count as the start."""
    lowest, since = rss_bytes(pid), time.monotonic()
    while time.monotonic() - since < STEADY_S:
        time.sleep(SAMPLE_S)
        if rss_bytes(pid) < lowest:
            lowest, since = rss_bytes(pid), time.monotonic()
    return lowest


def adversary(
    warm_up: Mapping[str, Attack], attacks: Mapping[str, Attack], seconds: float, data: Path, log: Path
) -> AdversaryOutcome:
    """Run each attack for so many seconds; the outcome tells what is wrong."""
    with Serving(data, *SETTINGS, log=log) as broker, first():
        bootstrap, pid = broker.ready(), broker.process.pid
        for thread in Path(f"/proc/{pid}/task").iterdir():
            pin(int(thread.name), is_broker=True)
        prepare(bootstrap)
        member = SteadyMember(Peer(bootstrap, timeout_s=60), pid)
        member.start()
        for name, attack in warm_up.items():
            _measure(name, attack, bootstrap, pid, member, min(seconds, WARM_UP_S), settles_s=0)
        start = lowest(pid)
        rows = []
        print(HEADER, UNITS, sep="\n", flush=True)
        for name, attack in attacks.items():
            rows.append(_measure(name, attack, bootstrap, pid, member, seconds))
            print(rows[-1], flush=True)
        end = settled(pid, start, open_sockets(pid))
        member.end()
        broker.signal()
        status, _ = broker.ended()
    said = log.read_text()
    assert status == 0 and "Traceback" not in said and "Mistake" not in said, said[-4_000:]
    return AdversaryOutcome(rows, start, end)


@contextmanager
def _bare() -> Iterator[tuple[str, int]]:
    """Start the server of `bench/bare.py`; yield its address and pid."""
    path = Path(__file__).parents[2] / "bench" / "bare.py"
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1], process.pid
        finally:
            process.kill()


def floor(attacks: Mapping[str, Attack], seconds: float) -> None:
    """What the floods do to a server that does next to nothing: they compete with it for the machine."""
    print(HEADER, UNITS, sep="\n", flush=True)
    with _bare() as (bootstrap, pid), first():
        member = SteadyMember(Peer(bootstrap, timeout_s=60), pid, joins=False)
        member.start()
        for name, attack in attacks.items():
            print(_measure(name, attack, bootstrap, pid, member, seconds), flush=True)
        member.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each attack")
    parser.add_argument("--only", default="", help="attacks whose names contain this")
    parser.add_argument("--floor", action="store_true", help="run the floods against a bare server instead")
    options = parser.parse_args()
    if options.floor:
        floor({name: each for name, each in FLOODS.items() if options.only in name}, options.seconds)
        return
    attacks = {name: each for name, each in {**ATTACKS, **FLOODS}.items() if options.only in name}
    with TemporaryDirectory() as directory:
        outcome = adversary(
            {**ATTACKS, **attacks}, attacks, options.seconds, Path(directory, "data"), Path(directory, "log")
        )
    print(f"memory: {outcome.start / 2**20:.0f} MiB at the start, {outcome.end / 2**20:.0f} MiB at the end")
    for problem in outcome.problems:
        print(problem)
    sys.exit(bool(outcome.problems))


if __name__ == "__main__":
    main()
