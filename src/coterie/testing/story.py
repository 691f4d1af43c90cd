"""What happened in a test, as text: for the message of a wait that failed, and for pytest's report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from coterie import facts
from coterie.broker.broker_facts import ConnectionDropped, LeadersChanged, Trouble
from coterie.facts import Fact
from coterie.stories import StoryStep, show
from coterie.testing.groups import GroupSnapshot, partitions_of
from coterie.testing.requests import GROUP_APIS, Request
from coterie.web.picture import MemberNames

if TYPE_CHECKING:
    from coterie.testing.faults import Fault

MOST_LINES = 40
MOST_REQUESTS = 30


def group_line(now: GroupSnapshot) -> str:
    """Return a group in one line: its state, its members and what they have, and who is late."""
    parts = []
    for member in now.members:
        had = " ".join(member.assignment) or "nothing"
        late = f", {member.state}" if member.state else ""
        gone = "" if member.is_connected else ", not connected"
        parts.append(f"{member.name} has {had}{late}{gone}")
    word = "epoch" if now.protocol == facts.CONSUMER else "generation"
    number = f", {word} {now.generation}" if now.members else ""
    members = f"; {'; '.join(parts)}" if parts else ", no members"
    committed = ", ".join(f"{partition}={offset}" for partition, offset in now.committed.items())
    return f"group {now.group_id} is {now.state}{number}{members}; committed: {committed or 'nothing'}"


def story_of(
    groups: Sequence[GroupSnapshot],
    happened: Iterable[Fact],
    requests: Sequence[Request],
    faults: Sequence[Fault],
    began_ms: int,
) -> str:
    """Return what the groups are, what happened to them, and what their members asked and were answered last."""
    names = MemberNames(happened := list(happened))
    ids = {group.group_id for group in groups}
    lines = [group_line(group) for group in groups] or ["no group exists"]
    lines += [f"fault in force: {fault!r}" for fault in faults]
    events = [
        f"  {_seconds(fact.at_ms - began_ms)}  {f'{fact.group_id}: ' if fact.group_id else ''}{text}"
        for fact in _without_earlier_commits(happened)
        if (not fact.group_id or fact.group_id in ids) and (text := _words(fact, names))
    ]
    if events:
        left_out = len(events) - MOST_LINES
        lines += ["", "what happened:", *([f"  ... {left_out} before that"] if left_out > 0 else [])]
        lines += events[-MOST_LINES:]
    concerning = [one for one in requests if one.api in GROUP_APIS and not ids.isdisjoint(one.groups)]
    if concerning:
        lines += ["", "the last requests of members:"]
        lines += ["  " + line for line in grid_of(concerning, names, began_ms).splitlines()]
    return "\n".join(lines)


def _without_earlier_commits(happened: Sequence[Fact]) -> list[Fact]:
    """Leave out commits that the same member made again later, with nothing else in between but commits."""
    kept: list[Fact] = []
    since: dict[tuple[str, str], int] = {}
    for fact in happened:
        if isinstance(fact, facts.OffsetsStored):
            key = (fact.group_id, fact.member_id)
            before = since.get(key)
            if before is not None:
                kept[before] = fact
                continue
            since[key] = len(kept)
        else:
            since.clear()
        kept.append(fact)
    return kept


def grid_of(requests: Sequence[Request], names: MemberNames, began_ms: int) -> str:
    """Return requests as the grid of a story. Of several that say and hear the same, the last is shown.

    Heartbeats that say that all is well are left out.
    """
    rows: list[tuple[StoryStep, int]] = []
    for one in requests:
        if one.api == "Heartbeat" and one.error == "NONE" and not one.fault:
            continue
        who = one.instance or (names.of(one.member) if one.member else one.client_id) or one.host
        hears = one.error or (f"({one.fault})" if one.fault else "-")
        says = one.api + (f" gen {one.generation}" if one.generation is not None and one.generation >= 0 else "")
        step = StoryStep(one.at_ms - began_ms, who, says, "ok" if hears == "NONE" else hears, one.state)
        last = rows[-1][0] if rows else None
        if last is not None and (last.who, last.says, last.hears, last.group) == (
            step.who,
            step.says,
            step.hears,
            step.group,
        ):
            rows[-1] = (step, rows[-1][1] + 1)
        else:
            rows.append((step, 1))
    shown = [
        StoryStep(step.at_ms, step.who, step.says + (f" ({count} times)" if count > 1 else ""), step.hears, step.group)
        for step, count in rows[-MOST_REQUESTS:]
    ]
    return show(shown)


def _seconds(ms: int) -> str:
    return f"+{ms / 1_000:.3f} s"


def _words(fact: Fact, names: MemberNames) -> str:
    """Return a fact in words; "" if it is not worth a line."""
    match fact:
        case facts.MemberJoined():
            static = f", static as {fact.instance_id}" if fact.instance_id else ""
            return f"{names.of(fact.member_id)} joined ({fact.member_id}{static})"
        case facts.MemberReplaced():
            return f"{fact.instance_id} came back with another member id"
        case facts.InstanceIdFenced():
            who, holder = names.of(fact.member_id) or "a member", names.of(fact.holder_id)
            return f"{fact.request} of {who} was refused ({fact.error.name}): {holder} has instance {fact.instance_id}"
        case facts.MemberLeft():
            return f"{names.of(fact.member_id)} left{f': {fact.reason}' if fact.reason else ''}"
        case facts.MemberExpired():
            return f"{names.of(fact.member_id)} expired: not heard of for {fact.session_timeout_ms} ms"
        case facts.MemberMissedJoin():
            return f"{names.of(fact.member_id)} did not join in time, and was removed"
        case facts.MemberMissedSync():
            return f"{names.of(fact.member_id)} did not sync in time, and was removed"
        case facts.MemberMissedRevocation():
            return f"{names.of(fact.member_id)} did not give up partitions in time, and was removed"
        case facts.MemberTurnedAway():
            return f"{names.of(fact.member_id)} was refused: {fact.why or 'the group is full'}"
        case facts.RebalanceStarted():
            who = f" ({names.of(fact.member_id)})" if fact.member_id else ""
            waits = ", ".join(names.of(member) for member in fact.waits_for)
            return f"rebalance: {fact.cause.value}{who}" + (f"; waits for {waits}" if waits else "")
        case facts.JoinPhaseCompleted():
            late = fact.joined_after_ms
            last = max(late, key=lambda member: late[member]) if len(late) > 1 else ""
            slow = f"; last to join: {names.of(last)} after {late[last]} ms" if last else ""
            return f"generation {fact.generation_id}: {fact.protocol_name}, {names.of(fact.leader_id)} leads{slow}"
        case facts.TargetAssignmentComputed():
            return f"epoch {fact.assignment_epoch}: {fact.assignor} has assigned"
        case facts.AssignmentStored():
            return f"Stable{_assigned(fact.assignments, names)}"
        case facts.MemberAssigned():
            had = [f"{topic}-{number}" for topic, numbers in fact.assigned.items() for number in numbers]
            return f"{names.of(fact.member_id)} has {' '.join(had) or 'nothing'} in epoch {fact.member_epoch}"
        case facts.GroupEmptied():
            return "Empty"
        case facts.GroupDied():
            return f"deleted: {fact.why}"
        case facts.GroupLoaded():
            return f"loaded by its coordinator: {fact.state} with {len(fact.members)} members"
        case facts.OffsetsStored():
            offsets = ", ".join(f"{topic}-{partition}={offset}" for topic, partition, offset in fact.offsets)
            return f"{names.of(fact.member_id) if fact.member_id else 'no member'} committed {offsets}"
        case facts.OffsetsExpired():
            return f"offsets expired: {', '.join(f'{topic}-{partition}' for topic, partition in fact.partitions)}"
        case facts.AssignmentFailed() | facts.WriteFailed():
            return f"a write failed: {fact.error.name}"
        case facts.AssignorFailed():
            return f"the assignor {fact.assignor} failed: {fact.why}"
        case facts.Mistake():
            return f"a mistake of the broker, please report it: {fact.doing}\n{fact.trace}"
        case Trouble():
            return f"trouble: {fact.what}"
        case ConnectionDropped():
            return f"the broker closed a connection: {fact.why}"
        case LeadersChanged():
            return f"leaders changed: {fact.why}"
        case _:
            return ""


def _assigned(assignments: Mapping[str, bytes], names: MemberNames) -> str:
    said = [f"{names.of(member)}: {' '.join(partitions_of(data)) or 'nothing'}" for member, data in assignments.items()]
    return f"; {', '.join(said)}" if said else ""
