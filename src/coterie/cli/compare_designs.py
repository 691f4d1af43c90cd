"""`coterie compare-designs`: run one scenario on four designs of consumer groups and compare the cost.

The tables come from simulated runs. `--real` repeats the counts on a real ZooKeeper and with processes, and `--out`
writes pictures.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

import typer

from coterie.cli.output import Cell, Rows, show
from coterie.cli.sim import parse_numbers
from coterie.errors import CoterieError
from coterie.history.compare import HEARTBEAT_MS, fault_totals, runs_with_faults, runs_without_faults, split_brain
from coterie.history.design_costs import ChangeCost, Design, DesignRun, OwnersInterval

if TYPE_CHECKING:
    from coterie.history.measure import HerdCost, ProcessRun

MIN_MEMBERS, MAX_MEMBERS = 2, 200
PROGRESS_S = 1.0
T = TypeVar("T")

COLUMNS = (
    "CHANGE",
    "MEMBERS",
    "DESIGN",
    "NOTIFIED",
    "READS",
    "MESSAGES",
    "RESTARTED",
    "ALL READ AFTER (s)",
    "TWO OWNERS",
    "NO OWNER",
    "UNASSIGNED (partition-s)",
)
FAULT_COLUMNS = (
    "DESIGN",
    "SEEDS",
    "WITH TWO OWNERS",
    "TWO OWNERS",
    "TWO OWNERS (partition-s)",
    "TWO BELIEVE TO OWN (partition-s)",
    "UNASSIGNED (partition-s)",
    "OFFSETS MOVED BACK",
    "STABLE AT THE END",
)


HEARTBEAT_S = HEARTBEAT_MS // 1_000
WHEN_ONE_JOINS = f"""\
Why partitions are unassigned when one joins: members learn of it with their next heartbeat, one every {HEARTBEAT_S} s.
  3 eager        every member stops reading at its own heartbeat, and goes on after the heartbeat of the last one
  3 cooperative  the partitions that move stop for a whole interval: the first rebalance revokes them, and members
                 that had nothing to revoke learn with their next heartbeat that a second one has begun
  4 KIP-848      a partition that moves stops at a heartbeat of its old owner, until the next one of its new owner
