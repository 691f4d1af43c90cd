"""Read the log of an Apache Kafka broker: the lines about groups become facts, and these a history.

It knows the lines of both group coordinators, the one in Scala (until 3.9) and the one in Java (since 4.0), whatever
the layout of the log is: a line needs a time and the message. Lines about other things are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import cast

from coterie import facts
from coterie.diagnosis.evidence import Evidence, Grade
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.model import Departure, Event, GroupHistory, Happening
from coterie.facts import CONSUMER, Cause, Fact
from coterie.ledger.derived import DerivedCause

MAX_LINE = 10_000
"""Longer lines are skipped."""
_SAYS = 400
"""How much of a line is kept as evidence."""

_TIME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[,.](\d{1,9}))?\s?(Z|[+-]\d\d:?\d\d)?")
_LOGGER = re.compile(r"\s\((?:org\.apache\.)?kafka\.[\w.$]+\)(?:\s\[[^\]]*\])?\s*$")
ID_LENGTH = 36
"""The random part of a member id, which a dash separates from the client id or the instance id."""


@dataclass(slots=True)
class _Group:
    """The state of a group that later lines refer to."""

    epoch: int | None = None
    """The last group epoch of a consumer group (KIP-848)."""
    changes: list[tuple[Cause, str]] = field(default_factory=list)
    """The changes of a consumer group since its last epoch."""
    reasons: dict[str, str] = field(default_factory=dict)
    """Why members said they leave, until the rebalance that follows."""


class BrokerLog:
    """Histories of all groups in lines of broker logs. `zone` is that of times without one."""

    def __init__(self, zone: tzinfo = UTC) -> None:
        self._zone = zone
        self._builder = HistoryBuilder(Grade.LOGGED)
        self._groups: dict[str, _Group] = {}
        self._group_of: dict[str, str] = {}
        """The group of each member, for the line that does not name it."""
        self._last_time = ("", 0)
        self.lines = 0
        self.used = 0
        """How many lines were about groups."""

    def add(self, line: str, source: str) -> None:
        """Read a line; `source` is its place, for example `server.log:12`."""
        self.lines += 1
        if len(line) > MAX_LINE or ("roup" not in line and "ember" not in line):
            return
        when = _TIME.search(line)
        if when is None:
            return
        message = _LOGGER.sub("", line[when.end() :]).rstrip()
        for pattern, read in _LINES:
            found = pattern.search(message)
            if found is not None:
                self.used += 1
                at = Evidence(Grade.LOGGED, source, self._ms(when), found.group(0)[:_SAYS])
                read(self, found.groupdict(), at)
                return

    def read(self, lines: Iterable[str], name: str) -> None:
        for number, line in enumerate(lines, 1):
            self.add(line, f"{name}:{number}")

    def histories(self) -> dict[str, GroupHistory]:
        return self._builder.histories()

    def _ms(self, when: re.Match[str]) -> int:
        year, month, day, hour, minute, second, fraction, zone = when.groups()
        key = when.group(0)[:16] + (zone or "")  # the same minute, mostly
        if self._last_time[0] != key:
            offset = {None: "", "Z": "+00:00"}.get(zone, zone)
            try:
                moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}:00{offset}")
            except ValueError:
                return self._last_time[1]
            moment = moment if moment.tzinfo else moment.replace(tzinfo=self._zone)
            self._last_time = key, round(moment.timestamp() * 1_000)
        return self._last_time[1] + int(second) * 1_000 + int((fraction or "0")[:3].ljust(3, "0"))

    # --- what the lines of both coordinators need

    def group(self, group_id: str) -> _Group:
        return self._groups.setdefault(group_id, _Group())

    def fact(self, fact: Fact, at: Evidence) -> None:
        self._builder.add(fact, at.source, at.says)

    def joined(self, group_id: str, member_id: str, instance: str | None, at: Evidence) -> None:
        self._group_of[member_id] = group_id
        client_id = "" if instance else member_id[: -ID_LENGTH - 1]
        self.fact(facts.MemberJoined(at.at_ms or 0, group_id, member_id, instance, client_id, ""), at)

    def went(self, group_id: str, member_id: str, how: Departure, at: Evidence) -> None:
        self._builder.went(group_id, member_id, how, at)

    def event(self, group_id: str, what: Happening, member_id: str, at: Evidence, *instance: str) -> None:
        """Add an event; `instance` is an instance id and the member that has it."""
        self._builder.add_event(group_id, Event(at.at_ms or 0, what, member_id, at, *instance))

    def count_members(self, group_id: str, text: str | None) -> None:
        if text is not None:
            self._builder.count_members(group_id, int(text))

    def describe(self, group_id: str, text: str, at: Evidence) -> str:
        """Read a member as the Scala coordinator prints it. Returns its id."""
        about: dict[str, str] = dict(re.findall(r"(\w+)=(?:Some\()?([^,()]*)", text))
        member_id = about.get("memberId", text)
        for name, setting in (
            ("sessionTimeoutMs", "session_timeout_ms"),
            ("rebalanceTimeoutMs", "rebalance_timeout_ms"),
        ):
            if about.get(name, "").isdigit():
                self._builder.describe_member(group_id, member_id, at, **{setting: int(about[name])})
        return member_id

    def group_of(self, member_id: str) -> str | None:
        return self._group_of.get(member_id)

    # --- consumer groups (KIP-848): an epoch follows what has happened before it

    def changed(self, group_id: str, cause: Cause, member_id: str) -> None:
        self.group(group_id).changes.append((cause, member_id))

    def epoch(self, group_id: str, epoch: int, at: Evidence) -> None:
        """Begin the rebalance of an epoch, unless it has begun."""
        group = self.group(group_id)
        if group.epoch is not None and epoch <= group.epoch:
            return
        kinds = list(dict.fromkeys(cause for cause, _ in group.changes))
        members = list(dict.fromkeys(member for _, member in group.changes if member))
        cause = kinds[0] if len(kinds) == 1 else Cause.TOPICS_CHANGED if not kinds else DerivedCause.UNKNOWN
        member = members[0] if len(members) == 1 else ""
        if group.epoch is not None and epoch > group.epoch + 1:
            cause, member = DerivedCause.UNKNOWN, ""  # some lines are missing
        group.epoch, group.changes = epoch, []
        start = facts.RebalanceStarted(at.at_ms or 0, group_id, _any(cause), member, None, epoch - 1, [], CONSUMER)
        self.fact(start, at)


def _any(cause: Cause | DerivedCause) -> Cause:
    """Let a rebalance have a cause that the broker did not log; it is shown as unknown."""
    return cast("Cause", cause)


# --- the lines of classic groups --------------------------------------------------------------------------------------

_Found = Mapping[str, str | None]
_Read = Callable[[BrokerLog, _Found, Evidence], None]


def _text(found: _Found, name: str) -> str:
    return found.get(name) or ""


def _preparing(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, generation = _text(found, "group"), int(_text(found, "generation"))
    cause, members, reason = cause_of(_text(found, "reason"))
    member = members[0] if len(members) == 1 else ""
    reasons = log.group(group_id).reasons
    reason = reason or reasons.get(member)
    reasons.clear()
    start = facts.RebalanceStarted(at.at_ms or 0, group_id, _any(cause), member, reason, generation, [])
    log.fact(start, at)


def _stabilized(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, generation = _text(found, "group"), int(_text(found, "generation"))
    log.fact(facts.JoinPhaseCompleted(at.at_ms or 0, group_id, generation, "", "", {}), at)
    log.count_members(group_id, found.get("count"))


def _assigned(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, generation = _text(found, "group"), int(_text(found, "generation"))
    log.fact(facts.AssignmentStored(at.at_ms or 0, group_id, generation, {}), at)
    log.count_members(group_id, found.get("count"))


def _emptied(log: BrokerLog, found: _Found, at: Evidence) -> None:
    log.fact(facts.GroupEmptied(at.at_ms or 0, _text(found, "group"), int(_text(found, "generation"))), at)


def _joined(log: BrokerLog, found: _Found, at: Evidence) -> None:
    log.joined(_text(found, "group"), _text(found, "member"), found.get("instance"), at)


def _static_replaced(log: BrokerLog, found: _Found, at: Evidence) -> None:
    """A static member came back; the line does not have its new member id."""
    log.went(_text(found, "group"), _text(found, "member"), Departure.REPLACED, at)


def _failed(log: BrokerLog, found: _Found, at: Evidence) -> None:
    log.fact(facts.MemberExpired(at.at_ms or 0, _text(found, "group"), _text(found, "member"), 0, False), at)


def _left(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id = _text(found, "group")
    member_id = log.describe(group_id, _text(found, "member"), at)
    reason = found.get("reason")
    reason = None if reason in (None, "not provided") else reason
    if reason:
        log.group(group_id).reasons[member_id] = reason
    log.fact(facts.MemberLeft(at.at_ms or 0, group_id, member_id, found.get("instance"), reason), at)


def _missed_join(log: BrokerLog, found: _Found, at: Evidence) -> None:
    for member_id in members_in(_text(found, "members")):
        log.fact(facts.MemberMissedJoin(at.at_ms or 0, _text(found, "group"), member_id), at)


def _missed_sync(log: BrokerLog, found: _Found, at: Evidence) -> None:
    for member_id in members_in(_text(found, "members")):
        log.fact(facts.MemberMissedSync(at.at_ms or 0, _text(found, "group"), member_id), at)


def _fenced(log: BrokerLog, found: _Found, at: Evidence) -> None:
    _refused(log, found, at, Happening.INSTANCE_ID_FENCED)


def _not_released(log: BrokerLog, found: _Found, at: Evidence) -> None:
    _refused(log, found, at, Happening.INSTANCE_ID_NOT_RELEASED)


def _refused(log: BrokerLog, found: _Found, at: Evidence, what: Happening) -> None:
    member_id, holder_id = _text(found, "member"), _text(found, "other")
    for one in (member_id, holder_id):
        group_id = found.get("group") or log.group_of(one)
        if group_id is not None:
            log.event(group_id, what, member_id, at, _text(found, "instance"), holder_id)
            return


def _unloaded(log: BrokerLog, found: _Found, at: Evidence) -> None:
    log.fact(facts.GroupUnloaded(at.at_ms or 0, _text(found, "group")), at)
    log.group(_text(found, "group")).epoch = None


def _loaded(log: BrokerLog, found: _Found, at: Evidence) -> None:
    log.event(_text(found, "group"), Happening.COORDINATOR_STARTED, "", at)


# --- the lines of consumer groups (KIP-848) ---------------------------------------------------------------------------


def _consumer_joined(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, member_id = _text(found, "group"), _text(found, "member")
    log.joined(group_id, member_id, found.get("instance"), at)
    log.changed(group_id, Cause.NEW_MEMBER, member_id)


def _consumer_replaced(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, member_id, old = _text(found, "group"), _text(found, "member"), _text(found, "old")
    log.joined(group_id, member_id, found.get("instance"), at)
    log.fact(facts.MemberReplaced(at.at_ms or 0, group_id, member_id, old, _text(found, "instance")), at)


def _consumer_left(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, member_id = _text(found, "group"), _text(found, "member")
    log.fact(facts.MemberLeft(at.at_ms or 0, group_id, member_id, found.get("instance"), None), at)
    _without(log, group_id, Cause.MEMBER_LEFT, member_id, at)


def _consumer_fenced(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, member_id, why = _text(found, "group"), _text(found, "member"), _text(found, "why")
    fact: Fact
    if "session expired" in why:
        cause, fact = Cause.SESSION_EXPIRED, facts.MemberExpired(at.at_ms or 0, group_id, member_id, 0, False)
    elif "sync" in why:
        cause, fact = Cause.SYNC_TIMEOUT, facts.MemberMissedSync(at.at_ms or 0, group_id, member_id)
    elif "join" in why:
        cause, fact = Cause.SESSION_EXPIRED, facts.MemberMissedJoin(at.at_ms or 0, group_id, member_id)
    else:
        cause, fact = Cause.REVOCATION_TIMEOUT, facts.MemberMissedRevocation(at.at_ms or 0, group_id, member_id)
    log.fact(fact, at)
    _without(log, group_id, cause, member_id, at)


def _without(log: BrokerLog, group_id: str, cause: Cause, member_id: str, at: Evidence) -> None:
    """Begin the epoch without a member, which has no line of its own."""
    log.changed(group_id, cause, member_id)
    epoch = log.group(group_id).epoch
    if epoch is not None:
        log.epoch(group_id, epoch + 1, at)


def _subscribed(log: BrokerLog, found: _Found, _at: Evidence) -> None:
    log.changed(_text(found, "group"), Cause.SUBSCRIPTION_CHANGED, _text(found, "member"))


def _bumped(log: BrokerLog, found: _Found, at: Evidence) -> None:
    log.epoch(_text(found, "group"), int(_text(found, "epoch")), at)


def _computed(log: BrokerLog, found: _Found, at: Evidence) -> None:
    group_id, epoch = _text(found, "group"), int(_text(found, "epoch"))
    log.epoch(group_id, epoch, at)
    log.fact(facts.TargetAssignmentComputed(at.at_ms or 0, group_id, epoch, _text(found, "assignor")), at)


_WORDS = {
    "group": r".{1,255}?",
    "member": r"\S{1,400}?",
    "old": r"\S{1,400}?",
    "other": r"\S{1,400}?(?=\.?(?:\s|$))",
    "instance": r".{1,255}?",
    "generation": r"\d{1,10}",
    "epoch": r"\d{1,10}",
    "count": r"\d{1,10}",
    "reason": r".*",
    "members": r".*",
    "why": r".*",
    "assignor": r".{0,255}?",
}
"""The expression for each `<name>` in the lines below. They are bounded: a hostile client id costs little time."""
_LEFT = r"through explicit `?LeaveGroup`?(?: request)?(?:; client reason: <reason>)?$"
_STATIC_JOINS = (
    r"Static member with groupInstanceId=<instance> and unknown member id joins group <group> in \w+ state\. "
)

_CLASSIC: Mapping[str, _Read] = {
    r"Preparing to re(?:balance|stabilize) group <group>(?: in state \w+)? with old generation <generation><place>"
    r"(?: \(reason: <reason>\))?\.?$": _preparing,
    r"Stabilized group <group> generation <generation><place>(?: with <count> members)?\.?$": _stabilized,
    r"Assignment received from leader(?: \S+)? for group <group> for generation <generation>"
    r"(?:\. The group has <count> members.*)?$": _assigned,
    r"Group <group> with generation <generation> is now empty": _emptied,
    r"Pending dynamic member with id <member> joins group <group> in \w+ state": _joined,
    r"Dynamic [Mm]ember with unknown member id joins group <group> in (?:state \w+|\w+ state)\. "
    r"Created a new member id <member> (?:for this member )?and add": _joined,
    _STATIC_JOINS + r"Created a new member id <member> for": _joined,
    _STATIC_JOINS + r"Replacing previously mapped member <member> with": _static_replaced,
    r"Member <member> in group <group> has failed, removing it": _failed,
    r"Member <member> in group <group> has left, removing it": _left,
    r"\[Group(?:Id)? <group>\] (?:Dynamic m|Static m|M)ember <member>(?: with instance id <instance>)? has left group "
    + _LEFT: _left,
    r"Member <metadata> has left group <group> " + _LEFT: _left,
    r"Group <group> removed dynamic members who haven't joined: <members>$": _missed_join,
    r"Group <group> removed members who haven't sent their sync requests?: <members>$": _missed_sync,
    r"Request memberId=<member> for static member with groupInstanceId=<instance> is fenced by (?:existing|current) "
    r"memberId=<other>": _fenced,
    r"\[GroupId=<group>\] Unload(?:ing|ed) group metadata for": _unloaded,
    r"Unloading group metadata for <group> with generation": _unloaded,
    r"Loaded (?:classic|consumer) group <group> with \d+ members": _loaded,
    r"Loading group metadata for <group> with generation": _loaded,
}
_CONSUMER: Mapping[str, _Read] = {
    r"(?:Static m|M)ember <member>(?: with instance id <instance>)? joins the consumer group": _consumer_joined,
    r"Static member with instance id <instance> re-joins the consumer group using the \w+ protocol\. "
    r"Created a new member <member> to replace the existing member <old>\.?$": _consumer_replaced,
    r"(?:Static [Mm]|M)ember <member>(?: with instance id <instance>)? left the consumer group": _consumer_left,
    r"Member <member> fenced from the group because <why>$": _consumer_fenced,
    r"Static member <member> with instance id <instance> cannot join the group because the instance id is "
    r"(?:is )?owned by member <other>": _not_released,
    r"Static member <member> with instance id <instance> is fenced by existing member <other>": _fenced,
    r"Member <member> updated its subscribed (?:topics|regex) to": _subscribed,
    r"Bumped group epoch to <epoch>\b": _bumped,
    r"Computed a new target assignment for epoch <epoch>(?: with '<assignor>' assignor)?": _computed,
}
"""The lines of consumer groups, without the group in brackets with which each begins."""


def _compiled(line: str) -> re.Pattern[str]:
    line = line.replace("<place>", r"(?: \(__consumer_offsets-\d+\))?").replace(
        "<metadata>", r"(?P<member>\S.{0,1000}?)"
    )
    return re.compile(re.sub(r"(?<!\?P)<(\w+)>", lambda name: f"(?P<{name[1]}>{_WORDS[name[1]]})", line))


_LINES: tuple[tuple[re.Pattern[str], _Read], ...] = (
    *((_compiled(line), read) for line, read in _CLASSIC.items()),
    *((_compiled(rf"\[GroupId <group>\] {line}"), read) for line, read in _CONSUMER.items()),
)


def read_logs(files: Iterable[tuple[str, Iterator[str]]], zone: tzinfo = UTC) -> BrokerLog:
    """Read several logs in the order given: names, and their lines."""
    log = BrokerLog(zone)
    for name, lines in files:
        log.read(lines, name)
    return log


# --- the reasons of rebalances: the cause and the members of each wording ---------------------------------------------

_CLIENT = re.compile(r"; client reason: (?P<reason>.*)$", re.DOTALL)
_NOT_PROVIDED = frozenset({"not provided", ""})

_TABLE: tuple[tuple[str, Cause], ...] = (
    (r"^adding new member (?P<member>\S+)", Cause.NEW_MEMBER),
    (r"^explicit `?LeaveGroup`? request for \((?P<member>.*)\) members", Cause.MEMBER_LEFT),
    (r"^removing member (?P<member>\S+) on LeaveGroup", Cause.MEMBER_LEFT),
    (r"^removing member (?P<member>\S+) on heartbeat expiration", Cause.SESSION_EXPIRED),
    (r"^removing (?P<member>.*) on pending sync request expiration", Cause.SYNC_TIMEOUT),
    (r"^(?:the )?leader (?P<member>\S+) (?:is )?re-?joining group", Cause.LEADER_REJOINED),
    (r"selectedProtocol will change because static member (?P<member>\S+)", Cause.STATIC_MEMBER_CHANGED_VOTE),
    (r"^updating metadata for static member (?P<member>\S+)", Cause.STATIC_MEMBER_REPLACED),
    (r"^updating metadata for member (?P<member>\S+)", Cause.PROTOCOLS_CHANGED),
    (r"when storing group assignment.*\(member: (?P<member>\S+?)\)", Cause.WRITE_FAILED),
    (r"freshly-loaded group .*over capacity", Cause.OVER_SIZE_AT_LOAD),
)
_REASONS = tuple((re.compile(text, re.IGNORECASE), cause) for text, cause in _TABLE)


def cause_of(reason: str) -> tuple[Cause | DerivedCause, list[str], str | None]:
    """Return the cause, the members behind it, and the reason that the client sent, from the text in the log.

    The cause of an unknown wording is unknown. Kafka before 1.1 wrote no reason.
    """
    client = _CLIENT.search(reason)
    said = client["reason"].strip() if client else ""
    text = reason[: client.start()] if client else reason
    for pattern, cause in _REASONS:
        found = pattern.search(text)
        if found is not None:
            members = members_in(found.groupdict().get("member") or "")
            return cause, members, None if said in _NOT_PROVIDED else said
    return DerivedCause.UNKNOWN, [], None if said in _NOT_PROVIDED else said


_COLLECTION = re.compile(r"^(?:[A-Za-z]*Set|List|Vector)?[(\[{]?(?P<inner>.*?)[)\]}]?\.?$", re.DOTALL)


def members_in(text: str) -> list[str]:
    """Return the member ids in a collection as Scala or Java print it: `Set(a, b)`, `[a, b]`, `a`."""
    found = _COLLECTION.match(text.strip())
    inner = found["inner"] if found else text
    return [one.strip() for one in inner.split(",") if one.strip()]
