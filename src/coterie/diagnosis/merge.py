"""Merge the histories of one group from several sources into one.

The same rebalance has the same number in every source, at about the same time. Each statement keeps all claims, so the
strongest wins and a claim that contradicts it is still there (`ExplainedRebalance.disagreements`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from coterie.diagnosis.cost import add_dead_time, add_upper_bound
from coterie.diagnosis.evidence import STRENGTH, Bound, Grade, Statement, merged
from coterie.diagnosis.model import ExplainedRebalance, GroupHistory, MemberSpan
from coterie.diagnosis.samples import NO_NUMBER
from coterie.ledger import Interval
from coterie.structs import replace

MATCH_MS = 5_000
"""Times of the same rebalance in two sources differ by less; after a group was deleted its numbers begin again."""


def merge(histories: Iterable[GroupHistory]) -> GroupHistory:
    """Return one history of one group. Neither the order of the sources nor a repetition makes a difference."""
    sources = sorted(histories, key=_order)
    if not sources:
        raise ValueError("there is no history to merge")
    first = sources[0]
    if any(one.group_id != first.group_id for one in sources):
        raise ValueError("histories of different groups cannot be merged")
    rebalances, stays = _merged_rebalances(sources), _merged_stays(sources)
    members = {member.member_id: member for member in stays}
    times = [time for source in sources for time in (source.from_ms, source.to_ms) if time is not None]
    history = GroupHistory(
        first.group_id,
        rebalances[-1].group_type if rebalances else first.group_type,
        rebalances,
        members,
        [stay for stay in stays if members[stay.member_id] is not stay],
        _best_intervals(sources),
        sorted({sample for one in sources for sample in one.samples}, key=lambda sample: sample.at_ms),
        sorted({event for one in sources for event in one.events}, key=lambda event: (event.at_ms, event.what)),
        frozenset().union(*(one.grades for one in sources)),
        min(times, default=None),
        max(times, default=None),
    )
    for one in rebalances:
        add_upper_bound(one)
        add_dead_time(history, one)
    return history


def merge_all(sources: Iterable[dict[str, GroupHistory]]) -> dict[str, GroupHistory]:
    """Merge sources of many groups: one history for each group."""
    by_group: dict[str, list[GroupHistory]] = {}
    for source in sources:
        for group_id, history in source.items():
            by_group.setdefault(group_id, []).append(history)
    return {group_id: merge(histories) for group_id, histories in sorted(by_group.items())}


def _order(history: GroupHistory) -> tuple[int, int, int, str]:
    strength = min((STRENGTH[Grade(grade)] for grade in history.grades), default=len(STRENGTH))
    return strength, history.from_ms or 0, history.to_ms or 0, repr(sorted(history.members))


# --- rebalances -------------------------------------------------------------------------------------------------------


def _merged_rebalances(sources: Sequence[GroupHistory]) -> list[ExplainedRebalance]:
    by_number: dict[int, list[tuple[int, ExplainedRebalance]]] = {}
    for index, source in enumerate(sources):
        for one in source.rebalances:
            by_number.setdefault(one.number, []).append((index, one))
    without_number = [one for _, one in by_number.pop(NO_NUMBER, [])]
    found = [_one(same) for number in sorted(by_number) for same in _clusters(by_number[number])]
    found += [one for one in without_number if not any(_are_near(one, other) for other in found)]
    return sorted(found, key=lambda one: (_when(one)[1], one.number))


def _clusters(same_number: Sequence[tuple[int, ExplainedRebalance]]) -> list[list[ExplainedRebalance]]:
    """Put those together that are one rebalance: near in time, and at most one of each source."""
    clusters: list[list[tuple[int, ExplainedRebalance]]] = []
    for index, one in sorted(same_number, key=lambda pair: (_when(pair[1])[1], pair[0])):
        last = clusters[-1] if clusters else []
        if last and all(other != index for other, _ in last) and any(_are_near(one, each) for _, each in last):
            last.append((index, one))
        else:
            clusters.append([(index, one)])
    return [[one for _, one in cluster] for cluster in clusters]


def _when(one: ExplainedRebalance) -> tuple[int, int]:
    """Return the first and the last time that is known of a rebalance."""
    times = [time.value for time in (one.began_ms, one.joined_ms, one.ended_ms) if time.value is not None]
    return min(times, default=0), max(times, default=0)


def _are_near(one: ExplainedRebalance, other: ExplainedRebalance) -> bool:
    (begin, end), (other_begin, other_end) = _when(one), _when(other)
    return begin - MATCH_MS <= other_end and other_begin - MATCH_MS <= end


def _one(same: Sequence[ExplainedRebalance]) -> ExplainedRebalance:
    """Merge what several sources say about one rebalance."""
    first = same[0]
    statements: dict[str, Any] = {name: merged([one.statements[name] for one in same]) for name in first.statements}
    ended = statements["ended_ms"]
    if ended.bound is Bound.EXACT and ended.value is not None:  # "running" was true when a source last looked
        finished = tuple(claim for claim in statements["outcome"].claims if claim.value != "running")
        statements["outcome"] = Statement(finished, statements["outcome"].agrees)
    return replace(first, spans=min(one.spans for one in same), **statements)


# --- members and ownership --------------------------------------------------------------------------------------------


def _merged_stays(sources: Sequence[GroupHistory]) -> list[MemberSpan]:
    """Put those stays together that are one: of the same member, at the same time, at most one of each source."""
    by_id: dict[str, list[tuple[int, MemberSpan]]] = {}
    for index, source in enumerate(sources):
        for member in source.stays:
            by_id.setdefault(member.member_id, []).append((index, member))
    found = [_one_member(same) for stays in by_id.values() for same in _same_stays(stays)]
    return sorted(found, key=lambda member: (member.joined_ms.value or 0, member.member_id))


def _same_stays(stays: Sequence[tuple[int, MemberSpan]]) -> list[list[MemberSpan]]:
    clusters: list[list[tuple[int, MemberSpan]]] = []
    for index, one in sorted(stays, key=lambda pair: (_stay(pair[1]), pair[0])):
        begin, _ = _stay(one)
        for cluster in reversed(clusters):
            is_new = all(other != index for other, _ in cluster)
            if is_new and any(begin - MATCH_MS <= _stay(each)[1] for _, each in cluster):
                cluster.append((index, one))
                break
        else:
            clusters.append([(index, one)])
    return [[one for _, one in cluster] for cluster in clusters]


def _stay(one: MemberSpan) -> tuple[int, int]:
    """Return from when until when a member was there, as far as the source knows."""
    begin = one.joined_ms.value if one.joined_ms.value is not None else one.gone_ms.value or 0
    return begin, one.gone_ms.value if one.gone_ms.value is not None else 1 << 62


def _one_member(same: Sequence[MemberSpan]) -> MemberSpan:
    """Merge what several sources say about one member; a name that one source lacks comes from another."""
    found: dict[str, Any] = {}
    for each in fields(MemberSpan):
        values = [getattr(one, each.name) for one in same]
        if isinstance(values[0], Statement):
            found[each.name] = merged(values)
        else:
            found[each.name] = next((value for value in values if value), values[0])
    return MemberSpan(**found)


def _best_intervals(sources: Sequence[GroupHistory]) -> list[Interval]:
    """Return who owned what from the strongest source that knows it; sources are sorted by strength."""
    return next((list(one.intervals) for one in sources if one.intervals), [])
