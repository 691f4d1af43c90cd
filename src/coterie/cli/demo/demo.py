"""`coterie demo`: run the steps, then print what each rebalance cost and whether every guarantee held."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from coterie.cli.demo.demo_steps import DemoGroup, DemoRun, steps
from coterie.cli.pipeline import read_table
from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.facts import (
    AssignmentStored,
    Fact,
    MemberExpired,
    MemberJoined,
    MemberMissedJoin,
    MemberMissedSync,
    OffsetsStored,
)
from coterie.java import why_no_java
from coterie.ledger import Rebalance, RebalanceOutcome
from coterie.protocol.subscription import read_assignment
from coterie.web.picture import MemberNames
from coterie.web.report import Section, report

Place = tuple[int, int]
"""A partition and an offset."""


@dataclass(frozen=True)
class Guarantee:
    text: str
    held: bool
    found: str


def check(
    ends: Mapping[int, int],
    done: Mapping[str, Sequence[Place]],
    crashed: Iterable[str],
    facts: Sequence[Fact],
    static_rebalances: int | None,
    static_expired: int = 0,
) -> list[Guarantee]:
    """Return all guarantees, and whether each held.

    `ends` has the number of records of each partition, and `done` what each process has processed. `crashed` are the
    processes that were killed or removed from the group in the middle of a batch. `static_expired` is the number of
    sessions that expired while static members were restarted; each of them costs a rebalance.
    """
    guarantees = [
        _nothing_lost(ends, done),
        _done_twice(done, set(crashed)),
        _one_owner(facts),
        _never_backwards(facts),
    ]
    if static_rebalances is not None:
        found = f"{static_rebalances} rebalances while the static members were restarted"
        if static_expired:
            found += f"; {static_expired} sessions timed out before the restart was done: the machine was busy"
        held = static_rebalances == 0 or static_expired > 0
        guarantees.append(Guarantee("a restart of static members causes no rebalance", held, found))
    return guarantees


def _nothing_lost(ends: Mapping[int, int], done: Mapping[str, Sequence[Place]]) -> Guarantee:
    seen = {one for records in done.values() for one in records}
    missing = [(partition, at) for partition, end in ends.items() for at in range(end) if (partition, at) not in seen]
    found = f"{sum(ends.values())} produced, {len(missing)} missing"
    if missing:
        found += f", the first of them partition {missing[0][0]} offset {missing[0][1]}"
    return Guarantee("every order is processed", not missing, found)


def _done_twice(done: Mapping[str, Sequence[Place]], crashed: set[str]) -> Guarantee:
    """A record may be processed twice only if a crashed member was one of the two."""
    times = Counter(one for records in done.values() for one in records)
    twice = {place for place, count in times.items() if count > 1}
    excused = {place for name in crashed for place in done.get(name, ()) if place in twice}
    return Guarantee(
        "no order is processed twice, except those in progress when a member was killed or too slow",
        not twice - excused,
        f"{len(excused)} twice for that reason, {len(twice - excused)} for another",
    )


def _one_owner(facts: Sequence[Fact]) -> Guarantee:
    assignments = [fact for fact in facts if isinstance(fact, AssignmentStored)]
    shared = 0
    for fact in assignments:
        owners = Counter(
            (topic, number)
            for data in fact.assignments.values()
            if data
            for topic, numbers in read_assignment(data).partitions.items()
            for number in numbers
        )
        shared += sum(count > 1 for count in owners.values())
    found = f"{len(assignments)} assignments, {shared} partitions with two owners"
    return Guarantee("a partition has at most one owner in a generation", not shared, found)


def _never_backwards(facts: Sequence[Fact]) -> Guarantee:
    last: dict[tuple[str, str, int], int] = {}
    commits = back = 0
    for fact in facts:
        if isinstance(fact, OffsetsStored):
            for topic, partition, offset in fact.offsets:
                commits += 1
                back += offset < last.get((fact.group_id, topic, partition), 0)
                last[fact.group_id, topic, partition] = offset
    return Guarantee("committed offsets never move backwards", not back, f"{commits} commits, {back} moved backwards")


def removed_clients(facts: Sequence[Fact]) -> set[str]:
    """Return the client ids of members that timed out or were too late for a rebalance."""
    clients = {fact.member_id: fact.client_id for fact in facts if isinstance(fact, MemberJoined)}
    kinds = (MemberExpired, MemberMissedJoin, MemberMissedSync)
    return {clients.get(fact.member_id, "") for fact in facts if isinstance(fact, kinds)}


RATE = 200
"""Orders per second."""


def demo(*, seconds: float, members: int, partitions: int, with_spark: bool, keep: bool, out: Path | None) -> None:
    """Run the demo. The exit status is 1 if a guarantee is broken or a step did not finish."""
    signal.signal(signal.SIGTERM, _interrupted)
    home = Path(tempfile.mkdtemp(prefix="coterie-demo-")) if out is None else out
    if home.exists() and any(home.iterdir()):
        raise CoterieError(f"{home} is not empty: name a new directory with --out")
    why_not = _why_no_spark() if with_spark else "it was turned off (--no-spark)"
    if why_not:
        typer.echo(f"Running without Spark: {why_not}\n")
    try:
        guarantees = _run(home, seconds, members, partitions, has_spark=not why_not, keep=keep)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted: all processes were stopped")
        raise typer.Exit(130) from None
    finally:
        if out is None and not keep and not (home / "report.html").exists():
            shutil.rmtree(home, ignore_errors=True)
    if not all(guarantee.held for guarantee in guarantees):
        raise typer.Exit(1)


def _run(home: Path, seconds: float, members: int, partitions: int, *, has_spark: bool, keep: bool) -> list[Guarantee]:
    show = DemoOutput()
    with DemoGroup(home, partitions, RATE) as group:
        show.step(f"A broker runs at {group.bootstrap}, data in {home / 'broker'}")
        demo_run = DemoRun(group, members, partitions, has_spark)
        plan = list(steps(demo_run))
        for step in plan:
            show.step((step.__doc__ or step.__name__).splitlines()[0])
            step(demo_run)
            show.rebalances(group.rebalances, group.facts)
            time.sleep(seconds / (len(plan) * 4))  # so that a user can watch, and orders arrive
        if keep:
            _wait_for_interrupt(group, demo_run)
        show.step("No more orders: the rest is processed, and all members leave")
        ends = group.end_stream()
        group.wait_until_all_is_committed(ends)
        group.end(*demo_run.present)
        show.rebalances(group.rebalances, group.facts)
        crashed = _processes(group, demo_run.crashed)
        guarantees = check(
            ends, group.done(), crashed, group.facts, demo_run.static_rebalances, demo_run.static_expired
        )
        tables = _tables(group, show) if has_spark else []
        summary(group.rebalances, group.facts, guarantees)
        for section in tables:
            typer.echo(f"\n  {section.title}: {section.note}")
        page = home / "report.html"
        page.write_text(_report(group, guarantees, tables))
        typer.echo(f"\n  report with a picture of who owned which partition when: {page}")
    return guarantees


def _processes(group: DemoGroup, crashed: list[str]) -> list[str]:
    """Return the processes that were killed or too slow, and those that a busy machine made lose their membership."""
    names = {*crashed, *removed_clients(group.facts)}
    return [process for process in group.done() if process.partition(".")[0] in names]


def _tables(group: DemoGroup, show: DemoOutput) -> list[Section]:
    """Export the group log to Parquet with the Spark pipeline, and return a section for the report."""
    show.step("A Spark pipeline turns the group log into tables")
    out = group.home / "tables"
    command = [sys.executable, "-m", "coterie", "pipeline", "groups"]
    with (group.home / "logs" / "pipeline.log").open("wb") as log:
        code = subprocess.run(  # noqa: S603  the coterie command
            [*command, "--bootstrap", group.bootstrap, "--out", str(out), "--once"], stdout=log, stderr=log, check=False
        ).returncode
    if code:
        raise CoterieError(f"the pipeline ended with {code}: see {group.home / 'logs' / 'pipeline.log'}")
    counts = {
        name: len(read_table(name, out).rows) for name in ("commits", "generations", "ownership", "rebalances", "lag")
    }
    health = read_table("health", out)
    sizes = ", ".join(f"{count} {name}" for name, count in counts.items())
    rows = [list(health.columns), *([str(cell) for cell in row] for row in health.rows)]
    return [Section("Tables", rows, f"{sizes}; this is the health table. All tables are Parquet files in {out}.")]


def _report(group: DemoGroup, guarantees: list[Guarantee], tables: list[Section]) -> str:
    rows = [["guarantee", "", "result"]]
    rows += [[one.text, "held" if one.held else "broken", one.found] for one in guarantees]
    note = "Written by coterie demo from the events its broker recorded."
    return report("Rebalances of the demo", group.facts, note=note, sections=[Section("Guarantees", rows), *tables])


def _wait_for_interrupt(group: DemoGroup, demo_run: DemoRun) -> None:
    typer.echo(
        f"\n  still running: {', '.join(demo_run.present)} in group shop, on {group.bootstrap}\n"
        f"  look at it: coterie groups describe shop -b {group.bootstrap}\n"
        "  Ctrl-C ends it and prints the summary\n"
    )
    try:
        while True:
            time.sleep(1)
            group.wait(lambda: True, "nothing")  # raises if a member has exited
    except KeyboardInterrupt:
        typer.echo("")


def _why_no_spark() -> str:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return f"pyspark is not installed ({how_to_install('spark')})"
    no_java = why_no_java("Spark", 17)
    return f"{no_java} (on Debian: apt install default-jre-headless)" if no_java else ""


def _interrupted(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


# --- output -----------------------------------------------------------------------------------------------------------


class DemoOutput:
    def __init__(self) -> None:
        self._began_s = time.monotonic()  # noqa: TID251  this is the real world
        self._printed = 0

    def step(self, text: str) -> None:
        seconds = time.monotonic() - self._began_s  # noqa: TID251
        typer.secho(f"{seconds:6.1f} s  {text}", bold=True)

    def rebalances(self, rebalances: Sequence[Rebalance], facts: Sequence[Fact]) -> None:
        """Print the rebalances that have ended since the last call."""
        names = MemberNames(facts)
        while self._printed < len(rebalances) and rebalances[self._printed].outcome is not RebalanceOutcome.RUNNING:
            typer.echo(f"            {_sentence(rebalances[self._printed], names)}")
            self._printed += 1


def _sentence(one: Rebalance, names: MemberNames) -> str:
    why = f": {one.shown_reason}" if one.shown_reason else ""
    who = f" ({names.of(one.culprit)}{why})" if one.culprit else ""
    took = f"{(one.took_ms or 0) / 1_000:.2f} s"
    generation = f"generation {one.generation_id}" if one.generation_id is not None else "no generation"
    return (
        f"rebalance: {one.cause}{who}, {generation}, {took}, {len(one.moves)} moved, {one.kept} kept, "
        f"{(one.unassigned_ms or 0) / 1_000:.2f} unassigned partition-seconds"
    )


def summary(rebalances: Sequence[Rebalance], facts: Sequence[Fact], guarantees: Sequence[Guarantee]) -> None:
    """Print every rebalance on a line, the sums, and the guarantees."""
    names = MemberNames(facts)
    head = ("", "cause", "member", "seconds", "moved", "kept", "unassigned")
    rows = [
        (
            str(number),
            str(one.cause),
            names.of(one.culprit) if one.culprit else "",
            f"{(one.took_ms or 0) / 1_000:.2f}",
            str(len(one.moves)),
            str(one.kept),
            f"{(one.unassigned_ms or 0) / 1_000:.2f}",
        )
        for number, one in enumerate(rebalances, 1)
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    typer.echo("")
    for row in (head, *rows):
        typer.echo("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    unassigned = sum(one.unassigned_ms or 0 for one in rebalances) / 1_000
    typer.echo(f"\n  {len(rebalances)} rebalances, {unassigned:.2f} unassigned partition-seconds in total\n")
    for guarantee in guarantees:
        mark = typer.style("held  ", fg="green") if guarantee.held else typer.style("BROKEN", fg="red", bold=True)
        typer.echo(f"  {mark}  {guarantee.text}: {guarantee.found}")
