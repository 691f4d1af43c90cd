"""A run on one screen: who took part, which faults there were, what they led to, and where it broke if it did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from coterie.facts import (
    Fact,
    MemberExpired,
    MemberMissedJoin,
    MemberMissedRevocation,
    MemberMissedSync,
    RebalanceStarted,
)
from coterie.ledger import Ledger, Rebalance
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import Machine
from coterie.sim.run import Outcome
from coterie.sim.steps import FaultStep
from coterie.sim.world import Observer, World
from coterie.stories import grid
from coterie.structs import replace

MOST_FAULTS, MOST_GROUPS, MOST_NAMES, LAST_STEPS = 10, 3, 6, 8
"""So many of each are listed, so that all of it fits a screen."""
WIDE = 110
_ID_LENGTH = 36
_REMOVED: dict[type[Fact], str] = {
    MemberExpired: "session expired",
    MemberMissedJoin: "did not join in time",
    MemberMissedSync: "did not sync in time",
    MemberMissedRevocation: "did not give up partitions in time",
}


class SummaryObserver(Observer):
    """Collects what a summary needs."""

    name = "summary"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._ledger = Ledger()
        self.facts: list[Fact] = []
        """The facts of all brokers, with the time of the run: the clock of a simulated broker may be wrong."""
        self._began_ms: dict[tuple[str, int], int] = {}
        """The world's time at which a rebalance began, by group and by the broker's time."""
        self._starts: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._members: dict[str, dict[str, None]] = {}
        self._removed: Counter[str] = Counter()
        self._broker_starts = 0

    def came(self, consumer: ConsumerProcess) -> None:
        self._members.setdefault(consumer.group_id, {})[consumer.slot] = None
        self._starts[consumer.group_id] += 1

    def went(self, _consumer: ConsumerProcess, how: str) -> None:
        self._ends[how.partition(":")[0]] += 1

    def broker_began(self, _machine: Machine) -> None:
        self._broker_starts += 1

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        self._ledger.add(fact)
        self.facts.append(replace(fact, at_ms=self.world.schedule.now_ms))
        if isinstance(fact, RebalanceStarted):
            self._began_ms[fact.group_id, fact.at_ms] = self.world.schedule.now_ms
        why = _REMOVED.get(type(fact))
        if why is not None:
            self._removed[f"{_short(getattr(fact, 'member_id', ''))} ({why})"] += 1

    def lines(self, outcome: Outcome) -> Iterator[str]:
        """Return the summary of the run, which has ended."""
        yield from (line[:WIDE] for line in self._who(outcome))
        yield from (line[:WIDE] for line in self._faults(outcome))
        yield from (line[:WIDE] for line in self._what_followed())
        if outcome.held:
            yield "All invariants held, and all groups were stable at the end."
        else:
            first, *_ = outcome.what.strip().splitlines() or [""]
            yield f"BROKEN at {_s(outcome.at_ms)}: {outcome.broken}: {first}"[: 2 * WIDE]
            yield "The last steps before it:"
            last = grid.show(outcome.steps[-LAST_STEPS:]).splitlines()
            yield from (f"  {line}"[:WIDE] for line in last)
        yield f"Every step: {outcome.command} --grid"

    def _who(self, outcome: Outcome) -> Iterator[str]:
        plan = outcome.plan
        yield (
            f"seed {plan.seed}: {plan.workload}, {plan.length_ms / 60_000:g} minutes, {plan.nodes} nodes, "
            f"{sum(plan.topics.values())} partitions; the broker started {_times(self._broker_starts)}"
        )
        for group_id, members in list(self._members.items())[:MOST_GROUPS]:
            names = ", ".join(list(members)[:MOST_NAMES]) + (", ..." if len(members) > MOST_NAMES else "")
            yield f"group {group_id}: {len(members)} members ({names}), started {_times(self._starts[group_id])}"
        ends = ", ".join(f"{how} {_times(count)}" for how, count in self._ends.items())
        yield f"processes that ended: {ends or 'none'}"

    def _faults(self, outcome: Outcome) -> Iterator[str]:
        faults = [step for _, step in outcome.plan.kept if isinstance(step, FaultStep)]
        yield f"Faults: {len(faults)}"
        yield from (f"  {step}" for step in faults[:MOST_FAULTS])
        if len(faults) > MOST_FAULTS:
            yield f"  and {len(faults) - MOST_FAULTS} more"

    def _what_followed(self) -> Iterator[str]:
        yield "What followed:"
        for group_id in list(self._members)[:MOST_GROUPS]:
            rebalances = self._ledger.rebalances_of(group_id)
            if rebalances:
                yield from self._of_group(group_id, rebalances)
        if self._removed:
            said = [f"{who} {_times(count)}" for who, count in self._removed.most_common(MOST_NAMES)]
            yield f"  members removed: {', '.join(said)}"

    def _of_group(self, group_id: str, rebalances: Sequence[Rebalance]) -> Iterator[str]:
        causes = Counter(str(one.cause) for one in rebalances)
        yield f"  group {group_id}: {len(rebalances)} rebalances ({', '.join(f'{n} {c}' for n, c in causes.items())})"
        unassigned_ms = sum(one.unassigned_ms or 0 for one in rebalances)
        yield f"    {unassigned_ms / 1_000:.1f} unassigned partition-seconds"
        timed = [one for one in rebalances if one.took_ms is not None]
        if timed:
            longest = max(timed, key=lambda one: one.took_ms or 0)
            at_ms = self._began_ms.get((group_id, longest.began_ms))
            when = "" if at_ms is None else f" at {_s(at_ms)}"
            who = f", {_short(longest.culprit)}" if longest.culprit else ""
            last = f"; the last to join was {_short(longest.last_to_join)}" if longest.last_to_join else ""
            yield f"    the longest began{when} ({longest.cause}{who}) and took {_s(longest.took_ms or 0)}{last}"


def _short(member_id: str) -> str:
    """Return the client id, with which a member id begins."""
    return member_id[: -_ID_LENGTH - 1] if len(member_id) > _ID_LENGTH + 1 else member_id


def _s(ms: int) -> str:
    return f"{ms / 1_000:.1f} s"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
