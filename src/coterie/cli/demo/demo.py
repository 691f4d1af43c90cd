"""`coterie demo`: play the plot on the stage, then tell what it cost and whether what we promise was kept."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from coterie.cli.demo.plot import Plot, acts
from coterie.cli.demo.promises import Promise, check, put_out
from coterie.cli.demo.show import Show, account
from coterie.cli.demo.stage import Stage
from coterie.cli.pipeline_show import read_table
from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.java import why_no_java
from coterie.web.report import Section, report

__all__ = ["demo"]

RATE = 200
"""Orders a second."""


def demo(*, seconds: float, members: int, partitions: int, with_spark: bool, keep: bool, out: Path | None) -> None:
    """Exit status 1 if a promise is broken, or something that should have happened did not."""
    signal.signal(signal.SIGTERM, _interrupted)
    home = Path(tempfile.mkdtemp(prefix="coterie-demo-")) if out is None else out
    if home.exists() and any(home.iterdir()):
        raise CoterieError(f"{home} is not empty: name a new directory with --out")
    why_not = _why_no_spark() if with_spark else "it was turned off (--no-spark)"
    if why_not:
        typer.echo(f"Running without Spark: {why_not}\n")
    try:
        promises = _play(home, seconds, members, partitions, has_spark=not why_not, keep=keep)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted: all processes were stopped")
        raise typer.Exit(130) from None
    finally:
        if out is None and not keep and not (home / "report.html").exists():
            shutil.rmtree(home, ignore_errors=True)
    if not all(promise.is_kept for promise in promises):
        raise typer.Exit(1)


def _play(home: Path, seconds: float, members: int, partitions: int, *, has_spark: bool, keep: bool) -> list[Promise]:
    show = Show()
    with Stage(home, partitions, RATE) as stage:
        show.act(f"A broker runs at {stage.bootstrap}, data in {home / 'broker'}")
        plot = Plot(stage, members, partitions, has_spark)
        plan = list(acts(plot))
        for act in plan:
            show.act((act.__doc__ or act.__name__).splitlines()[0])
            act(plot)
            show.rebalances(stage.rebalances, stage.facts)
            time.sleep(seconds / (len(plan) * 4))  # so that it can be watched, and orders flow
        if keep:
            _wait_for_interrupt(stage, plot)
        show.act("No more orders: the rest is processed, and all members leave")
        ends = stage.end_stream()
        stage.wait_until_all_is_committed(ends)
        stage.end(*plot.present)
        show.rebalances(stage.rebalances, stage.facts)
        crashed = _processes(stage, plot.crashed)
        promises = check(ends, stage.done(), crashed, stage.facts, plot.static_rebalances, plot.static_expired)
        tables = _tables(stage, show) if has_spark else []
        account(stage.rebalances, stage.facts, promises)
        for section in tables:
            typer.echo(f"\n  {section.title}: {section.note}")
        page = home / "report.html"
        page.write_text(_report(stage, promises, tables))
        typer.echo(f"\n  report with a picture of who owned which partition when: {page}")
    return promises


def _processes(stage: Stage, crashed: list[str]) -> list[str]:
    """By the names of their notes: who was killed or dawdled, and who, on a busy machine, was put out besides."""
    names = {*crashed, *put_out(stage.facts)}
    return [process for process in stage.done() if process.partition(".")[0] in names]


def _tables(stage: Stage, show: Show) -> list[Section]:
    """The group log as Parquet, by the Spark pipeline; and of that what fits on a page."""
    show.act("A Spark pipeline turns the group log into tables")
    out = stage.home / "tables"
    command = [sys.executable, "-m", "coterie", "pipeline", "groups"]
    with (stage.home / "logs" / "pipeline.log").open("wb") as log:
        code = subprocess.run(  # noqa: S603  our own command
            [*command, "--bootstrap", stage.bootstrap, "--out", str(out), "--once"], stdout=log, stderr=log, check=False
        ).returncode
    if code:
        raise CoterieError(f"the pipeline ended with {code}: see {stage.home / 'logs' / 'pipeline.log'}")
    counts = {
        name: len(read_table(name, out).rows) for name in ("commits", "generations", "ownership", "rebalances", "lag")
    }
    health = read_table("health", out)
    said = ", ".join(f"{count} {name}" for name, count in counts.items())
    rows = [list(health.columns), *([str(cell) for cell in row] for row in health.rows)]
    return [Section("Tables", rows, f"{said}; this is the health table. All tables are Parquet files in {out}.")]


def _report(stage: Stage, promises: list[Promise], tables: list[Section]) -> str:
    rows = [["guarantee", "", "result"]]
    rows += [[one.text, "held" if one.is_kept else "broken", one.found] for one in promises]
    note = "Written by coterie demo from the events its broker recorded."
    return report("Rebalances of the demo", stage.facts, note=note, sections=[Section("Guarantees", rows), *tables])


def _wait_for_interrupt(stage: Stage, plot: Plot) -> None:
    typer.echo(
        f"\n  still running: {', '.join(plot.present)} in group shop, on {stage.bootstrap}\n"
        f"  look at it: coterie groups describe shop -b {stage.bootstrap}\n"
        "  Ctrl-C ends it and prints the summary\n"
    )
    try:
        while True:
            time.sleep(1)
            stage.wait(lambda: True, "nothing")  # tells if a member has ended by itself
    except KeyboardInterrupt:
        typer.echo("")


def _why_no_spark() -> str:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return f"pyspark is not installed ({how_to_install('spark')})"
    no_java = why_no_java("Spark", 17)
    return f"{no_java} (on Debian: apt install default-jre-headless)" if no_java else ""


def _interrupted(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
