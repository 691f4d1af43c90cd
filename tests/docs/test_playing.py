"""What plays the pages notices when a page is wrong."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from docs.blocks import blocks_of
from docs.playing import play

TRUE = {
    "python": """
        ```python
        kept = 6 * 7
        ```
        ```python
        print(kept, "and so on")  # -> 42 and ...
        ```
        ```output
        42 and so on
        ```
    """,
    "await": """
        ```python
        import asyncio

        print(await asyncio.sleep(0, "slept"))  # -> slept
        ```
    """,
    "command": """
        ```console
        $ seq 2
        1
        2
        $ echo a \\
            b
        a b
        $ echo port 9092   # whatever it is here
        ```
    """,
    "terminal": """
        <!-- terminal one -->
        ```console
        $ bash -c 'trap "echo ended; exit 0" INT; echo began; while true; do sleep 0.05; done'
        began
        ```
        <!-- terminal one -->
        ```console
        ^C
        ```
        <!-- terminal one -->
        ```output
        ended
        ```
    """,
    "file": """
        <!-- file: mine.py -->
        ```python
        print("from a file")
        ```
        ```console
        $ python mine.py
        from a file
        ```
    """,
    "a broker": """
        <!-- before: echo one | coterie produce news -->
        ```console
        $ coterie consume news -e -q
        one
        ```
    """,
    "story": """
        ```text
        at_ms | who | says | hears              | group
        0     | a   | join | MEMBER_ID_REQUIRED | Empty
        ```
    """,
    "not run": """
        <!-- not run: it would fail -->
        ```console
        $ false
        ```
    """,
}
FALSE = {
    "a promise": ("42 and ...", "43 and ..."),
    "output": ("42 and so on", "42 and no more"),
    "what a command prints": ("a b", "a c"),
    "how a command ends": ("$ seq 2", "$ seq 2; false"),
    "what a terminal prints": ("from a file", "from elsewhere"),
    "a story": ("MEMBER_ID_REQUIRED", "UNKNOWN_MEMBER_ID"),
    "not marked": ("<!-- not run: it would fail -->", ""),
}


def page(folder: Path, text: str) -> Path:
    path = folder / "page.md"
    path.write_text(textwrap.dedent(text))
    return path


@pytest.mark.parametrize("text", TRUE.values(), ids=list(TRUE))
def test_a_true_page_plays(text: str, tmp_path: Path) -> None:
    blocks = list(blocks_of(page(tmp_path, text)))
    assert blocks
    play(blocks, tmp_path)


@pytest.mark.parametrize(("true", "false"), FALSE.values(), ids=list(FALSE))
def test_a_false_page_is_found_out(true: str, false: str, tmp_path: Path) -> None:
    (text,) = [one for one in TRUE.values() if true in one][:1]
    lied = text.replace(true, false, 1) if text.count(true) == 1 else false.join(text.rsplit(true, 1))
    with pytest.raises(AssertionError):
        play(list(blocks_of(page(tmp_path, lied))), tmp_path)


def test_an_indented_block_is_a_block_without_a_language(tmp_path: Path) -> None:
    (block,) = blocks_of(page(tmp_path, "Text.\n\n    $ rm -r everything\n"))
    assert not block.language
