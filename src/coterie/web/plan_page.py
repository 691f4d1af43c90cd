"""The page of `coterie plan`: what a change costs by variant, the lag over time, who owns what, and what it rests on.

One file of HTML that needs nothing else, in the style of the report.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import inf

from coterie.forecast.costs import COSTS, figure, lag_over_time
from coterie.forecast.group_model import Origin
from coterie.forecast.simulated_group import SimulatedOwners
from coterie.forecast.variants import Forecast
from coterie.web.picture import LEFT, RIGHT, SVG, WIDTH, MemberNames, TimeScale, colour_of, picture, seconds
from coterie.web.picture import STYLE as PICTURE_STYLE
from coterie.web.report import STYLE

HIGH, TOP, BELOW = 200, 24, 40
MOST_ROWS = 48
"""The partitions of a picture."""
MOST_LINES = 6
NEAR_X, NEAR_Y = 22.0, 14.0
"""Dots that are nearer to each other share a label."""
MORE = """
.picture .line { fill: none; stroke-width: 2; stroke: hsl(var(--hue) var(--sat) var(--light)); }
.picture .high { stroke-width: 1; stroke-dasharray: 4 3; }
.picture .dot { fill: hsl(var(--hue) var(--sat) var(--light)); }
.picture .front { stroke: var(--ink); stroke-width: 2; } .picture .stairs { fill: none; stroke: var(--faint); }
.key { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .4rem 0 1rem; padding: 0; list-style: none; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px;
  background: hsl(var(--hue) 60% 45%); }
.key .ring { background: none; border: 2px solid; border-radius: 50%; }
.rebalances .variant { min-width: min(18rem, 45vw); overflow-wrap: break-word; } h2, p, li, pre {
  overflow-wrap: anywhere; min-width: 0; }
.wide .plot { min-width: 0; width: 100%; }
@media (max-width: 40rem) { .plot text, .picture.plot .tick { font-size: 25px; } .plot .axis { display: none; }
  .plot circle { r: 9px; } }
