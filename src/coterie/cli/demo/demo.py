"""`coterie demo`: play the plot on the stage, then tell what it cost and whether what we promise was kept."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer

from coterie.cli.demo.plot import Plot, acts
from coterie.cli.demo.promises import Promise, check
from coterie.cli.demo.show import Show, account
from coterie.cli.demo.stage import Stage
from coterie.errors import CoterieError
from coterie.web.report import Section, report

__all__ = ["demo"]

RATE = 200
"""Orders a second."""


def demo(*, seconds: float, members: int, partitions: int, with_spark: bool, keep: bool, out: Path | None) -> None:
    """Exit status 1 if a promise is broken, or something that should have happened did not."""
    signal.signal(signal.SIGTERM, _interrupted)
    home = Path(tempfile.mkdtemp(prefix="coterie-demo-")) if out is None else out
    if home.exists() and any(home.iterdir()):
        typer.echo(f"coterie: {home} is not empty: name a new directory with --out", err=True)
        raise typer.Exit(1)
    why_not = _why_no_spark() if with_spark else "it was not wanted (--no-spark)"
    if why_not:
        typer.echo(f"Spark takes no part: {why_not}\n")
    try:
        promises = _play(home, seconds, members, partitions, has_spark=not why_not, keep=keep)
    except KeyboardInterrupt:
        typer.echo("\ninterrupted: everything that was started has been ended")
        raise typer.Exit(130) from None
    except CoterieError as error:
        typer.echo(f"coterie: {error}", err=True)
        raise typer.Exit(1) from None
    finally:
        if out is None and not keep and not (home / "report.html").exists():
            shutil.rmtree(home, ignore_errors=True)
    if not all(promise.is_kept for promise in promises):
        raise typer.Exit(1)


def _play(home: Path, seconds: float, members: int, partitions: int, *, has_spark: bool, keep: bool) -> list[Promise]:
    show = Show()
    with Stage(home, partitions, RATE) as stage:
        show.act(f"A broker is up at {stage.bootstrap}, data in {home / 'broker'}")
        plot = Plot(stage, members, partitions, has_spark)
        plan = list(acts(plot))
        for act in plan:
            show.act((act.__doc__ or act.__name__).splitlines()[0])
            act(plot)
            show.rounds(stage.rounds, stage.facts)
            time.sleep(seconds / (len(plan) * 4))  # so that it can be watched, and orders flow
        if keep:
            _wait_for_interrupt(stage, plot)
        show.act("No more orders; what is left is processed, and everybody leaves")
        ends = stage.end_stream()
        stage.wait_until_all_is_committed(ends)
        stage.end(*plot.present)
        show.rounds(stage.rounds, stage.facts)
        promises = check(ends, stage.done(), _processes(stage, plot.crashed), stage.facts, plot.static_rounds)
        account(stage.rounds, stage.facts, promises)
        page = home / "report.html"
        page.write_text(_report(stage, promises))
        typer.echo(f"\n  the report, with the picture of who owned what when: {page}")
    return promises


def _processes(stage: Stage, names: list[str]) -> list[str]:
    """Members by the names of their notes."""
    return [process for process in stage.done() if process.rpartition(".")[0] in names]


def _report(stage: Stage, promises: list[Promise]) -> str:
    rows = [["promise", "", "found"]]
    rows += [[one.text, "kept" if one.is_kept else "broken", one.found] for one in promises]
    note = "Made by coterie demo from the facts of its own broker."
    return report("Rebalances of a demonstration", stage.facts, note=note, sections=[Section("Promises", rows)])


def _wait_for_interrupt(stage: Stage, plot: Plot) -> None:
    typer.echo(
        f"\n  everything goes on running: {', '.join(plot.present)} in group shop, on {stage.bootstrap}\n"
        f"  look at it: coterie groups describe shop -b {stage.bootstrap}\n"
        "  Ctrl-C ends it, with the account\n"
    )
    try:
        while True:
            time.sleep(1)
            stage.wait(lambda: True, "nothing")  # tells if a member has ended by itself
    except KeyboardInterrupt:
        typer.echo("")


def _why_no_spark() -> str:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return "pyspark is not installed (pip install 'coterie[spark]')"
    java = shutil.which("java")
    if java is None:
        return "there is no Java on the PATH; Spark needs 17 or newer (on Debian: apt install openjdk-17-jre-headless)"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr  # noqa: S603
    version = said.partition('"')[2].partition(".")[0]
    if not version.isdigit() or int(version) < 17:
        return f"Java is {version or 'of an unknown version'}; Spark needs 17 or newer"
    return ""


def _interrupted(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
