"""The code blocks of a page, as a reader meets them, and what the page says about how they are run.

What a block is, is said by its language. How it is run can be said in a comment right before it, which readers of the
page do not see:

    <!-- not run: WHY -->    it cannot be run here
    <!-- terminal NAME -->   in a terminal of its own, where it goes on until the page ends or says ^C
    <!-- file: NAME -->      the reader saves it under this name
    <!-- before: COMMAND --> what has happened on the reader's cluster before
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

__all__ = ["LANGUAGES", "ROOT", "Block", "blocks_by_page", "blocks_of", "needs_spark", "pages"]

ROOT = Path(__file__).parents[2]
LANGUAGES = {
    "python": "executed, one after the other, in one namespace",
    "console": "$ is a command, the lines below it are what it prints",
    "output": "what the block above prints",
    "sql": "a query for DuckDB",
    "toml": "read",
    "java": "not run; the page says how it was",
    "go": "not run; the page says how it was",
    "text": "no code; one that begins with at_ms is a story, and played",
}
_MARK = re.compile(r"<!-- (not run|terminal|file|before):? (.+?) -->\s*")


@dataclass(frozen=True, slots=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str = ""
    terminal: str = ""
    file: str = ""
    before: str = ""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks_by_page() -> dict[str, list[Block]]:
    """By the path of the page: two may have the same name."""
    return {str(page.relative_to(ROOT)): list(blocks_of(page)) for page in pages()}


def blocks_of(page: Path) -> Iterator[Block]:
    """Also those without a language, which no page should have."""
    marks: dict[str, str] = {}
    for token in MarkdownIt("commonmark").parse(page.read_text()):
        if token.type == "html_block":
            marks = {what.replace(" ", "_"): text for what, text in _MARK.findall(token.content)}
        elif token.info.startswith("{"):
            continue  # for the generator: a table of contents
        elif token.type in {"fence", "code_block"}:
            assert token.map is not None
            where = str(page.relative_to(ROOT) if page.is_relative_to(ROOT) else page)
            yield Block(where, token.map[0] + 1, token.info.strip(), token.content, **marks)
            marks = {}
        elif token.type != "html_inline" and not token.type.endswith("_close"):
            marks = {}


def needs_spark(blocks: Iterable[Block]) -> bool:
    """Spark takes ten seconds to start: who needs it shares one session, or waits for his turn."""
    signs = ("SparkSession.builder", "coterie pipeline groups", "coterie pipeline topics")
    return any(sign in block.text for block in blocks if not block.not_run for sign in signs)
