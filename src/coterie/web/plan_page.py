"""The page of `coterie plan`: what a change costs by variant, the lag over time, who owns what, and what it rests on.

One file of HTML that needs nothing else, in the style of the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import inf

from coterie.forecast.costs import COSTS, figure, lag_over_time
from coterie.forecast.group_model import Origin
from coterie.forecast.simulated_group import SimulatedOwners
from coterie.forecast.variants import Forecast
from coterie.web.picture import LEFT, RIGHT, SVG, WIDTH, MemberNames, Scale, colour_of, picture, seconds
from coterie.web.picture import STYLE as PICTURE_STYLE
from coterie.web.report import STYLE

HIGH, TOP, BELOW = 200, 24, 40
MOST_ROWS = 48
"""The partitions of a picture."""
MOST_LINES = 6
MORE = """
.picture .line { fill: none; stroke-width: 2; stroke: hsl(var(--hue) var(--sat) var(--light)); }
.picture .high { stroke-width: 1; stroke-dasharray: 4 3; }
.picture .dot, .picture .legend { fill: hsl(var(--hue) var(--sat) var(--light)); }
.picture .front { stroke: var(--ink); stroke-width: 2; }
.best td { font-weight: 600; } pre { white-space: pre-wrap; }
"""


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
                f"<h2>Recommendation</h2><p>{escape(self.recommendation)}</p>",
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
            f"<tr{' class=best' if one is self.best else ''}><td>{escape(one.question.name)}</td>"
            + "".join(f'<td class="n">{escape(one.spread(name).text)}</td>' for name in COSTS)
            + "</tr>"
            for one in self.forecasts
        )
        table = f'<table class="rebalances"><thead><tr><th>variant</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
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
            yield f"<h2>Who owns which partition: {escape(name)}</h2>"
            yield f'<div class="wide">{picture(shown, owners.rebalances, MemberNames(owners.joins))}</div>'

    def _lag(self) -> Iterator[str]:
        """Draw the lag over time: the median as a line, p90 dashed."""
        shown = [one for one in self._first_and_best() if any(cost.lag_s for cost in one.costs)]
        if not shown:
            return
        lines = {one.question.name: (lag_over_time(one.costs, 50), lag_over_time(one.costs, 90)) for one in shown}
        length = max(len(line) for both in lines.values() for line in both)
        most = max(max(line, default=0.0) for both in lines.values() for line in both) or 1.0
        scale = Scale(0, length * 1_000)
        yield "<h2>Lag over time</h2><p class='faint'>Age of the oldest record that is not processed, in seconds after "
        yield "the begin of the change: median, and p90 dashed.</p>"
        yield _opened(TOP + HIGH + BELOW, "Lag over time")
        for tick in scale.ticks():
            x = scale.x(tick)
            yield f'<line class="grid" x1="{x}" x2="{x}" y1="{TOP}" y2="{TOP + HIGH}"/>'
            yield f'<text class="tick" x="{x}" y="{TOP + HIGH + 16}" text-anchor="middle">{seconds(tick)}</text>'
        for share in (0.0, 0.5, 1.0):
            y = TOP + HIGH * (1 - share)
            yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{figure(most * share)} s</text>'
        for index, both in enumerate(lines.values()):
            for kind, line in zip(("line", "line high"), both, strict=True):
                points = " ".join(
                    f"{scale.x(at * 1_000)},{TOP + HIGH * (1 - value / most):.1f}" for at, value in enumerate(line)
                )
                yield f'<polyline class="{kind}" style="--hue:{colour_of(index)}" points="{points}"/>'
        yield from _legend(list(lines), TOP + HIGH + 34)
        yield "</svg>"

    def _first_and_best(self) -> list[Forecast]:
        """Return the group as it is, the best variant, and others up to what a picture can show."""
        chosen = [self.forecasts[0], *([self.best] if self.best is not self.forecasts[0] else [])]
        rest = [one for one in self.forecasts if one not in chosen]
        return [*chosen, *rest][:MOST_LINES]

    def _frontier(self) -> Iterator[str]:
        """Draw each variant by two costs; those that no other beats in both are outlined."""
        one, two = self.frontier
        points = [
            (forecast, x, y)
            for forecast in self.forecasts
            if (x := forecast.spread(one).median) is not None
            and (y := forecast.spread(two).median) is not None
            and inf not in (x, y)
        ]
        if len(points) < 3:
            return
        most_x, most_y = max(x for _, x, _ in points) or 1.0, max(y for _, _, y in points) or 1.0
        wide = WIDTH - LEFT - RIGHT
        yield "<h2>The frontier</h2><p class='faint'>One dot for each variant (medians). An outlined dot is beaten by "
        yield "no other in both costs.</p>"
        yield _opened(TOP + HIGH + BELOW, f"{COSTS[one].title} and {COSTS[two].title}")
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT}" y1="{TOP}" y2="{TOP + HIGH}"/>'
        yield f'<line class="grid" x1="{LEFT}" x2="{LEFT + wide}" y1="{TOP + HIGH}" y2="{TOP + HIGH}"/>'
        yield f'<text class="tick" x="{LEFT + wide}" y="{TOP + HIGH + 32}" text-anchor="end">{COSTS[one].title}</text>'
        yield f'<text class="tick" x="{LEFT}" y="{TOP - 8}">{COSTS[two].title}</text>'
        for share in (0.5, 1.0):
            x, y = LEFT + wide * share, TOP + HIGH * (1 - share)
            yield f'<text class="tick" x="{x}" y="{TOP + HIGH + 16}" text-anchor="end">{figure(most_x * share)}</text>'
            yield f'<text class="tick" x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{figure(most_y * share)}</text>'
        for forecast, x, y in points:
            is_beaten = any(a <= x and b <= y and (a, b) != (x, y) for _, a, b in points)
            at_x, at_y = LEFT + wide * x / most_x, TOP + HIGH * (1 - y / most_y)
            said = f"{forecast.question.name}: {COSTS[one].title} {figure(x)}, {COSTS[two].title} {figure(y)}"
            hue = colour_of(0 if forecast is self.forecasts[0] else 2 if forecast is self.best else 1)
            yield (
                f'<circle class="{"dot" if is_beaten else "dot front"}" style="--hue:{hue}" cx="{at_x:.1f}" '
                f'cy="{at_y:.1f}" r="5"><title>{escape(said)}</title></circle>'
            )
        yield "</svg>"


def _opened(height: int, title: str) -> str:
    return (
        f'<svg class="picture" xmlns="{SVG}" viewBox="0 0 {WIDTH} {height}" role="img"><title>{escape(title)}</title>'
    )


def _legend(names: Sequence[str], y: int) -> Iterator[str]:
    each = (WIDTH - LEFT) // max(len(names), 1)
    for index, name in enumerate(names):
        x = LEFT + index * each
        fits = max(each // 7 - 3, 4)
        short = name if len(name) <= fits else f"{name[: fits - 1]}…"
        yield f'<rect class="legend" style="--hue:{colour_of(index)}" x="{x}" y="{y - 9}" width="10" height="9"/>'
        yield f'<text x="{x + 14}" y="{y}">{escape(short)}<title>{escape(name)}</title></text>'
