"""No default of a setting is written a second time: everything else reads it from the tables."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

import coterie
from coterie.cli.app import app
from coterie.cli.options import HOST, PORT
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.client_settings import AdminSettings
from coterie.settings.config_def import Settings, Word
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings
from coterie.settings.topic_configs import TOPIC_CONFIGS

SOURCE = Path(coterie.__file__).parent
TABLES: tuple[type[Settings], ...] = (BrokerSettings, ConsumerSettings, ProducerSettings, AdminSettings)
NOT_VIEWS = ("settings", "protocol")
"""The tables themselves, and messages, whose fields have the defaults of Kafka's schemas."""


def _defaults() -> dict[str, list[object]]:
    """The defaults of each name as it may stand in code, with and without the prefix of our own settings."""
    defaults: dict[str, list[object]] = {}
    for row in [*(row for table in TABLES for row in table.rows().values()), *TOPIC_CONFIGS.values()]:
        for name in {row.field_name, row.field_name.removeprefix("coterie_")}:
            if row.default not in (None, "", ()):  # these say that there is no value
                defaults.setdefault(name, []).append(row.default)
    return defaults


DEFAULTS = _defaults()


def _named_values(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """All names that get a value where a default can be: fields, parameters and constants."""
    for node in ast.walk(tree):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name.lower(), value
            case ast.arguments():
                positional = [*node.posonlyargs, *node.args]
                with_default = positional[len(positional) - len(node.defaults) :]
                yield from ((each.arg, value) for each, value in zip(with_default, node.defaults, strict=True))
                yield from (
                    (each.arg, value)
                    for each, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)
                    if value is not None
                )


def _written(value: ast.expr) -> object:
    """The value of an expression that has nothing but literals, such as 16 * 1024; otherwise None."""
    if any(isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript) for node in ast.walk(value)):
        return None
    try:
        return eval(compile(ast.Expression(value), "", "eval"), {})
    except (TypeError, ValueError, NameError, SyntaxError):
        return None


def _repeated(source: str) -> list[str]:
    found = []
    for name, value in _named_values(ast.parse(source)):
        written = _written(value)
        if any(type(written) is type(default) and written == default for default in DEFAULTS.get(name, ())):
            found.append(f"line {value.lineno}: {name} = {ast.unparse(value)}")
    return found


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(SOURCE.rglob("*.py")) if path.relative_to(SOURCE).parts[0] not in NOT_VIEWS],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_no_default_is_written_a_second_time(path: Path) -> None:
    assert not _repeated(path.read_text()), "read it from the table: ConsumerSettings().session_timeout_ms"


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    session_timeout_ms: int = 45_000",
        "def f(*, batch_size: int = 16 * 1024): ...",
        "def f(flush='sync'): ...",
        "MAX_POLL_RECORDS = 500",
    ],
)
def test_a_default_that_is_written_a_second_time_is_found(source: str) -> None:
    assert _repeated(source)


def test_another_value_than_the_default_is_none_of_it() -> None:
    assert not _repeated("class A:\n    session_timeout_ms: int = 6_000\n    batch_size: int = DEFAULTS.batch_size")


# The command line loads no table before a command runs, which would make `coterie --help` slow. So it has these texts.


@pytest.mark.parametrize(
    ("command", "option", "table", "name"),
    [
        ("serve", "flush", BrokerSettings, "coterie.flush"),
        ("produce", "acks", ProducerSettings, "acks"),
        ("produce", "compression", ProducerSettings, "compression.type"),
        ("repair", "node_id", BrokerSettings, "node.id"),
    ],
)
def test_an_option_shows_the_default_and_the_choices_of_its_setting(
    command: str, option: str, table: type[Settings], name: str
) -> None:
    row = table.rows()[name]
    (parameter,) = (each for each in _commands()[command].params if each.name == option)
    assert parameter.default is None, "the setting has the default"
    assert getattr(parameter, "show_default", None) == row.text(row.default)
    if isinstance(row.kind, Word):
        assert {str(each) for each in getattr(parameter.type, "choices", ())} <= set(row.kind.choices)


def test_the_command_line_shows_the_default_address() -> None:
    assert BrokerSettings().listeners == (f"PLAINTEXT://{HOST}:{PORT}",)


def _commands() -> dict[str, typer.core.TyperCommand]:
    group = typer.main.get_command(app)
    return group.commands  # type: ignore[attr-defined,no-any-return]


def test_a_broker_flushes_as_the_setting_says_unless_it_is_given() -> None:
    """`Broker(flush=...)` had a default of its own, which hid the setting."""
    assert coterie.Broker(settings={"coterie.flush": "os"})._flush == "os"
    assert coterie.Broker(settings={"coterie.flush": "os"}, flush="sync")._flush == "sync"
