"""`coterie migrate`: plan, copy, status and verify."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import NamedTuple

import typer

from coterie.cli.options import CONNECT_MS, CommandError
from coterie.cli.output import Rows, complain, show
from coterie.cli.stopping import stoppable
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.extras import how_to_install
from coterie.java import why_no_java
from coterie.migration.clusters import Selection
from coterie.migration.compare import Compared
from coterie.migration.copier import CopyStatus, MigrationOptions, copy_until
from coterie.migration.groups import GroupStatus
from coterie.migration.inspection import TopicStatus, planned, verified
from coterie.migration.inspection import status as look
from coterie.migration.migration_plan import MigrationPlan

SHOWN_EVERY_S = 1.0
LOGGED_EVERY_S = 10.0
"""How often progress is written where stderr is no terminal."""


def selection(topics: Sequence[str], exclude: Sequence[str], groups: Sequence[str]) -> Selection:
    return Selection(_patterns("--topic", topics), _patterns("--exclude", exclude), _patterns("--group", groups))


def _patterns(option: str, texts: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    try:
        return tuple(re.compile(one) for one in texts)
    except re.error as error:
        raise CommandError(f"{option} {error.pattern!r} is not a regular expression: {error}") from None


def note(text: str) -> None:
    complain(text)


def _connect(options: MigrationOptions) -> None:
    """Fail soon if a cluster cannot be reached. Later errors are tried again."""
    for side in (options.source, options.target):
        with side.admin() as admin:
            admin.connect(within_ms=CONNECT_MS)


# --- plan -------------------------------------------------------------------------------------------------------------


def plan(options: MigrationOptions, output: str) -> None:
    """Print what a copy would do first."""
    _connect(options)
    found = _planned(options)
    rows = [
        *(("create", one.name, one.partitions, _text(one.configs)) for one in found.create),
        *(("use", name, None, "") for name in found.use),
        *(("add partitions", name, count, "") for name, count in found.grow.items()),
        *(("alter", name, None, _text({one.name: one.value for one in some})) for name, some in found.alter.items()),
    ]
    show(Rows(("STEP", "TOPIC", "PARTITIONS", "CONFIGS"), rows), output)
    _end_with(list(found.conflicts.values()))
    if not rows:
        note("there is nothing to create or change")


def _planned(options: MigrationOptions) -> MigrationPlan:
    return planned(options.source, options.target, options.selection, options.name, options.replication_factor)


def _text(configs: Mapping[str, str | None]) -> str:
    return ",".join(name if value is None else f"{name}={value}" for name, value in configs.items())


def _end_with(problems: Sequence[str]) -> None:
    for problem in problems:
        complain(problem)
    if problems:
        raise typer.Exit(1)


# --- copy -------------------------------------------------------------------------------------------------------------


class ProgressLines:
    """Progress on stderr: a line that is written again and again on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._every_s = SHOWN_EVERY_S if self._is_terminal else LOGGED_EVERY_S
        self._began = self._shown = time.monotonic()
        self._groups: dict[str, str] = {}
        self._has_line = False

    def note(self, text: str) -> None:
        self.end()
        note(text)

    def show(self, status: CopyStatus) -> None:
        """Print what groups have to do next when that has changed, and the progress now and then."""
        for one in status.groups:
            if self._groups.get(one.group_id) != one.next_step and not one.next_step.startswith("wait"):
                self._groups[one.group_id] = one.next_step
                self.note(f"group {one.group_id}: {one.next_step}")
        now = time.monotonic()
        if now - self._shown >= self._every_s:
            self._shown = now
            text = self.text(status)
            if self._is_terminal:
                typer.echo(f"\r{text}\033[K", err=True, nl=False)
                self._has_line = True
            else:
                note(text)

    def text(self, status: CopyStatus) -> str:
        rate = status.records / max(time.monotonic() - self._began, 1e-3)
        behind = "" if status.behind is None else f", {status.behind:,} behind"
        ready = sum(one.is_ready for one in status.groups)
        return (
            f"{status.records:,} records copied ({rate:,.0f}/s) of {status.topics} topics{behind}; "
            f"{ready} of {len(status.groups)} groups ready"
        )

    def end(self) -> None:
        if self._has_line:
            typer.echo("\r\033[K", err=True, nl=False)
            self._has_line = False


