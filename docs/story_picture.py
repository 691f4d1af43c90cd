"""A story as a drawing: who says what to the coordinator, what it answers, and the state of the group down its side."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape

from coterie.stories import PARKED, StoryStep

__all__ = ["story_picture"]

WIDTH, TIME_X, FIRST_X, GROUP_X, TOP = 900, 62, 150, 640, 58
STEP, ANSWER, BAND, DROP = 30, 22, 14, 9
"""How far down the next step is, and the next answer of the same; the band of states; how much an arrow falls."""
STYLE = """
svg { --ink: #1c2330; --faint: #667085; --line: #98a2b3; --ask: #2f5fd0; --tell: #1d7a46; --no: #b42318;
  --Empty: #e4e7ec; --PreparingRebalance: #f6c667; --CompletingRebalance: #8fb4f5; --Stable: #7fcf9a; --Dead: #475467;
  --Assigning: #f6c667; --Reconciling: #8fb4f5; font: 13px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6eaf0; --faint: #97a1b0; --line: #667085; --ask: #8fb0ff;
  --tell: #7bd3a0; --no: #ff9c8f; --Empty: #475467; --PreparingRebalance: #b98318; --CompletingRebalance: #3d68b8;
  --Stable: #2f8a53; --Dead: #98a2b3; --Assigning: #b98318; --Reconciling: #3d68b8; } }
text { fill: var(--ink); } .time { fill: var(--faint); font-size: 11px; } .name { font-weight: 600; }
.life { stroke: var(--line); stroke-dasharray: 2 4; } .arrow { stroke-width: 1.4; fill: none; }
.ask { stroke: var(--ask); } .tell { stroke: var(--tell); } .no { stroke: var(--no); }
text.ask { fill: var(--ask); stroke: none; } text.tell { fill: var(--tell); stroke: none; }
text.no { fill: var(--no); stroke: none; } .faint { fill: var(--faint); }
"""
TIPS = "".join(
    f'<marker id="{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    f'<path d="M0 0L8 4L0 8z" style="fill:var(--{kind})"/></marker>'
    for kind in ("ask", "tell", "no")
)
TO_ONE = re.compile(r"(\w+): (.*)")
NO = re.compile(r"[A-Z_]{3,}")


def story_picture(steps: Sequence[StoryStep], title: str) -> str:
    names = list(dict.fromkeys(step.who for step in steps if step.who))
    apart = (GROUP_X - FIRST_X) // max(len(names), 1)
    lanes = {name: FIRST_X + apart * index for index, name in enumerate(names)}
    body: list[str] = []
    bands: list[str] = []
    y, state, since, last_ms = TOP, "", TOP, -1
    for step in steps:
        y += STEP
        if step.at_ms != last_ms:
            body.append(f'<text class="time" x="{TIME_X}" y="{y + 4}" text-anchor="end">{_time(step.at_ms)}</text>')
        last_ms = step.at_ms
        if step.who:
            body += _arrow(lanes[step.who], GROUP_X, y, step.says, "ask")
        elif step.says:
            said = escape(step.says)
            body.append(f'<text class="faint" x="{GROUP_X - 12}" y="{y + DROP}" text-anchor="end">{said}</text>')
        if step.group != state:
            bands += [_band(state, since, y + DROP)] if state else []
            state, since = step.group, y + DROP
        for who, said in _answers(step):
            y += ANSWER
            body += _arrow(GROUP_X, lanes[who], y, said, "no" if NO.fullmatch(said) else "tell")
    y += STEP
    bands.append(_band(state, since, y))
    heads = [(x, name) for name, x in lanes.items()] + [(GROUP_X, "coordinator")]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 14}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{TIPS}</defs>",
        *(f'<text class="name" x="{x}" y="{TOP - 26}" text-anchor="middle">{name}</text>' for x, name in heads),
        *(f'<line class="life" x1="{x}" x2="{x}" y1="{TOP - 14}" y2="{y}"/>' for x in lanes.values()),
        *bands,
        *body,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _answers(step: StoryStep) -> Iterator[tuple[str, str]]:
    """Who hears what of it; without a name it is whoever spoke."""
    for part in step.hears.split(", "):
        found = TO_ONE.fullmatch(part)
        if part != PARKED:
            yield (found[1], found[2]) if found else (step.who, part)


def _arrow(x: int, to_x: int, y: int, said: str, kind: str) -> Iterator[str]:
    to_x += BAND // -2 if to_x > x else 0
    x += BAND // -2 if x > to_x else 0
    yield f'<path class="arrow {kind}" marker-end="url(#{kind})" d="M{x} {y}L{to_x} {y + DROP}"/>'
    at, above = (x + 10, y - 3) if to_x > x else (to_x + 14, y + DROP - 7)
    yield f'<text class="{kind}" x="{at}" y="{above}">{escape(said)}</text>'


def _band(state: str, since: int, until: int) -> str:
    return (
        f'<rect x="{GROUP_X - BAND // 2}" y="{since}" width="{BAND}" height="{max(until - since, 4)}" '
        f'style="fill:var(--{state})"/><text x="{GROUP_X + 16}" y="{since + 14}">{state}</text>'
    )


def _time(at_ms: int) -> str:
    return f"{at_ms / 1_000:g} s"
