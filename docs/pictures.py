"""The pictures of a page, drawn from the blocks that stand below them: so a picture shows what the block says, and the
tests run the block.

`![what it shows](pictures/NAME.svg)` and then
- a story: who says what to whom;
- Python that leaves a `story`: who owned what when;
- Python that leaves `shares`: who has what.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path
from typing import Any

from coterie.ledger import intervals_of
from coterie.stories.grid import read
from coterie.structs import replace
from coterie.web import picture
from coterie.web.picture import MemberNames
from share_picture import share_picture
from story_picture import story_picture

__all__ = ["PICTURES"]

HERE = Path(__file__).parent
DRAWN = re.compile(
    r"^!\[([^\]]+)\]\((pictures/[\w-]+\.svg)\)$(.*?)^```(text|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
PAGE = HERE / "how-a-rebalance-works.md"


def _draw(title: str, language: str, block: str) -> str:
    if language == "text":
        return story_picture(read(block), title)
    left: dict[str, Any] = {}
    with redirect_stdout(io.StringIO()):
        exec(compile(block, str(PAGE), "exec"), left)
    if "shares" in left:
        return share_picture(left["shares"], title)
    story, told = left["story"], left["story"].world.facts
    intervals = [replace(one, ended_ms=one.ended_ms or story.world.now_ms) for one in intervals_of(told)]
    return picture(intervals, story.rebalances, MemberNames(told)) + "\n"


PICTURES: Mapping[str, Callable[[], str]] = {
    name: partial(_draw, title, language, block) for title, name, _, language, block in DRAWN.findall(PAGE.read_text())
}
