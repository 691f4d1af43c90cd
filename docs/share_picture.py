"""Who has what, as a drawing: a row for each way to share, a box for each member, a chip for each partition."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from coterie.assignors import Assignment
from coterie.web.picture import colour_of

__all__ = ["share_picture"]

LEFT, TOP, CHIP, CHIP_WIDTH, GAP, PAD = 190, 34, 24, 46, 6, 12
STYLE = """
svg { --ink: #1c2330; --line: #98a2b3; --box: #f4f6f9; --light: 46%; font: 13px system-ui, sans-serif; }
@media (prefers-color-scheme: dark) { svg { --ink: #e6eaf0; --line: #667085; --box: #1f2630; --light: 40%; } }
text { fill: var(--ink); } .member { font-weight: 600; } .box { fill: var(--box); stroke: var(--line); }
.chip { fill: hsl(var(--hue) 55% var(--light)); } .on { fill: #fff; font-size: 12px; }
"""


def share_picture(shares: Mapping[str, Assignment], title: str) -> str:
    """`shares` by what stands at the left of the row."""
    members = list(dict.fromkeys(member for answer in shares.values() for member in answer))
    topics = sorted({topic for answer in shares.values() for share in answer.values() for topic in share})
    most = max(
        (sum(len(ids) for ids in answer.get(member, {}).values()) for answer in shares.values() for member in members),
        default=1,
    )
    box = max(most, 1) * (CHIP_WIDTH + GAP) - GAP + 2 * PAD
    row = CHIP + 2 * PAD
    width, height = LEFT + len(members) * (box + GAP), TOP + len(shares) * (row + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
    ]
    for column, member in enumerate(members):
        middle = LEFT + column * (box + GAP) + box // 2
        parts.append(f'<text class="member" x="{middle}" y="20" text-anchor="middle">{escape(member)}</text>')
    for line, (name, answer) in enumerate(shares.items()):
        y = TOP + line * (row + GAP)
        parts.append(f'<text x="{LEFT - 12}" y="{y + row // 2 + 5}" text-anchor="end">{escape(name)}</text>')
        for column, member in enumerate(members):
            if member not in answer:
                continue
            x = LEFT + column * (box + GAP)
            parts.append(f'<rect class="box" x="{x}" y="{y}" width="{box}" height="{row}" rx="6"/>')
            has = [(topic, one) for topic in topics for one in sorted(answer[member].get(topic, ()))]
            for place, (topic, one) in enumerate(has):
                left, hue = x + PAD + place * (CHIP_WIDTH + GAP), colour_of(topics.index(topic))
                parts.append(
                    f'<rect class="chip" style="--hue:{hue}" x="{left}" y="{y + PAD}" width="{CHIP_WIDTH}" '
                    f'height="{CHIP}" rx="5"/><text class="on" x="{left + CHIP_WIDTH // 2}" y="{y + PAD + 16}" '
                    f'text-anchor="middle">{escape(topic)}-{one}</text>'
                )
    return "\n".join([*parts, "</svg>"]) + "\n"
