"""Where settings come from, a properties file or `--set` or Python, and which of them count in the end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, NamedTuple

from coterie.errors import MalformedError
from coterie.settings.setting import Setting, dotted

__all__ = [
    "Entry",
    "Given",
    "Ignored",
    "Table",
    "from_properties",
    "from_sets",
    "matching",
    "parse_properties",
    "settle",
]


# Java's properties files: comments, `key=value`, `key: value` and `key value`, escapes, lines that go on.
#
# The rules are those of `java.util.Properties.load`; the tests hold recorded answers of it.

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    line: int
    """Where it begins, counted from 1."""
    key: str
    value: str


def parse_properties(text: str) -> list[Entry]:
    """All entries in the order of the file; a key may come twice, and then the last one counts."""
    entries = []
    for line, logical in _logical_lines(text):
        key = _KEY.match(logical)
        assert key is not None, "it matches nothing at least"
        separator = _SEPARATOR.match(logical, key.end())
        assert separator is not None, "it matches nothing at least"
        entries.append(Entry(line, _unescape(key.group(), line), _unescape(logical[separator.end() :], line)))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments and blank ones; a line that ends in a backslash goes on in the next."""
    parts: list[str] = []
    begin = 0
    for number, line in enumerate(_LINE_END.split(text), start=1):
        content = line.lstrip(_BLANKS)
        if not parts:
            if not content or content[0] in "#!":
                continue
            begin = number
        goes_on = (len(content) - len(content.rstrip("\\"))) % 2 == 1
        parts.append(content[:-1] if goes_on else content)
        if not goes_on:
            yield begin, "".join(parts)
            parts = []
    if parts:
        yield begin, "".join(parts)


def _unescape(text: str, line: int) -> str:
    def plain(match: re.Match[str]) -> str:
        escaped = match.group(1)
        if len(escaped) == 5:
            return chr(int(escaped[1:], 16))
        if escaped == "u":
            raise MalformedError(f"line {line}: \\u is followed by four hexadecimal digits")
        return _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(plain, text)


_PROBABLY_MEANT, _PERHAPS_MEANT = 0.85, 0.6


class Given(NamedTuple):
    name: str
    text: str
    where: str
    is_certain: bool = True
    """False: a variable that may have nothing to do with us, such as KAFKA_TOPIC."""


class Ignored(NamedTuple):
    name: str
    where: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name} ({self.where}) changes nothing: {self.reason}"


@dataclass(frozen=True, slots=True)
class Table:
    """All that is known of somebody's settings. Patterns are names that may end in `*`."""

    rows: Mapping[str, Setting]
    page: str
    """Where they are all described."""
    whose: str
    """Whose settings they are, for sentences: "a broker"."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Second names: the first one counts where both are given."""
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By reason: accepted, and without effect."""
    refused: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By what to do instead: known, and not accepted."""

    def known(self) -> list[str]:
        patterns = [name for names in (*self.ignored.values(), *self.refused.values()) for name in names]
        return [*self.rows, *self.aliases, *(name for name in patterns if "*" not in name)]


def matching(name: str, by_reason: Mapping[str, Sequence[str]]) -> str | None:
    """The reason whose patterns have this name."""
    for reason, patterns in by_reason.items():
        for pattern in patterns:
            if name == pattern or (pattern.endswith("*") and name.startswith(pattern[:-1])):
                return reason
    return None


def from_properties(text: str, problems: list[str]) -> list[Given]:
    try:
        entries = parse_properties(text)
    except MalformedError as error:
        problems.append(f"properties file, {error}")
        return []
    return [Given(entry.key, entry.value, f"properties file, line {entry.line}") for entry in entries]


def from_sets(sets: Sequence[str], problems: list[str]) -> list[Given]:
    given = []
    for each in sets:
        name, equals, text = each.partition("=")
        if equals and name.strip():
            given.append(Given(name.strip(), text, "--set"))
        else:
            problems.append(f"--set {each!r}: must be name=value")
    return given


def settle(
    given: Sequence[Given], table: Table, problems: list[str]
) -> tuple[dict[str, Any], dict[str, str], list[Ignored]]:
    """Values by field, where each came from by name, and what was ignored. The later one counts."""
    latest = {dotted(each.name): each for each in given}
    ignored: list[Ignored] = []
    for alias, name in table.aliases.items():
        if alias in latest:
            found = latest.pop(alias)
            if latest.setdefault(name, found) is not found:
                ignored.append(Ignored(alias, found.where, f"{name} is also given and takes precedence"))
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for name, each in latest.items():
        row = table.rows.get(name)
        if row is None:
            ignored += _without_a_row(name, each, table, problems)
            continue
        try:
            values[row.field_name] = row.kind.read(each.text)
        except ValueError:
            why = f"; {row.why}" if row.why else ""
            problems.append(f"{each.name} = {each.text!r} ({each.where}): must be {row.kind.allowed}{why}")
            continue
        origins[name] = each.where
        if row.unused and values[row.field_name] != row.default:
            ignored.append(Ignored(name, each.where, row.unused))
    return values, origins, ignored


def _without_a_row(name: str, given: Given, table: Table, problems: list[str]) -> list[Ignored]:
    reason = matching(name, table.ignored)
    if reason:
        return [Ignored(name, given.where, reason)]
    instead = matching(name, table.refused)
    if instead:
        problems.append(f"{given.name} ({given.where}) is not supported: {instead}")
        return []
    nearest = _nearest(name, table.known(), is_certain=given.is_certain)
    if not nearest and not given.is_certain:
        return [Ignored(name, given.where, f"it is not a setting of {table.whose}")]
    hint = f"did you mean {nearest}?" if nearest else f"see {table.page} for all settings"
    problems.append(f"{given.name} ({given.where}): unknown setting; {hint}")
    return []


def _nearest(name: str, known: Sequence[str], *, is_certain: bool) -> str | None:
    perhaps = _PERHAPS_MEANT if is_certain else 1
    for text, cutoff in ((name, _PROBABLY_MEANT), (f"coterie.{name}", _PROBABLY_MEANT), (name, perhaps)):
        for nearest in get_close_matches(text, known, n=1, cutoff=cutoff):
            return nearest
    return None
