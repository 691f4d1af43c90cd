"""The designs for real: counts on a real ZooKeeper, records read by processes, a new strategy brought in.

`herd` counts what two changes cost the group. `story` has consumers that are processes: one joins, one is killed, one
is stopped for longer than its session and goes on, and a new strategy comes, while records are read all the time.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.assignors import Topic
from coterie.history.account import Design
from coterie.history.backwards import Backwards, BackwardsCooperative
from coterie.history.crowd import Crowd
from coterie.history.journal import lines_of
from coterie.history.shares import shares
from coterie.history.stage import CALM_S, GROUP, TOPIC, Stage
from coterie.history.zookeeper import ZooKeeper

__all__ = ["Herd", "Story", "herd", "story"]


@dataclass(frozen=True, slots=True)
class Herd:
    """What one change cost a group of so many."""

    change: str
    design: Design
    members: int
    notified: int
    rang: int
    """As the server counts."""
    reads: int
    looks: int
    """Of the reads: who is there, and what do they want."""
    attempts: int
    """Design 1: how often a member began to assign partitions again."""


def herd(zookeeper: ZooKeeper, design: Design, members: int, partitions: int) -> list[Herd]:
    """A broker comes, which moves nothing under design 1 (under 2 it may take over, by hash); then one joins."""
    name = f"herd-{design.partition(' ')[0]}-{members}"
    with Crowd(zookeeper, name, design, partitions) as crowd:
        crowd.add_broker(1)
        for number in range(members):
            crowd.add(f"c{number}")
        crowd.settle()
        changes: dict[str, Callable[[], None]] = {"one joins": lambda: crowd.add("new")}
        if design is Design.WATCHERS:
            changes = {"a broker comes": lambda: crowd.add_broker(2), **changes}
        found = []
        for change, happens in changes.items():
            counts = crowd.counted(happens)
            told, rang = counts["notifications"], counts["rang at the server"]
            found.append(
                Herd(change, design, members, told, rang, counts["reads"], counts["looks"], counts["attempts"])
            )
        return found


# --- records ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Story:
    design: Design
    records: int
    lost: int
    twice: int
    join_s: float
    """Until everybody read again, after each change, as the journals say. The machine's load is in it."""
    death_s: float
    strategy_s: float | None
    restarted: str
    """Whom a new strategy needed to be started again."""
    untouched: str
    """Who ran on, the same process as before."""
    overlap_ms: int
    """For so long the one that was stopped still read, as it believed, what another had by then."""


STRATEGIES = {
    Design.SERVER: ("range", Backwards),
    Design.EAGER: ("range", Backwards),
    Design.COOPERATIVE: ("cooperative-sticky", BackwardsCooperative),
}


def story(design: Design, home: Path, zookeeper: ZooKeeper | None) -> Story:
    number = int(design.partition(" ")[0])
    strategy, new = STRATEGIES.get(design, ("range", None))
    with Stage(home, design=number, partitions=6, strategies=[strategy], zookeeper=zookeeper) as stage:
        stage.add("c1")
        stage.add("c2")
        stage.settle()
        join_s = _timed(stage, lambda: stage.add("c3"))
        death_s = _timed(stage, lambda: stage.end("c1", signal.SIGKILL))
        _stopped_for_longer_than_its_session(stage, "c2")
        overlap_ms = _overlap_ms(home, "c2", "c3")
        strategy_s, restarted, untouched = None, "", ""
        if new is not None:
            stage.strategies = [f"{new.__module__}:{new.__name__}", *([strategy] if number == 3 else [])]
            whom = stage.slots if number == 2 else stage.members
            running = {name: process.pid for name, process in stage.processes.items() if name not in whom}
            strategy_s = _timed(stage, lambda: _roll(stage, whom, new.name))
            restarted = ", ".join(whom)
            ran_on = [name for name, pid in running.items() if stage.processes[name].pid == pid]
            untouched = ", ".join(ran_on) if number == 2 else "the broker"  # which is in this very process
        ends = stage.end_stream()
        stage.wait_until_all_is_processed(ends)
        processed = stage.processed()
    records = sum(ends.values())
    wanted = {(partition, offset) for partition, end in ends.items() for offset in range(end)}
    twice = sum(processed.values()) - len(processed)
    lost = len(wanted - processed.keys())
    return Story(design, records, lost, twice, join_s, death_s, strategy_s, restarted, untouched, overlap_ms)


def _timed(stage: Stage, change: Callable[[], None]) -> float:
    began = time.monotonic()  # noqa: TID251  this is the real world
    change()
    stage.settle()
    return time.monotonic() - began - CALM_S  # noqa: TID251


def _roll(stage: Stage, whom: Sequence[str], strategy: str) -> None:
    """One after the other; until everybody has what the new strategy gives it, and the group says that it has it."""
    for name in whom:
        stage.restart(name)
        stage.settle()
    given = shares(Backwards(), {name: [TOPIC] for name in stage.members}, {TOPIC: Topic(stage.partitions)})
    wanted = {one: [name] for name, mine in given.items() for one in mine}

    def is_seen() -> bool:
        rebalances = stage.broker.rebalances(GROUP)
        return stage.owners() == wanted and (not rebalances or rebalances[-1].protocol_name == strategy)

    stage.wait(is_seen, f"{strategy} to be seen")


def _stopped_for_longer_than_its_session(stage: Stage, name: str) -> None:
    stage.signal(name, signal.SIGSTOP)
    stage.wait(lambda: stage.has_all_but(name), "the others to have all partitions")
    stage.signal(name, signal.SIGCONT)
    stage.settle()


def _overlap_ms(home: Path, name: str, other: str) -> int:
    """From when on the other had all, until this one let go."""
    lines = lines_of(home)
    everything = max(len(line.reads) for line in lines[other])
    had_all = max(line.at_ms for line in lines[other] if len(line.reads) == everything)
    let_go = next((line.at_ms for line in lines[name] if line.at_ms >= had_all), had_all)
    return let_go - had_all
