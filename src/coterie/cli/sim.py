"""`coterie sim`: worlds from seeds, one after the other or side by side, and what came of them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import typer

from coterie.errors import CoterieError
from coterie.sim.exercised import Account
from coterie.sim.plan import Plan
from coterie.sim.run import Outcome, simulate
from coterie.sim.shrink import shrink

__all__ = ["parse_numbers", "sim"]

PROGRESS_S = 5


def parse_numbers(text: str) -> list[int]:
    """`7`, `0-99`, `1,4,10-12`."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise CoterieError(f"{text!r} does not name seeds: say 7, 0-99 or 1,4,10-12")
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
    jobs: int,
    shrinks: bool,
) -> None:
    numbers = parse_numbers(seeds)
    draw = partial(
        Plan.draw,
        workload=workload,
        hours=hours,
        members=members,
        faults=faults,
        nodes=nodes,
        drop=parse_numbers(drop) if drop else (),
    )
    if len(numbers) == 1:
        for line in (*draw(numbers[0]).lines(), *draw(numbers[0]).script()):
            typer.echo(line)
    account = Account()
    failed: Outcome | None = None
    failures = 0
    began, cpu = time.perf_counter(), os.times()  # noqa: TID251  how long it took is no part of what is simulated
    said = began
    for done, outcome in enumerate(_outcomes(draw, numbers, jobs, story=story), 1):
        account.add(outcome.account)
        if not outcome.held:
            failures += 1
            failed = failed or outcome
            typer.echo(
                f"seed {outcome.plan.seed} ({outcome.plan.workload}): {outcome.broken}: {outcome.what}", err=True
            )
        now = time.perf_counter()  # noqa: TID251
        if now - said > PROGRESS_S:
            said = now
            typer.echo(f"{done} of {len(numbers)} seeds, {failures} failed, {now - began:.0f} s", err=True)
        if story:
            typer.echo(outcome.story)
        if len(numbers) == 1:
            typer.echo(f"fingerprint {outcome.fingerprint}")
    spent = os.times()
    cpu_s = sum(spent[:4]) - sum(cpu[:4])
    for line in account.lines():
        typer.echo(line)
    wall_s = time.perf_counter() - began  # noqa: TID251
    typer.echo(f"{len(numbers)} seeds, {failures} failed, {wall_s:.1f} s, {cpu_s:.1f} s of CPU")
    if failed is not None:
        _report(failed, shrinks=shrinks)
        raise typer.Exit(1)


def _outcomes(draw: partial[Plan], numbers: list[int], jobs: int, *, story: bool) -> Iterator[Outcome]:
    run = partial(_run, draw, story=story)
    if jobs == 1 or len(numbers) == 1:
        yield from map(run, numbers)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from _in_order(pool.map(run, numbers, chunksize=4))


def _in_order(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    yield from outcomes


def _run(draw: partial[Plan], seed: int, *, story: bool) -> Outcome:
    outcome = simulate(draw(seed))
    if outcome.held and not story:
        outcome.steps = ()  # it would travel between processes for nothing
    return outcome


def _report(failed: Outcome, *, shrinks: bool) -> None:
    if shrinks:
        sys.stderr.write(f"shrinking seed {failed.plan.seed}: fewer steps, the same failure\n")
        failed = shrink(failed)
    typer.echo("")
    typer.echo(failed.report())