So the first grows with all partitions, the others with those that move. Heartbeats are at other times with another
--seed."""


MAX_SESSIONS = 40
"""Larger groups are not run on a real ZooKeeper: each session has threads of its own."""
OLD = (Design.WATCHERS, Design.SERVER)
HERD_COLUMNS = (
    "CHANGE",
    "MEMBERS",
    "DESIGN",
    "NOTIFIED",
    "BY THE SERVER'S COUNT",
    "SIMULATED NOTIFIED",
    "READS",
    "SIMULATED READS",
    "MEMBERSHIP READS PER ATTEMPT",
    "SIMULATED MEMBERSHIP READS",
)
PROCESS_COLUMNS = (
    "DESIGN",
    "RECORDS",
    "LOST",
    "TWICE",
    "ONE JOINED (s)",
    "ONE WAS KILLED (s)",
    "NEW STRATEGY (s)",
    "BY A RESTART OF",
    "STILL RUNNING",
)


def compare_designs(members: str, partitions: int, seed: int, seeds: str, *, real: bool, out: Path | None) -> None:
    sizes, numbers = _sizes(members), parse_numbers(seeds)
    if real:
        _need_zookeeper()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    without_faults = _simulated(sizes, partitions, seed, numbers, out)
    if real:
        _compare_real(without_faults)


def _need_zookeeper() -> None:
    """Raise if `--real` cannot run."""
    from coterie.history.zookeeper_server import why_no_zookeeper

    reason = why_no_zookeeper()
    if reason is not None:
        raise CoterieError(f"--real is not available: {reason}")


def _sizes(members: str) -> list[int]:
    words = members.split(",")
    sizes = sorted({int(word) for word in words if word.strip().isdigit()})
    if len(sizes) < len(words) or sizes[0] < MIN_MEMBERS or sizes[-1] > MAX_MEMBERS:
        rule = f"group sizes must be different numbers from {MIN_MEMBERS} to {MAX_MEMBERS}, for example 3,10,30"
        raise CoterieError(f"--members {members}: {rule}")
    return sizes


def _simulated(
    sizes: Sequence[int], partitions: int, seed: int, seeds: Sequence[int], out: Path | None
) -> list[DesignRun]:
    groups = f"groups of {', '.join(map(str, sizes))}" if len(sizes) > 1 else f"a group of {sizes[0]}"
    typer.echo(f"one scenario with {groups} on {len(Design)} designs, then with the faults of {len(seeds)} seeds")
    without_faults = list(
        _progress(runs_without_faults(sizes, partitions, seed), len(sizes) * len(Design), "runs without faults")
    )
    _print_rows(f"seed {seed}, {partitions} partitions, no faults:", _by_change(without_faults))
    typer.echo(f"\n{WHEN_ONE_JOINS}")
    runs = (one for number in seeds for one in runs_with_faults(number, sizes[0], partitions))
    with_faults = list(_progress(runs, len(seeds) * len(Design), "runs with faults"))
    title = f"the same scenario with faults, {len(seeds)} seeds, {sizes[0]} members, {partitions} partitions:"
    _print_rows(title, _by_design(with_faults))
    found = split_brain(with_faults)
    if found is None:
        typer.echo("\nno partition had two owners; try more seeds")
    else:
        _print_split_brain(*found)
    if out is not None:
        _draw(
            without_faults,
            [] if found is None else [one for one in with_faults if one.scenario.seed == found[0].scenario.seed],
            out,
        )
    return without_faults


def _print_rows(title: str, rows: Rows) -> None:
    typer.echo(f"\n{title}")
    show(rows, "table")


def _progress(items: Iterable[T], of: int, what: str) -> Iterator[T]:
    said = time.monotonic()  # noqa: TID251  how long the user has waited
    for done, item in enumerate(items, 1):
        now = time.monotonic()  # noqa: TID251
        if now - said > PROGRESS_S and done < of:
            said = now
            typer.echo(f"{done} of {of} {what}", err=True)
        yield item


# --- tables -----------------------------------------------------------------------------------------------------------


def _by_change(runs: Sequence[DesignRun]) -> Rows:
    names = list(dict.fromkeys(period.name for one in runs for period in one.scenario.periods))
    rows = [row for name in names for one in runs for row in _rows_of(one, name)]
    return Rows(COLUMNS, rows)


def _rows_of(run: DesignRun, name: str) -> Iterator[Sequence[Cell]]:
    for period in run.scenario.periods:
        if period.name == name:
            cost = run.cost(period)
            yield (
                name,
                run.scenario.members,
                run.design,
                cost.notified,
                cost.reads,
                cost.messages,
                cost.restarts,
                "never" if cost.stable_after_ms is None else _s(cost.stable_after_ms),
                cost.two_owners.count,
                cost.unassigned.count,
                _s(cost.unassigned.ms),
            )


def _by_design(runs: Sequence[DesignRun]) -> Rows:
    rows = [
        (
            one.design,
            one.seeds,
            one.split,
            one.two_owners.count,
            _s(one.two_owners.ms),
            _s(one.believed.ms),
            _s(one.unassigned.ms),
            one.went_back,
            one.is_stable_at_end,
        )
        for one in fault_totals(runs)
    ]
    return Rows(FAULT_COLUMNS, rows)


def _s(ms: int) -> str:
    return f"{ms / 1_000:.1f}"


def _print_split_brain(run: DesignRun, two: OwnersInterval) -> None:
    scenario = run.scenario
    topic, number = two.partition
    said = f"{' and '.join(two.owners)} owned {topic}-{number} from {_s(two.began_ms)} s to {_s(two.ended_ms)} s"
    typer.echo(f"\nsplit brain: under design {run.design}, seed {scenario.seed}, {said}. The faults:")
    for fault in scenario.faults:
        typer.echo(f"  {fault}")
    again = f"--members {scenario.members} --partitions {scenario.partitions} --seeds {scenario.seed}"
    typer.echo(f"run it again: coterie compare-designs {again}")


# --- real processes ---------------------------------------------------------------------------------------------------


def _compare_real(without_faults: Sequence[DesignRun]) -> None:
    """Print what real ZooKeeper sessions and real processes cost next to what the simulated ones did."""
    from coterie.history.measure import measure_herd, run_processes
    from coterie.history.zookeeper_server import ZooKeeper

    sizes = sorted({one.scenario.members for one in without_faults if one.scenario.members <= MAX_SESSIONS})
    partitions = without_faults[0].scenario.partitions
    with TemporaryDirectory() as folder:
        home = Path(folder)
        with ZooKeeper(home / "zookeeper") as zookeeper:
            groups = ((design, size) for size in sizes for design in OLD)
            herds = (measure_herd(zookeeper, design, size, partitions) for design, size in groups)
            counted = [one for found in _progress(herds, len(sizes) * 2, "groups counted") for one in found]
            rows = [_herd_row(one, without_faults) for one in sorted(counted, key=lambda one: one.change)]
            _print_rows("counted on a real ZooKeeper, next to the simulator:", Rows(HERD_COLUMNS, rows))
            runs = (run_processes(design, home / f"design-{at}", zookeeper) for at, design in enumerate(Design))
            processes = [_process_row(one) for one in _progress(runs, len(Design), "designs as processes")]
        title = "processes: one joined, one was killed, one stopped for longer than its session, then a new strategy:"
        _print_rows(title, Rows(PROCESS_COLUMNS, processes))


def _herd_row(one: HerdCost, without_faults: Sequence[DesignRun]) -> Sequence[Cell]:
    (cost,) = _simulated_costs(one, without_faults)
    return (
        one.change,
        one.members,
        one.design,
        one.notified,
        one.notified_by_server,
        cost.notified,
        one.reads,
        cost.reads,
        one.membership_reads // one.attempts if one.attempts else None,
        cost.membership_reads // cost.attempts if cost.attempts else None,
    )


def _simulated_costs(one: HerdCost, without_faults: Sequence[DesignRun]) -> Iterator[ChangeCost]:
    for run in without_faults:
        if run.design is one.design and run.scenario.members == one.members:
            yield from (run.cost(period) for period in run.scenario.periods if period.name == one.change)


def _process_row(one: ProcessRun) -> Sequence[Cell]:
    return (
        one.design,
        one.records,
        one.lost,
        one.twice,
        f"{one.join_s:.1f}",
        f"{one.death_s:.1f}",
        None if one.strategy_s is None else f"{one.strategy_s:.1f}",
        one.restarted or None,
        one.untouched or None,
    )


# --- pictures ---------------------------------------------------------------------------------------------------------


def _draw(without_faults: Sequence[DesignRun], split: Sequence[DesignRun], out: Path) -> None:
    from coterie.web.designs import growth, owners

    smallest = [one for one in without_faults if one.scenario.members == without_faults[0].scenario.members]
    pictures = {"growth.svg": growth(without_faults), "owners.svg": owners(smallest)}
    if split:
        pictures["split-brain.svg"] = owners(split)
    for name, picture in pictures.items():
        (out / name).write_text(picture + "\n")
        typer.echo(f"{out / name}", err=True)
