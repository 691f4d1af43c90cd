"""Rebalances as Coterie's own broker tells them, in facts: exact, with cause and culprit."""

from __future__ import annotations

from coterie.ledger import Bookmark, Rebalance, read_fact
from coterie.spark.history.group_rows import CLASSIC, At, Row

__all__ = ["WHOLE", "observe", "observed_rebalance"]

WHOLE = "from its first cause to its end"


def observe(mark: Bookmark, data: bytes, at: At) -> Row | None:
    """The rebalance that this fact ended, if any. MalformedError if it cannot be read."""
    fact = read_fact(data)
    if fact is None:
        return None
    ended = mark.tell(fact)
    return None if ended is None else observed_rebalance(ended) | at.columns()


def observed_rebalance(one: Rebalance) -> Row:
    moved = [
        {
            "topic": move.partition[0],
            "partition": move.partition[1],
            "old_owner": move.old_owner,
            "new_owner": move.new_owner,
        }
        for move in sorted(one.moves, key=lambda move: move.partition)
    ]
    before = {*one.waits_for, *one.dropped}
    return {
        "group_id": one.group_id,
        "evidence": "observed",
        "protocol": CLASSIC,
        "from_generation": one.old_generation_id,
        "generation": one.generation_id,
        "missing": 0,
        "cause": str(one.cause),
        "culprit": one.culprit or None,
        "reason": one.reason,
        "outcome": str(one.outcome),
        "began_ms": one.began_ms,
        "ended_ms": one.ended_ms,
        "duration_ms": one.took_ms,
        "duration_is": WHOLE,
        "members": len(one.joined_after_ms),
        "came": sorted(one.joined_after_ms.keys() - before),
        "left": sorted(one.dropped),
        "last_to_join": one.last_to_join,
        "moved": moved,
        "kept": one.kept,
        "unassigned_ms": one.unassigned_ms,
    }
