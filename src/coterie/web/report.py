"""The HTML report about rebalances: why each happened, which member caused it, what it cost, and the picture.

One file of HTML that needs nothing else. It reads well in light and dark, wide and narrow, and on paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import groupby

from coterie.facts import CLASSIC, CONSUMER, Fact, GroupUpgraded
from coterie.ledger import Interval, Rebalance, RebalanceOutcome, TypeChange, fold, intervals_of
from coterie.web.picture import MemberNames, colour_of, picture

PHASES: Mapping[str, tuple[str, str, str]] = {
    CLASSIC: ("generation", "join", "sync"),
    CONSUMER: ("epoch", "assigning", "reconciling"),
}
"""The names of the number and of the two phases of a rebalance, by the type of the group."""
PHASES_MEAN = {
    CLASSIC: "Join: until all members had joined. Sync: until their assignment was stored.",
    CONSUMER: (
        "Consumer group (KIP-848): a rebalance is one group epoch. Assigning: until the target assignment was "
        "computed. Reconciling: until the last member had all of it. A member that had to revoke partitions is listed "
        "with the time, from the begin of the rebalance, at which it had; others waited for it. Meanwhile members read "
        "on in the partitions that they keep."
    ),
}

UNKNOWN = "unknown"

UNASSIGNED = (
    "Unassigned: partition-seconds from the moment a partition lost its owner to the rebalance that assigned it again. "
    "Not counted: time before a crashed member's session timed out, and time when the group had no members."
)

STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2330; --faint: #667085; --line: #e1e5eb; --card: #f6f7f9; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #12161c; --ink: #e6eaf0; --faint: #97a1b0; --line: #2c343f; --card: #1a2028; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 2.5rem); max-width: 75rem; background: var(--paper);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; } h3 { font-size: 1rem; }
.faint { color: var(--faint); } .figures { display: flex; flex-wrap: wrap; gap: .75rem; padding: 0; list-style: none; }
.figures li { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .5rem .9rem; }
.figures b { display: block; font-size: 1.25rem; } .wide { overflow-x: auto; }
.wide .picture { min-width: 40rem; } table { border-collapse: collapse; }
.rebalances { width: 100%; font-size: 14px; } th, td { padding: .3rem .6rem; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); } th { color: var(--faint); font-weight: 500; white-space: nowrap; }
td.n { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1rem; padding: 0; list-style: none; font-size: 13px; }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 2px; margin-right: .4em; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .75rem; overflow-x: auto; }
.held { color: #1a7f4b; } .broken { color: #c4314b; font-weight: 600; }
@media (prefers-color-scheme: dark) { .held { color: #4cc38a; } .broken { color: #ff6b81; } }
"""


@dataclass(slots=True, frozen=True)
class Section:
    """A further table of the report. The first row has the names of the columns."""

    title: str
    rows: Sequence[Sequence[str]]
    note: str = ""


def report(title: str, group_facts: Iterable[Fact], *, note: str = "", sections: Sequence[Section] = ()) -> str:
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(title)}</title>",
        '<link rel="icon" href="data:,">',
        f"<style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1>",
        report_body(group_facts, note=note, sections=sections),
    ]
    return "\n".join([*parts, "</body></html>", ""])


def report_body(group_facts: Iterable[Fact], *, note: str = "", sections: Sequence[Section] = ()) -> str:
    """Return the report without its title, to be put into another page."""
    facts = list(group_facts)
    rebalances, intervals, names = fold(facts), intervals_of(facts), MemberNames(facts)
    groups = list(dict.fromkeys([one.group_id for one in rebalances] + [one.group_id for one in intervals]))
    parts = [
        f"<p class='faint'>{escape(_summary(facts, rebalances, groups))}</p>",
        f"<p>{escape(note)}</p>" if note else "",
    ]
    for group in groups:
        mine = [one for one in rebalances if one.group_id == group]
        changes = [one for one in facts if isinstance(one, TypeChange) and one.group_id == group]
        parts += _group(group, mine, changes, [one for one in intervals if one.group_id == group], names)
    if not groups:
        parts.append("<p>No group has rebalanced.</p>")
    parts += [line for section in sections for line in _section(section)]
    return "\n".join(part for part in parts if part)


