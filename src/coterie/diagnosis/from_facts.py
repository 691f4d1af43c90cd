"""Make histories of groups from facts: observed by a broker, derived from `__consumer_offsets`, or read in its log.

The ledger folds the facts into rebalances. What a kind of source cannot know stays unknown: a log has no partitions,
and `__consumer_offsets` does not have the begin of a rebalance of a classic group, nor its cause if several members
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from coterie import facts
from coterie.diagnosis.evidence import Bound, Evidence, Grade, Statement, merged, said
from coterie.diagnosis.model import Departure, Event, ExplainedRebalance, GroupHistory, Happening, MemberSpan
from coterie.errors import ErrorCode
from coterie.facts import Fact
from coterie.ledger import Ledger, Rebalance, RebalanceOutcome
from coterie.ledger.derived import DerivedCause, MemberGone, RebalanceSeen
from coterie.ledger.ownership import Intervals

KEEP_REBALANCES = 10_000
"""How many of a group are kept; the oldest are dropped."""
KEEP_MEMBERS = 10_000
KEEP_GROUPS = 20_000
KEEP_INTERVALS = 1_000_000
"""The limit for all groups together: a watch may run for months."""
_AT_ONCE_MS = 1_000
"""A member that goes has caused the rebalance that begins within this time."""

_POLL_TIMEOUT = ("poll timeout has expired", "max.poll.interval")
_ADMIN = ("removed by an admin", "kafka-consumer-groups")


@dataclass(slots=True)
class _Seen:
    """The steps of a rebalance so far, and the members that changed with it."""

    steps: dict[str, Evidence] = field(default_factory=dict)
    came: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    went: dict[str, str] = field(default_factory=dict)
    """The members whose going caused it, and how they went."""
    members: int | None = None


class HistoryBuilder:
    """Histories of all groups in the facts of one source, all of one grade."""

    def __init__(self, grade: Grade, keep: int = KEEP_REBALANCES) -> None:
        self._grade = grade
        self._keep = keep
        self._ledger = Ledger(keep=keep)
        self._intervals = Intervals()
        self._seen: dict[str, dict[int, _Seen]] = {}
        """Keys are the group and the identity of the ledger's rebalance."""
        self._came: dict[str, list[str]] = {}
        """Members that joined since the last rebalance began."""
        self._went: dict[str, dict[str, tuple[int, str]]] = {}
        """Members that went while no rebalance ran: one may begin at once."""
        self._histories: dict[str, GroupHistory] = {}
        self._stale: set[str] = set()
        """The groups whose history must be made again."""

    def add(self, fact: Fact, source: str, says: str = "") -> None:
        """Add a fact, and where it stands."""
        at = Evidence(self._grade, source, fact.at_ms, says or type(fact).__name__)
        self._ledger.add(fact)
        self._intervals.add(fact)
        if not fact.group_id:
            self._stale.update(self._histories)
            return
        self._stale.add(fact.group_id)
        history = self._history(fact.group_id)
        history.to_ms = fact.at_ms if history.to_ms is None else max(history.to_ms, fact.at_ms)
        history.from_ms = fact.at_ms if history.from_ms is None else min(history.from_ms, fact.at_ms)
        _MEMBER_ENTRIES.get(type(fact), _nothing)(history, fact, at)
        while len(history.members) > KEEP_MEMBERS:
            del history.members[next(iter(history.members))]
        del history.past[:-KEEP_MEMBERS]
        del history.events[:-KEEP_MEMBERS]
        if len(self._intervals.all) > KEEP_INTERVALS:
            self._forget_intervals()
        self._track(fact, at)

    def _forget_intervals(self) -> None:
        """Drop the older half of the intervals that have ended."""
        half = len(self._intervals.all) // 2
        old = [one for one in self._intervals.all[:half] if one.ended_ms is None]
        self._intervals.all[:half] = old
        self._stale.update(self._histories)

    def _history(self, group_id: str) -> GroupHistory:
        if group_id not in self._histories:
            if len(self._histories) >= KEEP_GROUPS:
                del self._histories[next(iter(self._histories))]
            self._histories[group_id] = GroupHistory(group_id, grades=frozenset({str(self._grade)}))
        return self._histories[group_id]

    def _track(self, fact: Fact, at: Evidence) -> None:
        """Note where the steps of the rebalance stand that is running, or was just ended."""
        group_id = fact.group_id
        book = self._ledger.book_of(group_id)
        if type(fact) in _GOING and (book is None or book.running() is None):
            how = _member(self._history(group_id), getattr(fact, "member_id", "")).departure.value
            self._went.setdefault(group_id, {})[getattr(fact, "member_id", "")] = fact.at_ms, how or ""
        if isinstance(fact, facts.MemberJoined):
            self._came.setdefault(group_id, []).append(fact.member_id)
        if book is None or not book.rebalances:
            return
        seen = self._seen.setdefault(group_id, {})
        if isinstance(fact, facts.RebalanceStarted | RebalanceSeen):
            if len(book.rebalances) > 1:  # the one before it may have been superseded
                seen[id(book.rebalances[-2])].steps.setdefault("ended", at)
            came, went = self._came.pop(group_id, []), self._went.pop(group_id, {})
            caused = {who: how for who, (at_ms, how) in went.items() if fact.at_ms - at_ms <= _AT_ONCE_MS}
            seen[id(book.rebalances[-1])] = _Seen({"began": at}, came, went=caused)
            if len(seen) > self._keep + 100:
                alive = {id(one) for one in book.rebalances}
                self._seen[group_id] = {one: about for one, about in seen.items() if one in alive}
            return
        last = seen.get(id(book.rebalances[-1]))
        if last is None:
            return
        if isinstance(fact, facts.JoinPhaseCompleted | facts.TargetAssignmentComputed):
            last.steps.setdefault("joined", at)
        if isinstance(fact, MemberGone) and "ended" not in last.steps:
            last.gone.append(fact.member_id)
        if isinstance(fact, facts.AssignmentStored) and "ended" not in last.steps:
            last.members = len(fact.assignments) or last.members
        if isinstance(fact, facts.GroupEmptied) and "ended" not in last.steps:
            last.members = 0
        if book.rebalances[-1].outcome is not RebalanceOutcome.RUNNING:
            last.steps.setdefault("ended", at)

    def count_members(self, group_id: str, count: int) -> None:
        """Say how many members the running rebalance has, if the facts do not."""
        book = self._ledger.book_of(group_id)
        if book is not None and book.rebalances:
            last = self._seen.get(group_id, {}).get(id(book.rebalances[-1]))
            if last is not None:
                last.members = count
                self._stale.add(group_id)

    def describe_member(self, group_id: str, member_id: str, evidence: Evidence, **about: Any) -> None:
        """Add claims about a member: session_timeout_ms, rebalance_timeout_ms, topics."""
        member = self._history(group_id).members.get(member_id)
        if member is not None:
            for name, value in about.items():
                setattr(member, name, said(value, evidence))

    def went(self, group_id: str, member_id: str, how: Departure, evidence: Evidence) -> None:
        """Say how a member went, if there is no fact for it."""
        _went(self._history(group_id), member_id, how, evidence)

    def add_event(self, group_id: str, event: Event) -> None:
        self._history(group_id).events.append(event)

    def histories(self) -> dict[str, GroupHistory]:
        """Return the histories so far. They may be asked for again later; only those that changed are made again."""
        stale = {name: one for name in self._stale if (one := self._histories.get(name)) is not None}
        self._stale.clear()
        for history in stale.values():
            rebalances = self._ledger.rebalances_of(history.group_id)
            seen = self._seen.get(history.group_id, {})
            explained = [_explained(one, seen.get(id(one)) or _Seen(), self._grade) for one in rebalances]
            history.rebalances = explained
            if explained:
                history.group_type = explained[-1].group_type
            history.intervals = []
        if stale and self._grade is not Grade.LOGGED:
            for interval in self._intervals.all:
                if interval.group_id in stale:
                    stale[interval.group_id].intervals.append(interval)
        return self._histories

    def trim(self, rebalances: int, moves: int, intervals: int) -> None:
        """Drop the oldest of a long history: at most so many rebalances and moves of a group, and intervals in all."""
        self._stale.update(self._histories)
        for group_id in self._histories:
            book = self._ledger.book_of(group_id)
            kept = sum(len(one.moves) for one in book.rebalances) if book is not None else 0
            while book is not None and len(book.rebalances) > 1 and (len(book.rebalances) > rebalances or kept > moves):
                kept -= len(book.rebalances.popleft().moves)
        surplus = len(self._intervals.all) - intervals
        if surplus > 0:  # those that have not ended stay: they will
            self._intervals.all[:surplus] = [one for one in self._intervals.all[:surplus] if one.ended_ms is None]


