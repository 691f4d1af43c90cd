"""Rebalances that have ended, and their totals since the start: what metrics and traces are made of."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from coterie.diagnosis import Bound, ExplainedRebalance
from coterie.diagnosis.evidence import UNKNOWN_TEXT
from coterie.ledger import Rebalance, RebalanceOutcome

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The limits of the durations of rebalances, in seconds; the last one is Kafka's default of max.poll.interval.ms."""


@dataclass(frozen=True, slots=True)
class EndedRebalance:
    """A rebalance that has ended, from whatever source; None is unknown."""

    group_id: str
    number: int
    cause: str
    member_id: str
    began_ms: int | None
    ended_ms: int
    unassigned_ms: int | None
    moved: int | None
    outcome: str
    joined_after_ms: Mapping[str, int]

    @property
    def took_ms(self) -> int | None:
        return None if self.began_ms is None else self.ended_ms - self.began_ms

    @property
    def was_lost(self) -> bool:
        return self.outcome == RebalanceOutcome.LOST

    @classmethod
    def of_ledger(cls, one: Rebalance) -> EndedRebalance:
        return cls(
            one.group_id,
            one.old_generation_id + 1 if one.generation_id is None else one.generation_id,
            str(one.cause),
            one.culprit,
            one.began_ms if one.has_times else None,
            one.ended_ms if one.ended_ms is not None else one.began_ms,
            one.unassigned_ms,
            len(one.moves),
            str(one.outcome),
            dict(one.joined_after_ms),
        )

    @classmethod
    def of_history(cls, one: ExplainedRebalance) -> EndedRebalance | None:
        """Return a rebalance of a history, if its end is known."""
        if one.ended_ms.value is None:
            return None
        is_exact = one.began_ms.bound is Bound.EXACT and one.ended_ms.bound is Bound.EXACT
        return cls(
            one.group_id,
            one.number,
            one.cause.value or UNKNOWN_TEXT,
            one.member.value or "",
            one.began_ms.value if is_exact else None,
            one.ended_ms.value,
            one.unassigned_ms.value if one.unassigned_ms.bound is not Bound.AT_MOST else None,
            None if one.moves.value is None else len(one.moves.value),
            one.outcome.value or UNKNOWN_TEXT,
            dict(one.joined_after_ms.value or ()),
        )


@dataclass(slots=True)
class Totals:
    causes: Counter[str] = field(default_factory=Counter)
    durations: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """How many rebalances fell between two limits; those of unknown duration are in none."""
    duration_ms: int = 0
    unassigned_ms: int = 0
    moved: int = 0

    def add(self, one: EndedRebalance) -> None:
        self.causes[one.cause] += 1
        self.unassigned_ms += one.unassigned_ms or 0
        self.moved += one.moved or 0
        if one.took_ms is not None:
            self.duration_ms += one.took_ms
            self.durations[bisect_left(BUCKETS_S, one.took_ms / 1_000)] += 1
