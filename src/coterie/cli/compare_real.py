"""`coterie compare-designs --real`: the same designs on a real ZooKeeper and as processes, next to the simulator's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from coterie.cli.compare_designs import print_rows, progress
from coterie.cli.rows import Cell, Rows
from coterie.history.account import Account, Cost, Design
from coterie.history.real import Herd, Story, herd, story
from coterie.history.zookeeper import ZooKeeper

__all__ = ["compare_real"]

MOST_SESSIONS = 40
"""Each has threads of its own."""
OLD = (Design.WATCHERS, Design.SERVER)
HERD_COLUMNS = (
    "CHANGE",
    "MEMBERS",
    "DESIGN",
    "NOTIFIED",
    "BY THE SERVER'S COUNT",
    "SIMULATED NOTIFIED",
    "READS",
    "SIMULATED READS",
    "LOOKS AN ATTEMPT",
    "SIMULATED LOOKS",
)
STORY_COLUMNS = (
    "DESIGN",
    "RECORDS",
    "LOST",
    "TWICE",
    "ONE JOINED (s)",
    "ONE WAS KILLED (s)",
    "NEW STRATEGY (s)",
    "BY A RESTART OF",
    "STILL RUNNING",
)


def compare_real(fair: Sequence[Account]) -> None:
    """`fair`: what the simulator made of it."""
    sizes = sorted({one.scenario.members for one in fair if one.scenario.members <= MOST_SESSIONS})
    partitions = fair[0].scenario.partitions
    with TemporaryDirectory() as folder:
        home = Path(folder)
        with ZooKeeper(home / "zookeeper") as zookeeper:
            asked = ((design, size) for size in sizes for design in OLD)
            herds = (herd(zookeeper, design, size, partitions) for design, size in asked)
            counted = [one for found in progress(herds, len(sizes) * 2, "groups counted") for one in found]
            rows = [_herd_row(one, fair) for one in sorted(counted, key=lambda one: one.change)]
            print_rows("counted on a real ZooKeeper, next to the simulator:", Rows(HERD_COLUMNS, rows))
            told = (story(design, home / f"story-{at}", zookeeper) for at, design in enumerate(Design))
            stories = [_story_row(one) for one in progress(told, len(Design), "designs as processes")]
        title = "processes: one joined, one was killed, one stopped for longer than its session, then a new strategy:"
        print_rows(title, Rows(STORY_COLUMNS, stories))


def _herd_row(one: Herd, fair: Sequence[Account]) -> Sequence[Cell]:
    (cost,) = _simulated(one, fair)
    return (
        one.change,
        one.members,
        one.design,
        one.notified,
        one.rang,
        cost.notified,
        one.reads,
        cost.reads,
        one.looks // one.attempts if one.attempts else None,
        cost.looks // cost.attempts if cost.attempts else None,
    )


def _simulated(one: Herd, fair: Sequence[Account]) -> Iterator[Cost]:
    for account in fair:
        if account.design is one.design and account.scenario.members == one.members:
            yield from (account.cost(chapter) for chapter in account.scenario.chapters if chapter.name == one.change)


def _story_row(one: Story) -> Sequence[Cell]:
    return (
        one.design,
        one.records,
        one.lost,
        one.twice,
        f"{one.join_s:.1f}",
        f"{one.death_s:.1f}",
        None if one.strategy_s is None else f"{one.strategy_s:.1f}",
        one.restarted or None,
        one.untouched or None,
    )