# --- a rebalance of the ledger, with evidence -------------------------------------------------------------------------


def _explained(one: Rebalance, seen: _Seen, grade: Grade) -> ExplainedRebalance:
    where = seen.steps.get("began") or Evidence(grade, "")
    ended_at, joined_at = seen.steps.get("ended", where), seen.steps.get("joined", where)
    number = one.generation_id if one.generation_id is not None else one.old_generation_id + 1
    found = ExplainedRebalance(one.group_id, number, one.group_type)
    if grade is Grade.DERIVED:
        found.spans = max(number - one.old_generation_id, 1)
    has_no_end = grade is Grade.LOGGED and one.is_of_consumer_group  # members reconcile without a line in the log
    is_open = one.outcome is RebalanceOutcome.RUNNING or has_no_end

    def add(name: str, value: Any, evidence: Evidence, bound: Bound = Bound.EXACT) -> None:
        before: Statement[Any] = getattr(found, name)
        setattr(found, name, said(value, evidence, bound, before.agrees))

    _add_cause(add, one, seen, grade, where, found.spans)
    if one.has_times:
        add("began_ms", one.began_ms, where)
        add("joined_ms", one.joined_ms, joined_at)
    else:
        add("began_ms", one.began_ms, where, Bound.AT_MOST)
    add("ended_ms", None if is_open else one.ended_ms, ended_at)
    add("members", seen.members, ended_at)
    add("assignor", one.protocol_name or None, joined_at)
    add("outcome", None if has_no_end else str(one.outcome), where if is_open else ended_at)
    add("last_to_join", one.last_to_join if one.joined_after_ms else None, joined_at)
    add("joined_after_ms", tuple(sorted(one.joined_after_ms.items())) or None, joined_at)
    dropped = dict.fromkeys(one.dropped, str(Departure.DISAPPEARED)) if grade is Grade.DERIVED else one.dropped
    gone = {**_culprit(one), **seen.went, **dropped}
    add("dropped", None if is_open or found.spans > 1 else tuple(sorted(gone.items())), ended_at)
    if grade is Grade.LOGGED:
        return found  # a log has no partitions
    if one.outcome is RebalanceOutcome.STABLE:
        add("moves", tuple(one.moves), ended_at)
        add("kept", one.kept, ended_at)
    bound = Bound.AT_LEAST if one.is_derived else Bound.EXACT
    if not is_open:
        add("unassigned_ms", one.unassigned_ms, ended_at, bound)
    return found