def _summary(facts: Sequence[Fact], rebalances: Sequence[Rebalance], groups: Sequence[str]) -> str:
    if not facts:
        return "Nothing was recorded."
    first, last = min(fact.at_ms for fact in facts), max(fact.at_ms for fact in facts)
    when = datetime.fromtimestamp(first / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    counted = f"{_count(len(rebalances), 'rebalance')} in {_count(len(groups), 'group')}"
    return f"{counted}, from {when} UTC, {_time(last - first)}."


def _group(
    group: str,
    rebalances: Sequence[Rebalance],
    type_changes: Sequence[TypeChange],
    intervals: Sequence[Interval],
    names: MemberNames,
) -> list[str]:
    moved, is_derived = sum(len(one.moves) for one in rebalances), any(one.is_derived for one in rebalances)
    has_times = all(one.has_times for one in rebalances)
    types = list(dict.fromkeys(one.group_type for one in rebalances)) or [CLASSIC]
    phases = [" / ".join(dict.fromkeys(names)) for names in zip(*(PHASES[one] for one in types), strict=True)]
    columns = ("", "began", "cause", "member", *phases, "moved", "kept", "unassigned", "outcome")
    unassigned = [one.unassigned_ms for one in rebalances if one.unassigned_ms is not None]
    took = [one.took_ms for one in rebalances if one.took_ms is not None]
    times = [one.at_ms for one in type_changes] + [one.began_ms for one in rebalances]
    rows = [(one.at_ms, _type_row(one, min(times), names)) for one in type_changes]
    rows += [(one.began_ms, _row(number, one, min(times), names)) for number, one in enumerate(rebalances, 1)]
    figures = [
        ("rebalances", str(len(rebalances))),
        ("partitions moved", str(moved)),
        (
            "unassigned partition-seconds",
            _known(f"{sum(unassigned) / 1_000:.1f}", is_derived=is_derived, is_known=bool(unassigned)),
        ),
        ("longest rebalance", _known(_time(max(took, default=None)), is_derived=not has_times, is_known=bool(took))),
    ]
    return [
        f"<section><h2>Group {escape(group)}</h2>",
        '<ul class="figures">',
        *(f"<li><b>{value}</b><span class='faint'>{name}</span></li>" for name, value in figures),
        "</ul>",
        f'<div class="wide">{picture(intervals, rebalances, names)}</div>',
        _legend(intervals, names),
        '<div class="wide"><table class="rebalances"><thead><tr>',
        *(f"<th>{column}</th>" for column in columns),
        "</tr></thead><tbody>",
        *(row for _, row in sorted(rows, key=lambda row: row[0])),
        "</tbody></table></div>",
        *(f"<p class='faint'>{PHASES_MEAN[one]}</p>" for one in types),
        f"<p class='faint'>{UNASSIGNED}</p></section>",
    ]


def _known(text: str, *, is_derived: bool, is_known: bool) -> str:
    """Return a figure about rebalances. Durations and costs of derived ones are unknown."""
    if not is_derived:
        return text
    return f"at least {text}" if is_known else UNKNOWN


def _legend(intervals: Sequence[Interval], names: MemberNames) -> str:
    owners = dict.fromkeys(names.of(one.owner) for one in intervals)
    items = (
        f'<li><i style="background:hsl({colour_of(index)} 58% 46%)"></i>{escape(name)}</li>'
        for index, name in enumerate(owners)
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def _row(number: int, one: Rebalance, first_ms: int, names: MemberNames) -> str:
    member = names.of(one.culprit) if one.culprit else ""
    reason = f"<br><span class='faint'>{escape(one.shown_reason)}</span>" if one.shown_reason else ""
    lost = "".join(
        f"<br><span class='faint'>{escape(names.of(member_id))}: {escape(why)}</span>"
        for member_id, why in one.dropped.items()
    )
    generation = "" if one.generation_id is None else f"{one.generation_id}"
    at = _time(one.began_ms - first_ms)
    join, sync = (_time(one.join_ms), _time(one.sync_ms)) if one.has_times else (UNKNOWN, UNKNOWN)
    last = "last to reconcile" if one.is_of_consumer_group else "last to join"
    late = f"{last}: {names.of(one.last_to_join)}" if one.last_to_join and one.waits_for else ""
    revoked = [
        f"{names.of(who)} revoked: {_time(ms) if ms is not None else 'never'}"
        for who, ms in one.revoked_after_ms.items()
    ]
    waited = "".join(f"<br><span class='faint'>{escape(text)}</span>" for text in (late, *revoked) if text)
    after_join, after_sync = ("", waited) if one.is_of_consumer_group else (waited, "")
    unassigned = f"{(one.unassigned_ms or 0) / 1_000:.2f} s"
    unassigned = _known(unassigned, is_derived=one.is_derived, is_known=one.unassigned_ms is not None)
    outcome = one.outcome if one.outcome is not RebalanceOutcome.RUNNING else "still running"
    cells = [
        f"<td class='n'>{number}</td><td class='n'>{at if one.has_times else f'before {at}'}</td>",
        f"<td>{escape(one.cause)}{reason}</td><td>{escape(member)}{lost}</td><td class='n'>{generation}</td>",
        f"<td class='n'>{join}{after_join}</td><td class='n'>{sync}{after_sync}</td>",
        f"<td class='n'>{_moves(one, names)}</td><td class='n'>{one.kept}</td>",
        f"<td class='n'>{unassigned}</td>",
        f"<td>{escape(outcome)}{_restarts(one)}</td>",
    ]
    return f"<tr>{''.join(cells)}</tr>"


def _restarts(one: Rebalance) -> str:
    """Return when its coordinator was started again, or another became it."""
    after = [_time(at_ms - one.began_ms) for at_ms in one.restarts_ms]
    return "".join(f"<br><span class='faint'>coordinator restarted after {time}</span>" for time in after)


def _type_row(change: TypeChange, first_ms: int, names: MemberNames) -> str:
    """Return the row of an upgrade or a downgrade. It has no number, since it is no rebalance."""
    is_upgrade = isinstance(change, GroupUpgraded)
    what = "upgraded to a consumer group (KIP-848)" if is_upgrade else "downgraded to a classic group"
    number = change.group_epoch if is_upgrade else change.generation_id
    who = names.of(change.member_id) if change.member_id else ""
    stay = f"{_count(len(change.members), 'classic member')} stayed" if change.members else "it was empty"
    return (
        f"<tr><td></td><td class='n'>{_time(change.at_ms - first_ms)}</td><td>{what}</td><td>{escape(who)}</td>"
        f"<td class='n'>{number}</td><td colspan='6'>{stay}</td></tr>"
    )


def _moves(one: Rebalance, names: MemberNames) -> str:
    """Return the number of moves, with the moves themselves as a tooltip."""
    ways = sorted(
        (names.of(move.old_owner) if move.old_owner else "nobody", names.of(move.new_owner)) for move in one.moves
    )
    said = "; ".join(f"{len(list(same))} from {old} to {new}" for (old, new), same in groupby(ways))
    return f'<span title="{escape(said)}">{len(one.moves)}</span>'


def _section(section: Section) -> list[str]:
    head, *rows = section.rows
    return [
        f"<section><h2>{escape(section.title)}</h2>",
        f"<p>{escape(section.note)}</p>" if section.note else "",
        '<div class="wide"><table><thead><tr>',
        *(f"<th>{escape(name)}</th>" for name in head),
        "</tr></thead><tbody>",
        *("<tr>" + "".join(_cell(text) for text in row) + "</tr>" for row in rows),
        "</tbody></table></div></section>",
    ]


def _cell(text: str) -> str:
    kind = f' class="{text}"' if text in {"held", "broken"} else ""
    return f"<td{kind}>{escape(text)}</td>"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _time(ms: int | None) -> str:
    if ms is None:
        return "-"
    return f"{ms} ms" if ms < 1_000 else f"{ms / 1_000:.1f} s"
