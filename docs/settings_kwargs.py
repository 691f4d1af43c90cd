"""Prints `coterie.client.settings_kwargs`: the settings as types, so that an editor completes them."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import wrap

from coterie.settings.client_settings import AdminSettings, ClientSettings
from coterie.settings.config_def import Flag, Number, PythonObject, Secret, Setting, Words
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings
from coterie.settings.security_settings import SECURITY

__all__ = ["settings_kwargs"]

HEAD = '''"""The settings of each client as keyword arguments, so that an editor completes them and mypy refuses others.

Made from the tables in `coterie.settings` by `make docs`; do not edit. None counts as not given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from coterie.assignors import Assignor
from coterie.settings.config_def import Password
'''
OTHER_TYPES = {
    "ssl.check.hostname": "bool | str",
    "acks": "str | int",
    "partition.assignment.strategy": "str | Assignor | type[Assignor] | Sequence[str | Assignor | type[Assignor]]",
}
CLASSES = {
    ClientSettings: "class ClientKwargs(TypedDict, total=False):",
    ConsumerSettings: "class ConsumerKwargs(ClientKwargs, total=False):",
    ProducerSettings: "class ProducerKwargs(ClientKwargs, total=False):",
    AdminSettings: "class AdminKwargs(ClientKwargs, total=False):",
}
ABOUT = {
    ClientSettings: "The settings that all clients have.",
    ConsumerSettings: "The settings of a consumer.",
    ProducerSettings: "The settings of a producer.",
    AdminSettings: "The settings of an admin.",
}


def settings_kwargs() -> str:
    common = ClientSettings.rows()
    lines = [HEAD]
    for kind, head in CLASSES.items():
        rows = [row for row in kind.rows().values() if kind is ClientSettings or row.name not in common]
        rows.sort(key=lambda row: row.section == SECURITY)
        lines += ["", head, f'    """{ABOUT[kind]}"""', ""]
        lines += [line for row in rows for line in _field(row)]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def _field(row: Setting) -> Iterator[str]:
    yield f"    {row.field_name}: {_type(row)} | None"
    yield from _about(row)
    for other in row.also:
        yield f"    {other.replace('.', '_')}: {OTHER_TYPES.get(other, _type(row))} | None"
        yield f'    """Another name of {row.field_name}."""'


def _about(row: Setting) -> Iterator[str]:
    said = row.help
    default = row.text(row.default)
    if default:
        tables = [table for table in CLASSES if row.name in table.rows()]
        texts = {table.whose: row.text(table.rows()[row.name].default) for table in tables}
        others = "".join(f", of {whose} {text}" for whose, text in texts.items() if text != default)
        said += f" Default: {default}{others}."
    yield "\n".join(wrap(f'"""{said}"""', 120, initial_indent="    ", subsequent_indent="    "))


def _type(row: Setting) -> str:
    if row.name in OTHER_TYPES:
        return OTHER_TYPES[row.name]
    if isinstance(row.kind, Number):
        return "int"
    if isinstance(row.kind, Flag):
        return "bool"
    if isinstance(row.kind, PythonObject):
        return "object"
    if isinstance(row.kind, Secret):
        return "str | Password"
    return "str | Sequence[str]" if isinstance(row.kind, Words) else "str"
