"""Java's properties files: comments, `key=value`, `key: value` and `key value`, escapes, lines that go on.

The rules are those of `java.util.Properties.load`; the tests hold recorded answers of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from coterie.errors import MalformedError

__all__ = ["Entry", "parse_properties"]

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
