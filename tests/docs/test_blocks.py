"""Every block of every page is run, as a reader would, and prints what the page says. `make docs` builds the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.blocks import LANGUAGES, Block, blocks_by_page, needs_spark
from docs.playing import play

PAGES = blocks_by_page()
PLAYED_HERE = [name for name, blocks in PAGES.items() if blocks and not needs_spark(blocks)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLAYED_HERE)
def test_what_a_page_shows_happens(name: str, tmp_path: Path) -> None:
    """Pages that start Spark are played in tests/spark/test_docs.py, with the session that is there."""
    play(PAGES[name], tmp_path)


@pytest.mark.parametrize("name", PAGES)
def test_every_block_says_what_it_is(name: str) -> None:
    """An indented block says nothing, and would not be run."""
    strange = [f"{block}: {block.language!r}" for block in PAGES[name] if block.language not in LANGUAGES]
    assert not strange, f"languages are {', '.join(LANGUAGES)}; these are not: {strange}"


@pytest.mark.parametrize(
    "block", [block for name in PAGES for block in PAGES[name] if "as in " in block.not_run], ids=str
)
def test_what_is_run_elsewhere_is_run_there(block: Block) -> None:
    there = block.not_run.removeprefix("as in ")
    run = "".join(one.text for one in PAGES[there] if one.language == block.language and not one.not_run)
    for line in block.text.splitlines():
        assert line.replace(".venv/bin/", "") in run, f"{there} does not run {line}"
