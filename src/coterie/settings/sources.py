"""The sources of settings: properties files, `--set name=value` and the environment.

A properties file is read as `java.util.Properties.load` reads it: comments, `key=value`, `key: value` and `key value`,
escapes, lines that go on in the next one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from coterie.errors import MalformedError
from coterie.settings.config_def import Given

_BLANKS = " \t\f"
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_KEY = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Entry(NamedTuple):
    """A key and its value in a properties file."""

    line: int
    """The line it begins in, counted from 1."""
    key: str
    value: str


def parse_properties(text: str) -> list[Entry]:
    """Return all entries in the order of the file. A key may come twice; then the last one counts."""
    entries = []
    for line, logical in _logical_lines(text):
        key = _KEY.match(logical)
        assert key is not None, "it matches nothing at least"
        separator = _SEPARATOR.match(logical, key.end())
        assert separator is not None, "it matches nothing at least"
        entries.append(Entry(line, _unescape(key.group(), line), _unescape(logical[separator.end() :], line)))
    return entries


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are neither comments nor blank; a line that ends in a backslash goes on in the next."""
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


def from_properties(text: str, problems: list[str]) -> list[Given]:
    """Return what the text of a properties file sets."""
    try:
        entries = parse_properties(text)
    except MalformedError as error:
        problems.append(f"properties file, {error}")
        return []
    return [Given(entry.key, entry.value, f"properties file, line {entry.line}") for entry in entries]


def from_sets(sets: Sequence[str], problems: list[str]) -> list[Given]:
    """Return what options `--set name=value` set."""
    given = []
    for each in sets:
        name, equals, text = each.partition("=")
        if equals and name.strip():
            given.append(Given(name.strip(), text, "--set"))
        else:
            problems.append(f"--set {each!r}: must be name=value")
    return given


_PREFIXES = ("KAFKA_", "COTERIE_")
_NOT_SETTINGS = re.compile(
    r"KAFKA_(VERSION|HOME|USER|DEBUG|MODE|CLUSTERS|(.*_)?OPTS|(TOOLS_)?LOG4J_.*|JMX_.*|CLASSPATH|CFG_.*)"
    r"|KAFKA_(.*_)?SERVICE_(HOST|PORT(_.*)?)|KAFKA_(.*_)?PORT(_[0-9]+_(TCP|UDP)(_.*)?)?"
    r"|COTERIE_(BOOTSTRAP(_SERVERS)?|KAFKA_LIBS|TEST_CLOCK|CONTROLS_TOKEN|SEED)"
)
"""Variables that are not settings: those of Kafka's images, of a Kubernetes service called kafka, of our commands."""


def from_environ(environ: Mapping[str, str], settings: Iterable[str], problems: list[str]) -> list[Given]:
    """Return what the environment sets: `KAFKA_` as in Kafka's image, then `COTERIE_`; COTERIE_FLUSH is coterie.flush.

    `settings` are the names of all settings.
    """
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
    """Return the name as Kafka's image reads it: one underscore is a dot, two are an underscore, three a dash."""
    return variable.lower().replace("_", ".").replace("...", "-").replace("..", "_")
