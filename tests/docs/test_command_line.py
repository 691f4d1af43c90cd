"""What the help of a command says to try can be said to it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from cli_page import TRY_IT, commands

TRIED = [
    (name, line.strip().removeprefix(TRY_IT))
    for name, command in commands()
    for line in (command.help or "").splitlines()
    if line.strip().startswith(TRY_IT)
]


@pytest.mark.parametrize(("name", "line"), TRIED, ids=lambda value: value)
def test_what_is_to_be_tried_is_understood(
    name: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is run: it is read as the command reads it. Pages run the commands themselves."""
    (said,) = [part for part in line.replace("<", "|").split("|") if part.strip().startswith("coterie ")]
    words = shlex.split(said)
    assert " ".join(words).startswith(name), f"this is told of {name}"
    monkeypatch.chdir(tmp_path)
    command = dict(commands())[name]
    with command.make_context(name, words[len(name.split()) :]) as context:
        assert context.params, "what was said is nowhere"


def test_every_command_says_what_to_try() -> None:
    assert {name for name, _ in commands()} == {name for name, _ in TRIED}
