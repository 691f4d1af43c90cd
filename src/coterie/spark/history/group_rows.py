"""What is told of a group, and where in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["CLASSIC", "CONSUMER", "At", "Place", "Row", "Told", "derived_rebalance"]

Row = dict[str, Any]
Place = tuple[str, int]
"""Topic (its id in the new protocol) and partition."""

CLASSIC, CONSUMER = "classic", "consumer"


class At(NamedTuple):
    """Where the record stands, and when it was written."""

    log_partition: int
    log_offset: int
    log_ms: int

    def columns(self) -> Row:
        return self._asdict()


@dataclass(slots=True)
class Told:
    """Rows of the tables of the same names (`coterie.spark.schemas`)."""

    generations: list[Row] = field(default_factory=list)
    intervals: list[Row] = field(default_factory=list)
    rebalances: list[Row] = field(default_factory=list)


def derived_rebalance(
    group_id: str,
    protocol: str,
    at: At,
    *,
    generations: tuple[int, int],
    cause: str,
    outcome: str,
    came: Sequence[str],
    left: Sequence[str],
    members: int,
    change: Mapping[str, Any],
    began_ms: int | None,
    duration: tuple[int | None, str],
) -> Row:
    before, after = generations
    return {
        "group_id": group_id,
        "evidence": "derived",
        "protocol": protocol,
        "from_generation": before,
        "generation": after,
        "missing": after - before - 1,
        "cause": cause,
        "outcome": outcome,
        "began_ms": began_ms,
        "ended_ms": at.log_ms,
        "duration_ms": duration[0],
        "duration_is": duration[1],
        "members": members,
        "came": list(came),
        "left": list(left),
        **change,
        **at.columns(),
    }
