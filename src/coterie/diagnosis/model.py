"""The model of a diagnosis: rebalances whose every statement has evidence, the history of a group, and findings.

Sources make a `GroupHistory` each: `from_facts.py` from the facts of a Coterie broker and from `__consumer_offsets`,
`broker_log.py` from the log of a broker, `samples.py` from descriptions. `merge.py` makes one history of several.
`detectors/` finds what is wrong in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from coterie.diagnosis.evidence import Bound, Claim, Evidence, Grade, Statement, near, unknown
from coterie.facts import CLASSIC, CONSUMER, Cause
from coterie.ledger import Interval, Move
from coterie.ledger.derived import DerivedCause

_GONE = frozenset(
    {
        Cause.MEMBER_LEFT,
        Cause.SESSION_EXPIRED,
        Cause.SYNC_TIMEOUT,
        Cause.REVOCATION_TIMEOUT,
        DerivedCause.MEMBER_GONE,
    }
)
"""The causes that a source which compares lists of members sees as "member disappeared"."""

_CHANGED = frozenset({Cause.SUBSCRIPTION_CHANGED, Cause.PROTOCOLS_CHANGED, Cause.REGEX_RESOLVED})
"""Causes that the two protocols, and versions of the broker, name differently."""


def causes_agree(strong: Claim[str], weak: Claim[str]) -> bool:
    """Return whether two sources can mean the same rebalance; a weak source sees less of it than a strong one."""
    one, other = strong.value, weak.value
    if one == other or DerivedCause.UNKNOWN in (one, other):
        return True
    if DerivedCause.MEMBER_GONE in (one, other):
        return one in _GONE and other in _GONE
    return one in _CHANGED and other in _CHANGED


CLOCK_SLACK_MS = 2_000
"""The most that the times of two sources may differ: lines and records are written a moment after the event."""


def _time() -> Statement[int]:
    return unknown(near(CLOCK_SLACK_MS))


def _moves_agree(strong: Claim[tuple[Move, ...]], weak: Claim[tuple[Move, ...]]) -> bool:
    """Compare new owners. The old owner may be unknown to a source that began later."""
    return {(one.partition, one.new_owner) for one in strong.value} == {
        (one.partition, one.new_owner) for one in weak.value
    }


@dataclass(slots=True)
class ExplainedRebalance:
    """One rebalance of one group; every statement is a value with its evidence, or unknown."""

    group_id: str
    number: int
    """The generation, or group epoch, that it makes; if it ended before that, the one it would have made."""
    group_type: str = CLASSIC
    spans: int = 1
    """How many generations the source saw only together; if more than one, it does not know the cause of each."""
    cause: Statement[str] = field(default_factory=lambda: unknown(causes_agree))
    """A `facts.Cause` or a `DerivedCause`."""
    member: Statement[str] = field(default_factory=unknown)
    """The id of the member that caused it; empty if it is known that no member did."""
    reason: Statement[str] = field(default_factory=lambda: unknown(_reasons_agree))
    """The reason that the client sent, or the broker logged; else what the change of members suggests."""
    began_ms: Statement[int] = field(default_factory=_time)
    joined_ms: Statement[int] = field(default_factory=_time)
    """The end of the join phase; in a consumer group, when the target assignment was computed."""
    ended_ms: Statement[int] = field(default_factory=_time)
    last_to_join: Statement[str] = field(default_factory=lambda: unknown(_always))
    """Sources may differ about the last one of members that join at the same moment."""
    joined_after_ms: Statement[tuple[tuple[str, int], ...]] = field(default_factory=lambda: unknown(_joins_agree))
    """The members, and when each joined, after the begin."""
    dropped: Statement[tuple[tuple[str, str], ...]] = field(default_factory=lambda: unknown(_dropped_agree))
    """The members that were removed during it, and why."""
    members: Statement[int] = field(default_factory=unknown)
    """The number of members after it."""
    assignor: Statement[str] = field(default_factory=unknown)
    moves: Statement[tuple[Move, ...]] = field(default_factory=lambda: unknown(_moves_agree))
    kept: Statement[int] = field(default_factory=unknown)
    """The number of partitions whose owner stayed the same."""
    unassigned_ms: Statement[int] = field(default_factory=lambda: unknown(near(CLOCK_SLACK_MS * 1_000)))
    """Unassigned partition-milliseconds that it ended."""
    dead_ms: Statement[int] = field(default_factory=lambda: unknown(near(CLOCK_SLACK_MS * 1_000)))
    """Partition-milliseconds of a crashed member until its session ended. They are not in `unassigned_ms`."""
    outcome: Statement[str] = field(default_factory=unknown)

    @property
    def is_of_consumer_group(self) -> bool:
        return self.group_type == CONSUMER

    @property
    def at_ms(self) -> int:
        """Return a time for its place in the history: the begin if it is known, else the end; 0 if neither is."""
        for time in (self.began_ms, self.ended_ms, self.joined_ms):
            if time.value is not None and time.bound is not Bound.AT_LEAST:
                return time.value
        return self.began_ms.value or 0

    @property
    def took(self) -> tuple[int | None, Bound]:
        """Return the duration in ms, and whether it is a limit; None if it is not known."""
        return _between(self.began_ms, self.ended_ms)

    @property
    def join_took(self) -> tuple[int | None, Bound]:
        """Return the duration of the join phase; in a consumer group, until the target assignment was computed."""
        return _between(self.began_ms, self.joined_ms)

    @property
    def sync_took(self) -> tuple[int | None, Bound]:
        """Return the duration of the sync phase; in a consumer group, of the reconciliation."""
        return _between(self.joined_ms, self.ended_ms)

    @property
    def statements(self) -> dict[str, Statement[Any]]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, Statement)}

    @property
    def disagreements(self) -> dict[str, tuple[Claim[Any], ...]]:
        """Return the claims, by statement, that contradict a stronger source."""
        found = {name: statement.disagreements for name, statement in self.statements.items()}
        return {name: claims for name, claims in found.items() if claims}

    def to_json(self) -> dict[str, Any]:
        took, bound = self.took
        return {
            "group": self.group_id,
            "type": self.group_type,
            "number": self.number,
            "spans": self.spans,
            "at_ms": self.at_ms,
            "took_ms": {"value": "unknown" if took is None else took, "bound": str(bound)},
            **{name: one.to_json(_SHOWN.get(name, _as_it_is)) for name, one in self.statements.items()},
        }


def _between(begin: Statement[int], end: Statement[int]) -> tuple[int | None, Bound]:
    """Return a duration from two times, of which one may be a limit."""
    if begin.value is None or end.value is None:
        return None, Bound.EXACT
    longer = begin.bound is Bound.AT_MOST or end.bound is Bound.AT_LEAST
    shorter = begin.bound is Bound.AT_LEAST or end.bound is Bound.AT_MOST
    if longer and shorter:
        return None, Bound.EXACT
    took = max(end.value - begin.value, 0)
    bound = Bound.AT_LEAST if longer else Bound.AT_MOST if shorter else Bound.EXACT
    return (None, Bound.EXACT) if bound is Bound.AT_LEAST and not took else (took, bound)


def _dropped_agree(strong: Claim[tuple[tuple[str, str], ...]], weak: Claim[tuple[tuple[str, str], ...]]) -> bool:
    """Compare the members. Why each was removed is often not known to the weaker source."""
    return {who for who, _ in weak.value} <= {who for who, _ in strong.value}


def _always(_strong: Claim[Any], _weak: Claim[Any]) -> bool:
    return True


def _joins_agree(strong: Claim[tuple[tuple[str, int], ...]], weak: Claim[tuple[tuple[str, int], ...]]) -> bool:
    """Compare the times of the members that both sources know."""
    known = dict(strong.value)
    return all(abs(known.get(who, ms) - ms) <= CLOCK_SLACK_MS for who, ms in weak.value)


def _reasons_agree(strong: Claim[str], weak: Claim[str]) -> bool:
    """Compare texts. One that is inferred says the same in other words."""
    return weak.evidence.grade is Grade.INFERRED or strong.value == weak.value


def _as_it_is(value: Any) -> Any:
    return value


def _moves_shown(moves: Sequence[Move]) -> list[dict[str, Any]]:
    return [
        {
            "topic": one.partition[0],
            "partition": one.partition[1],
            "from": one.old_owner,
            "to": one.new_owner,
            "unassigned_ms": "unknown" if one.unassigned_ms is None else one.unassigned_ms,
        }
        for one in moves
    ]


_SHOWN: Mapping[str, Callable[[Any], Any]] = {"moves": _moves_shown, "joined_after_ms": dict, "dropped": dict}


# --- the history of a group -------------------------------------------------------------------------------------------


class Departure(StrEnum):
    """The way in which a member left its group."""

    LEFT = "left"
    """It sent LeaveGroup."""
    REMOVED = "removed by an admin"
    POLL_TIMEOUT = "poll timeout"
    """It left because its application did not poll within max.poll.interval.ms; the client said so."""
    SESSION_EXPIRED = "session expired"
    MISSED_JOIN = "did not join in time"
    MISSED_SYNC = "did not sync in time"
    MISSED_REVOCATION = "did not give up partitions in time"
    REPLACED = "replaced"
    """A member with the same group.instance.id joined: the process was started again, or is there twice."""
    REFUSED = "refused"
    """The group was full, or its subscription too large."""
    DISAPPEARED = "disappeared"
    """It left, crashed or timed out; the source does not say which."""


@dataclass(slots=True)
class MemberSpan:
    """One member, from its join until it went."""

    member_id: str
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    joined_ms: Statement[int] = field(default_factory=_time)
    gone_ms: Statement[int] = field(default_factory=_time)
    """Unknown while it is a member, and if its end was not seen."""
    departure: Statement[str] = field(default_factory=lambda: unknown(_departures_agree))
    reason: Statement[str] = field(default_factory=unknown)
    session_timeout_ms: Statement[int] = field(default_factory=unknown)
    rebalance_timeout_ms: Statement[int] = field(default_factory=unknown)
    """It is max.poll.interval.ms of a consumer."""
    topics: Statement[tuple[str, ...]] = field(default_factory=unknown)
    """Its last known subscription."""
    rebalance_latency_max_ms: Statement[int] = field(default_factory=lambda: unknown(_always))
    """The longest rebalance of those that its client last reported. The client measures from its own join on."""
    assigned_partitions: Statement[int] = field(default_factory=lambda: unknown(_always))
    """How many partitions its client had when it last reported rebalances."""
    poll_idle_ratio: Statement[float] = field(default_factory=lambda: unknown(_always))
    """The part of the time that its application spent in poll(), when its client last reported rebalances."""

    @property
    def name(self) -> str:
        """Return how people know it: the instance id, else the client id, else the member id."""
        return self.instance_id or self.client_id or self.member_id

    @property
    def identity(self) -> tuple[str, str]:
        """Return what stays when the process joins again: instance id, client id and host, or only the member id."""
        if self.instance_id:
            return self.instance_id, ""
        return (self.client_id, self.host) if self.client_id else (self.member_id, "")

    def to_json(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        shown = {name: one.to_json() if isinstance(one, Statement) else one for name, one in found.items()}
        return {"name": self.name, **shown}


def _departures_agree(strong: Claim[str], weak: Claim[str]) -> bool:
    """A source that only sees that a member is gone agrees with every other."""
    by_leave_group = {Departure.LEFT, Departure.POLL_TIMEOUT, Departure.REMOVED}
    return (
        Departure.DISAPPEARED in (strong.value, weak.value)
        or strong.value == weak.value
        or (strong.value in by_leave_group and weak.value in by_leave_group)
    )


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition of a group at one time; None is unknown."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    owner: str = ""
    """The member id; empty if it is unassigned."""

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(self.end - self.committed, 0)


@dataclass(frozen=True, slots=True)
class GroupSample:
    """A group as it was when it was described."""

    at_ms: int
    state: str
    number: int | None
    """The group epoch; None for a classic group, whose generation no description shows."""
    members: tuple[str, ...]
    coordinator: str
    """HOST:PORT (id)."""
    partitions: tuple[PartitionLag, ...] = ()

    @property
    def lag(self) -> int | None:
        """Return the lag of all partitions; None if it is not known of any."""
        known = [one.lag for one in self.partitions if one.lag is not None]
        return sum(known) if known else None


class Happening(StrEnum):
    """Other events of a group that explain a rebalance, or are bad themselves."""

    COORDINATOR_MOVED = "coordinator moved"
    COORDINATOR_STARTED = "coordinator started"
    INSTANCE_ID_FENCED = "instance id fenced"
    """A member that was replaced still sends requests."""
    INSTANCE_ID_NOT_RELEASED = "instance id not released"
    """A member cannot join as long as another one has its instance id (KIP-848), which may be alive or not."""
    GROUP_EMPTIED = "group emptied"
    GROUP_DELETED = "group deleted"
    CLIENT_REPORTED = "client reported rebalances"
    """A client said in its metrics that it has rebalanced (KIP-714)."""


@dataclass(frozen=True, slots=True)
class Event:
    at_ms: int
    what: Happening
    member_id: str
    """Empty if it is of the whole group."""
    evidence: Evidence
    instance_id: str = ""
    """The instance id that it is about; empty if there is none."""
    holder_id: str = ""
    """The member that has the instance id."""

    def to_json(self) -> dict[str, Any]:
        return {
            "at_ms": self.at_ms,
            "what": str(self.what),
            "member": self.member_id,
            **({"instance": self.instance_id, "holder": self.holder_id} if self.instance_id else {}),
            "evidence": self.evidence.to_json(),
        }


@dataclass(slots=True)
class GroupHistory:
    """The known history of one group, from one source or from several."""

    group_id: str
    group_type: str = CLASSIC
    rebalances: list[ExplainedRebalance] = field(default_factory=list)
    """They are ordered by number and time."""
    members: dict[str, MemberSpan] = field(default_factory=dict)
    """The last stay of each member, by member id, in the order in which they joined."""
    past: list[MemberSpan] = field(default_factory=list)
    """Earlier stays: a member of a consumer group (KIP-848) comes back with the same id."""
    intervals: list[Interval] = field(default_factory=list)
    """The owner of each partition over time; the crashed time of a member is a part of its last interval."""
    samples: list[GroupSample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    grades: frozenset[str] = frozenset()
    """The grades of the sources that it was made from."""
    from_ms: int | None = None
    to_ms: int | None = None
    """The time that the sources cover; None if they have nothing."""

    @property
    def stays(self) -> list[MemberSpan]:
        """Return every stay of every member, in the order in which they joined."""
        return sorted([*self.past, *self.members.values()], key=lambda one: one.joined_ms.value or 0)

    def reports_after(self, one: ExplainedRebalance) -> list[Event]:
        """Return what clients reported from the begin of a rebalance to the begin of the next one."""
        next_ms = min((other.at_ms for other in self.rebalances if other.at_ms > one.at_ms), default=None)
        return [
            event
            for event in self.events
            if event.what is Happening.CLIENT_REPORTED
            and event.at_ms >= one.at_ms
            and (next_ms is None or event.at_ms < next_ms)
        ]

    def name_of(self, member_id: str) -> str:
        """Return the name of a member: instance id, client id, or the member id."""
        member = self.members.get(member_id)
        return member.name if member is not None else member_id

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group_id,
            "type": self.group_type,
            "grades": sorted(self.grades),
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "rebalances": [one.to_json() for one in self.rebalances],
            "members": [one.to_json() for one in self.stays],
            "intervals": [[*one.partition, one.owner, one.began_ms, one.ended_ms] for one in self.intervals],
            "events": [one.to_json() for one in self.events],
        }


# --- findings ---------------------------------------------------------------------------------------------------------


class Severity(StrEnum):
    """The severity of a finding, the worst first."""

    CRITICAL = "critical"
    """Records are not read, or not for long times, and it goes on."""
    WARNING = "warning"
    """It costs something that can be avoided."""
    INFO = "info"


SEVERITY: dict[Severity, int] = {severity: index for index, severity in enumerate(Severity)}


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of rebalances, in partition-milliseconds. None is unknown; the sums leave out what is unknown."""

    unassigned_ms: int | None = None
    needed_ms: int | None = None
    """The part that the best assignment had to move."""
    avoidable_ms: int | None = None
    at_most_ms: int | None = None
    """The most that those rebalances can have cost of which only times and owners are known."""
    dead_ms: int | None = None
    """Partitions of a crashed member until its session ended; it is counted apart."""
    records_delayed: int | None = None
    """Records that were produced meanwhile to those partitions, where the rate is known."""
    is_complete: bool = True
    """Whether all parts are known; if not, the figures are lower bounds."""

    def to_json(self) -> dict[str, Any]:
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: "unknown" if value is None else value for name, value in found.items()}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong with a group: what, since when, on which evidence, at what cost, and what to do."""

    name: str
    """A stable name: `crash`, `slow-processing`. docs/why-did-my-group-rebalance.md lists them."""
    severity: Severity
    group_id: str
    summary: str
    """One sentence."""
    advice: str
    from_ms: int
    to_ms: int
    members: tuple[str, ...] = ()
    """Names of members."""
    rebalances: tuple[int, ...] = ()
    """The numbers of the rebalances that belong to it."""
    evidence: tuple[Evidence, ...] = ()
    grade: Grade = Grade.INFERRED
    """The weakest grade that the finding needs."""
    cost: Cost = Cost()

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "severity": str(self.severity),
            "group": self.group_id,
            "summary": self.summary,
            "advice": self.advice,
            "from_ms": self.from_ms,
            "to_ms": self.to_ms,
            "members": list(self.members),
            "rebalances": list(self.rebalances),
            "grade": str(self.grade),
            "cost": self.cost.to_json(),
            "evidence": [one.to_json() for one in self.evidence],
        }


def worst_first(finding: Finding) -> tuple[int, int, int, str]:
    """Return the key by which findings are sorted: severity, then cost, then the latest."""
    parts = finding.cost.unassigned_ms, finding.cost.at_most_ms, finding.cost.dead_ms
    cost = sum(part or 0 for part in parts)
    return SEVERITY[finding.severity], -cost, -finding.to_ms, finding.name
