"""Draw who owned which partition when: a row for each partition, a bar for each owner, a line for each rebalance.

Gaps in a row mean that the partition was unassigned. The colours follow the reader's light or dark theme; SVG alone, so
that it can be part of a page or a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from coterie.facts import Fact, MemberJoined, MemberReplaced
from coterie.ledger import Interval, Rebalance

ID_LENGTH = 36
"""The length of the random part of a member id."""


class MemberNames:
    """Short, unique names of members: the instance id of a static member, else the client id, the second as `id #2`."""

    def __init__(self, group_facts: Iterable[Fact] = ()) -> None:
        self._names: dict[str, str] = {}
        self._taken: dict[str, int] = {}
        for fact in group_facts:
            if isinstance(fact, MemberJoined | MemberReplaced) and fact.instance_id:
                self._names[fact.member_id] = fact.instance_id
            elif isinstance(fact, MemberJoined) and fact.member_id not in self._names:
                self._give(fact.member_id, fact.client_id)

    def of(self, member_id: str) -> str:
        if member_id not in self._names:
            base = member_id[: -ID_LENGTH - 1] if len(member_id) > ID_LENGTH + 1 else member_id
            self._give(member_id, base)
        return self._names[member_id]

    def _give(self, member_id: str, wanted: str) -> None:
        count = self._taken[wanted] = self._taken.get(wanted, 0) + 1
        name = wanted if count == 1 else f"{wanted} #{count}"
        self._names[member_id] = name or member_id


WIDTH, LEFT, RIGHT, TOP, BELOW = 960, 110, 16, 30, 46
ROW, BAR, LABEL, PHASE = 22, 16, 18, 5
SVG = "http://www.w3.org/2000/svg"
KEY = (
    "bar = owner of the partition; grey = unassigned; dashed line = rebalance, numbered as in the table; "
    "above: its two phases"
)
HUES = (210, 25, 145, 285, 50, 345, 180, 100, 255, 0)
"""Hues; neighbours in this list are easy to distinguish."""

STYLE = """
.picture { --ink: #1c2330; --faint: #8b94a3; --line: #d5dae2; --light: 46%; --sat: 62%; max-width: 100%; height: auto;
  font: 12px system-ui, sans-serif; }
