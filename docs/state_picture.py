"""The states of a group as a drawing. Every arrow is a row of NEXT in `coordinator/classic/states.py`."""

from __future__ import annotations

from coterie.coordinator.classic.states import NEXT, ClassicGroupState

__all__ = ["state_picture"]

WIDTH, HEIGHT, BOX_WIDTH, BOX_HEIGHT = 720, 300, 168, 44
PLACES = {
    ClassicGroupState.EMPTY: (110, 60),
    ClassicGroupState.PREPARING_REBALANCE: (360, 60),
    ClassicGroupState.COMPLETING_REBALANCE: (610, 60),
    ClassicGroupState.STABLE: (610, 220),
    ClassicGroupState.DEAD: (110, 220),
}
BEND = 22
"""How far an arrow swings out, so that the one that comes back has room."""
STYLE = """
svg { --ink: #1c2330; --line: #667085; --box: #eef2f7; --rebalance: #dbe7fb; font: 14px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6eaf0; --line: #97a1b0; --box: #1f2630; --rebalance: #24364f; } }
text { fill: var(--ink); } rect { fill: var(--box); stroke: var(--line); } rect.rebalance { fill: var(--rebalance); }
path { fill: none; stroke: var(--line); stroke-width: 1.5; } marker path { fill: var(--line); stroke: none; }
"""


def state_picture() -> str:
    arrows = [
        _arrow(state, target) for state in ClassicGroupState for target in ClassicGroupState if target in NEXT[state]
    ]
    words = [
        f"{state} to {target}" for state in ClassicGroupState for target in ClassicGroupState if target in NEXT[state]
    ]
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>States of a group: {', '.join(words)}</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        '<path d="M0 0L8 4L0 8z"/></marker></defs>',
        *arrows,
        *(_box(state) for state in ClassicGroupState),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _box(state: ClassicGroupState) -> str:
    x, y = PLACES[state]
    kind = ' class="rebalance"' if "Rebalance" in state.value else ""
    corner = f'x="{x - BOX_WIDTH // 2}" y="{y - BOX_HEIGHT // 2}"'
    return (
        f'<rect{kind} {corner} width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="9"/>'
        f'<text x="{x}" y="{y + 5}" text-anchor="middle">{state.value}</text>'
    )


def _arrow(state: ClassicGroupState, target: ClassicGroupState) -> str:
    """From box to box, bent to the right of its way."""
    (x, y), (to_x, to_y) = PLACES[state], PLACES[target]
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5
    aside_x, aside_y = -(to_y - y) / length * BEND, (to_x - x) / length * BEND
    middle = ((x + to_x) / 2 + aside_x, (y + to_y) / 2 + aside_y)
    begin, end = _edge((x, y), middle), _edge((to_x, to_y), middle)
    points = [f"{at:.0f} {up:.0f}" for at, up in (begin, middle, end)]
    return f'<path d="M{points[0]}Q{points[1]} {points[2]}" marker-end="url(#tip)"/>'


def _edge(place: tuple[int, int], towards: tuple[float, float]) -> tuple[float, float]:
    """Where the line from the middle of a box to there leaves the box."""
    across, down = towards[0] - place[0], towards[1] - place[1]
    shrink = min(
        BOX_WIDTH / 2 / abs(across) if across else float("inf"), BOX_HEIGHT / 2 / abs(down) if down else float("inf")
    )
    return place[0] + across * shrink, place[1] + down * shrink
