"""The page about the command line, printed from the commands themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from coterie.cli.app import app

__all__ = ["TRY_IT", "cli", "commands"]

TRY_IT = "Try it: "
HEAD = """# The command line

This page is generated from the commands by `make docs`.

Commands that talk to a cluster take its address from `--bootstrap` or from `COTERIE_BOOTSTRAP`, and work with any \
Kafka cluster; [security](security.md) says how they log in. Results go to stdout; progress, notes and errors go to \
stderr. The exit status is 1 when something failed, and 2 for wrong usage. Options that say NAME=VALUE may be repeated.
"""

Parameter = TyperArgument | TyperOption


def commands(group: TyperGroup | None = None, name: str = "coterie") -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """All of them, by their full names, in the order of the help."""
    for word, command in (group or _whole()).commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{name} {word}")
        else:
            assert isinstance(command, typer.core.TyperCommand)
            yield f"{name} {word}", command


def _whole() -> TyperGroup:
    whole = typer.main.get_command(app)
    assert isinstance(whole, TyperGroup)
    return whole


def cli() -> str:
    return "\n".join([HEAD, *(line for name, command in commands() for line in _command(name, command))]) + "\n"


def _command(name: str, command: typer.core.TyperCommand) -> Iterator[str]:
    arguments = [one for one in command.params if isinstance(one, TyperArgument)]
    options = [one for one in command.params if isinstance(one, TyperOption)]
    usage = " ".join([name, *(_usage(one) for one in arguments), "[OPTIONS]"])
    yield from (f"## {name}", "", f"`{usage}`", "")
    for paragraph in re.split(r"\n\s*\n", command.help or ""):
        text = " ".join(line.strip() for line in paragraph.splitlines())
        if text.startswith(TRY_IT):
            yield from (f"{TRY_IT}`{text.removeprefix(TRY_IT)}`", "")
        elif text.startswith("{"):
            yield from (f"`{text}`", "")
        else:
            yield from (_tame(text), "")
    rows: list[Parameter] = [*(one for one in arguments if one.help), *options]
    yield from ("| | default | |", "|---|---|---|", *(_row(one) for one in rows), "")


def _usage(argument: TyperArgument) -> str:
    name = argument.metavar or argument.name or ""
    if name.startswith("["):
        return name
    more = "..." if argument.nargs == -1 and not name.endswith("...") else ""
    return f"{name}{more}" if argument.required else f"[{name}{more}]"


def _row(one: Parameter) -> str:
    names = [one.metavar or ""] if isinstance(one, TyperArgument) else [*one.opts, *one.secondary_opts]
    said = ", ".join(f"`{name}`" for name in names)
    if isinstance(one, TyperOption) and not one.is_flag:
        said += f" *{one.metavar or _kind(one)}*"
    return f"| {said} | {_default(one)} | {_tame(one.help or '')} |"


def _kind(option: TyperOption) -> str:
    choices = getattr(option.type, "choices", None)
    if choices:
        return ", ".join(str(getattr(one, "value", one)) for one in choices)
    return {"str": "text", "int range": "number", "float range": "number"}.get(option.type.name, option.type.name)


def _default(one: Parameter) -> str:
    if isinstance(one.show_default, str):
        return one.show_default
    if one.default in (None, False, (), []) or callable(one.default):
        return ""
    if isinstance(one, TyperOption) and one.is_flag:
        return f"`{one.opts[0]}`"
    return f"`{getattr(one.default, 'value', one.default)}`"


def _tame(text: str) -> str:
    """Markdown takes `<` for a tag, `|` for a cell, `*` for emphasis and `--` in prose for a dash."""
    text = re.sub(r"(?<![\w`-])(--?[a-z][\w-]*)", r"`\1`", text)
    return text.replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")
