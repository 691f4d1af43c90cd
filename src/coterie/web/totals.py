"""Totals of a group's rebalances since the start, which only grow: what metrics count."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from coterie.ledger import Rebalance

__all__ = ["BUCKETS_S", "Totals"]

BUCKETS_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The limits of the durations of rebalances, in seconds. The last one are Kafka's five minutes of
max.poll.interval.ms, which an eager rebalance may last."""


@dataclass(slots=True)
class Totals:
    causes: Counter[str] = field(default_factory=Counter)
    durations: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))
    """How many rebalances fell between two limits; those of unknown duration are in none."""
    duration_ms: int = 0
    unassigned_ms: int = 0
    moved: int = 0

    def add(self, one: Rebalance) -> None:
        self.causes[str(one.cause)] += 1
        self.unassigned_ms += one.unassigned_ms or 0
        self.moved += len(one.moves)
        if one.took_ms is not None:
            self.duration_ms += one.took_ms
            self.durations[bisect_left(BUCKETS_S, one.took_ms / 1_000)] += 1
