"""`coterie assign`: show what an assignor would do with a group, or compare assignors."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.table import Table

from coterie.assignors import Assignor, Owned, UnknownAssignorError, assignor, assignor_names
from coterie.assignors.cases import (
    Case,
    CaseError,
    Score,
    as_lists,
    grow,
    holding,
    join,
    leave,
    owned_in,
    parse_case,
    run,
    score,
)

EXIT_BAD_LINE = 1
EXIT_USAGE = 2


def assign(
    names: list[str],
    *,
    compare: bool,
    case_id: str | None,
    leaving: list[str],
    joining: list[str],
    growing: list[str],
) -> None:
    try:
        if compare:
            _compare([assignor(name) for name in names or assignor_names()], _pick(case_id), leaving, joining, growing)
        else:
            _answer(_the_one(names, what_ifs=bool(leaving or joining or growing or case_id)))
    except (CaseError, UnknownAssignorError) as problem:
        typer.echo(f"coterie assign: {problem}", err=True)
        raise typer.Exit(EXIT_USAGE) from None


def _the_one(names: list[str], *, what_ifs: bool) -> Assignor:
    if len(names) != 1:
        raise CaseError(f"name one assignor ({', '.join(assignor_names())}), or several with --compare")
    if what_ifs:
        raise CaseError("--leave, --join, --grow and --case need --compare")
    return assignor(names[0])


def _lines() -> Iterator[tuple[int, str]]:
    if sys.stdin.isatty():
        typer.echo("reading groups from the terminal, one JSON object per line; see --help", err=True)
    for number, raw in enumerate(sys.stdin.buffer, 1):
        line = raw.decode("utf-8", "replace").strip()
        if line:
            yield number, line


def _answer(chosen: Assignor) -> None:
    failed = False
    for number, line in _lines():
        try:
            case = parse_case(line)
            answer: dict[str, object] = {
                "id": case.id,
                "assignment": as_lists(chosen.assign(case.members, case.topics)),
            }
        except CaseError as problem:
            failed = True
            known = problem.case_id if isinstance(problem.case_id, str) else None
            answer = {"id": known, "error": f"line {number}: {problem}"}
        typer.echo(json.dumps(answer, separators=(",", ":")))
    if failed:
        raise typer.Exit(EXIT_BAD_LINE)


def _pick(case_id: str | None) -> Case:
    for number, line in _lines():
        try:
            case = parse_case(line)
        except CaseError as problem:
            if case_id is None or problem.case_id == case_id:
                raise CaseError(f"line {number}: {problem}") from None
            continue
        if case_id is None or case.id == case_id:
            return case
    raise CaseError("no group on standard input" + (f' has the id "{case_id}"' if case_id else ""))


def _compare(chosen: list[Assignor], case: Case, leaving: list[str], joining: list[str], growing: list[str]) -> None:
    after = _what_if(case, leaving, joining, growing)
    owned = owned_in(case)
    title = case.id.encode("utf-8", "replace").decode() or "case"
    table = Table(title=f"{title}: {len(case.members)} members, {len(case.topics)} topics")
    for column in ("assignor", "when", "loads", "sum of squares", "moves", "rack matches", "rebalances"):
        table.add_column(column, justify="left" if column in {"assignor", "when", "loads"} else "right")
    for one in chosen:
        held: dict[str, Owned] = dict(owned)
        start = holding(case, held)
        assignment, rebalances = run(one, start)
        table.add_row(one.name, "now", *_cells(score(assignment, held, start), rebalances, start))
        if after is not case:
            if not any(map(len, held.values())):
                held = dict(assignment)
            start = holding(after, held)
            assignment, rebalances = run(one, start)
            table.add_row("", "then", *_cells(score(assignment, held, start), rebalances, start))
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def _what_if(case: Case, leaving: list[str], joining: list[str], growing: list[str]) -> Case:
    for member in leaving:
        case = leave(case, member)
    for newcomer in joining:
        member, given, topics = newcomer.partition("=")
        case = join(case, member, topics.split(",") if given else None)
    for change in growing:
        topic, _, count = change.partition("=")
        if not count.isascii() or not count.isdigit():
            raise CaseError(f'--grow takes TOPIC=PARTITIONS, like orders=12, not "{change}"')
        case = grow(case, topic, int(count))
    return case


def _cells(result: Score, rebalances: int, case: Case) -> list[str]:
    loads = f"{result.lightest} to {result.heaviest}" if result.lightest != result.heaviest else f"{result.lightest}"
    if result.unread:
        loads += f" ({result.unread} unread)"
    matches = f"{result.matches} of {result.partitions}" if any(topic.racks for topic in case.topics.values()) else "-"
    return [loads, str(result.squares), str(result.moves), matches, str(rebalances)]
