"""How many simulated hours of a group of ten a minute of CPU buys, wire encoding and invariants on.

A steady group with Kafka's default session and heartbeat (45 s, 3 s) and auto-commit every 5 s, long polls of 30 s; a
record or a burst of ten every 10 s on average, every minute, and hardly ever, which leaves heartbeats and long polls.
And what a seed of mixed workloads with faults costs.
A busy machine makes a CPU second worth less: the load is printed beside.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path

from coterie.sim import Plan, simulate
from coterie.sim.consumer import Habits
from coterie.sim.steps import Come
from coterie.structs import replace

MEMBERS = 10
RECORDS = {"hardly ever": 10**9, "every minute": 60_000, "every 10 s": 10_000}


def steady(hours: float, every_ms: int = 10_000) -> Plan:
    plan = Plan.draw(0, "steady", hours=hours, members=MEMBERS, faults=0)
    habits = Habits(fetch_max_wait_ms=30_000, poll_ms=60_000)
    steps = tuple(replace(step, habits=habits) if isinstance(step, Come) else step for step in plan.steps)
    return replace(
        plan, steps=steps, every_ms=every_ms, topics={"t": 20}, delay_ms=0, jitter_ms=3, drift_ppm=0, disk_ms=2
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    simulate(steady(0.1))
    found: dict[str, float | str] = {}
    for often, every_ms in RECORDS.items():
        began = time.process_time()
        outcome = simulate(steady(given.hours, every_ms))
        spent = time.process_time() - began
        assert outcome.held, outcome.report()
        hours = round(given.hours / spent * 60, 1)
        found[f"simulated hours of a group of ten per CPU minute, records {often}"] = hours
    found["microseconds of CPU per event, records every 10 s"] = round(spent / outcome.account.events * 1e6, 1)
    began = time.process_time()
    for seed in range(given.seeds):
        assert simulate(Plan.draw(seed)).held, f"seed {seed}"
    a_seed = (time.process_time() - began) / given.seeds
    found |= {
        "CPU seconds per seed of mixed workloads": round(a_seed, 3),
        "processes that wanted a CPU, on average": round(os.getloadavg()[0], 1),
        "machine": f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
    }
    for name, value in found.items():
        print(f"{name}: {value}")
    if given.json:
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
