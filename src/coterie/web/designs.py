"""Pictures of the four designs: who owned which partition when, and how costs grow with the group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from math import log10

from coterie.history.design_costs import ChangeCost, Design, DesignRun
from coterie.history.design_types import Partition
from coterie.ledger import Interval
from coterie.web.picture import LEFT, RIGHT, STYLE, SVG, WIDTH, TimeScale, colour_of, seconds

TOP, GAP, BELOW = 44, 30, 40
BAND, MIN_ROW, MAX_ROW = 180, 2, 6
"""The height of a band, and the limits of a row's, with the pixel between two rows."""
KEY = "bar = owner of the partition; red = two owners; grey = unassigned; dashed line = the change named above it"
MORE = """
.picture .two { fill: #d40000; } .picture .line { fill: none; stroke-width: 2; } .picture .name { font-weight: 600; }
.picture .line, .picture .dot, .picture .legend { --c: hsl(var(--hue) var(--sat) var(--light)); }
.picture .line { stroke: var(--c); } .picture .dot, .picture .legend { fill: var(--c); }
"""


# --- who owned what ---------------------------------------------------------------------------------------------------


def owners(runs: Sequence[DesignRun]) -> str:
    """Draw the owners in one scenario: a band for each design, a row for each partition."""
    scenario = runs[0].scenario
    scale = TimeScale(scenario.periods[0].began_ms, scenario.length_ms)
    row = min(max(BAND // scenario.partitions, MIN_ROW), MAX_ROW)
    height = row * scenario.partitions
    bottom = TOP + len(runs) * (height + GAP)
    parts = _opened(bottom + BELOW, f"Owners of {scenario.partitions} partitions under each design")
    for at, period in enumerate(scenario.periods):
        x = scale.x(period.began_ms)
        parts.append(f'<line class="rebalance" x1="{x}" x2="{x}" y1="{TOP - 18}" y2="{bottom - GAP}"/>')
        parts.append(f'<text class="tick" x="{x + 3}" y="{TOP - 22 + 11 * (at % 2)}">{escape(period.name)}</text>')
    for index, run in enumerate(runs):
        parts += _band(run, TOP + index * (height + GAP), row, scale)
    for tick in scale.ticks():
        x = scale.x(scale.first_ms + tick)
        parts.append(f'<text class="tick" x="{x}" y="{bottom}" text-anchor="middle">{seconds(tick)}</text>')
    for fault in scenario.faults:
        x = scale.x(fault.at_ms)
        parts.append(f'<g><title>{escape(str(fault))}</title><text x="{x}" y="{bottom - 14}">✕</text></g>')
    key = f"{KEY}; ✕ = a fault" if scenario.faults else KEY
    return "\n".join([*parts, f'<text class="tick" x="{LEFT}" y="{bottom + 20}">{key}</text>', "</svg>"])


def _band(run: DesignRun, top: int, row: int, scale: TimeScale) -> Iterator[str]:
    scenario = run.scenario
    number, _, name = run.design.partition(" ")
    yield f'<text class="name" x="{LEFT - 8}" y="{top + 12}" text-anchor="end">design {number}</text>'
    yield f'<text x="{LEFT - 8}" y="{top + 27}" text-anchor="end">{escape(name)}</text>'
    rows = {("t", one): top + row * one for one in range(scenario.partitions)}
    for y in rows.values():
        yield f'<rect class="row" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{row - 1}"/>'
    for slot in range(1, scenario.members + 2):
        mine = [one for one in run.owns.intervals if one.owner == f"c{slot}"]
        yield _bars(f"c{slot}", f'class="bar" style="--hue:{colour_of(slot - 1)}"', mine, rows, row - 1, scale)
    two = [Interval("", one.partition, "", one.began_ms, one.ended_ms) for one in run.two_owners]
    if two:
        yield _bars("two owners", 'class="two"', two, rows, row - 1, scale)


def _bars(
    name: str, look: str, bars: Iterable[Interval], rows: Mapping[Partition, int], high: int, scale: TimeScale
) -> str:
    """Draw all bars as one shape, since they are many. What began before the picture begins with it."""
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

Value = Callable[[ChangeCost], float]
PANELS: Sequence[tuple[str, str, Value]] = (
    (
        "one joins: notified, reads, messages",
        "one joins",
        lambda cost: cost.notified + cost.reads + cost.messages,
    ),
    ("one joins: unassigned partition-s", "one joins", lambda cost: cost.unassigned.ms / 1_000),
    ("new strategy: unassigned partition-s", "a new strategy", lambda cost: cost.unassigned.ms / 1_000),
)
PANEL, BETWEEN, HIGH, LEGEND = 250, 62, 180, 40
FIRST = 50


def growth(runs: Sequence[DesignRun]) -> str:
    """Draw the cost by group size, a line for each design, on logarithmic axes."""
    parts = _opened(TOP + HIGH + LEGEND + BELOW, "What a change costs under each design, by group size")
    for at, (title, change, value) in enumerate(PANELS):
        lines = {
            design: [
                (one.scenario.members, value(one.cost(period)))
                for one in runs
                if one.design is design
                for period in one.scenario.periods
                if period.name == change
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
        """Zero is on the axis."""
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
