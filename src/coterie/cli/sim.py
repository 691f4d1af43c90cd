"""`coterie sim`: run simulations from seeds, in one process or several, and report failures."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from html import escape
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import typer

from coterie.errors import CoterieError
from coterie.sim.plan import Plan
from coterie.sim.run import Account, Outcome, shrink, simulate
from coterie.sim.summary import SummaryObserver
from coterie.sim.world import Observer, World
from coterie.structs import replace

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

PROGRESS_S = 5
_PAGE_BEGINS_MS = 946_688_400_000
"""The time at which a page begins: 1 January 2000, 01:00 UTC."""


def parse_numbers(text: str) -> list[int]:
    """Parse a list of numbers: `7`, `0-99` or `1,4,10-12`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise CoterieError(f"{text!r} is not a list of numbers: give 7, 0-99 or 1,4,10-12")
        found += range(int(first), int(last or first) + 1)
    return found


def sim(
    seeds: str,
    *,
    workload: str | None,
    hours: float | None,
    members: int | None,
    faults: int | None,
    nodes: int | None,
    drop: str | None,
    story: bool,
    full_grid: bool,
    page: Path | None,
    jobs: int,
    shrinks: bool,
) -> None:
    numbers = parse_numbers(seeds)
    if page is not None and len(numbers) != 1:
        raise CoterieError(f"--page shows one run, and --seeds has {len(numbers)} seeds: give --seed")
    draw = partial(
        Plan.draw,
        workload=workload,
        hours=hours,
        members=members,
        faults=faults,
        nodes=nodes,
        drop=parse_numbers(drop) if drop else (),
    )
    if len(numbers) == 1 and not story:
        for line in (*draw(numbers[0]).lines(), *draw(numbers[0]).script()):
            typer.echo(line)
    tally = _Tally(len(numbers))
    is_interrupted = False
    try:
        with _interrupts() as raise_if_interrupted:
            for outcome in _outcomes(draw, numbers, jobs, story=story or page is not None, full_grid=full_grid):
                tally.add(outcome)
                if story:
                    for line in outcome.summary:
                        typer.echo(line)
                if page is not None:
                    page.write_text(_page(outcome))
                    typer.echo(f"{page}", err=True)
                if full_grid:
                    typer.echo(outcome.story)
                if len(numbers) == 1:
                    typer.echo(f"fingerprint {outcome.fingerprint}")
                raise_if_interrupted()
    except KeyboardInterrupt:
        is_interrupted = True
    tally.say(is_interrupted=is_interrupted)
    if tally.failed is not None:
        _report(tally.failed, shrinks=shrinks and not is_interrupted)
    if is_interrupted or tally.failed is not None:
        raise typer.Exit(130 if is_interrupted else 1)


@contextmanager
def _interrupts() -> Iterator[Callable[[], None]]:
    """Remember Ctrl-C, and yield a function that raises it again.

    Python ignores a KeyboardInterrupt in the callback of a weak reference, and a simulation runs many of those. Then it
    takes effect when the seed ends.
    """
    is_interrupted = False
    report = sys.unraisablehook

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_interrupted
        is_interrupted = True
        raise KeyboardInterrupt

    def raise_if_interrupted() -> None:
        if is_interrupted:
            raise KeyboardInterrupt

    def report_others(ignored: UnraisableHookArgs) -> None:
        if ignored.exc_type is not KeyboardInterrupt:
            report(ignored)

    before = signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = report_others
    try:
        yield raise_if_interrupted
    finally:
        sys.unraisablehook = report
        signal.signal(signal.SIGINT, before)


class _Tally:
    """Counts the outcomes so far, and prints them now and then."""

    def __init__(self, wanted: int) -> None:
        self.failed: Outcome | None = None
        """The first failure."""
        self._wanted = wanted
        self._failures = 0
        self._account = Account()
        self._began = self._said = time.perf_counter()  # noqa: TID251  not part of the simulation
        self._cpu_s = sum(os.times()[:4])

    def add(self, outcome: Outcome) -> None:
        self._account.add(outcome.account)
        if not outcome.held:
            self._failures += 1
            self.failed = self.failed or outcome
            typer.echo(
                f"seed {outcome.plan.seed} ({outcome.plan.workload}): {outcome.broken}: {outcome.what}", err=True
            )
        now = time.perf_counter()  # noqa: TID251
        if now - self._said > PROGRESS_S:
            self._said = now
            done, took_s = self._account.runs, now - self._began
            typer.echo(f"{done} of {self._wanted} seeds, {self._failures} failed, {took_s:.0f} s", err=True)

    def say(self, *, is_interrupted: bool) -> None:
        for line in self._account.lines():
            typer.echo(line)
        done = f"interrupted after {self._account.runs} of {self._wanted}" if is_interrupted else f"{self._wanted}"
        wall_s = time.perf_counter() - self._began  # noqa: TID251
        cpu_s = sum(os.times()[:4]) - self._cpu_s
        typer.echo(f"{done} seeds, {self._failures} failed, {wall_s:.1f} s, {cpu_s:.1f} s of CPU")


def _outcomes(draw: partial[Plan], numbers: list[int], jobs: int, *, story: bool, full_grid: bool) -> Iterator[Outcome]:
    run = partial(_run, draw, story=story, full_grid=full_grid)
    if jobs == 1 or len(numbers) == 1:
        yield from map(run, numbers)
        return
    pool = ProcessPoolExecutor(jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
    try:
        yield from pool.map(run, numbers)
    finally:  # after Ctrl-C only the seeds that are running are finished
        pool.shutdown(cancel_futures=True)


def _run(draw: partial[Plan], seed: int, *, story: bool, full_grid: bool) -> Outcome:
    outcome = _with_summary(draw(seed)) if story else simulate(draw(seed))
    if outcome.held and not full_grid:
        outcome.steps = ()  # it would travel between processes for nothing
    return outcome


def _with_summary(plan: Plan) -> Outcome:
    watching: list[SummaryObserver] = []

    def watch(world: World) -> Observer:
        watching.append(SummaryObserver(world))
        return watching[0]

    outcome = simulate(plan, [watch])
    outcome.summary = list(watching[0].lines(outcome))
    outcome.facts = watching[0].facts
    return outcome


def _page(outcome: Outcome) -> str:
    """Return a run as the page of `coterie web`: its summary, and who owned which partition when."""
    from coterie.cli.report import page_of_facts
    from coterie.diagnosis import Grade

    title = f"Seed {outcome.plan.seed}"
    note = f"Simulated: {outcome.command}. The run begins at 01:00:00."
    facts = [replace(fact, at_ms=fact.at_ms + _PAGE_BEGINS_MS) for fact in outcome.facts]
    lines = "\n".join(outcome.summary)
    summary = f'<pre class="wide">{escape(lines)}</pre>'
    return page_of_facts(title, title, facts, note, Grade.OBSERVED, summary)


def _report(failed: Outcome, *, shrinks: bool) -> None:
    if shrinks:
        sys.stderr.write(f"shrinking seed {failed.plan.seed}: fewer steps, the same failure\n")
        failed = shrink(failed)
    typer.echo("")
    typer.echo(failed.report())
