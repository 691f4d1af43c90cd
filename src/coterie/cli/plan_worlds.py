"""The worlds of `coterie plan`: run them here or on Spark, say how far it is, and keep the rows at Ctrl-C."""

from __future__ import annotations

import csv
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import typer

from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.forecast.costs import WorldCost
from coterie.forecast.variants import Outcome, World, outcome_of
from coterie.java import why_no_java
from coterie.structs import field_names

TABLE = "worlds.csv"
ON_TERMINAL_S, IN_LOG_S = 1.0, 10.0
"""The time between two lines of progress: on a terminal, a line replaces the one before."""
REACH_S = 5.0


def note(text: str) -> None:
    typer.echo(text, err=True)


class Worlds:
    """Runs worlds in order: a call for each stage of a search. After Ctrl-C, the costs so far are the result."""

    def __init__(self, out: Path | None, jobs: int) -> None:
        self._jobs = jobs
        self._table = None if out is None else _Table(out)
        self.is_interrupted = False
        self.asked = self.ran = 0
        """The worlds that were asked for, of all stages so far, and those that ran."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._table is not None:
            self._table.close()

    @property
    def rows_in(self) -> str | None:
        """Return where the rows are."""
        return None if self._table is None else str(self._table.path)

    def __call__(self, worlds: Sequence[World]) -> Iterator[WorldCost]:
        self.asked += len(worlds)
        if self.is_interrupted:
            return
        progress = Progress(len(worlds))
        try:
            for world, outcome in zip(worlds, self._outcomes(worlds), strict=False):
                if isinstance(outcome, str):
                    raise CoterieError(outcome)
                if self._table is not None:
                    self._table.add(world, outcome)
                self.ran += 1
                progress.another()
                yield outcome
        except KeyboardInterrupt:
            self.is_interrupted = True
        finally:
            progress.end()

    def _outcomes(self, worlds: Sequence[World]) -> Iterator[Outcome]:
        if self._jobs == 1 or len(worlds) == 1:
            yield from map(outcome_of, worlds)
            return
        # Ctrl-C goes to all processes of the terminal. Only this one obeys it, and waits for the worlds under way.
        pool = ProcessPoolExecutor(self._jobs, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_IGN))
        futures: deque[Future[Outcome]] = deque()
        try:
            futures.extend(pool.submit(outcome_of, world) for world in worlds)
            while futures:
                outcome = futures[0].result()
                futures.popleft()
                yield outcome
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            while futures and not futures[0].cancelled():
                yield futures.popleft().result()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


class WorldsOnSpark(Worlds):
    """Runs worlds as tasks of Spark. Each stage is a directory of Parquet files."""

    def __init__(self, out: Path, master: str | None) -> None:
        super().__init__(None, 1)
        try:
            from coterie.spark.sweep import Sweep
        except ImportError as missing:
            raise CoterieError(
                f"{missing}: --spark needs Spark, and Java 17 or newer: {how_to_install('spark')}. Without --spark the "
                "worlds run as processes of this machine"
            ) from None
        no_java = why_no_java("Spark", 17)
        if no_java is not None:
            raise CoterieError(
                f"{no_java}. Install one, or set JAVA_HOME; without --spark the worlds run as processes of this machine"
            )
        if master is not None:
            check_master(master)
        self._out = out
        self._sweep = Sweep(out, master, note)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._sweep.close()

    @property
    def rows_in(self) -> str:
        return str(self._out / "worlds-*.parquet")

    def _outcomes(self, worlds: Sequence[World]) -> Iterator[Outcome]:
        return self._sweep(worlds)


def check_master(master: str) -> None:
    """Raise an error if there is no such master, or if a standalone one cannot be reached: Spark tries for a minute."""
    rule = "give local[2], local[*], yarn, k8s://URL, or the spark://HOST:PORT that the web page of the master shows"
    if re.fullmatch(r"local(\[(\d+|\*)(,\d+)?\])?|yarn|k8s://.+", master):
        return
    nodes = re.fullmatch(r"spark://(.+)", master)
    if nodes is None:
        raise CoterieError(f"--master {master}: Spark has no such master; {rule}")
    problems = []
    for node in nodes[1].split(","):
        host, _, port = node.rpartition(":")
        if not host or not port.isdigit() or int(port) > 65_535:
            raise CoterieError(f"--master {master}: {node!r} is not HOST:PORT; {rule}")
        try:
            socket.create_connection((host, int(port)), REACH_S).close()
        except OSError as error:
            problems.append(f"{node}: {error.strerror or error}")
        else:
            return
    raise CoterieError(
        f"--master {master} cannot be reached: {'; '.join(problems)}. Start the master, or leave --master out: then "
        "the cores of this machine run the worlds"
    )


class Progress:
    """Says on stderr how many worlds ran, how fast, and how long it takes still."""

    def __init__(self, worlds: int, clock: Callable[[], float] = time.monotonic) -> None:  # noqa: TID251
        self._worlds, self._clock = worlds, clock
        self._done = 0
        self._is_terminal = sys.stderr.isatty()
        self._every_s = ON_TERMINAL_S if self._is_terminal else IN_LOG_S
        self._began = clock()
        self._said = self._began - self._every_s + ON_TERMINAL_S  # the first line comes after a second in any case
        self._shown = 0
        if self._is_terminal:
            self._say(f"0 of {worlds} worlds")

    def another(self) -> None:
        self._done += 1
        now = self._clock()
        if now - self._said < self._every_s or self._done == self._worlds:
            return
        self._said = now
        took_s = now - self._began
        rate = self._done / took_s
        text = f"{self._done} of {self._worlds} worlds"
        if self._shown:  # the first line has no estimate: it would count how long it took to start
            text += f", {rate:.1f} worlds/s, about {_duration((self._worlds - self._done) / rate)} left"
        self._say(text)

    def end(self) -> None:
        """Say it for the last time, if it took a while."""
        took_s = self._clock() - self._began
        if self._shown or took_s >= ON_TERMINAL_S:
            self._say(
                f"{self._done} of {self._worlds} worlds in {_duration(took_s)}, {self._done / took_s:.1f} worlds/s"
            )
            if self._is_terminal:
                typer.echo("", err=True)

    def _say(self, text: str) -> None:
        if self._is_terminal:
            typer.echo(f"\r{text:{self._shown}}", err=True, nl=False)
        else:
            note(text)
        self._shown = len(text)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 100 else f"{whole // 60} min {whole % 60:02} s"


class _Table:
    """A file of CSV with a row for each world. A row is in the file as soon as its world has ended."""

    def __init__(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.path = out / TABLE
        self._names = [name for name in field_names(WorldCost) if name != "lag_s"]
        self._file = self.path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(["variant", *self._names])

    def add(self, world: World, cost: WorldCost) -> None:
        self._writer.writerow([world[0].name, *(getattr(cost, name) for name in self._names)])
        self._file.flush()

    def close(self) -> None:
        self._file.close()
        note(str(self.path))
