"""The cost of rebalances: unassigned partition-time, its needed and its avoidable part, and the records delayed.

Needed is what the best assignment had to move: the cooperative sticky assignor says which partitions, from the owners
before and the members after. All other time in which partitions were unassigned is avoidable. The time of a crashed
member until its session ended is counted apart: no assignor can shorten it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from coterie.assignors import CooperativeSticky, Member, Topic
from coterie.diagnosis.evidence import Bound, Evidence, Grade, said
from coterie.diagnosis.model import Cost, Departure, ExplainedRebalance, GroupHistory, MemberSpan
from coterie.facts import Cause
from coterie.ledger import Interval, Move

Partition = tuple[str, int]

_EAGER = frozenset({"range", "roundrobin", "sticky"})
"""Assignors with which every member gives up all partitions in each rebalance."""
MAX_PARTITIONS = 100_000
"""Above it, what had to move is not computed."""
_NEAR_MS = 600_000
"""Samples within this time of a rebalance show the rate at which records are produced."""


def cost_of(
    history: GroupHistory, rebalances: Iterable[ExplainedRebalance], crashed: Iterable[MemberSpan] = ()
) -> Cost:
    """Return the cost of rebalances, and of members that crashed."""
    parts = [rebalance_cost(history, one) for one in rebalances]
    dead = [dead_time_ms(history, member) for member in crashed]
    known = [one for one in dead if one is not None]
    return Cost(
        _sum(one.unassigned_ms for one in parts),
        _sum(one.needed_ms for one in parts),
        _sum(one.avoidable_ms for one in parts),
        _sum(one.at_most_ms for one in parts),
        sum(known) if known else None,
        _sum(one.records_delayed for one in parts),
        is_complete=all(one.is_complete for one in parts) and len(known) == len(dead),
    )


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def rebalance_cost(history: GroupHistory, one: ExplainedRebalance) -> Cost:
    """Return the cost of one rebalance; what its sources do not know is None."""
    unassigned, moves = one.unassigned_ms.value, one.moves.value
    if unassigned is None:
        return Cost(is_complete=False)
    if one.unassigned_ms.bound is Bound.AT_MOST:
        return Cost(at_most_ms=unassigned, is_complete=False)
    is_exact = one.unassigned_ms.bound is Bound.EXACT
    if moves is None:
        return Cost(unassigned, is_complete=False)
    needed = _needed_ms(history, one, moves)
    avoidable = None if needed is None else max(unassigned - needed, 0)
    delayed = _records_delayed(history, one, unassigned)
    return Cost(unassigned, needed, avoidable, records_delayed=delayed, is_complete=is_exact)


def add_upper_bound(one: ExplainedRebalance) -> None:
    """Infer the most that a rebalance of a classic group can have cost, if only its times and owners are known.

    With an eager assignor every partition is unassigned at most from the begin to the end of the rebalance.
    """
    took, bound = one.took
    moves, kept, end = one.moves.value, one.kept.value, one.ended_ms.best
    if one.unassigned_ms.is_known or took is None or moves is None or kept is None or end is None:
        return
    if bound is Bound.AT_LEAST or one.assignor.value not in _EAGER or one.is_of_consumer_group:
        return
    partitions = kept + sum(1 for move in moves if move.old_owner)
    rests = f"{one.assignor.value} is eager: {partitions} partitions, from the begin to the end of the rebalance"
    evidence = Evidence(Grade.INFERRED, end.evidence.source, end.evidence.at_ms, rests)
    one.unassigned_ms = said(took * partitions, evidence, Bound.AT_MOST, one.unassigned_ms.agrees)


def _needed_ms(history: GroupHistory, one: ExplainedRebalance, moves: Sequence[Move]) -> int | None:
    """Return the unassigned time of the partitions that had to move."""
    after_ms = one.ended_ms.value
    if after_ms is None:
        return None
    before, after = owners_at(history.intervals, after_ms, moves), owners_after(history.intervals, after_ms)
    if not after or len(after) > MAX_PARTITIONS:
        return None
    members = {*after.values(), *_members_at(history, after_ms)}
    had_to = must_move(before, members, history)
    gaps = [move.unassigned_ms or 0 for move in moves if move.partition in had_to]
    return sum(gaps)


def owners_after(intervals: Iterable[Interval], at_ms: int) -> dict[Partition, str]:
    """Return the owner of each partition just after a time."""
    return {
        one.partition: one.owner
        for one in intervals
        if one.began_ms <= at_ms and (one.ended_ms is None or one.ended_ms > at_ms)
    }


def owners_at(intervals: Iterable[Interval], at_ms: int, moves: Sequence[Move]) -> dict[Partition, str]:
    """Return the owners before a rebalance that ended at a time: those after it, with its moves undone."""
    owners = owners_after(intervals, at_ms)
    for move in moves:
        if move.old_owner:
            owners[move.partition] = move.old_owner
        else:
            owners.pop(move.partition, None)
    return owners


def _members_at(history: GroupHistory, at_ms: int) -> list[str]:
    return [
        one.member_id
        for one in history.stays
        if (one.joined_ms.value or 0) <= at_ms and (one.gone_ms.value is None or one.gone_ms.value > at_ms)
    ]


def must_move(before: Mapping[Partition, str], members: Collection[str], history: GroupHistory) -> set[Partition]:
    """Return the partitions that had to get another owner: those that the cooperative sticky assignor takes away."""
    sizes: Counter[str] = Counter()
    for topic, number in before:
        sizes[topic] = max(sizes[topic], number + 1)
    owned: dict[str, dict[str, list[int]]] = {member: {} for member in members}
    for (topic, number), owner in sorted(before.items()):
        if owner in owned:
            owned[owner].setdefault(topic, []).append(number)
    best = CooperativeSticky().assign(
        [
            Member(member, _topics_of(history, member, sizes), owned=owned[member], generation=1)
            for member in sorted(members)
        ],
        {topic: Topic(count) for topic, count in sizes.items()},
    )
    stays = {
        (topic, number): member
        for member, topics in best.items()
        for topic, numbers in topics.items()
        for number in numbers
    }
    return {partition for partition, owner in before.items() if stays.get(partition) != owner}


def _topics_of(history: GroupHistory, member_id: str, topics: Collection[str]) -> list[str]:
    member = history.members.get(member_id)
    subscribed = member.topics.value if member is not None else None
    return [topic for topic in sorted(topics) if subscribed is None or topic in subscribed]


# --- crashes and records ----------------------------------------------------------------------------------------------


def dead_time_ms(history: GroupHistory, member: MemberSpan) -> int | None:
    """Return the partition-time for which a crashed member was not replaced.

    It is at most that: the member may have lived on after its last heartbeat. None if it did not crash, or if its
    session timeout or its partitions are not known.
    """
    if member.departure.value != Departure.SESSION_EXPIRED or member.gone_ms.value is None:
        return None
    session_ms = member.session_timeout_ms.value
    if session_ms is None or not history.intervals:
        return None
    died_ms = member.gone_ms.value - session_ms
    gone_ms = member.gone_ms.value
    owned = [
        min(one.ended_ms or gone_ms, gone_ms) - max(one.began_ms, died_ms)
        for one in history.intervals
        if one.owner == member.member_id
        and (one.ended_ms is None or one.ended_ms >= died_ms)
        and one.began_ms < gone_ms
    ]
    return sum(max(time, 0) for time in owned)


def add_dead_time(history: GroupHistory, one: ExplainedRebalance) -> None:
    """Infer for how long the partitions of the crashed member behind a rebalance waited for the end of its session."""
    if one.cause.value != Cause.SESSION_EXPIRED or one.dead_ms.is_known:
        return
    stays = [stay for stay in history.stays if stay.member_id == one.member.value and stay.gone_ms.value is not None]
    near = min(stays, key=lambda stay: abs((stay.gone_ms.value or 0) - one.at_ms), default=None)
    dead = dead_time_ms(history, near) if near is not None else None
    if near is not None and dead is not None:
        rests = f"session timeout of {near.session_timeout_ms.value} ms, and the partitions that it owned"
        evidence = Evidence(Grade.INFERRED, near.departure.evidence[0].source, near.gone_ms.value, rests)
        one.dead_ms = said(dead, evidence, Bound.AT_MOST, one.dead_ms.agrees)


def _records_delayed(history: GroupHistory, one: ExplainedRebalance, unassigned_ms: int) -> int | None:
    """Return about how many records were produced to unassigned partitions, from the rate that samples show."""
    rate = produce_rate(history, one.at_ms)
    return None if rate is None else round(unassigned_ms / 1_000 * rate)


def produce_rate(history: GroupHistory, at_ms: int) -> float | None:
    """Return the records per second of an average partition around a time; None if no two samples show it."""
    near = [one for one in history.samples if abs(one.at_ms - at_ms) <= _NEAR_MS]
    if len(near) < 2 or near[-1].at_ms <= near[0].at_ms:
        return None
    first = {(one.topic, one.partition): one.end for one in near[0].partitions if one.end is not None}
    grown = [
        one.end - first[one.topic, one.partition]
        for one in near[-1].partitions
        if one.end is not None and (one.topic, one.partition) in first
    ]
    if not grown:
        return None
    return max(sum(grown), 0) / len(grown) / ((near[-1].at_ms - near[0].at_ms) / 1_000)
