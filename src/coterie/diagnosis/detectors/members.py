"""Detectors about single members: crashes, slow processing, lost heartbeats, flapping, instance ids, timeouts."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby, pairwise

from coterie.diagnosis.context import Context, Return, evidence_of, gone_ms, names, seconds, times_in_words
from coterie.diagnosis.model import Departure, Event, ExplainedRebalance, Finding, Happening, MemberSpan, Severity

FLAPS = 3
"""How often a member must join within `WINDOW_MS` to be called flapping."""
WINDOW_MS = 600_000
MANY = 3
LONG_SESSION_MS = 30_000
LONGEST_SESSION_MS = 60_000
"""The default of group.consumer.max.session.timeout.ms: a dead member of a consumer group is removed by then."""
REPLACEMENTS = 3
"""How often an instance id must be taken over within `WINDOW_MS` if no source says that a member was fenced."""


def crash(context: Context) -> list[Finding]:
    """Find members whose session expired and that did not come back, or came back before: they were restarted."""
    crashed = [
        one
        for one in context.gone
        if one.departure.value == Departure.SESSION_EXPIRED
        and id(one) not in context.explained
        and not _was_paused(context.return_of(one))
    ]
    found = []
    for stays in _by_identity(crashed):
        rebalances = context.rebalances_of_ends(stays)
        session = stays[-1].session_timeout_ms.value
        waited = f" after {seconds(session)} without a heartbeat" if session else ""
        times = f" {times_in_words(len(stays))}" if len(stays) > 1 else ""
        found.append(
            context.finding(
                "crash",
                Severity.CRITICAL if len(stays) >= MANY else Severity.WARNING,
                f"{names(stays)} crashed{times}: its session expired{waited}, and it had not left the group.",
                "Look at the end of its own log. Partitions of a crashed member wait for session.timeout.ms: a shorter "
                "one finds the crash sooner.",
                members=stays,
                rebalances=rebalances,
                evidence=evidence_of(*(one.departure for one in stays)),
                crashed=stays,
            )
        )
    return found


def heartbeat_lost(context: Context) -> list[Finding]:
    """Find members whose session expired and that came back: a long pause of the process or its network."""
    paused = [
        one
        for one in context.returns
        if one.before.departure.value == Departure.SESSION_EXPIRED
        and _was_paused(one)
        and id(one.before) not in context.explained
    ]
    found = []
    for returns in _returns_by_identity(paused):
        stays = [one.before for one in returns]
        session = stays[-1].session_timeout_ms.value
        after = ", ".join(seconds(one.away_ms) for one in returns[:3])
        kept = all(one.is_same_process for one in returns)
        times = f" {times_in_words(len(returns))}" if len(returns) > 1 else ""
        rests = f"its session expired and it came back {after} later with the same " + (
            "member id" if kept else "client id and host"
        )
        found.append(
            context.finding(
                "heartbeat-lost",
                Severity.CRITICAL if len(returns) >= MANY else Severity.WARNING,
                f"{names(stays)} sent no heartbeat for its session timeout"
                f"{f' ({seconds(session)})' if session else ''}{times}, and came back {after} later: "
                + ("it stood still." if kept else "it probably stood still, or crashed and was started again."),
                "Look for long pauses of the process: garbage collection, swapping, CPU limits, a suspended machine, "
                "a blocked network. If pauses cannot be avoided, raise session.timeout.ms above them.",
                members=stays,
                rebalances=context.rebalances_of_ends(stays),
                evidence=evidence_of(
                    *(part for one in returns for part in (one.before.departure, one.after.joined_ms))
                ),
                inferred=rests,
                crashed=stays,
            )
        )
    return found


def slow_processing(context: Context) -> list[Finding]:
    """Find members that left because they did not poll within max.poll.interval.ms."""
    said = [
        one
        for one in context.gone
        if one.departure.value == Departure.POLL_TIMEOUT and id(one) not in context.explained
    ]
    found = [_slow(context, stays, "") for stays in _by_identity(said)]
    known = {one.identity for one in said}
    left = [one for one in _unexplained_returns(context, Departure.LEFT) if one.before.identity not in known]
    for returns in _returns_by_identity(left):
        kept = all(one.is_same_process for one in returns)
        if kept or (len(returns) > 1 and (_apart_ms(returns) or 0) <= WINDOW_MS):  # a single restart looks the same
            found.append(_slow(context, [one.before for one in returns], _rests(returns)))
    gone = _returns_by_identity(_unexplained_returns(context, Departure.DISAPPEARED))
    often = [returns for returns in gone if len(returns) >= MANY and _is_periodic(returns)]
    return found + [_slow(context, [one.before for one in returns], _rests(returns)) for returns in often]


def unexplained_absence(context: Context) -> list[Finding]:
    """Find members that went and came back without being started again, if no source says how they went."""
    found = []
    for returns in _returns_by_identity(_unexplained_returns(context, Departure.DISAPPEARED)):
        kept = all(one.is_same_process for one in returns)
        if not kept or (len(returns) >= MANY and _is_periodic(returns)):
            continue
        stays = [one.before for one in returns]
        after = ", ".join(seconds(one.away_ms) for one in returns[:3])
        found.append(
            context.finding(
                "unexplained-absence",
                Severity.WARNING,
                f"{names(stays)} went {times_in_words(len(returns))} and came back {after} later with the same member "
                "id: it processed too slowly (max.poll.interval.ms), or it stood still (session timeout). This source "
                "does not say which.",
                "Read the broker's log: coterie explain server.log. Or look at the log of the member.",
                members=stays,
                rebalances=_away(context, returns),
                evidence=evidence_of(
                    *(part for one in returns for part in (one.before.departure, one.after.joined_ms))
                ),
                inferred="it kept its member id, so its process was not started again",
            )
        )
    return found


def _unexplained_returns(context: Context, how: Departure) -> list[Return]:
    """Return the members that went in this way, after longer than max.poll.interval.ms, and came back."""
    return [
        one
        for one in context.returns
        if one.before.departure.value == how
        and id(one.before) not in context.explained
        and (_stayed_long(one.before) or (one.is_same_process and not one.before.rebalance_timeout_ms.is_known))
        and 0 < one.away_ms <= WINDOW_MS
    ]


def _rests(returns: list[Return]) -> str:
    apart = _apart_ms(returns)
    every = f" every {seconds(apart)}" if apart else ""
    same = "member id" if all(one.is_same_process for one in returns) else "client id and host"
    return f"left and came back{every} with the same {same}, {times_in_words(len(returns))}"


def _away(context: Context, returns: list[Return]) -> list[ExplainedRebalance]:
    """Return the rebalances of members that went and came back."""
    steps = [(one.gone_ms, one.before.member_id) for one in returns]
    steps += [(one.back_ms, one.after.member_id) for one in returns]
    return context.rebalances_of_steps(sorted(steps))


def _slow(context: Context, stays: list[MemberSpan], inferred: str) -> Finding:
    interval = next((one.rebalance_timeout_ms.value for one in stays if one.rebalance_timeout_ms.is_known), None)
    limit = f" ({seconds(interval)})" if interval else ""
    times = f" {times_in_words(len(stays))}" if len(stays) > 1 else ""
    how = "probably processed too slowly" if inferred else "processed too slowly"
    why = f": it {inferred}" if inferred else ": its client left because it had not polled within max.poll.interval.ms"
    returns = [found for found in map(context.return_of, stays) if found is not None]
    return context.finding(
        "slow-processing",
        Severity.CRITICAL if len(stays) >= MANY else Severity.WARNING,
        f"{names(stays)} {how}{times}{why}{limit}.",
        "Make the work between two polls shorter: lower max.poll.records, or hand the work to threads and pause the "
        "partitions. If it cannot be shorter, raise max.poll.interval.ms.",
        members=stays,
        rebalances=_away(context, returns) or context.rebalances_of_ends(stays),
        evidence=evidence_of(*(part for one in stays for part in (one.departure, one.reason))),
        inferred=inferred,
    )


def flapping(context: Context) -> list[Finding]:
    """Find members that join again and again, with short stays: a process that is started again after each crash."""
    found = []
    for stays in _by_identity([one for one in context.gone if id(one) not in context.explained]):
        short = [one for one in stays if not _stayed_long(one) and not _is_explained(context, one)]
        window = _densest(short)
        if len(window) < FLAPS:
            continue
        lasted = [gone_ms(one) - (one.joined_ms.value or 0) for one in window]
        rebalances = context.rebalances_of(window)
        found.append(
            context.finding(
                "flapping-member",
                Severity.CRITICAL if len(window) > MANY else Severity.WARNING,
                f"{names(window)} joined and went {len(window)} times within "
                f"{seconds(gone_ms(window[-1]) - (window[0].joined_ms.value or 0))}; it stayed for "
                f"{seconds(sorted(lasted)[len(lasted) // 2])} at a time.",
                "The process probably ends soon after it starts: look at its own log. Stop it until it is repaired: "
                "each start and each end is a rebalance of the whole group.",
                members=window,
                rebalances=rebalances,
                evidence=evidence_of(*(part for one in window for part in (one.joined_ms, one.departure))),
                inferred=f"{len(window)} joins with the same client id and host",
            )
        )
    return found


def duplicate_instance_ids(context: Context) -> list[Finding]:
    """Find two living processes with one group.instance.id: they fence each other."""
    events_of = [one for one in context.history.events if _shows_two(context, one)]
    replaced = [one for one in context.gone if one.departure.value == Departure.REPLACED]
    found = []
    named = {event.member_id: event.instance_id for event in events_of if event.instance_id}
    by_instance: dict[str, list[MemberSpan]] = {instance: [] for instance in named.values()}
    for one in replaced:
        by_instance.setdefault(one.instance_id or named.get(one.member_id) or one.member_id, []).append(one)
    for instance, stays in by_instance.items():
        ids = {one.member_id for one in stays}
        events = [
            one
            for one in events_of
            if one.instance_id == instance or one.member_id in ids or one.member_id.startswith(f"{instance}-")
        ]
        window = _densest(stays)
        if not events and len(window) < REPLACEMENTS:
            continue
        how = (
            f"a member was refused {times_in_words(len(events))}"
            if events
            else f"it was taken over {len(window)} times"
        )
        holders = {one.holder_id for one in events}
        both = stays + [one for one in context.stays if one.member_id in holders and one not in stays]
        times = sorted([*(one.at_ms for one in events), *(gone_ms(one) for one in stays)])
        found.append(
            context.finding(
                "duplicate-instance-id",
                Severity.CRITICAL,
                f"Two processes use group.instance.id {instance} at the same time: {how}.",
                "Give each process an instance id of its own, for example the name of its pod. The refused process "
                "reads nothing.",
                members=both,
                evidence=[*(one.evidence for one in events), *evidence_of(*(one.departure for one in stays))],
                inferred="" if events else f"{len(window)} members took over the instance id within a short time",
                times=(times[0], times[-1]),
            )
        )
    return found


def _shows_two(context: Context, event: Event) -> bool:
    """Return whether an event shows that two members with one instance id are alive.

    A replaced member that sends a request is alive. One that cannot join may be the same process, started again, while
    the broker waits for the session of the killed one: so the other one must be there for longer than a session.
    """
    if event.what is Happening.INSTANCE_ID_FENCED:
        return True
    if event.what is not Happening.INSTANCE_ID_NOT_RELEASED:
        return False
    held = [
        one for one in context.stays if one.member_id == event.holder_id and (one.joined_ms.value or 0) <= event.at_ms
    ]
    holder = held[-1] if held else MemberSpan(event.holder_id)
    if holder.departure.value in (Departure.LEFT, Departure.POLL_TIMEOUT, Departure.REPLACED):
        return gone_ms(holder) >= event.at_ms
    until = gone_ms(holder) if holder.departure.is_known else context.history.to_ms or 0
    return until - event.at_ms > (_session(holder) or LONGEST_SESSION_MS)


def session_timeouts(context: Context) -> list[Finding]:
    """Find session timeouts that are too short for the pauses, or too long for the crashes, that were seen."""
    pauses = [
        one for one in context.returns if one.before.departure.value == Departure.SESSION_EXPIRED and _was_paused(one)
    ]
    short = [one for one in pauses if one.before.session_timeout_ms.value and one.away_ms <= _session(one.before)]
    if len(short) > 1:
        longest = max(_session(one.before) + one.away_ms for one in short)
        return [
            context.finding(
                "session-timeout-too-short",
                Severity.WARNING,
                f"{len(short)} members were silent for up to {seconds(longest)} and came back: session.timeout.ms is "
                f"{seconds(_session(short[0].before))}.",
                f"Set session.timeout.ms to {round(longest * 1.5 / 1_000) * 1_000} or more, and heartbeat.interval.ms "
                "to a third of it, or shorten the pauses.",
                members=[one.before for one in short],
                rebalances=context.rebalances_of_ends([one.before for one in short]),
                evidence=evidence_of(*(one.before.session_timeout_ms for one in short)),
                inferred="members came back sooner than a second session timeout",
            )
        ]
    dead = [
        one
        for one in context.gone
        if one.departure.value == Departure.SESSION_EXPIRED
        and _session(one) >= LONG_SESSION_MS
        and not _was_paused(context.return_of(one))
    ]
    if not dead or pauses:
        return []
    return [
        context.finding(
            "session-timeout-too-long",
            Severity.INFO,
            f"The partitions of {names(dead)} waited {seconds(_session(dead[0]))} for the end of its session, and no "
            "member was ever silent and came back.",
            "A shorter session.timeout.ms finds a crash sooner. Keep it above the longest pause that you expect, and "
            "at least three times heartbeat.interval.ms.",
            members=dead,
            evidence=evidence_of(*(part for one in dead for part in (one.session_timeout_ms, one.departure))),
            inferred="no member came back after its session expired",
            crashed=dead,
        )
    ]


# --- help -------------------------------------------------------------------------------------------------------------


def _was_paused(found: Return | None) -> bool:
    """Return whether a member came back after its session expired. One that is back sooner was started again."""
    return found is not None and found.away_ms >= 0 and found.away_ms <= WINDOW_MS


def _is_explained(context: Context, stay: MemberSpan) -> bool:
    """Return whether slow processing, a pause, or a static member that was started again explains its end."""
    is_expired = stay.departure.value == Departure.SESSION_EXPIRED
    if is_expired and _was_paused(context.return_of(stay)):
        return True
    return stay.departure.value in (Departure.POLL_TIMEOUT, Departure.REPLACED)


def _session(stay: MemberSpan) -> int:
    return stay.session_timeout_ms.value or 0


def _stayed_long(stay: MemberSpan) -> bool:
    """Return whether a member stayed for longer than max.poll.interval.ms, so that this can be why it left."""
    limit = stay.rebalance_timeout_ms.value
    lasted = gone_ms(stay) - (stay.joined_ms.value or 0)
    return limit is not None and lasted >= limit


def _by_identity(stays: Iterable[MemberSpan]) -> list[list[MemberSpan]]:
    """Return the stays of each process."""
    ordered = sorted(stays, key=lambda one: one.identity)
    return [sorted(same, key=gone_ms) for _, same in groupby(ordered, lambda one: one.identity)]


def _returns_by_identity(returns: Iterable[Return]) -> list[list[Return]]:
    ordered = sorted(returns, key=lambda one: one.before.identity)
    return [sorted(same, key=lambda one: one.gone_ms) for _, same in groupby(ordered, lambda one: one.before.identity)]


def _apart_ms(returns: list[Return]) -> int | None:
    gaps = [later.gone_ms - one.gone_ms for one, later in pairwise(returns)]
    return sorted(gaps)[len(gaps) // 2] if gaps else None


def _is_periodic(returns: list[Return]) -> bool:
    """Return whether a member goes after about the same time again and again."""
    gaps = [later.gone_ms - one.gone_ms for one, later in pairwise(returns)]
    return max(gaps) <= 2 * min(gaps) and max(gaps) <= WINDOW_MS


def _densest(stays: list[MemberSpan]) -> list[MemberSpan]:
    """Return the most stays that ended within a window."""
    best: list[MemberSpan] = []
    for first in range(len(stays)):
        window = [one for one in stays[first:] if gone_ms(one) - gone_ms(stays[first]) <= WINDOW_MS]
        best = window if len(window) > len(best) else best
    return best
