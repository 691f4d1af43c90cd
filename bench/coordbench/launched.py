"""Scenarios that start the target themselves: start and recover."""

from __future__ import annotations

import argparse
import collections
import os
import shlex
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

from coordbench.generator import Known
from coordbench.groups import Session
from coordbench.offsets import Layout, commit_frame, fetch_frame, fetched, offsets_of, verify_commit
from coordbench.scenarios import Rows, runs
from coordbench.target import Meter, Target
from coordbench.types import GROUP_NOT_FOUND, NOT_READY, ErrorReplyError, MisbehavedError, Row, Script, clock


class Process:
    """The target, started from a command line in its own process group."""

    def __init__(self, command: str, log: str) -> None:
        self._command, self._log = shlex.split(command), log
        self.launch()

    def launch(self) -> None:
        with Path(self._log or os.devnull).open("ab") as output:
            self.begin = clock()
            self._child = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.target = Target([self._child.pid])

    def session(self, options: argparse.Namespace, patience: float = 120.0) -> Session:
        """A session as soon as the target answers ApiVersions."""
        while True:
            if self._child.poll() is not None:
                raise MisbehavedError(f"the target ended with {self._child.returncode}")
            try:
                return Session(self.target, options)
            except (OSError, MisbehavedError) as problem:
                if clock() - self.begin > patience:
                    raise MisbehavedError(f"no answer after {patience:.0f} s: {problem}") from problem
                time.sleep(0.002)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        try:
            os.killpg(self._child.pid, how)
            self._child.wait(30)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


def prepare_target(options: argparse.Namespace) -> None:
    if options.before:
        subprocess.run(options.before, shell=True, check=True, stdout=subprocess.DEVNULL)


def start(options: argparse.Namespace) -> Rows:
    """From exec to the first ApiVersions answer and to the first joined and synced member."""
    for _ in runs(options):
        prepare_target(options)
        process = Process(options.command, options.log)
        try:
            session = process.session(options)
            answering = clock() - process.begin
            session.form(1, 1)
            joined = clock() - process.begin
            row = {
                "api_versions_s": answering,
                "first_sync_s": joined,
                "cpu_s": process.target.cpu_seconds(),
                "rss_mib": process.target.rss_mib(),
            }
            session.disband()
        finally:
            process.stop()
        yield "start", row


def recover(options: argparse.Namespace) -> Rows:
    """Commit, kill -9, restart: how long until the offsets are back, and are they all?"""
    for _ in runs(options):
        prepare_target(options)
        process = Process(options.command, options.log)
        try:
            yield "recover", _recover(options, process)
        finally:
            process.stop()


def _recover(options: argparse.Namespace, process: Process) -> Row:
    session = process.session(options)
    layout = session.topics(options.partitions[0])
    names = [f"{session.name}-{number:05d}" for number in range(options.groups)]
    bases = {name: 1_000_000 + number * 1000 for number, name in enumerate(names)}
    acknowledged, meter = _commit_all(session, layout, bases)
    process.kill()
    session.driver.close_all()

    process.launch()
    session = process.session(options)
    answering = clock() - process.begin
    early = _until_back(session, process, layout, {name: bases[name] for name in acknowledged[-10:]})
    back = clock() - process.begin
    cpu = process.target.cpu_seconds()
    missing = [_missing_after_all(session, name, layout, bases[name]) for name in acknowledged]
    whole = clock() - process.begin
    session.driver.close_all()
    offsets, lost, incomplete = len(acknowledged) * len(offsets_of(layout, 0)), sum(missing), sum(map(bool, missing))
    row: Row = {
        "offsets": offsets,
        "commit_s": meter.seconds,
        "commit_cpu_us_per_offset": None if meter.cpu is None else meter.cpu / offsets * 1e6,
        "api_versions_s": answering,
        "last_groups_back_s": back,
        "cpu_until_back_s": cpu,
        "all_checked_s": whole,
        "wrong_answers_before": early,
        "rss_mib": process.target.rss_mib(),
        "lost_offsets": lost,
        "groups_with_loss": incomplete,
    }
    if lost:
        row["failed"] = f"{lost} acknowledged offsets lost in {incomplete} groups"
    return row


def _commit_all(session: Session, layout: Layout, bases: dict[str, int]) -> tuple[list[str], Meter]:
    """Each group once, over several connections. Returns the groups in the order in which they were acknowledged."""
    wire, driver = session.wire, session.driver
    where = session.coordinators(list(bases))
    frames = {name: commit_frame(wire, name, layout, base) for name, base in bases.items()}
    committed = Known(partial(verify_commit, wire, layout))
    acknowledged: list[str] = []
    todo = collections.deque(bases)

    def committer(at: tuple[str, int]) -> Script:
        while todo:
            name = todo.popleft()
            if where[name] != at:
                todo.append(name)
                continue
            try:
                committed.check((yield frames[name]))
            except ErrorReplyError as answer:
                if answer.code not in NOT_READY:
                    raise
                todo.append(name)  # its coordinator has not loaded yet
                yield 0.02
            else:
                acknowledged.append(name)

    lanes = [at for at in sorted(set(where.values())) for _ in range(session.options.connections)]
    meter = Meter(session.target)
    driver.run((driver.connect(*at), committer(at)) for at in lanes)
    meter.stop()
    return acknowledged, meter


def _until_back(session: Session, process: Process, layout: Layout, bases: dict[str, int]) -> int:
    """Until these groups are right. Returns how often they were answered, and wrongly, before."""
    early = 0
    while True:
        try:
            wrong = any(_offsets_missing(session, name, layout, base) for name, base in bases.items())
        except NotYetError:
            wrong = True
        else:
            early += wrong
        if not wrong or clock() - process.begin > session.options.patience:
            return early
        time.sleep(0.005)


def _missing_after_all(session: Session, name: str, layout: Layout, base: int) -> int:
    for _ in range(500):
        try:
            return _offsets_missing(session, name, layout, base)
        except NotYetError:
            time.sleep(0.02)
    return len(offsets_of(layout, 0))


class NotYetError(Exception):
    """The coordinator is still loading."""


def _offsets_missing(session: Session, name: str, layout: Layout, base: int) -> int:
    """How many offsets of a group are not as committed."""
    error, offsets = fetched(session.wire, session.ask(fetch_frame(session.wire, name, layout)))
    if error in NOT_READY:
        raise NotYetError
    if error not in (0, GROUP_NOT_FOUND):
        raise ErrorReplyError("offset_fetch", error)
    return sum(offsets.get(key) != value for key, value in offsets_of(layout, base).items())
