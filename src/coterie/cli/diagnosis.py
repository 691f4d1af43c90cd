"""The commands that explain rebalances: `groups why`, `findings`, `timeline` and `watch`, `explain` and `watch`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import get_terminal_size

import typer

from coterie.cli.diagnosis_sources import (
    DiagnosisOptions,
    Histories,
    gather,
    log_lines,
    parse_time,
    parse_zone,
    read_logs,
    watching,
    within,
)
from coterie.cli.options import CommandError
from coterie.cli.output import Rows, fitted, show, show_objects
from coterie.cli.stopping import Stop, stoppable
from coterie.cli.why import findings_rows, rebalance_rows, sentence, timeline, when
from coterie.cli.why import why as why_text
from coterie.diagnosis.cluster_watch import ClusterWatch
from coterie.diagnosis.detectors import all_findings, findings_of
from coterie.diagnosis.evidence import Bound
from coterie.diagnosis.ledger_file import LedgerFile
from coterie.diagnosis.model import ExplainedRebalance, Finding, GroupHistory, worst_first
from coterie.diagnosis.whatif import with_savings
from coterie.errors import AuthenticationError, AuthorizationError, KafkaError

_OBJECTS = ("json", "yaml")
_WORDY = ("SUMMARY", "MEMBERS", "REASON", "MEMBER")
_NARROW = 80
_POLL_S = 0.5
_PRUNE_S = 3_600


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def note(text: str) -> None:
    typer.echo(f"coterie: {text}", err=True)


def why(options: DiagnosisOptions, output: str, *, simulate: bool) -> None:
    """Explain the last rebalance of a group."""
    assert options.group is not None
    history = gather(options, note, now_ms())[options.group]
    findings = _simulated(history, findings_of(history), simulate=simulate)
    if output in _OBJECTS:
        last = [one.to_json() for one in history.rebalances[-1:]]
        show_objects([{"group": history.group_id, "rebalance": last, "findings": _plain(findings)}], output)
    elif output == "csv":
        show(rebalance_rows({history.group_id: _last_of(history)}), output)
    else:
        typer.echo(why_text(history, findings, now_ms()))


def _last_of(history: GroupHistory) -> GroupHistory:
    return GroupHistory(history.group_id, history.group_type, history.rebalances[-1:], history.members)


def _plain(findings: list[Finding]) -> list[Mapping[str, object]]:
    return [one.to_json() for one in findings]


def _simulated(history: GroupHistory, findings: list[Finding], *, simulate: bool) -> list[Finding]:
    return [with_savings(history, one) for one in findings] if simulate else findings


def findings(options: DiagnosisOptions, output: str, *, simulate: bool) -> None:
    """List what is wrong, the worst first."""
    histories = gather(options, note, now_ms())
    found = [
        one for history in histories.values() for one in _simulated(history, findings_of(history), simulate=simulate)
    ]
    _show_findings(sorted(found, key=worst_first), output)


def _show_findings(found: list[Finding], output: str) -> None:
    if output in _OBJECTS:
        show_objects(_plain(found), output)
        return
    rows = findings_rows(found)
    show(_fitted(rows, output), output)
    for text in rows.notes:
        note(text)


def _fitted(rows: Rows, output: str) -> Rows:
    """Cut long cells of a table to the width of a terminal. What is piped is not cut."""
    if output != "table" or not sys.stdout.isatty():
        return rows
    kept = [at for at, name in enumerate(rows.columns) if name not in rows.wide]
    shown = Rows([rows.columns[at] for at in kept], [[row[at] for at in kept] for row in rows.rows], rows.notes)
    return fitted(shown, max(get_terminal_size().columns, _NARROW), _WORDY)


def show_timeline(options: DiagnosisOptions, output: str, rows: int) -> None:
    """Draw who owned which partition when."""
    assert options.group is not None
    history = gather(options, note, now_ms())[options.group]
    if output == "table":
        for line in timeline(history, get_terminal_size((120, 24)).columns, rows):
            typer.echo(line)
        return
    columns = ("GROUP", "TOPIC", "PARTITION", "OWNER", "FROM-MS", "TO-MS", "CONSUMER-ID")
    found = [
        (one.group_id, *one.partition, history.name_of(one.owner), one.began_ms, one.ended_ms, one.owner)
        for one in sorted(history.intervals, key=lambda one: (one.partition, one.began_ms))
    ]
    show(Rows(columns, found), output)


def explain(options: DiagnosisOptions, output: str, ledger: Path | None) -> None:
    """Read logs of brokers: every rebalance with cause, member and reason; then what is wrong."""
    if ledger is not None:
        _store_lines(options, ledger)
    log = read_logs(options.logs, parse_zone(options.zone), note)
    since, until = parse_time(options.since, now_ms()), parse_time(options.until, now_ms())
    histories = {
        name: within(one, since, until)
        for name, one in sorted(log.histories().items())
        if options.group in (None, name)
    }
    found = all_findings(histories)
    if output in _OBJECTS:
        about = {"lines": log.lines, "used": log.used}
        rebalances = [one.to_json() for history in histories.values() for one in history.rebalances]
        show_objects([{**about, "rebalances": rebalances, "findings": _plain(found)}], output)
        return
    rows = rebalance_rows(histories)
    show(_fitted(rows, output), output)
    for text in rows.notes:
        note(text)
    if output != "csv":
        for one in found:
            typer.echo(f"\n{one.severity}: {one.name} in {one.group_id}: {one.summary}\n  {one.advice}")


def _store_lines(options: DiagnosisOptions, ledger: Path) -> None:
    if parse_zone(options.zone) is not parse_zone("UTC"):
        raise CommandError("--ledger stores times as they are in the log: it needs logs in UTC")
    if "-" in options.logs:
        raise CommandError("--ledger needs files: standard input can be read only once")
    with LedgerFile(ledger, create=True) as file:
        for name, path, lines in log_lines(options.logs):
            place = str(Path(path).resolve())
            numbered = ((f"{name}:{at} ({place})", at, line) for at, line in enumerate(lines, 1) if "roup" in line)
            file.add_lines(numbered)


# --- live -------------------------------------------------------------------------------------------------------------


def _loop(watch: ClusterWatch, stop: Stop, every_s: float, for_s: float | None, step: Callable[[], None]) -> None:
    """Read all the time and sample now and then, until a signal or the end of the time."""
    begin = time.monotonic()
    sampled = begin - every_s
    problem = ""
    while not stop.asked and (for_s is None or time.monotonic() - begin < for_s):
        try:
            watch.poll(_POLL_S)
            if time.monotonic() - sampled >= every_s:
                sampled = time.monotonic()
                watch.sample()
                step()
                problem = ""
        except (AuthenticationError, AuthorizationError):
            raise
        except KafkaError as error:  # the cluster is away for a while: say it once, and try again
            if str(error) != problem:
                note(f"{error}; trying again")
            problem = str(error)
            time.sleep(_POLL_S)


def groups_watch(options: DiagnosisOptions, output: str, *, every_s: float, for_s: float | None) -> None:
    """Print each rebalance as it ends, and each finding as it appears."""
    rebalances: set[tuple[str, int, int]] = set()
    findings: set[tuple[str, str, int]] = set()
    with stoppable() as stop, watching(options) as watch:
        watch.catch_up(every_s * 3)

        def show_new(prints: bool = True) -> None:
            histories = {name: one for name, one in watch.histories().items() if options.group in (None, name)}
            _show_new(histories, rebalances, findings, output, prints=prints)

        watch.sample()
        show_new(prints=False)
        note("watching; Ctrl-C ends it")
        _loop(watch, stop, every_s, for_s, show_new)


def _show_new(
    histories: Histories,
    rebalances: set[tuple[str, int, int]],
    findings: set[tuple[str, str, int]],
    output: str,
    *,
    prints: bool,
) -> None:
    """Print the rebalances and findings that are new since the last time; without `prints` only remember them."""
    for name, history in histories.items():
        for one in history.rebalances:
            key = name, one.number, (one.ended_ms.value or 0) // 60_000
            if _has_ended(one) and key not in rebalances:
                rebalances.add(key)
                if prints:
                    _print(output, one.to_json(), sentence(history, one, now_ms()))
        for finding in findings_of(history):
            mark = name, finding.name, finding.from_ms
            if mark not in findings:
                findings.add(mark)
                if prints:
                    _print(output, finding.to_json(), f"{finding.severity}: {finding.name}: {finding.summary}")


def _has_ended(one: ExplainedRebalance) -> bool:
    return one.ended_ms.is_known and one.ended_ms.bound is Bound.EXACT


def _print(output: str, about: Mapping[str, object], text: str) -> None:
    if output in _OBJECTS:
        show_objects([about], output)
    else:
        typer.echo(f"{when(now_ms())}  {text}")


def watch(options: DiagnosisOptions, ledger: Path, *, every_s: float, for_s: float | None, keep_days: float) -> None:
    """Read a cluster into a ledger until a signal."""
    with stoppable() as stop, LedgerFile(ledger, create=True) as file, watching(options, file) as cluster:
        begun = bool(file.positions())
        note(f"cluster {cluster.cluster_id}; ledger {ledger}{' (continued)' if begun else ''}; Ctrl-C ends it")
        pruned = [0.0]

        def step() -> None:
            if time.monotonic() - pruned[0] > _PRUNE_S:
                pruned[0] = time.monotonic()
                file.prune(now_ms() - round(keep_days * 86_400_000))

        _loop(cluster, stop, every_s, for_s, step)
        cluster.poll(0)
        note(f"{cluster.records} records read")
