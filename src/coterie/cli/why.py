"""Texts about rebalances for people on call: the answer to "why", rows of findings, and who owned what."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from coterie.cli.output import Cell, Rows
from coterie.diagnosis.context import seconds
from coterie.diagnosis.evidence import UNKNOWN_TEXT, Bound, Evidence, Statement
from coterie.diagnosis.model import Cost, Event, ExplainedRebalance, Finding, GroupHistory
from coterie.ledger.rebalances import shown_reason

FINDINGS = ("SEVERITY", "FINDING", "GROUP", "MEMBERS", "FROM", "TO", "REBALANCES", "COST", "SUMMARY", "GRADE", "ADVICE")
REBALANCES = (
    *("GROUP", "NUMBER", "BEGAN", "CAUSE", "MEMBER", "REASON", "TOOK", "MOVED", "UNASSIGNED", "GRADE"),
    *("JOIN", "SYNC", "MEMBERS", "OUTCOME", "EVIDENCE"),
)
WIDE_FINDINGS = ("TO", "GRADE", "ADVICE")
WIDE_REBALANCES = ("JOIN", "SYNC", "MEMBERS", "OUTCOME", "EVIDENCE")
_MAX_NAMES = 3
MOST_REPORTS = 10
"""What clients reported after a rebalance: so many lines are shown."""
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"


def when(ms: int | None) -> str:
    """Return a time in UTC, to the second."""
    if not ms:
        return UNKNOWN_TEXT
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


# --- one rebalance in words -------------------------------------------------------------------------------------------


def why(history: GroupHistory, findings: Sequence[Finding], now_ms: int) -> str:
    """Answer why a group rebalanced last, and what that belongs to."""
    if not history.rebalances:
        return f"Group {history.group_id}: no rebalance is known{_covered(history)}."
    last = history.rebalances[-1]
    paragraphs = [sentence(history, last, now_ms)]
    mine = [one for one in findings if last.number in one.rebalances]
    others = [one for one in findings if one not in mine]
    paragraphs += [f"{_label(one)} {one.summary} {_cost(one.cost)}\nDo: {one.advice}" for one in mine]
    if others:
        listed = "; ".join(f"{one.name} ({one.severity})" for one in others)
        paragraphs.append(f"Other findings of this group: {listed}. See: coterie groups findings {history.group_id}")
    if not findings:
        paragraphs.append("Nothing else is wrong with the group, as far as these sources show.")
    paragraphs.append("Evidence:\n" + "\n".join(_evidence(history, last)))
    return "\n\n".join(paragraphs)


def _covered(history: GroupHistory) -> str:
    return "" if history.from_ms is None else f" between {when(history.from_ms)} and {when(history.to_ms)} UTC"


def _label(finding: Finding) -> str:
    count = f", {len(finding.rebalances)} rebalances" if len(finding.rebalances) > 1 else ""
    return f"It belongs to: {finding.name} ({finding.severity}{count})."


def sentence(history: GroupHistory, one: ExplainedRebalance, now_ms: int) -> str:
    """Describe one rebalance in a few sentences; each says how it is known."""
    what = "epoch" if one.is_of_consumer_group else "generation"
    number = f", {what} {one.number}" if one.number else ""
    at = f"{when(one.at_ms)} UTC{number}"
    parts = [f"Group {history.group_id} rebalanced {ago(now_ms - one.at_ms)} ({at}). Cause: {_cause(history, one)}."]
    took, bound = one.took
    if took is None:
        parts.append("How long it took is unknown.")
    else:
        parts.append(f"It took {_bounded(seconds(took), bound)}{_phases(one)}{_grade(one.began_ms)}.")
    if one.last_to_join.value and len(one.joined_after_ms.value or ()) > 1:
        last = "reconcile" if one.is_of_consumer_group else "join"
        parts.append(f"The last member to {last} was {history.name_of(one.last_to_join.value)}.")
    parts.append(_moved(one))
    parts.append(_unassigned(one))
    parts += [
        f"Sources disagree about {name.removesuffix('_ms')}: {', '.join(str(claim.value) for claim in claims)} is said "
        f"by {claims[0].evidence.source or claims[0].evidence.grade}."
        for name, claims in one.disagreements.items()
    ]
    return " ".join(parts)


def _cause(history: GroupHistory, one: ExplainedRebalance) -> str:
    reason = shown_reason(one.reason.value)
    because = f'; "{reason}"{_grade(one.reason)}' if reason else ""
    if one.cause.value is None:
        return f"{UNKNOWN_TEXT}{because}"
    if one.member.value is None:
        who = ", by an unknown member"
    else:
        who = f", {_member(history, one.member.value)}" if one.member.value else ""
    return f"{one.cause.value}{who}{_grade(one.cause)}{because}"


def _member(history: GroupHistory, member_id: str) -> str:
    member = history.members.get(member_id)
    host = f" on {member.host.removeprefix('/')}" if member is not None and member.host else ""
    return f"{history.name_of(member_id)}{host}"


def _grade(statement: Statement[int] | Statement[str]) -> str:
    return f" ({statement.grade})" if statement.grade is not None else ""


def _bounded(text: str, bound: Bound) -> str:
    return f"{bound} {text}" if bound is not Bound.EXACT else text


def _phases(one: ExplainedRebalance) -> str:
    (join, join_bound), (sync, sync_bound) = one.join_took, one.sync_took
    if join is None or sync is None:
        return ""
    first, then = _bounded(seconds(join), join_bound), _bounded(seconds(sync), sync_bound)
    if one.is_of_consumer_group:
        return f": {first} until the target assignment was computed, {then} until all members had it"
    return f": {first} until all members had joined, {then} until the assignment was stored"


def _moved(one: ExplainedRebalance) -> str:
    if one.moves.value is None or one.kept.value is None:
        return "Which partitions moved is unknown."
    return f"{len(one.moves.value)} partitions got another owner, {one.kept.value} kept theirs ({one.moves.grade})."


def _unassigned(one: ExplainedRebalance) -> str:
    if one.unassigned_ms.value is None:
        return "For how long partitions were unassigned is unknown."
    figure = _bounded(partition_seconds(one.unassigned_ms.value), one.unassigned_ms.bound)
    dead = one.dead_ms
    waited = ""
    if dead.value is not None:
        before = _bounded(partition_seconds(dead.value), dead.bound)
        waited = f", and {before} before that, until the session of the crashed member ended{_grade(dead)}"
    return f"Unassigned: {figure} partition-seconds{_grade(one.unassigned_ms)}{waited}."


def _evidence(history: GroupHistory, one: ExplainedRebalance) -> list[str]:
    merged: dict[Evidence, list[str]] = {}
    for name, statement in one.statements.items():
        for evidence in statement.evidence[:1]:
            merged.setdefault(evidence, []).append(name.removesuffix("_ms").replace("_", " "))
    return [
        f"  {evidence.grade:8}  {evidence.source or '-'}  {', '.join(names)}"
        + (f": {evidence.says}" if evidence.says else "")
        for evidence, names in merged.items()
    ] + [_reported(event) for event in history.reports_after(one)[:MOST_REPORTS]]


def _reported(event: Event) -> str:
    """Return what a client reported after a rebalance."""
    return f"  {event.evidence.grade:8}  {event.evidence.source or '-'}  {when(event.at_ms)} UTC, {event.evidence.says}"


def ago(ms: int) -> str:
    if ms < 0:
        return "just now"
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if ms >= size:
            count = ms // size
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    return f"{ms // 1_000} s ago"


def partition_seconds(ms: int) -> str:
    return f"{ms / 1_000:.1f}"


# --- rows -------------------------------------------------------------------------------------------------------------


def _cost(cost: Cost) -> str:
    """Return what a finding has cost, in a sentence; empty if nothing is known."""
    parts = []
    if cost.unassigned_ms is not None:
        least = "" if cost.is_complete else "at least "
        split = f", {partition_seconds(cost.avoidable_ms)} of them avoidable" if cost.avoidable_ms is not None else ""
        parts.append(f"{least}{partition_seconds(cost.unassigned_ms)} unassigned partition-seconds{split}")
    if cost.at_most_ms is not None:
        parts.append(f"at most {partition_seconds(cost.at_most_ms)} unassigned partition-seconds")
    if cost.dead_ms is not None:
        parts.append(f"at most {partition_seconds(cost.dead_ms)} more until sessions ended")
    if cost.records_delayed is not None:
        parts.append(f"about {cost.records_delayed} records delayed")
    return f"Cost: {'; '.join(parts)}." if parts else "Its cost is unknown."


def cost_cell(cost: Cost) -> str:
    """Return the cost for a table: partition-seconds, and those of crashed members after a plus."""
    if cost.unassigned_ms is not None:
        first = (
            partition_seconds(cost.unassigned_ms) if cost.is_complete else f">={partition_seconds(cost.unassigned_ms)}"
        )
    elif cost.at_most_ms is not None:
        first = f"<={partition_seconds(cost.at_most_ms)}"
    else:
        first = UNKNOWN_TEXT
    return first if cost.dead_ms is None else f"{first} +{partition_seconds(cost.dead_ms)} dead"


def findings_rows(findings: Iterable[Finding]) -> Rows:
    rows: list[Sequence[Cell]] = [
        (
            str(one.severity),
            one.name,
            one.group_id,
            _some(one.members),
            when(one.from_ms),
            when(one.to_ms),
            len(one.rebalances),
            cost_cell(one.cost),
            one.summary,
            str(one.grade),
            one.advice,
        )
        for one in findings
    ]
    notes = [] if rows else ["no findings: nothing is wrong, as far as these sources show"]
    return Rows(FINDINGS, rows, notes, wide=WIDE_FINDINGS)


def _some(names: Sequence[str]) -> str:
    more = f" +{len(names) - _MAX_NAMES}" if len(names) > _MAX_NAMES else ""
    return ", ".join(names[:_MAX_NAMES]) + more


def rebalance_rows(histories: Mapping[str, GroupHistory]) -> Rows:
    rows = [rebalance_row(history, one) for history in histories.values() for one in history.rebalances]
    notes = [] if rows else ["no rebalance is known"]
    return Rows(REBALANCES, rows, notes, wide=WIDE_REBALANCES)


def rebalance_row(history: GroupHistory, one: ExplainedRebalance) -> Sequence[Cell]:
    """Return a row; what is unknown says so."""
    took, bound = one.took
    join, sync = one.join_took, one.sync_took
    unassigned = one.unassigned_ms
    return (
        one.group_id,
        one.number or UNKNOWN_TEXT,
        when(one.began_ms.value) if one.began_ms.bound is Bound.EXACT else f"before {when(one.at_ms)}",
        one.cause.value or UNKNOWN_TEXT,
        UNKNOWN_TEXT if one.member.value is None else history.name_of(one.member.value),
        shown_reason(one.reason.value),
        _duration(took, bound),
        len(one.moves.value) if one.moves.value is not None else UNKNOWN_TEXT,
        UNKNOWN_TEXT if unassigned.value is None else _bounded(partition_seconds(unassigned.value), unassigned.bound),
        str(one.cause.grade) if one.cause.grade else UNKNOWN_TEXT,
        _duration(*join),
        _duration(*sync),
        one.members.value if one.members.value is not None else UNKNOWN_TEXT,
        one.outcome.value or UNKNOWN_TEXT,
        next((each.source for each in one.cause.evidence), UNKNOWN_TEXT),
    )


def _duration(ms: int | None, bound: Bound) -> str:
    return UNKNOWN_TEXT if ms is None else _bounded(seconds(ms), bound)


# --- who owned what, in the terminal ----------------------------------------------------------------------------------


def timeline(history: GroupHistory, width: int, most: int) -> list[str]:
    """Draw a row for each partition, a letter for each owner and a dot where it was unassigned."""
    if not history.intervals:
        return [f"Group {history.group_id}: who owned which partition is unknown (a log alone does not say it)."]
    begin = max(history.from_ms or 0, min(one.began_ms for one in history.intervals))
    end = max(history.to_ms or 0, begin + 1)
    partitions = sorted({one.partition for one in history.intervals})
    names = _owner_names(history, end)
    letters = {name: _LETTERS[at % len(_LETTERS)] for at, name in enumerate(dict.fromkeys(names.values()))}
    labels = {partition: f"{partition[0]}-{partition[1]}" for partition in partitions[:most]}
    room = max(width - max(map(len, labels.values())) - 2, 10)
    step = (end - begin) / room
    lines = [f"Group {history.group_id}, {when(begin)} to {when(end)} UTC, {seconds(step)} per column"]
    lines.append(" " * (width - room) + _marks(history, begin, step, room))
    for partition, label in labels.items():
        cells = ["."] * room
        for one in history.intervals:
            if one.partition == partition:
                first = max(int((one.began_ms - begin) / step), 0)
                last = room if one.ended_ms is None else int((one.ended_ms - begin) / step + 0.999)
                cells[first:last] = letters[names[one.owner]] * (min(last, room) - first)
        lines.append(f"{label:{width - room}}{''.join(cells[:room])}")
    if len(partitions) > most:
        lines.append(f"... and {len(partitions) - most} partitions more (--rows)")
    lines.append("  ".join(f"{letter} = {name}" for name, letter in letters.items()))
    lines.append(". = unassigned   | = rebalance   A crashed member owns its partitions until its session ends.")
    return lines


def _owner_names(history: GroupHistory, end: int) -> Mapping[str, str]:
    """Return a name for each owner. Members of one name that follow each other share it; others are numbered."""
    spans: dict[str, tuple[int, int]] = {}
    for one in history.intervals:
        began, ended = spans.get(one.owner, (one.began_ms, 0))
        spans[one.owner] = min(began, one.began_ms), max(ended, end if one.ended_ms is None else one.ended_ms)
    names: dict[str, str] = {}
    busy_until: dict[str, list[int]] = {}
    for owner, (began, ended) in sorted(spans.items(), key=lambda item: item[1][0]):
        name = history.name_of(owner)
        ends = busy_until.setdefault(name, [])
        number = next((at for at, until in enumerate(ends) if until <= began), len(ends))
        ends[number : number + 1] = [ended]
        names[owner] = f"{name} ({number + 1})" if number else name
    return names


def _marks(history: GroupHistory, begin: int, step: float, room: int) -> str:
    cells = [" "] * room
    for one in history.rebalances:
        at = int((one.at_ms - begin) / step)
        if 0 <= at < room:
            cells[at] = "|"
    return "".join(cells)
