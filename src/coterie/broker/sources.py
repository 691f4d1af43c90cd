"""Where settings come from: a properties file, the environment, `--set`; and which of them count in the end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from coterie.broker.ignored import IGNORED, why_ignored
from coterie.broker.properties import parse_properties
from coterie.broker.setting import Setting, dotted
from coterie.errors import MalformedError

__all__ = ["ALIASES", "Given", "Ignored", "from_environ", "from_properties", "from_sets", "settle"]

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's second names: the first one counts where both are given."""

_PREFIXES = ("KAFKA_", "COTERIE_")
_NOT_SETTINGS = re.compile(
    r"KAFKA_(VERSION|HOME|USER|DEBUG|MODE|CLUSTERS|(.*_)?OPTS|(TOOLS_)?LOG4J_.*|JMX_.*|CLASSPATH|CFG_.*)"
    r"|KAFKA_(.*_)?SERVICE_(HOST|PORT(_.*)?)|KAFKA_(.*_)?PORT(_[0-9]+_(TCP|UDP)(_.*)?)?"
    r"|COTERIE_KAFKA_LIBS"
)
"""Of Kafka's images and scripts, of a Kubernetes service called kafka, and of our own tests."""

_PROBABLY_MEANT, _PERHAPS_MEANT = 0.85, 0.6


class Given(NamedTuple):
    name: str
    text: str
    where: str
    is_certain: bool = True
    """False: a variable that may have nothing to do with a broker, such as KAFKA_TOPIC."""


class Ignored(NamedTuple):
    name: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.where}) changes nothing: {self.reason}"


def from_properties(text: str, problems: list[str]) -> list[Given]:
    try:
        entries = parse_properties(text)
    except MalformedError as error:
        problems.append(f"properties file, {error}")
        return []
    return [Given(entry.key, entry.value, f"properties file, line {entry.line}") for entry in entries]


def from_environ(environ: Mapping[str, str], settings: Iterable[str], problems: list[str]) -> list[Given]:
    """`KAFKA_` as Kafka's image takes them, `COTERIE_` above them; `COTERIE_FLUSH` is `coterie.flush`."""
    ours = {name.removeprefix("coterie.") for name in settings if name.startswith("coterie.")}
    given = []
    for prefix in _PREFIXES:
        for variable in sorted(environ):
            if not variable.startswith(prefix) or _NOT_SETTINGS.fullmatch(variable):
                continue
            name = _name_in(variable.removeprefix(prefix))
            if not name:
                problems.append(f"{variable}: no setting is named")
                continue
            if prefix == "COTERIE_" and name in ours:
                name = f"coterie.{name}"
            given.append(Given(name, environ[variable], variable, is_certain=prefix == "COTERIE_"))
    return given


def _name_in(variable: str) -> str:
    """Kafka's image: one underscore is a dot, two are an underscore, three a dash."""
    return variable.lower().replace("_", ".").replace("...", "-").replace("..", "_")


def from_sets(sets: Sequence[str], problems: list[str]) -> list[Given]:
    given = []
    for each in sets:
        name, equals, text = each.partition("=")
        if equals and name.strip():
            given.append(Given(name.strip(), text, "--set"))
        else:
            problems.append(f"--set {each!r}: allowed is name=value")
    return given


def settle(
    given: Sequence[Given], settings: Mapping[str, Setting], problems: list[str]
) -> tuple[dict[str, Any], dict[str, str], list[Ignored]]:
    """Values by field, where each came from by name, and what was ignored. The later one counts."""
    latest = {dotted(each.name): each for each in given}
    ignored: list[Ignored] = []
    for alias, name in ALIASES.items():
        if alias in latest:
            found = latest.pop(alias)
            if latest.setdefault(name, found) is not found:
                ignored.append(Ignored(alias, found.where, f"{name} is given too, and counts"))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, each in latest.items():
        row = settings.get(name)
        if row is None:
            ignored += _without_a_row(name, each, settings, problems)
            continue
        try:
            values[row.field_name] = row.kind.read(each.text)
        except ValueError:
            why = f"; {row.why}" if row.why else ""
            problems.append(f"{each.name} = {each.text!r} ({each.where}): allowed is {row.kind.allowed}{why}")
            continue
        origins[name] = each.where
        if row.unused and values[row.field_name] != row.default:
            ignored.append(Ignored(name, each.where, row.unused))
    return values, origins, ignored


def _without_a_row(name: str, given: Given, settings: Mapping[str, Setting], problems: list[str]) -> list[Ignored]:
    reason = why_ignored(name)
    if reason:
        return [Ignored(name, given.where, reason)]
    known = [*settings, *ALIASES, *(pattern for names in IGNORED.values() for pattern in names if "*" not in pattern)]
    nearest = (
        get_close_matches(name, known, n=1, cutoff=_PROBABLY_MEANT)
        or get_close_matches(f"coterie.{name}", known, n=1, cutoff=_PROBABLY_MEANT)
        or get_close_matches(name, known, n=1, cutoff=_PERHAPS_MEANT if given.is_certain else 1)
    )
    if not nearest and not given.is_certain:
        return [Ignored(name, given.where, "it is no setting of a broker")]
    hint = f"did you mean {nearest[0]}?" if nearest else "docs/settings.md has them all"
    problems.append(f"{given.name} ({given.where}): there is no such setting; {hint}")
    return []
