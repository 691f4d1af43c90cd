"""The cost of a rolling deployment if it had static members or a cooperative assignor, from the same events.

The joins and ends of the deployment are run in the simulator: the shipped coordinator and members with a virtual clock.
Only sums are compared, since the simulated members answer faster than real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.assignors import Assignor, CooperativeSticky, Range
from coterie.diagnosis.context import gone_ms, is_present
from coterie.diagnosis.model import Finding, GroupHistory, MemberSpan
from coterie.facts import Fact
from coterie.history.compare import DRIFT_PPM, RECORD_MS
from coterie.ledger import Ledger
from coterie.sim.consumer import Habits
from coterie.sim.machine import Machine
from coterie.sim.plan import Plan
from coterie.sim.run import simulate
from coterie.sim.steps import Come, Leave, PlanStep, Restart
from coterie.sim.world import Observer, World
from coterie.structs import replace

GROUP, TOPIC = "g", "t"
FIRST_MS = 4_000
SETTLE_MS = 60_000
"""The time in which the heartbeats of members spread, as in a group that has run for a while."""
TAIL_MS = 20_000
MAX_MEMBERS = 60
MAX_MINUTES = 60
"""Larger deployments are not simulated: that would take longer than a reader waits."""
_WANTED = "rolling-deployment"


@dataclass(frozen=True, slots=True)
class Saving:
    """The figures of one simulated variant."""

    name: str
    rebalances: int
    unassigned_ms: int


@dataclass(frozen=True, slots=True)
class _Variant:
    name: str
    assignor: type[Assignor] = Range
    is_static: bool = False


VARIANTS = (
    _Variant("as it was (range, no static members)"),
    _Variant("cooperative-sticky", CooperativeSticky),
    _Variant("static members", is_static=True),
)


@dataclass(frozen=True, slots=True)
class _Slot:
    """One place in the group: the process that was replaced, and the one that took its place."""

    name: str
    stops_ms: int
    starts_ms: int


def with_savings(history: GroupHistory, finding: Finding) -> Finding:
    """Return a finding about a deployment with what would have been saved; another finding as it is."""
    if finding.name != _WANTED:
        return finding
    figures = savings(history, finding)
    if not figures:
        return finding
    was, *others = figures
    compared = "; ".join(f"{one.name}: {one.rebalances} and {one.unassigned_ms / 1_000:.1f}" for one in others)
    text = (
        f" Simulated from the same events (rebalances and unassigned partition-seconds): {was.name}: {was.rebalances} "
        f"and {was.unassigned_ms / 1_000:.1f}; {compared}."
    )
    return replace(finding, advice=finding.advice + text)


def savings(history: GroupHistory, finding: Finding) -> list[Saving]:
    """Return the figures of each variant; none if the deployment is too large, or its partitions are not known."""
    partitions = len({one.partition for one in history.intervals})
    before = [one for one in history.stays if is_present(one, finding.from_ms - 1)]
    slots = _slots(history, finding, before)
    minutes = (finding.to_ms - finding.from_ms) / 60_000
    if not partitions or not slots or len(before) > MAX_MEMBERS or minutes > MAX_MINUTES:
        return []
    return [_run(variant, len(before), slots, partitions) for variant in VARIANTS]


def _slots(history: GroupHistory, finding: Finding, before: Sequence[MemberSpan]) -> list[_Slot]:
    """Pair each end in the deployment with the next join that is not yet taken."""
    ends = sorted((one for one in before if _is_within(gone_ms(one), finding)), key=gone_ms)
    joins = sorted(one.joined_ms.value or 0 for one in history.stays if _is_within(one.joined_ms.value, finding))
    start = finding.from_ms - SETTLE_MS - FIRST_MS
    slots = []
    for index, (end, join) in enumerate(zip(ends, joins, strict=False)):
        stops, starts = gone_ms(end) - start, join - start
        slots.append(_Slot(f"c{index}", stops, max(starts, stops + 500)))
    return slots


def _is_within(at_ms: int | None, finding: Finding) -> bool:
    return at_ms is not None and finding.from_ms <= at_ms <= finding.to_ms


def _run(variant: _Variant, members: int, slots: Sequence[_Slot], partitions: int) -> Saving:
    habits: Mapping[str, Habits] = {
        f"c{index}": Habits(
            assignors=(variant.assignor(),), instance_id=f"i{index}" if variant.is_static else None, poll_ms=10_000
        )
        for index in range(members)
    }
    steps: list[PlanStep] = [Come(at_ms=FIRST_MS, slot=name, habits=one) for name, one in habits.items()]
    for slot in slots:
        steps.append(Leave(at_ms=slot.stops_ms, slot=slot.name))
        steps.append(Restart(at_ms=slot.starts_ms, slot=slot.name, habits=habits[slot.name]))
    length = max(slot.starts_ms for slot in slots) + TAIL_MS
    plan = Plan(
        1,
        "a deployment",
        length,
        members,
        tuple(sorted(steps, key=lambda step: step.at_ms)),
        {TOPIC: partitions},
        {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1},
        RECORD_MS,
        drift_ppm=DRIFT_PPM,
    )
    observer: list[_Counting] = []

    def watch(world: World) -> Observer:
        observer.append(_Counting(world))
        return observer[0]

    simulate(plan, [watch])
    deployment = [one for one in observer[0].ledger.rebalances_of(GROUP) if one.began_ms >= observer[0].begin_ms]
    return Saving(variant.name, len(deployment), sum(one.unassigned_ms or 0 for one in deployment))


class _Counting(Observer):
    name = "rebalances of a deployment"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ledger = Ledger()
        self.begin_ms = 1 << 62
        world.schedule.at(SETTLE_MS, self._begin, None)

    def _begin(self, _about: object) -> None:
        """Count from the deployment on; the times of facts are those of the broker's wall clock."""
        known = self.ledger.rebalances_of(GROUP)
        self.begin_ms = known[-1].began_ms + 1 if known else 0

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        self.ledger.add(fact)
