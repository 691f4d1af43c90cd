"""Detectors about the rebalances themselves: loops, members that hold all others up, coordinators that move."""

from __future__ import annotations

from coterie.diagnosis.context import Context, evidence_of, is_present, names, seconds
from coterie.diagnosis.evidence import Bound
from coterie.diagnosis.model import Departure, ExplainedRebalance, Finding, Happening, MemberSpan, Severity
from coterie.facts import Cause

LOOP = 5
"""How many rebalances in a row without a change of members make a loop."""
LOOP_MS = 300_000
SLOW_JOIN_MS = 5_000

_NO_CHANGE = frozenset(
    {
        Cause.LEADER_REJOINED,
        Cause.PROTOCOLS_CHANGED,
        Cause.SUBSCRIPTION_CHANGED,
        Cause.WRITE_FAILED,
        Cause.STATIC_MEMBER_CHANGED_VOTE,
    }
)
"""Causes that change no members."""


def rebalance_loop(context: Context) -> list[Finding]:
    """Find a group that rebalances again and again although no member joins or goes."""
    found, run = [], list[ExplainedRebalance]()
    for one in [*context.history.rebalances, None]:
        if one is not None and _changes_nobody(one) and (not run or one.at_ms - run[-1].at_ms < LOOP_MS):
            run.append(one)
            continue
        if len(run) >= LOOP:
            found.append(_loop(context, run))
        run = [one] if one is not None and _changes_nobody(one) else []
    return found


def _changes_nobody(one: ExplainedRebalance) -> bool:
    if one.cause.value is None:  # the records show no change of members
        return one.dropped.value == () and one.spans == 1 and "no member changed" in (one.reason.value or "")
    return one.cause.value in _NO_CHANGE


def _loop(context: Context, run: list[ExplainedRebalance]) -> Finding:
    causes = sorted({one.cause.value or "unknown cause" for one in run})
    who = [context.history.members[one.member.value] for one in run if one.member.value in context.history.members]
    by_whom = f", by {names(who)}" if who else ""
    return context.finding(
        "rebalance-loop",
        Severity.CRITICAL,
        f"{len(run)} rebalances in a row within {seconds(run[-1].at_ms - run[0].at_ms)} although no member joined or "
        f"went ({', '.join(causes)}{by_whom}).",
        "Look at what makes members rejoin: a subscription that changes all the time, a regular expression that "
        "matches topics which come and go, an assignor that fails, or max.poll.interval.ms shorter than a rebalance.",
        members=list({one.member_id: one for one in who}.values()),
        rebalances=run,
        evidence=evidence_of(*(one.cause for one in run)),
        inferred="" if all(one.cause.is_known for one in run) else "no member changed between the records",
    )


def slow_joiner(context: Context) -> list[Finding]:
    """Find rebalances in which all members waited for one."""
    found = []
    for one in context.history.rebalances:
        took, bound = one.join_took if not one.is_of_consumer_group else one.took
        late = _late(one)
        missed = [who for who, why in one.dropped.value or () if why in _MISSED]
        if missed:
            stays = [context.history.members[who] for who in missed if who in context.history.members]
            found.append(_slow(context, one, stays, f"{names(stays) or missed[0]} never did", took))
        elif took is not None and bound is Bound.EXACT and took >= SLOW_JOIN_MS and one.number > 1:
            stays = [context.history.members[late]] if late in context.history.members else []
            only = [] if one.joined_after_ms.is_known else _only_other(context, one)
            if late is not None or not one.joined_after_ms.is_known:
                who = (
                    f"the last was {names(stays or only)}" if stays or only else "the source does not say who was last"
                )
                inferred = f"no other member than {names(only)} had to join again" if only else ""
                found.append(_slow(context, one, stays or only, who, took, inferred))
    return found


_MISSED = (
    Departure.MISSED_JOIN,
    Departure.MISSED_SYNC,
    Departure.MISSED_REVOCATION,
    "did not join in time",
    "did not sync in time",
)


def _only_other(context: Context, one: ExplainedRebalance) -> list[MemberSpan]:
    """Return the only member that the others can have waited for, if a new one joined a group of one."""
    if one.cause.value != Cause.NEW_MEMBER or one.member.value is None:
        return []
    before = [stay for stay in context.stays if is_present(stay, one.at_ms - 1) and stay.member_id != one.member.value]
    return before if len(before) == 1 else []


def _late(one: ExplainedRebalance) -> str | None:
    """Return the member that alone was late: the others waited for more than half of the time only for it."""
    joined = sorted(one.joined_after_ms.value or (), key=lambda pair: pair[1])
    if len(joined) < 2 or joined[-1][1] - joined[-2][1] < SLOW_JOIN_MS / 2:
        return None
    return joined[-1][0]


def _slow(
    context: Context, one: ExplainedRebalance, stays: list[MemberSpan], who: str, took: int | None, inferred: str = ""
) -> Finding:
    what = "reconcile" if one.is_of_consumer_group else "join"
    return context.finding(
        "slow-joiner",
        Severity.WARNING,
        f"All members waited {seconds(took)} for one of them to {what}: {who}.",
        "A member joins when it polls: look for long work between two polls, or in the listener that is called when "
        "partitions are revoked. The others wait for at most max.poll.interval.ms of the slowest.",
        members=stays,
        rebalances=[one],
        evidence=evidence_of(one.joined_ms, one.joined_after_ms, one.dropped),
        inferred=inferred,
    )


def coordinator_moved(context: Context) -> list[Finding]:
    """Find changes of the group's coordinator."""
    moved = [
        one
        for one in context.history.events
        if one.what in (Happening.COORDINATOR_MOVED, Happening.COORDINATOR_STARTED)
    ]
    if not moved:
        return []
    times = moved[0].at_ms, moved[-1].at_ms
    after = [
        one
        for one in context.history.rebalances
        if any(event.at_ms <= one.at_ms <= event.at_ms + 30_000 for event in moved)
    ]
    return [
        context.finding(
            "coordinator-moved",
            Severity.INFO,
            f"The group's coordinator moved or was started again {len(moved)} times; {len(after)} rebalances began "
            "within 30 s.",
            "Nothing is wrong with the group: look at the brokers (restart, election of leaders). Members that reach "
            "the new coordinator within their session timeout go on without a rebalance.",
            rebalances=after,
            evidence=[one.evidence for one in moved],
            times=times,
        )
    ]
