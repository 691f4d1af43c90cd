"""`coterie --help` and the help of each command: on a screen, and with something to try."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from cli_page import TRY_IT, commands
from coterie.cli.app import app
from coterie.cli.front_page import SECTIONS

WIDTH, SCREEN, TALL_SCREEN = 80, 24, 40
"""The terminal of old, and the least that a window has today."""
COMMANDS = [name for name, _ in commands()]
FAMILIES = sorted({" ".join(name.split()[:2]) for name in COMMANDS if len(name.split()) > 2})


def help_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    told = CliRunner().invoke(app, [*name.split()[1:], "--help"])
    short = CliRunner().invoke(app, [*name.split()[1:], "-h"])
    assert told.exit_code == short.exit_code == 0 and told.output == short.output
    return told.output.splitlines()


def test_the_front_page_and_a_prompt_fit_the_smallest_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    told = help_of("coterie", monkeypatch)
    assert len(told) < SCREEN and max(map(len, told)) < WIDTH, "\n".join(told)


def test_the_front_page_has_every_command_once() -> None:
    listed = [name for rows in SECTIONS.values() for name in rows]
    assert sorted(listed) == sorted({name.split()[1] for name in COMMANDS}), "put it into a section of front_page.py"


@pytest.mark.parametrize("name", [*FAMILIES, *COMMANDS])
def test_the_help_of_a_command_fits_a_screen_and_has_something_to_try(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = help_of(name, monkeypatch)
    assert len(told) <= TALL_SCREEN and max(map(len, told)) <= WIDTH, "\n".join(told)
    tried = [line.strip().removeprefix(TRY_IT) for line in told if line.strip().startswith(TRY_IT)]
    assert tried and all(name in line for line in tried)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    words = {"COMP_WORDS": "coterie groups wh", "COMP_CWORD": "2", "_TYPER_COMPLETE_ARGS": "coterie groups wh"}
    more = {"_TYPER_COMPLETE_FISH_ACTION": "get-args", "_COTERIE_COMPLETE": f"complete_{shell}"}
    told = CliRunner().invoke(app, [], prog_name="coterie", env=words | more)
    assert "why" in told.stdout and "watch" not in told.stdout


def test_no_command_and_a_wrong_one_say_what_there_is() -> None:
    """With 2, as whatever is not understood."""
    nothing, wrong = CliRunner().invoke(app, []), CliRunner().invoke(app, ["serv"])
    assert nothing.exit_code == wrong.exit_code == 2
    assert "Try it: coterie serve" in nothing.output
    assert "Did you mean 'serve'?" in wrong.output
