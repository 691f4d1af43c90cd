"""What the demonstration prints: acts as they begin, rebalances as they end, and the account."""

from __future__ import annotations

import time
from collections.abc import Sequence

import typer

from coterie.cli.demo.promises import Promise
from coterie.facts import Fact
from coterie.ledger import Outcome, Rebalance
from coterie.web.names import Names

__all__ = ["Show", "account"]


class Show:
    def __init__(self) -> None:
        self._began_s = time.monotonic()  # noqa: TID251  this is the real world
        self._told = 0

    def act(self, text: str) -> None:
        seconds = time.monotonic() - self._began_s  # noqa: TID251
        typer.secho(f"{seconds:6.1f} s  {text}", bold=True)

    def rebalances(self, rebalances: Sequence[Rebalance], told: Sequence[Fact]) -> None:
        """Those that are over and have not been told of."""
        names = Names(told)
        while self._told < len(rebalances) and rebalances[self._told].outcome is not Outcome.RUNNING:
            typer.echo(f"            {sentence(rebalances[self._told], names)}")
            self._told += 1


def sentence(one: Rebalance, names: Names) -> str:
    who = f" ({names.of(one.culprit)}{_why(one)})" if one.culprit else ""
    took = f"{(one.took_ms or 0) / 1_000:.2f} s"
    generation = f"generation {one.generation_id}" if one.generation_id is not None else "no generation"
    return (
        f"rebalance: {one.cause}{who}, {generation}, {took}, {len(one.moves)} moved, {one.kept} kept, "
        f"{(one.unassigned_ms or 0) / 1_000:.2f} unassigned partition-seconds"
    )


def account(rebalances: Sequence[Rebalance], told: Sequence[Fact], promises: Sequence[Promise]) -> None:
    """Every rebalance on a line, the sums, and the promises."""
    names = Names(told)
    head = ("", "cause", "member", "seconds", "moved", "kept", "unassigned")
    rows = [
        (
            str(number),
            str(one.cause),
            names.of(one.culprit) if one.culprit else "",
            f"{(one.took_ms or 0) / 1_000:.2f}",
            str(len(one.moves)),
            str(one.kept),
            f"{(one.unassigned_ms or 0) / 1_000:.2f}",
        )
        for number, one in enumerate(rebalances, 1)
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    typer.echo("")
    for row in (head, *rows):
        typer.echo("  " + "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    unassigned = sum(one.unassigned_ms or 0 for one in rebalances) / 1_000
    typer.echo(f"\n  {len(rebalances)} rebalances, {unassigned:.2f} unassigned partition-seconds in total\n")
    for promise in promises:
        mark = typer.style("held  ", fg="green") if promise.is_kept else typer.style("BROKEN", fg="red", bold=True)
        typer.echo(f"  {mark}  {promise.text}: {promise.found}")


def _why(one: Rebalance) -> str:
    return f": {one.told_reason}" if one.told_reason else ""