def _culprit(one: Rebalance) -> dict[str, str]:
    """Return the member whose going is the cause, and how it went."""
    how = _WENT_BY_CAUSE.get(one.cause)
    return {one.culprit: str(how)} if how is not None and one.culprit else {}


_WENT_BY_CAUSE: Mapping[str, Departure] = {
    facts.Cause.MEMBER_LEFT: Departure.LEFT,
    facts.Cause.SESSION_EXPIRED: Departure.SESSION_EXPIRED,
    facts.Cause.SYNC_TIMEOUT: Departure.MISSED_SYNC,
    facts.Cause.REVOCATION_TIMEOUT: Departure.MISSED_REVOCATION,
}


def _add_cause(
    add: Callable[..., None], one: Rebalance, seen: _Seen, grade: Grade, where: Evidence, spans: int
) -> None:
    """Add cause, member and reason; of a derived rebalance only if exactly one change explains it."""
    if grade is not Grade.DERIVED:
        is_known = one.cause is not DerivedCause.UNKNOWN
        add("cause", str(one.cause) if is_known else None, where)
        add("member", one.culprit if is_known else None, where)
        add("reason", one.reason, where)
        return
    kinds = {facts.Cause.NEW_MEMBER: seen.came, DerivedCause.MEMBER_GONE: seen.gone}
    others = [name for cause, names in kinds.items() if cause != one.cause for name in names]
    mine = kinds.get(one.cause, [one.culprit])
    if one.cause is DerivedCause.UNKNOWN:
        follows = "cooperative" in one.protocol_name and not one.is_of_consumer_group and spans == 1
        guess = "probably the follow-up of a cooperative rebalance: no member changed" if follows else one.reason
        add("reason", guess, Evidence(Grade.INFERRED, where.source, where.at_ms, "the members are the same as before"))
    elif spans == 1 and not others:
        add("cause", str(one.cause), where)
        add("member", one.culprit if len(mine) <= 1 else None, where)
    else:
        changes = f"{len(seen.came)} joined and {len(seen.gone)} disappeared"
        missing = f"; {spans - 1} generations before it were not logged" if spans > 1 else ""
        add("reason", f"{changes}{missing}", Evidence(Grade.INFERRED, where.source, where.at_ms, "compared records"))


