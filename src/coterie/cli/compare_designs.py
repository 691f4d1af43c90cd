"""`coterie compare-designs`: what each design makes of the same story, as tables and pictures."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import typer

from coterie.cli.rows import Cell, Rows, show
from coterie.cli.sim import parse_numbers
from coterie.errors import CoterieError
from coterie.history.account import Account, Design
from coterie.history.compare import calm, split_brain, storms, stormy
from coterie.history.owning import Shared

__all__ = ["compare_designs", "print_rows", "progress"]

LEAST_MEMBERS, MOST_MEMBERS = 2, 200
PROGRESS_S = 1.0
T = TypeVar("T")

COLUMNS = (
    "CHANGE",
    "MEMBERS",
    "DESIGN",
    "NOTIFIED",
    "READS",
    "MESSAGES",
    "RESTARTED",
    "ALL READ AFTER (s)",
    "TWO OWNERS",
    "NO OWNER",
    "UNASSIGNED (partition-s)",
)
STORM_COLUMNS = (
    "DESIGN",
    "SEEDS",
    "WITH TWO OWNERS",
    "TWO OWNERS",
    "TWO OWNERS (partition-s)",
    "TWO BELIEVE TO OWN (partition-s)",
    "UNASSIGNED (partition-s)",
    "OFFSETS MOVED BACK",
    "STABLE AT THE END",
)


def compare_designs(members: str, partitions: int, seed: int, seeds: str, *, real: bool, out: Path | None) -> None:
    sizes, numbers = _sizes(members), parse_numbers(seeds)
    if real:
        _need_zookeeper()
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    fair = _simulated(sizes, partitions, seed, numbers, out)
    if real:
        from coterie.cli.compare_real import compare_real

        compare_real(fair)


def _need_zookeeper() -> None:
    """Before anything else is done."""
    from coterie.history.zookeeper import why_not

    reason = why_not()
    if reason is not None:
        raise CoterieError(f"--real is not available: {reason}")


def _sizes(members: str) -> list[int]:
    words = members.split(",")
    sizes = sorted({int(word) for word in words if word.strip().isdigit()})
    if len(sizes) < len(words) or sizes[0] < LEAST_MEMBERS or sizes[-1] > MOST_MEMBERS:
        rule = f"group sizes must be different numbers from {LEAST_MEMBERS} to {MOST_MEMBERS}, for example 3,10,30"
        raise CoterieError(f"--members {members}: {rule}")
    return sizes


def _simulated(
    sizes: Sequence[int], partitions: int, seed: int, seeds: Sequence[int], out: Path | None
) -> list[Account]:
    groups = f"groups of {', '.join(map(str, sizes))}" if len(sizes) > 1 else f"a group of {sizes[0]}"
    typer.echo(f"one scenario with {groups} on {len(Design)} designs, then with the faults of {len(seeds)} seeds")
    fair = list(progress(calm(sizes, partitions, seed), len(sizes) * len(Design), "runs without faults"))
    print_rows(f"seed {seed}, {partitions} partitions, no faults:", _by_change(fair))
    told = (one for number in seeds for one in stormy(number, sizes[0], partitions))
    rough = list(progress(told, len(seeds) * len(Design), "runs with faults"))
    title = f"the same scenario with faults, {len(seeds)} seeds, {sizes[0]} members, {partitions} partitions:"
    print_rows(title, _by_design(rough))
    found = split_brain(rough)
    if found is None:
        typer.echo("\nno partition had two owners; try more seeds")
    else:
        _tell_split_brain(*found)
    if out is not None:
        _draw(fair, [] if found is None else [one for one in rough if one.scenario.seed == found[0].scenario.seed], out)
    return fair


def print_rows(title: str, rows: Rows) -> None:
    typer.echo(f"\n{title}")
    show(rows, "table")


def progress(items: Iterable[T], of: int, what: str) -> Iterator[T]:
    said = time.monotonic()  # noqa: TID251  how long somebody has waited
    for done, item in enumerate(items, 1):
        now = time.monotonic()  # noqa: TID251
        if now - said > PROGRESS_S and done < of:
            said = now
            typer.echo(f"{done} of {of} {what}", err=True)
        yield item


# --- tables -----------------------------------------------------------------------------------------------------------


def _by_change(accounts: Sequence[Account]) -> Rows:
    names = list(dict.fromkeys(chapter.name for one in accounts for chapter in one.scenario.chapters))
    rows = [row for name in names for one in accounts for row in _rows_of(one, name)]
    return Rows(COLUMNS, rows)


def _rows_of(account: Account, name: str) -> Iterator[Sequence[Cell]]:
    for chapter in account.scenario.chapters:
        if chapter.name == name:
            cost = account.cost(chapter)
            yield (
                name,
                account.scenario.members,
                account.design,
                cost.notified,
                cost.reads,
                cost.messages,
                cost.restarts,
                "never" if cost.rest_ms is None else _s(cost.rest_ms),
                cost.several.moments,
                cost.nobody.moments,
                _s(cost.nobody.ms),
            )


def _by_design(accounts: Sequence[Account]) -> Rows:
    rows = [
        (
            one.design,
            one.seeds,
            one.split,
            one.several.moments,
            _s(one.several.ms),
            _s(one.believed.ms),
            _s(one.nobody.ms),
            one.went_back,
            one.came_to_rest,
        )
        for one in storms(accounts)
    ]
    return Rows(STORM_COLUMNS, rows)


def _s(ms: int) -> str:
    return f"{ms / 1_000:.1f}"


def _tell_split_brain(account: Account, two: Shared) -> None:
    scenario = account.scenario
    topic, number = two.partition
    said = f"{' and '.join(two.owners)} owned {topic}-{number} from {_s(two.began_ms)} s to {_s(two.ended_ms)} s"
    typer.echo(f"\nsplit brain: under design {account.design}, seed {scenario.seed}, {said}. The faults:")
    for fault in scenario.faults:
        typer.echo(f"  {fault}")
    again = f"--members {scenario.members} --partitions {scenario.partitions} --seeds {scenario.seed}"
    typer.echo(f"run it again: coterie compare-designs {again}")


# --- pictures ---------------------------------------------------------------------------------------------------------


def _draw(fair: Sequence[Account], split: Sequence[Account], out: Path) -> None:
    from coterie.web.designs import growth, owners

    smallest = [one for one in fair if one.scenario.members == fair[0].scenario.members]
    pictures = {"growth.svg": growth(fair), "owners.svg": owners(smallest)}
    if split:
        pictures["split-brain.svg"] = owners(split)
    for name, picture in pictures.items():
        (out / name).write_text(picture + "\n")
        typer.echo(f"{out / name}", err=True)
