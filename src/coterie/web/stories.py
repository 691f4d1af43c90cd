"""A rebalance on the page: a row for the bands, and the story with its evidence for the one that is chosen.

An unknown value is null in a row, which the page shows as unknown, and the word `unknown` in a story.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from coterie.diagnosis import Bound, Evidence, ExplainedRebalance, Grade, GroupHistory, Statement, said
from coterie.diagnosis.cost import dead_time_ms
from coterie.diagnosis.evidence import UNKNOWN_TEXT
from coterie.facts import Cause

MOST_WAYS = 50
"""Pairs of old and new owner that a story lists."""
MOST_LATE = 20
PHASES: Mapping[bool, tuple[str, str, str, str]] = {
    False: ("generation", "all had joined", "assignment stored", "last to join"),
    True: ("epoch", "target assignment computed", "all had reconciled", "last to reconcile"),
}
"""The names of a rebalance's number, of the ends of its phases, and of the last member; True is a consumer group
(KIP-848)."""


def row_of(one: ExplainedRebalance, history: GroupHistory, avoidable_ms: int | None) -> dict[str, Any]:
    """Return what the bands need of a rebalance."""
    moves = one.moves.value
    member = one.member.value
    return {
        "number": one.number,
        "at": one.at_ms,
        "began": one.began_ms.value if one.began_ms.bound is Bound.EXACT else None,
        "joined": one.joined_ms.value,
        "ended": one.ended_ms.value,
        "cause": one.cause.value,
        "grade": None if one.cause.grade is None else str(one.cause.grade),
        "member": history.name_of(member) if member else None,
        "moved": None if moves is None else len(moves),
        "unassigned": one.unassigned_ms.value,
        "least": one.unassigned_ms.bound is Bound.AT_LEAST,
        "most": one.unassigned_ms.bound is Bound.AT_MOST,
        "avoidable": avoidable_ms,
        "outcome": one.outcome.value,
    }


def story_of(one: ExplainedRebalance, history: GroupHistory) -> dict[str, Any]:
    """Return every statement about a rebalance with its evidence, as text."""
    number, joined, ended, last = PHASES[one.is_of_consumer_group]

    def name(member_id: str) -> str:
        return history.name_of(member_id) if member_id else "no member"

    statements = [
        _said("cause", one.cause),
        _said("member", one.member, name),
        _said("reason", one.reason),
        _said("began", one.began_ms, _time),
        _said(joined, one.joined_ms, _time),
        _said(ended, one.ended_ms, _time),
        _said("outcome", one.outcome),
        _said(last, one.last_to_join, name),
        _said("removed", one.dropped, lambda gone: "; ".join(f"{name(who)}: {why}" for who, why in gone) or "nobody"),
        _said("members after it", one.members),
        _said("assignor", one.assignor),
        _said("partitions moved", one.moves, len),
        _said("partitions kept", one.kept),
        _said("unassigned", one.unassigned_ms, _partition_seconds),
        _said("until the session of a crashed member ended", _dead(one, history), _partition_seconds),
    ]
    took_ms, bound = one.took
    ways = Counter((name(move.old_owner) if move.old_owner else "nobody", name(move.new_owner)) for move in _moves(one))
    return {
        "number": one.number,
        "at": one.at_ms,
        "counts": number,
        "took": UNKNOWN_TEXT if took_ms is None else f"{bound} {duration(took_ms)}".strip(),
        "statements": statements,
        "moves": [[old, new, count] for (old, new), count in ways.most_common(MOST_WAYS)],
        "more_moves": max(len(ways) - MOST_WAYS, 0),
        "late": _late(one, history),
    }


def _dead(one: ExplainedRebalance, history: GroupHistory) -> Statement[int]:
    """Return what the session of the member cost that caused it; at most, since it may have lived a little longer."""
    member = history.members.get(one.member.value or "")
    if one.dead_ms.is_known or one.cause.value != Cause.SESSION_EXPIRED or member is None:
        return one.dead_ms
    rests = f"the session of {member.name} lasted {duration(member.session_timeout_ms.value or 0)} after its last sign"
    where = one.cause.evidence[0].source if one.cause.evidence else ""
    evidence = Evidence(Grade.INFERRED, where, member.gone_ms.value, rests)
    return said(dead_time_ms(history, member), evidence, Bound.AT_MOST)


def _moves(one: ExplainedRebalance) -> Sequence[Any]:
    return one.moves.value or ()


def _late(one: ExplainedRebalance, history: GroupHistory) -> list[list[Any]]:
    """Return the members that joined last, with the time after the begin."""
    after = sorted(one.joined_after_ms.value or (), key=lambda each: -each[1])
    return [[history.name_of(who), ms] for who, ms in after[:MOST_LATE]]


def _said(name: str, statement: Statement[Any], show: Any = str) -> dict[str, Any]:
    best = statement.best
    value = UNKNOWN_TEXT if best is None else f"{best.bound} {show(best.value)}".strip()
    return {
        "name": name,
        "value": value,
        "grade": None if statement.grade is None else str(statement.grade),
        "evidence": [_evidence(each) for each in statement.evidence],
        "contradicts": [
            {"value": str(show(claim.value)), **_evidence(claim.evidence)} for claim in statement.disagreements
        ],
    }


def _evidence(one: Evidence) -> dict[str, Any]:
    return {"grade": str(one.grade), "source": one.source, "at": one.at_ms, "says": one.says}


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.") + f"{at_ms % 1_000:03} UTC"


def _partition_seconds(ms: int) -> str:
    return f"{ms / 1_000:.2f} partition-seconds"


def duration(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