# --- members and events -----------------------------------------------------------------------------------------------


def _member(history: GroupHistory, member_id: str) -> MemberSpan:
    if member_id not in history.members:
        history.members[member_id] = MemberSpan(member_id)
    return history.members[member_id]


def _joined(history: GroupHistory, fact: facts.MemberJoined, at: Evidence) -> None:
    before = history.members.get(fact.member_id)
    if before is not None and before.departure.is_known:  # it comes back with its id, as in a consumer group
        history.past.append(history.members.pop(fact.member_id))
    member = _member(history, fact.member_id)
    member.client_id, member.host, member.instance_id = fact.client_id, fact.client_host, fact.instance_id
    member.joined_ms = _said_again(member.joined_ms, fact.at_ms, at)


def _said_again(before: Statement[Any], value: Any, at: Evidence) -> Statement[Any]:
    """Return a statement with one more claim, or its first."""
    return said(value, at, agrees=before.agrees) if not before.is_known else before


def _went(history: GroupHistory, member_id: str, how: Departure, at: Evidence, reason: str | None = None) -> None:
    if not member_id:
        return
    member = _member(history, member_id)
    if member.departure.is_known:
        return
    member.gone_ms = said(at.at_ms, at, agrees=member.gone_ms.agrees)
    member.departure = said(str(how), at, agrees=member.departure.agrees)
    member.reason = said(reason, at)


def how_it_left(reason: str | None) -> Departure:
    """Return how a member went that left with LeaveGroup, from the reason that its client sent."""
    text = (reason or "").lower()
    if any(mark in text for mark in _POLL_TIMEOUT):
        return Departure.POLL_TIMEOUT
    return Departure.REMOVED if any(mark in text for mark in _ADMIN) else Departure.LEFT


def _left(history: GroupHistory, fact: facts.MemberLeft, at: Evidence) -> None:
    _went(history, fact.member_id, how_it_left(fact.reason), at, fact.reason)


def _expired(history: GroupHistory, fact: facts.MemberExpired, at: Evidence) -> None:
    _went(history, fact.member_id, Departure.SESSION_EXPIRED, at)
    member = _member(history, fact.member_id)
    if fact.session_timeout_ms > 0:
        member.session_timeout_ms = merged([member.session_timeout_ms, said(fact.session_timeout_ms, at)])


def _replaced(history: GroupHistory, fact: facts.MemberReplaced, at: Evidence) -> None:
    old = _member(history, fact.old_member_id)
    _went(history, fact.old_member_id, Departure.REPLACED, at)
    new = _member(history, fact.member_id)
    new.instance_id = old.instance_id = fact.instance_id or old.instance_id
    new.client_id, new.host = new.client_id or old.client_id, new.host or old.host
    new.joined_ms = _said_again(new.joined_ms, fact.at_ms, at)


