"""Questions of several detectors about members: who went and came back, and which rebalance that caused."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

from coterie.diagnosis.cost import cost_of
from coterie.diagnosis.evidence import STRENGTH, Evidence, Grade, Statement
from coterie.diagnosis.model import Cost, ExplainedRebalance, Finding, GroupHistory, MemberSpan, Severity

NEAR_MS = 2_000
MAX_EVIDENCE = 20
"""How much evidence a finding lists."""


@dataclass(frozen=True, slots=True)
class Return:
    """A process that went and came back, known by its instance id, or by its client id and host."""

    before: MemberSpan
    after: MemberSpan
    gone_ms: int
    back_ms: int

    @property
    def away_ms(self) -> int:
        """Return for how long it was away; negative if it came back before the group noticed."""
        return self.back_ms - self.gone_ms

    @property
    def is_same_process(self) -> bool:
        """Return whether it kept its member id: a process that is started again has another."""
        return self.before.member_id == self.after.member_id


@dataclass
class Context:
    """A history, and what is computed from it once for all detectors."""

    history: GroupHistory
    explained: set[int] = field(default_factory=set)
    """The stays, by identity of the object, that a finding about the whole group explains, such as a deployment."""

    @cached_property
    def stays(self) -> list[MemberSpan]:
        return self.history.stays

    @cached_property
    def gone(self) -> list[MemberSpan]:
        """Return the stays that have ended, in the order of their ends."""
        return sorted((one for one in self.stays if one.departure.is_known), key=gone_ms)

    @cached_property
    def returns(self) -> list[Return]:
        """Return who went and came back. Members that share client id and host cannot be told apart: none of them."""
        found: list[Return] = []
        by_identity: dict[tuple[str, str], list[MemberSpan]] = {}
        for one in self.stays:
            by_identity.setdefault(one.identity, []).append(one)
        for stays in by_identity.values():
            for before, after in pairwise(stays):
                if not before.departure.is_known or after.joined_ms.value is None:
                    continue
                overlaps = sum(1 for one in stays if is_present(one, after.joined_ms.value - 1)) > 1
                if not overlaps:
                    found.append(Return(before, after, gone_ms(before), after.joined_ms.value))
        return sorted(found, key=lambda one: one.back_ms)

    def return_of(self, stay: MemberSpan) -> Return | None:
        """Return how a member came back after this stay; None if it did not."""
        return next((one for one in self.returns if one.before is stay), None)

    def rebalances_of(self, stays: Iterable[MemberSpan]) -> list[ExplainedRebalance]:
        """Return the rebalances that these members caused by joining or going."""
        found: dict[int, ExplainedRebalance] = {}
        for stay in stays:
            for time in (stay.joined_ms.value, stay.gone_ms.value):
                one = self.rebalance_at(time, stay.member_id) if time is not None else None
                if one is not None:
                    found[id(one)] = one
        return sorted(found.values(), key=lambda one: (one.at_ms, one.number))

    def rebalances_of_ends(self, stays: Iterable[MemberSpan]) -> list[ExplainedRebalance]:
        """Return the rebalances that these members caused by going."""
        return self.rebalances_of_steps((gone_ms(one), one.member_id) for one in stays)

    def rebalances_of_steps(self, steps: Iterable[tuple[int, str]]) -> list[ExplainedRebalance]:
        """Return the rebalances at these times, which these members caused."""
        found = [self.rebalance_at(at_ms, member_id) for at_ms, member_id in steps]
        return list({id(one): one for one in found if one is not None}.values())

    def rebalance_at(self, at_ms: int, member_id: str = "") -> ExplainedRebalance | None:
        """Return the rebalance at a time: the one that the member caused, else the first that had not ended by then."""
        late = [one for one in self.history.rebalances if _end(one) >= at_ms - NEAR_MS]
        caused = [one for one in late if one.member.value == member_id and abs(one.at_ms - at_ms) <= 2 * NEAR_MS]
        return next(iter([*caused, *late]), None)

    def cost(self, rebalances: Iterable[ExplainedRebalance], crashed: Iterable[MemberSpan] = ()) -> Cost:
        return cost_of(self.history, rebalances, crashed)

    def finding(
        self,
        name: str,
        severity: Severity,
        summary: str,
        advice: str,
        *,
        members: Sequence[MemberSpan] = (),
        rebalances: Sequence[ExplainedRebalance] = (),
        evidence: Iterable[Evidence] = (),
        inferred: str = "",
        times: tuple[int, int] | None = None,
        crashed: Sequence[MemberSpan] = (),
    ) -> Finding:
        """Return a finding. `inferred` says on what it rests, if no source says it itself."""
        proof = sorted(dict.fromkeys(evidence), key=lambda one: (one.at_ms or 0, one.order))[:MAX_EVIDENCE]
        begin, end = times or _times(members, rebalances)
        if inferred:
            proof.insert(0, Evidence(Grade.INFERRED, "", end, inferred))
        grades = [one.grade for one in proof]
        return Finding(
            name,
            severity,
            self.history.group_id,
            summary,
            advice,
            begin,
            end,
            tuple(dict.fromkeys(one.name for one in members)),
            tuple(one.number for one in rebalances),
            tuple(proof),
            max(grades, key=lambda grade: STRENGTH[grade], default=Grade.INFERRED),
            self.cost(rebalances, crashed),
        )


def gone_ms(stay: MemberSpan) -> int:
    """Return when a member went; 0 if that is not known."""
    return stay.gone_ms.value or 0


def is_present(stay: MemberSpan, at_ms: int) -> bool:
    joined = stay.joined_ms.value or 0
    return joined <= at_ms and (not stay.departure.is_known or gone_ms(stay) > at_ms)


def evidence_of(*statements: Statement[Any]) -> list[Evidence]:
    """Return the strongest evidence of each statement."""
    return [one.claims[0].evidence for one in statements if one.claims]


def seconds(ms: float | None) -> str:
    """Return a duration for a sentence."""
    if ms is None:
        return "an unknown time"
    if ms < 1_000:
        return f"{ms:.0f} ms"
    return f"{ms / 1_000:.1f} s" if ms < 60_000 else f"{ms / 60_000:.1f} min"


def times_in_words(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def names(stays: Iterable[MemberSpan], most: int = 3) -> str:
    """Return the names of members for a sentence."""
    found = list(dict.fromkeys(one.name for one in stays))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def _times(members: Sequence[MemberSpan], rebalances: Sequence[ExplainedRebalance]) -> tuple[int, int]:
    times = [one.at_ms for one in rebalances] + [_end(one) for one in rebalances]
    times += [time for one in members for time in (one.gone_ms.value,) if time is not None]
    return min(times, default=0), max(times, default=0)


def _end(one: ExplainedRebalance) -> int:
    return one.ended_ms.value if one.ended_ms.value is not None else one.at_ms
