"""What happens in the demonstration, act by act: everything that starts a rebalance, and two deploys.

An act is a function of the stage; its first line of documentation is what is announced. It returns when the group is as
it should be. Names of members that were killed or too slow are kept: only theirs may be done twice.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from coterie.cli.demo.stage import SLOW_MS, Stage

__all__ = ["Plot", "acts"]

SPARK = "spark"


@dataclass
class Plot:
    stage: Stage
    members: int
    partitions: int
    has_spark: bool
    present: list[str] = field(default_factory=list)
    crashed: list[str] = field(default_factory=list)
    static_rebalances: int | None = None
    static_expired: int = 0
    """Sessions that expired while static members were restarted: the machine was too busy to start one in time."""
    _count: int = 0

    def start(self, name: str = "", **settings: object) -> str:
        if not name:
            self._count += 1
            name = f"python-{self._count}"
        self.stage.start_member(name, **settings)
        self.present.append(name)
        return name

    def settle(self, what: str) -> None:
        self.stage.wait_for(self.present, what)

    def take_away(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        self.present.remove(name)
        self.stage.end(name, how=how)


Act = Callable[[Plot], None]


def acts(plot: Plot) -> Iterator[Act]:
    """In order; what needs Spark is left out without it."""
    for act in _ACTS:
        if plot.has_spark or act not in _OF_SPARK:
            yield act


def opening(plot: Plot) -> None:
    """Orders arrive, and the first members process them"""
    if plot.has_spark:
        plot.stage.start_spark(SPARK)  # it takes a while until it can join
    for _ in range(plot.members):
        plot.start()
    plot.stage.wait(lambda: _are_there(plot), "the first members")


def _are_there(plot: Plot) -> bool:
    return set(plot.present) <= set(plot.stage.members() or [])


def spark_joins(plot: Plot) -> None:
    """A Spark query joins the same group"""
    plot.present.append(SPARK)
    plot.settle("Spark to join")


def one_joins(plot: Plot) -> None:
    """One more member joins"""
    plot.start()
    plot.settle("the new member")


def one_leaves(plot: Plot) -> None:
    """A member leaves"""
    plot.take_away(plot.present[0])
    plot.settle("the rest")


def one_is_killed(plot: Plot) -> None:
    """A member is killed (kill -9); the group notices when its session times out"""
    name = next(name for name in plot.present if name != SPARK)
    plot.crashed.append(name)
    plot.take_away(name, signal.SIGKILL)
    plot.settle("its session to time out")


def one_is_too_slow(plot: Plot) -> None:
    """A member takes too long for a batch (max.poll.interval.ms), leaves, and rejoins"""
    name = plot.start("slow", max_poll_interval_ms=SLOW_MS)
    plot.settle("it to join")
    plot.crashed.append(name)
    before = len(plot.stage.rebalances)
    plot.stage.dawdle(name)
    plot.stage.wait(lambda: len(plot.stage.rebalances) >= before + 2, "it to leave and rejoin")
    plot.settle("it to rejoin")


def partitions_are_added(plot: Plot) -> None:
    """Partitions are added to the topic"""
    plot.stage.add_partitions(plot.partitions * 3 // 2)
    plot.settle("them to be assigned")


def rolling_deploy(plot: Plot) -> None:
    """A rolling deploy without static membership: each member is restarted"""
    for name in [name for name in plot.present if name != SPARK]:
        plot.take_away(name)
        plot.start(f"{name}-new" if not name.endswith("-new") else name)
        plot.settle("the new member")


def static_ids(plot: Plot) -> None:
    """The members are replaced by static members (group.instance.id)"""
    old = [name for name in plot.present if name != SPARK]
    for number in range(1, len(old) + 1):
        plot.start(f"static-{number}", group_instance_id=f"shop-{number}")
    plot.settle("the static members")
    for name in old:
        plot.take_away(name)
    plot.settle("the old members to leave")


def static_deploy(plot: Plot) -> None:
    """The same rolling deploy with static members"""
    before, expired = len(plot.stage.rebalances), plot.stage.expired()
    for name in [name for name in plot.present if name != SPARK]:
        instance = f"shop-{name.removeprefix('static-')}"
        joins = plot.stage.static_joins(instance)
        plot.take_away(name)
        plot.start(name, group_instance_id=instance)
        plot.stage.wait(partial(_has_joined, plot.stage, instance, joins), f"{name} to join again")
        plot.settle(f"{name} to join again")
    plot.static_rebalances = len(plot.stage.rebalances) - before
    plot.static_expired = plot.stage.expired() - expired


def _has_joined(stage: Stage, instance_id: str, before: int) -> bool:
    return stage.static_joins(instance_id) > before


_ACTS: tuple[Act, ...] = (
    opening,
    one_joins,
    spark_joins,
    one_leaves,
    one_is_killed,
    one_is_too_slow,
    partitions_are_added,
    rolling_deploy,
    static_ids,
    static_deploy,
)
_OF_SPARK = frozenset({spark_joins})