def copy(options: MigrationOptions, _output: str, spark: OnSpark | None = None) -> None:
    """Copy until a signal, or with --once until the end."""
    _connect(options)
    _end_with(list(_planned(options).conflicts.values()))
    lines = ProgressLines()
    with stoppable() as stop:
        if spark is not None:
            _jobs().copy_with_spark(options, spark.master, spark.least, lambda: stop.asked, note)
        note("copying" + ("" if options.once else "; Ctrl-C ends it, and the next start goes on"))
        status = copy_until(options, lambda: stop.asked, lines.note, lines.show)
        lines.end()
    note(lines.text(status))


# --- status -----------------------------------------------------------------------------------------------------------


def status(options: MigrationOptions, output: str) -> None:
    """Print how far topics and groups are, and what is left to do."""
    _connect(options)
    topics, groups = look(options.source, options.target, options.selection, options.name)
    rows = [_topic_row(one) for one in topics] + [_group_row(one) for one in groups]
    show(Rows(("KIND", "NAME", "COPIED", "BEHIND", "SOURCE", "TARGET", "NEXT"), rows), output)


def _topic_row(one: TopicStatus) -> tuple[str, str, int, int, str, str, str]:
    step = "wait for the copy" if one.behind else "-"
    if one.later and not one.behind:
        step = f"when its producers have moved: coterie topics alter {one.name} --topic-config {_text(one.later)}"
    return ("topic", one.name, one.copied, one.behind, "", "", step)


def _group_row(one: GroupStatus) -> tuple[str, str, None, int, str, str, str]:
    return ("group", one.group_id, None, one.not_copied, one.source_state, one.target_state, one.next_step)


# --- verify -----------------------------------------------------------------------------------------------------------


def verify(options: MigrationOptions, output: str, spark: OnSpark | None = None) -> None:
    """Compare all copied records. The exit status is 1 if one differs."""
    _connect(options)
    rows: list[tuple[str | int | None, ...]] = []
    problems: list[str] = []
    unknown = 0
    is_terminal = sys.stderr.isatty()
    for (topic, partition), found in _verified(options, spark):
        result = "equal" if found.is_equal else f"{found.differences} differences"
        sums = found.source_checksum, found.target_checksum
        rows.append((topic, partition, found.compared, *sums, found.only_source, found.only_target, result))
        problems += [f"{topic}-{partition}: {one}" for one in found.problems]
        unknown += found.not_compared
        if is_terminal:
            typer.echo(f"\r{len(rows)} partitions compared\033[K", err=True, nl=False)
    if is_terminal and rows:
        typer.echo("\r\033[K", err=True, nl=False)
    columns = ("TOPIC", "PARTITION", "RECORDS", "SOURCE-SUM", "TARGET-SUM", "ONLY-SOURCE", "ONLY-TARGET", "RESULT")
    show(Rows(columns, rows), output)
    if unknown:
        note(f"{unknown} records of compacted topics were not compared: their copies are not known one by one")
    if not rows:
        raise CoterieError("nothing was copied that the options name")
    _end_with(problems)


def _verified(options: MigrationOptions, spark: OnSpark | None) -> Iterator[tuple[TopicPartition, Compared]]:
    what = options.source, options.target, options.selection, options.name
    return verified(*what) if spark is None else _jobs().verified_with_spark(*what, spark.master, note)


STEPS: Mapping[str, Callable[[MigrationOptions, str], None]] = {
    "plan": plan,
    "copy": copy,
    "status": status,
    "verify": verify,
}


# --- Spark ------------------------------------------------------------------------------------------------------------


class OnSpark(NamedTuple):
    """How a step uses Spark."""

    master: str | None
    least: int
    """The offsets that wait in a partition that Spark copies."""


ON_SPARK: Mapping[str, Callable[[MigrationOptions, str, OnSpark], None]] = {"copy": copy, "verify": verify}


def _jobs() -> ModuleType:
    """Return the module that runs the jobs, or say what is missing."""
    try:
        from coterie.migration import spark_jobs
    except ImportError as missing:
        raise CoterieError(f"{missing}: --spark needs Spark, and Java 17 or later: {how_to_install('spark')}") from None
    no_java = why_no_java("Spark", 17)
    if no_java is not None:
        raise CoterieError(no_java)
    return spark_jobs


def run(step: str, options: MigrationOptions, output: str, spark: OnSpark | None) -> None:
    """Run a step."""
    if spark is None:
        STEPS[step](options, output)
    elif step in ON_SPARK:
        ON_SPARK[step](options, output, spark)
    else:
        raise CommandError(f"--spark is for {' and '.join(ON_SPARK)}, not for {step}")
