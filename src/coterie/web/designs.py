"""The designs of consumer groups side by side, drawn: who owned what when, and how costs grow with the group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import log10

from coterie.history.account import Account, Cost, Design
from coterie.history.design_types import Partition
from coterie.ledger import Interval
from coterie.web.picture import LEFT, RIGHT, STYLE, SVG, WIDTH, Scale, colour_of, seconds

__all__ = ["growth", "owners"]

TOP, GAP, BELOW = 44, 30, 40
BAND, LEAST, MOST = 180, 2, 6
"""How high a band is, and a row in it, with the pixel between two of them."""
KEY = "bar = owner of the partition; red = two owners; grey = unassigned; dashed line = the change named above it"
MORE = """
.picture .two { fill: #d40000; } .picture .line { fill: none; stroke-width: 2; } .picture .name { font-weight: 600; }
.picture .line, .picture .dot, .picture .legend { --c: hsl(var(--hue) var(--sat) var(--light)); }
.picture .line { stroke: var(--c); } .picture .dot, .picture .legend { fill: var(--c); }
"""


# --- who owned what ---------------------------------------------------------------------------------------------------


def owners(accounts: Sequence[Account]) -> str:
    """One scenario, a band for each design, a row for each partition."""
    told = accounts[0].scenario
    scale = Scale(told.chapters[0].began_ms, told.length_ms)
    row = min(max(BAND // told.partitions, LEAST), MOST)
    height = row * told.partitions
    bottom = TOP + len(accounts) * (height + GAP)
    parts = _opened(bottom + BELOW, f"Owners of {told.partitions} partitions under each design")
    for at, chapter in enumerate(told.chapters):
        x = scale.x(chapter.began_ms)
        parts.append(f'<line class="rebalance" x1="{x}" x2="{x}" y1="{TOP - 18}" y2="{bottom - GAP}"/>')
        parts.append(f'<text class="tick" x="{x + 3}" y="{TOP - 22 + 11 * (at % 2)}">{escape(chapter.name)}</text>')
    for index, account in enumerate(accounts):
        parts += _band(account, TOP + index * (height + GAP), row, scale)
    for tick in scale.ticks():
        x = scale.x(scale.first_ms + tick)
        parts.append(f'<text class="tick" x="{x}" y="{bottom}" text-anchor="middle">{seconds(tick)}</text>')
    for fault in told.faults:
        x = scale.x(fault.at_ms)
        parts.append(f'<g><title>{escape(str(fault))}</title><text x="{x}" y="{bottom - 14}">✕</text></g>')
    key = f"{KEY}; ✕ = a fault" if told.faults else KEY
    return "\n".join([*parts, f'<text class="tick" x="{LEFT}" y="{bottom + 20}">{key}</text>', "</svg>"])


def _band(account: Account, top: int, row: int, scale: Scale) -> Iterator[str]:
    told = account.scenario
    number, _, name = account.design.partition(" ")
    yield f'<text class="name" x="{LEFT - 8}" y="{top + 12}" text-anchor="end">design {number}</text>'
    yield f'<text x="{LEFT - 8}" y="{top + 27}" text-anchor="end">{escape(name)}</text>'
    rows = {("t", one): top + row * one for one in range(told.partitions)}
    for y in rows.values():
        yield f'<rect class="row" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{row - 1}"/>'
    for slot in range(1, told.members + 2):
        mine = [one for one in account.owns.intervals if one.owner == f"c{slot}"]
        yield _bars(f"c{slot}", f'class="bar" style="--hue:{colour_of(slot - 1)}"', mine, rows, row - 1, scale)
    two = [Interval("", one.partition, "", one.began_ms, one.ended_ms) for one in account.several]
    if two:
        yield _bars("two owners", 'class="two"', two, rows, row - 1, scale)


def _bars(
    name: str, look: str, bars: Iterable[Interval], rows: Mapping[Partition, int], high: int, scale: Scale
) -> str:
    """As one shape, since they are many. What began before the picture begins with it."""
    steps = []
    for one in bars:
        x = scale.x(max(one.began_ms, scale.first_ms))
        until = scale.x(scale.last_ms if one.ended_ms is None else min(one.ended_ms, scale.last_ms))
        if until >= x:
            width = max(round(until - x, 1), 0.5)
            steps.append(f"M{x:g} {rows[one.partition]}h{width:g}v{high}h-{width:g}z")
    return f'<path {look} d="{"".join(steps)}"><title>{escape(name)}</title></path>'


def _opened(height: int, title: str) -> list[str]:
    return [
        f'<svg class="picture" xmlns="{SVG}" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}{MORE}</style>",
    ]


# --- how costs grow ---------------------------------------------------------------------------------------------------

Value = Callable[[Cost], float]
PANELS: Sequence[tuple[str, str, Value]] = (
    ("one joins: told, read and said", "one joins", lambda cost: cost.notified + cost.reads + cost.messages),
    ("one joins: partition-seconds unassigned", "one joins", lambda cost: cost.nobody.ms / 1_000),
    ("new strategy: partition-seconds unassigned", "a new strategy", lambda cost: cost.nobody.ms / 1_000),
)
PANEL, BETWEEN, HIGH, LEGEND = 250, 62, 180, 40
FIRST = 50


def growth(accounts: Sequence[Account]) -> str:
    """By group size, a line for each design; both axes by powers."""
    parts = _opened(TOP + HIGH + LEGEND + BELOW, "What a change costs under each design, by group size")
    for at, (title, chapter, value) in enumerate(PANELS):
        lines = {
            design: [
                (one.scenario.members, value(one.cost(told)))
                for one in accounts
                if one.design is design
                for told in one.scenario.chapters
                if told.name == chapter
            ]
            for design in Design
        }
        parts += _panel(title, lines, FIRST + at * (PANEL + BETWEEN))
    y = TOP + HIGH + LEGEND + 14
    for index, design in enumerate(Design):
        x = FIRST + index * 160
        parts.append(
            f'<rect class="legend" style="--hue:{colour_of(index)}" x="{x}" y="{y - 9}" width="12" height="9"/>'
        )
        parts.append(f'<text x="{x + 17}" y="{y}">design {escape(design)}</text>')
    return "\n".join([*parts, "</svg>"])


def _panel(title: str, lines: dict[Design, list[tuple[int, float]]], left: int) -> Iterator[str]:
    sizes = sorted({members for line in lines.values() for members, _ in line})
    values = [value for line in lines.values() for _, value in line if value > 0] or [1.0]
    low, high = int(log10(min(values)) // 1), int(-(-log10(max(values)) // 1))
    high = max(high, low + 1)
    span = max(log10(sizes[-1] / sizes[0]), 0.1)

    def x(members: int) -> float:
        return round(left + PANEL * log10(members / sizes[0]) / span, 1)

    def y(value: float) -> float:
        """What is nothing lies on the ground."""
        height = (log10(value) - low) / (high - low) if value > 0 else 0
        return round(TOP + HIGH * (1 - max(height, 0)), 1)

    yield f'<text class="name" x="{left}" y="{TOP - 14}">{escape(title)}</text>'
    for power in range(low, high + 1):
        at = y(10.0**power)
        yield f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{at}" y2="{at}"/>'
        yield f'<text class="tick" x="{left - 5}" y="{at + 4}" text-anchor="end">{10.0**power:g}</text>'
    for members in sizes:
        yield f'<text class="tick" x="{x(members)}" y="{TOP + HIGH + 16}" text-anchor="middle">{members}</text>'
    yield f'<text class="tick" x="{left + PANEL / 2}" y="{TOP + HIGH + 30}" text-anchor="middle">members</text>'
    for index, (design, line) in enumerate(lines.items()):
        hue = f'style="--hue:{colour_of(index)}"'
        points = " ".join(f"{x(members)},{y(value)}" for members, value in line)
        yield f'<polyline class="line" {hue} points="{points}"/>'
        for members, value in line:
            said = f"design {design}, {members} members: {value:g}"
            yield f'<circle class="dot" {hue} cx="{x(members)}" cy="{y(value)}" r="3"><title>{said}</title></circle>'