def _fenced(history: GroupHistory, fact: facts.InstanceIdFenced, at: Evidence) -> None:
    if fact.was_waiting:
        return  # the process that sent it may be gone: that it was replaced says all
    is_fenced = fact.error is ErrorCode.FENCED_INSTANCE_ID
    what = Happening.INSTANCE_ID_FENCED if is_fenced else Happening.INSTANCE_ID_NOT_RELEASED
    says = f"{fact.request} of {fact.member_id or 'a member without id'}: {fact.error.name}, {fact.holder_id} has it"
    evidence = replace(at, says=says)
    history.events.append(Event(fact.at_ms, what, fact.member_id, evidence, fact.instance_id, fact.holder_id))


def _goes(how: Departure) -> Callable[[GroupHistory, Any, Evidence], None]:
    return lambda history, fact, at: _went(history, fact.member_id, how, at)


def _happens(what: Happening) -> Callable[[GroupHistory, Any, Evidence], None]:
    def add(history: GroupHistory, fact: Fact, at: Evidence) -> None:
        history.events.append(Event(fact.at_ms, what, "", at))

    return add


def _nothing(_history: GroupHistory, _fact: Fact, _at: Evidence) -> None:
    pass


def _loaded(history: GroupHistory, fact: facts.GroupLoaded, at: Evidence) -> None:
    if at.grade is not Grade.DERIVED:  # the first record that is left in the log says nothing about a coordinator
        history.events.append(Event(fact.at_ms, Happening.COORDINATOR_STARTED, "", at))


def _reported(history: GroupHistory, fact: facts.ClientReported, at: Evidence) -> None:
    """Add what a client said about itself. It is weaker than what the broker saw, and contradicts none of it."""
    evidence = replace(at, grade=Grade.REPORTED, says=_report(fact))
    history.grades |= {str(Grade.REPORTED)}
    history.events.append(Event(fact.at_ms, Happening.CLIENT_REPORTED, fact.member_id, evidence))
    member = history.members.get(fact.member_id)
    for name in _REPORTED_OF_MEMBERS if member is not None else ():
        value = getattr(fact, name)
        if value is not None:
            setattr(member, name, said(value, evidence, agrees=getattr(member, name).agrees))


def _report(fact: facts.ClientReported) -> str:
    """Return the numbers that a client sent, as text."""
    parts = [text.format(value) for name, text in _REPORT.items() if (value := getattr(fact, name)) is not None]
    return f"{fact.client_id or fact.client_instance_id}: {', '.join(parts) or 'it has rebalanced'}"


_REPORTED_OF_MEMBERS = ("rebalance_latency_max_ms", "assigned_partitions", "poll_idle_ratio")
_REPORT: Mapping[str, str] = {
    "rebalances": "rebalances {}",
    "rebalance_latency_avg_ms": "average {} ms",
    "rebalance_latency_max_ms": "longest {} ms",
    "rebalance_latency_total_ms": "together {} ms",
    "commit_latency_avg_ms": "commits on average {} ms",
    "commit_latency_max_ms": "longest commit {} ms",
    "assigned_partitions": "assigned partitions {}",
    "poll_idle_ratio": "poll idle ratio {:.2f}",
}

_GOING = frozenset(
    {
        facts.MemberLeft,
        facts.MemberExpired,
        facts.MemberMissedJoin,
        facts.MemberMissedSync,
        facts.MemberMissedRevocation,
        MemberGone,
    }
)
_MEMBER_ENTRIES: Mapping[type[Fact], Callable[[GroupHistory, Any, Evidence], None]] = {
    facts.MemberJoined: _joined,
    facts.MemberReplaced: _replaced,
    facts.InstanceIdFenced: _fenced,
    facts.MemberLeft: _left,
    facts.MemberExpired: _expired,
    facts.MemberMissedJoin: _goes(Departure.MISSED_JOIN),
    facts.MemberMissedSync: _goes(Departure.MISSED_SYNC),
    facts.MemberMissedRevocation: _goes(Departure.MISSED_REVOCATION),
    facts.MemberTurnedAway: _goes(Departure.REFUSED),
    MemberGone: _goes(Departure.DISAPPEARED),
    facts.GroupLoaded: _loaded,
    facts.GroupUnloaded: _happens(Happening.COORDINATOR_MOVED),
    facts.GroupEmptied: _happens(Happening.GROUP_EMPTIED),
    facts.GroupDied: _happens(Happening.GROUP_DELETED),
    facts.ClientReported: _reported,
}
