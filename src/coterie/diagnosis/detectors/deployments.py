"""Detectors about many members at once: rolling deployments and autoscalers. What they explain, others leave out."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.diagnosis.context import Context, evidence_of, gone_ms, is_present, names, seconds
from coterie.diagnosis.model import Departure, Finding, MemberSpan, Severity

APART_MS = 180_000
"""Two steps of one deployment are at most so far apart."""
MIN_MEMBERS = 3
SHARE = 0.6
"""How much of the group a rolling deployment replaces."""
STORM_STEPS = 6
STORM_TURNS = 3
"""How often an autoscaler must change its direction within the window."""
BURST_MS = 60_000


@dataclass(frozen=True, slots=True)
class _Step:
    """A member that joined or went."""

    at_ms: int
    stay: MemberSpan
    is_join: bool


def rolling_deployment(context: Context) -> list[Finding]:
    """Find members that were replaced one after the other: one finding for all rebalances of the deployment."""
    found = []
    for steps in _runs(_steps(context)):
        joins = [one.stay for one in steps if one.is_join]
        ends = [one.stay for one in steps if not one.is_join]
        before = [one for one in context.stays if is_present(one, steps[0].at_ms - 1)]
        replaced = [one for one in ends if any(one is other for other in before)]
        is_rolling = (
            len(joins) >= MIN_MEMBERS
            and len(replaced) >= max(MIN_MEMBERS, SHARE * len(before))
            and abs(len(joins) - len(ends)) <= 1
            and len({one.identity for one in ends}) == len(ends)
            and not any(one.instance_id for one in replaced)
            and _alternates(steps)
        )
        if not is_rolling:
            continue
        stays = [*joins, *ends]
        context.explained.update(id(one) for one in stays)
        rebalances = context.rebalances_of_steps([(one.at_ms, one.stay.member_id) for one in steps])
        found.append(
            context.finding(
                "rolling-deployment",
                Severity.WARNING,
                f"{len(replaced)} members were replaced one after the other within "
                f"{seconds(steps[-1].at_ms - steps[0].at_ms)}: {len(rebalances)} rebalances. The group has no static "
                "members.",
                "Set group.instance.id, unique and stable for each process: a member that is back within "
                "session.timeout.ms causes no rebalance. Without it, the cooperative-sticky assignor or "
                "group.protocol=consumer let members read on in the partitions that they keep.",
                members=replaced,
                rebalances=rebalances,
                evidence=evidence_of(*(part for one in replaced for part in (one.departure,))),
                inferred=f"{len(replaced)} members went and {len(joins)} came, each once, and the group kept its size",
                times=(steps[0].at_ms, steps[-1].at_ms),
            )
        )
    return found


def autoscaler_storm(context: Context) -> list[Finding]:
    """Find a group whose size goes up and down again and again."""
    steps = [one for one in _steps(context) if id(one.stay) not in context.explained]
    found = []
    for run in _runs(steps):
        bursts = _bursts(run)
        turns = [burst for burst in bursts if len(burst) > 1]
        if len(run) < STORM_STEPS or len(turns) < STORM_TURNS or len(turns) < len(bursts) / 2:
            continue
        stays = list({id(one.stay): one.stay for one in run}.values())
        if len({one.identity for one in stays}) < len(stays) / 2:
            continue  # the same processes again and again: they flap
        context.explained.update(id(one) for one in stays)
        rebalances = context.rebalances_of_steps([(one.at_ms, one.stay.member_id) for one in run])
        found.append(
            context.finding(
                "autoscaler-storm",
                Severity.WARNING,
                f"The size of the group went up and down {len(turns)} times within "
                f"{seconds(run[-1].at_ms - run[0].at_ms)}: {sum(one.is_join for one in run)} members joined and "
                f"{sum(not one.is_join for one in run)} went, for example {names(stays)}.",
                "Let the autoscaler wait longer before it changes the number of replicas, and scale by lag averaged "
                "over minutes: each change is a rebalance, which makes more lag.",
                members=stays,
                rebalances=rebalances,
                evidence=evidence_of(*(one.joined_ms for one in stays)),
                inferred=f"{len(turns)} bursts of members that joined or went together",
                times=(run[0].at_ms, run[-1].at_ms),
            )
        )
    return found


def _steps(context: Context) -> list[_Step]:
    """Return joins and ends in their order, without static members that were replaced: these need no rebalance."""
    steps = [_Step(one.joined_ms.value, one, True) for one in context.stays if one.joined_ms.value is not None]
    steps += [_Step(gone_ms(one), one, False) for one in context.gone if one.departure.value != Departure.REPLACED]
    return sorted(steps, key=lambda one: one.at_ms)


def _runs(steps: list[_Step]) -> list[list[_Step]]:
    """Return the steps between pauses. The first joins of a group are no run: it grows."""
    runs: list[list[_Step]] = []
    for step in steps:
        if runs and step.at_ms - runs[-1][-1].at_ms <= APART_MS:
            runs[-1].append(step)
        else:
            runs.append([step])
    trimmed = []
    for run in runs:
        first_end = next((at for at, one in enumerate(run) if not one.is_join), len(run))
        trimmed.append(run[_start(run, first_end) :])
    return [run for run in trimmed if run]


def _start(run: list[_Step], first_end: int) -> int:
    """Return where a deployment in a run begins: at the first end, or at the join just before it (surge)."""
    if first_end == len(run):
        return len(run)
    is_surge = first_end > 0 and run[first_end].at_ms - run[first_end - 1].at_ms <= BURST_MS / 4
    return first_end - 1 if is_surge and first_end > MIN_MEMBERS else first_end


def _alternates(steps: list[_Step]) -> bool:
    """Return whether joins and ends take turns, up to three at a time."""
    return all(len(burst) <= MIN_MEMBERS for burst in _bursts(steps))


def _bursts(steps: list[_Step]) -> list[list[_Step]]:
    """Return the steps in the same direction."""
    bursts: list[list[_Step]] = []
    for step in steps:
        if bursts and bursts[-1][-1].is_join == step.is_join:
            bursts[-1].append(step)
        else:
            bursts.append([step])
    return bursts
