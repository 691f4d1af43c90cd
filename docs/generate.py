"""Prints the pages of docs/ that are made from the code. `make docs` writes them; a test holds them true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from coterie.errors import ErrorCode
from coterie.group.states import NEXT, TABLES, Answer, Do, State

HERE = Path(__file__).parent
SHORT = {
    Do.CREATE: "create",
    Do.START_ROUND: "**round**",
    Do.PARK: "park",
    Do.REPEAT: "repeat",
    Do.COLLECT: "collect",
    Do.RECHECK: "re-check",
    Do.REPLACE: "replace",
    Do.TAKE: "take",
    Do.TAKE_IF_CONSUMER: "take if consumer",
    Do.NOTHING: "nothing",
}


def states() -> str:
    lines = [
        "# States of a group",
        "",
        "Made from `coterie.group.states` by `make docs`; the rules behind it are in [semantics.md](semantics.md).",
        "",
        "```mermaid",
        "stateDiagram-v2",
        *(f"    {state} --> {target}" for state in State for target in State if target in NEXT[state]),
        "```",
        "",
        "## What each state answers",
        "",
        "An error code is the answer. Every cell is played by `tests/group/test_states.py`.",
        "",
        "| | " + " | ".join("Dead, absent" if state is State.DEAD else state.value for state in State) + " |",
        "|---" * (len(State) + 1) + "|",
        *(f"| {name} | " + " | ".join(_cell(table[state]) for state in State) + " |" for name, table in TABLES.items()),
        "",
        "| word | meaning |",
        "|---|---|",
        *(f"| {SHORT[what]} | {what.value} |" for what in Do),
    ]
    return "\n".join(lines) + "\n"


def _cell(what: Answer) -> str:
    if isinstance(what, ErrorCode):
        return what.name
    return SHORT[what]


PAGES: Mapping[str, Callable[[], str]] = {"states.md": states}


def main() -> None:
    for name, page in PAGES.items():
        (HERE / name).write_text(page())


if __name__ == "__main__":
    main()