.picture text { fill: var(--ink); } .picture .tick { fill: var(--faint); font-size: 11px; }
.picture .grid { stroke: var(--line); } .picture .row { fill: var(--line); opacity: .35; }
.picture .phase { fill: var(--ink); opacity: .25; } .picture .last { opacity: .6; }
.picture .rebalance { stroke: var(--ink); stroke-dasharray: 2 3; opacity: .6; } .picture .number { font-weight: 600; }
.picture .bar { fill: hsl(var(--hue) var(--sat) var(--light)); } .picture .who { fill: #fff; font-size: 11px; }
@media (prefers-color-scheme: dark) {
  .picture { --ink: #e6eaf0; --faint: #8f99a8; --line: #39424f; --light: 42%; --sat: 55%; } }
"""


def colour_of(index: int) -> int:
    """Return a hue. After the end of the list it returns hues in between."""
    return (HUES[index % len(HUES)] + 17 * (index // len(HUES))) % 360


def picture(intervals: Sequence[Interval], rebalances: Sequence[Rebalance], names: MemberNames | None = None) -> str:
    """Draw one group. Rebalances are numbered in the order given, from 1."""
    if not intervals:
        return '<p class="nothing">No partition was ever owned.</p>'
    names = names or MemberNames()
    times = [one.began_ms for one in intervals] + [one.ended_ms for one in intervals if one.ended_ms is not None]
    times += [one.began_ms for one in rebalances] + [one.ended_ms for one in rebalances if one.ended_ms is not None]
    scale = TimeScale(min(times), max(times))
    partitions = sorted({one.partition for one in intervals})
    rows = {partition: TOP + ROW * index for index, partition in enumerate(partitions)}
    owners = {name: index for index, name in enumerate(dict.fromkeys(names.of(one.owner) for one in intervals))}
    bottom = TOP + ROW * len(partitions)
    parts = [
        f'<svg class="picture" xmlns="{SVG}" viewBox="0 0 {WIDTH} {bottom + BELOW}" role="img">',
        f"<title>Owners of {len(partitions)} partitions over {seconds(scale.span_ms)}</title>",
        f"<style>{STYLE}</style>",
        *_axis(scale, bottom),
    ]
    for partition, y in rows.items():
        label = escape(f"{partition[0]}-{partition[1]}")
        parts.append(f'<text x="{LEFT - 8}" y="{y + BAR - 3}" text-anchor="end">{_fit(label, 16)}</text>')
        parts.append(f'<rect class="row" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{BAR}"/>')
    parts += [_bar(one, rows[one.partition], scale, owners[names.of(one.owner)], names) for one in intervals]
    labelled = 0.0
    for number, one in enumerate(rebalances, 1):
        has_room = scale.x(one.began_ms) - labelled >= LABEL
        parts.append(_mark(number if has_room else None, one, scale, bottom, names))
        labelled = scale.x(one.began_ms) if has_room else labelled
    return "\n".join([*parts, "</svg>"])


class TimeScale:
    def __init__(self, first_ms: int, last_ms: int) -> None:
        self.first_ms = first_ms
        self.last_ms = last_ms
        self.span_ms = max(last_ms - first_ms, 1)

    def x(self, at_ms: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (at_ms - self.first_ms) / self.span_ms, 1)

    def ticks(self) -> range:
        """Return the ticks of the axis: about eight, in steps of 1, 2 or 5."""
        step = 1
        while self.span_ms / step > 10:
            step = step * 5 // 2 if str(step).startswith("2") else step * 2
        return range(0, self.span_ms + 1, step)


def _axis(scale: TimeScale, bottom: int) -> list[str]:
    parts = []
    for tick in scale.ticks():
        x = scale.x(scale.first_ms + tick)
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP - 4}" y2="{bottom}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{bottom + 16}" text-anchor="middle">{seconds(tick)}</text>')
    return [*parts, f'<text class="tick" x="{LEFT}" y="{bottom + 36}">{KEY}</text>']


def _bar(one: Interval, y: int, scale: TimeScale, index: int, names: MemberNames) -> str:
    x, until_ms = scale.x(one.began_ms), scale.last_ms if one.ended_ms is None else one.ended_ms
    width = max(round(scale.x(until_ms) - x, 1), 0.5)
    name = escape(names.of(one.owner))
    said = f"{name}: {seconds(one.began_ms - scale.first_ms)} to {seconds(until_ms - scale.first_ms)}"
    who = f'<text class="who" x="{x + 4}" y="{y + BAR - 4}">{name}</text>' if width > 8 + 7 * len(name) else ""
    return (
        f'<g><title>{said}</title><rect class="bar" style="--hue:{colour_of(index)}" x="{x}" y="{y}" '
        f'width="{width}" height="{BAR}" rx="2"/>{who}</g>'
    )


def _mark(number: int | None, one: Rebalance, scale: TimeScale, bottom: int, names: MemberNames) -> str:
    """Draw the line of a rebalance. It has no number where two numbers would overlap."""
    x = scale.x(one.began_ms)
    who = f", {names.of(one.culprit)}" if one.culprit else ""
    label = f'<text class="number" x="{x}" y="{TOP - 12}" text-anchor="middle">{number}</text>' if number else ""
    return (
        f"<g><title>{escape(one.cause + who)}</title>"
        f'<line class="rebalance" x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}"/>{_phases(one, scale)}{label}</g>'
    )


def _phases(one: Rebalance, scale: TimeScale) -> str:
    """Draw how long a rebalance took, above the rows: its first phase light, its last one dark."""
    if one.ended_ms is None or not one.has_times:
        return ""
    between_ms = one.ended_ms if one.joined_ms is None else one.joined_ms
    x = [scale.x(at_ms) for at_ms in (one.began_ms, between_ms, one.ended_ms)]
    drawn = (("phase", x[0], x[1]), ("phase last", x[1], x[2]))
    return "".join(
        f'<rect class="{kind}" x="{begin}" y="{TOP - 8}" width="{round(end - begin, 1)}" height="{PHASE}"/>'
        for kind, begin, end in drawn
        if end > begin
    )


def _fit(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def seconds(ms: int) -> str:
    return f"{ms} ms" if ms < 1_000 and ms % 1_000 else f"{ms / 1_000:g} s"