.best td { font-weight: 600; } pre { white-space: pre-wrap; }
"""
AS_IT_IS_HUE, BEST_HUE, OTHER_HUE = colour_of(0), colour_of(2), colour_of(1)


@dataclass(frozen=True)
class PlanPage:
    """The content of the page."""

    title: str
    question: str
    forecasts: Sequence[Forecast]
    best: Forecast
    recommendation: str
    paste: Sequence[str]
    origins: Mapping[str, Origin]
    owners: Mapping[str, SimulatedOwners]
    """The owners in the world of one seed, by the name of the variant."""
    frontier: tuple[str, str] = ("unread_s", "rebalances")
    """The costs of the two axes of the frontier."""

    def html(self) -> str:
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
                f"<title>{escape(self.title)}</title>",
                '<link rel="icon" href="data:,">',
                f"<style>{STYLE}{PICTURE_STYLE}{MORE}</style></head><body>",
                f"<h1>{escape(self.title)}</h1>",
                f'<p class="faint">{escape(self.question)}; {self._worlds} simulated worlds</p>',
                f"<h2>Recommendation</h2><p>{_breakable(self.recommendation)}</p>",
                f"<pre>{escape(chr(10).join(self.paste))}</pre>" if self.paste else "",
                "<h2>What it costs</h2><p class='faint'>Median over seeds, and from p10 to p90 in brackets.</p>",
                self._table(),
                *self._frontier(),
                *self._lag(),
                *self._pictures(),
                self._rests_on(),
                "</body></html>",
            ]
        )

    @property
    def _worlds(self) -> int:
        return sum(len(one.costs) for one in self.forecasts)

    def _table(self) -> str:
        head = "".join(f'<th title="{escape(one.what)}">{escape(one.title)}</th>' for one in COSTS.values())
        rows = "".join(
            f"<tr{' class=best' if one is self.best else ''}><td class=n>{number}</td>"
            f'<td class="variant">{_breakable(one.question.name)}</td>'
            + "".join(f'<td class="n">{escape(one.spread(name).text)}</td>' for name in COSTS)
            + "</tr>"
            for number, one in enumerate(self.forecasts, 1)
        )
        head = f'<th>#</th><th class="variant">variant</th>{head}'
        table = f'<table class="rebalances"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
        return f'<div class="wide">{table}</div>'

    def _rests_on(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(str(one))}</td></tr>" for name, one in self.origins.items()
        )
        return f"<h2>What it rests on</h2><table><tbody>{rows}</tbody></table>"

    # --- pictures

    def _pictures(self) -> Iterator[str]:
        for name, owners in self.owners.items():
            partitions = sorted({one.partition for one in owners.intervals})[:MOST_ROWS]
            shown = [one for one in owners.intervals if one.partition in set(partitions)]
            yield f"<h2>Who owns which partition: {_breakable(name)}</h2>"
            yield f'<div class="wide">{picture(shown, owners.rebalances, MemberNames(owners.joins))}</div>'

    def _lag(self) -> Iterator[str]:
        """Draw the lag over time: medians as lines, and p90 dashed for the group as it is and the best variant."""
        shown = [one for one in self._first_and_best() if any(cost.lag_s for cost in one.costs)]
        if not shown:
            return
        medians = [lag_over_time(one.costs, 50) for one in shown]
        high = [lag_over_time(one.costs, 90) if one in (self.forecasts[0], self.best) else [] for one in shown]
        length = max(map(len, medians))
        most = max(max(line, default=0.0) for line in medians + high) or 1.0
        scale = TimeScale(0, length * 1_000)
        yield "<h2>Lag over time</h2><p class='faint'>Age of the oldest record that is not processed, in seconds after "
        yield "the begin of the change. Lines are medians over seeds; dashed is p90, "
        yield "of the group as it is and of the recommended variant.</p>"
        names = [f"{self.forecasts.index(one) + 1} {one.question.name}" for one in shown]
        yield _key([(colour_of(index), name) for index, name in enumerate(names)])
        yield _opened(TOP + HIGH + BELOW, "Lag over time")
        for tick in scale.ticks():
            x = scale.x(tick)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{TOP + HIGH}"/>'
            yield f'<text class="tick" x="{x}" y="{TOP + HIGH + 16}" text-anchor="middle">{seconds(tick)}</text>'
        for share in (0.0, 0.5, 1.0):
            y = TOP + HIGH * (1 - share)
            yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{figure(most * share)} s</text>'
        for kind, lines in (("line high", high), ("line", medians)):
            for index, line in enumerate(lines):
                points = " ".join(
                    f"{scale.x(at * 1_000)},{TOP + HIGH * (1 - value / most):.1f}" for at, value in enumerate(line)
                )
                if points:
                    yield f'<polyline class="{kind}" style="--hue:{colour_of(index)}" points="{points}"/>'
        yield "</svg></div>"

    def _first_and_best(self) -> list[Forecast]:
        """Return the group as it is, the best variant, and others up to what a picture can show."""
        chosen = [self.forecasts[0], *([self.best] if self.best is not self.forecasts[0] else [])]
        rest = [one for one in self.forecasts if one not in chosen]
        return [*chosen, *rest][:MOST_LINES]

    def _frontier(self) -> Iterator[str]:
        """Draw each variant by two costs; those that no other beats in both are outlined, and joined by stairs."""
        one, two = self.frontier
        points = [
            (number, forecast, x, y)
            for number, forecast in enumerate(self.forecasts, 1)
            if (x := forecast.spread(one).median) is not None
            and (y := forecast.spread(two).median) is not None
            and inf not in (x, y)
        ]
        if len(points) < 3:
            return
        most_x, most_y = max(x for *_, x, _ in points) or 1.0, max(y for *_, y in points) or 1.0
        wide = WIDTH - LEFT - RIGHT - 40

        def place(x: float, y: float) -> tuple[float, float]:
            return LEFT + wide * x / most_x, TOP + HIGH * (1 - y / most_y)

        front = {
            number: place(x, y)
            for number, _, x, y in points
            if not any(a <= x and b <= y and (a, b) != (x, y) for *_, a, b in points)
        }
        yield f"<h2>The frontier: {escape(COSTS[one].title)} and {escape(COSTS[two].title)}</h2>"
        yield "<p class='faint'>A dot is a variant, with its number in the table. Across: the median of "
        yield f"{escape(COSTS[one].title)}; up: of {escape(COSTS[two].title)}. The lower and the further "
        yield "left, the better. An outlined dot is on the frontier: no other variant is better in one cost without "
        yield "being worse in the other.</p>"
        best = [(BEST_HUE, "recommended")] if self.best is not self.forecasts[0] else []
        as_it_is = "as it is" if best else "as it is, recommended"
        yield _key([(AS_IT_IS_HUE, as_it_is), *best, (OTHER_HUE, "other variants")], "on the frontier")
        yield _opened(TOP + HIGH + BELOW, f"{COSTS[one].title} and {COSTS[two].title}")
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{TOP + HIGH}"/>'
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT + wide}" y1="{TOP + HIGH}" y2="{TOP + HIGH}"/>'
        right, below = LEFT + wide, TOP + HIGH + 32
        yield f'<text class="tick axis" x="{right}" y="{below}" text-anchor="end">{COSTS[one].title}</text>'
        yield f'<text class="tick axis" x="{LEFT}" y="{TOP - 12}">{COSTS[two].title}</text>'
        for share in (0.0, 0.5, 1.0):
            x, y = LEFT + wide * share, TOP + HIGH * (1 - share)
            across, up = figure(most_x * share), figure(most_y * share)
            yield f'<text class="tick" x="{x}" y="{TOP + HIGH + 16}" text-anchor="middle">{across}</text>'
            yield f'<text class="tick" x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{up}</text>'
        yield f'<polyline class="stairs" points="{_stairs(list(front.values()))}"/>'
        for number, forecast, x, y in points:
            at_x, at_y = place(x, y)
            said = f"{number} {forecast.question.name}: {COSTS[one].title} {figure(x)}, {COSTS[two].title} {figure(y)}"
            hue = AS_IT_IS_HUE if forecast is self.forecasts[0] else BEST_HUE if forecast is self.best else OTHER_HUE
            yield (
                f'<circle class="{"dot front" if number in front else "dot"}" style="--hue:{hue}" cx="{at_x:.1f}" '
                f'cy="{at_y:.1f}" r="5"><title>{escape(said)}</title></circle>'
            )
        for text, at_x, at_y in _labels([(number, *place(x, y)) for number, _, x, y in points]):
            is_right = at_x > LEFT + wide * 0.8
            side, by = ("end", -9) if is_right else ("start", 9)
            yield f'<text x="{at_x + by:.1f}" y="{at_y - 7:.1f}" text-anchor="{side}">{text}</text>'
        yield "</svg></div>"


def _breakable(name: str) -> str:
    """Return a name of settings that may be broken behind its dots and equals signs, on a narrow screen."""
    return re.sub(r"(?<=[a-z])([.=])(?=\w)", r"\1<wbr>", escape(name))


def _opened(height: int, title: str) -> str:
    return (
        f'<div class="wide"><svg class="picture plot" xmlns="{SVG}" viewBox="0 0 {WIDTH} {height}" role="img">'
        f"<title>{escape(title)}</title>"
    )


def _key(colours: Sequence[tuple[int, str]], ring: str = "") -> str:
    """Return what the colours mean. It is no part of the picture, so that it can wrap on a narrow screen."""
    rows = [f'<li><i style="--hue:{hue}"></i>{_breakable(name)}</li>' for hue, name in colours]
    return f'<ul class="key">{"".join(rows)}{f"<li><i class=ring></i>{escape(ring)}</li>" if ring else ""}</ul>'


def _stairs(points: list[tuple[float, float]]) -> str:
    """Return a line through the points of the frontier, in steps: what is below it no variant reaches."""
    ordered = sorted(points)
    path = ordered[:1]
    for before, point in pairwise(ordered):
        path += [(point[0], before[1]), point]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def _labels(points: Sequence[tuple[int, float, float]]) -> Iterator[tuple[str, float, float]]:
    """Return the numbers of dots, and where to write them: dots that are near each other share one."""
    left = list(points)
    while left:
        _, x, y = left[0]
        near = [one for one in left if abs(one[1] - x) < NEAR_X and abs(one[2] - y) < NEAR_Y]
        left = [one for one in left if one not in near]
        yield ", ".join(str(number) for number, *_ in near), max(at for _, at, _ in near), min(at for *_, at in near)
