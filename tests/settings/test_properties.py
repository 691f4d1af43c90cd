"""Java's properties files, held to answers recorded from `java.util.Properties.load` of Java 17."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.settings.sources import Entry, parse_properties

JAVA: list[tuple[str, dict[str, str]]] = [
    ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
    ("# c\n! d\n  e = 5 \n\n \t\nf", {"e": "5 ", "f": ""}),
    ("g = a\\\n   b\\\n\tc\nh=1", {"g": "abc", "h": "1"}),
    ("k\\=\\:\\ x = v\\\\\nl=\\u0041\\t\\q", {"k=: x": "v\\", "l": "A\tq"}),
    ("m==1\nn:=2\no = : 3", {"m": "=1", "n": "=2", "o": ": 3"}),
    ("p=a\\", {"p": "a"}),
    ("q=a\\\\\nr=1", {"q": "a\\", "r": "1"}),
    ("s=1\r\nt=2\ru=3", {"s": "1", "t": "2", "u": "3"}),
    ("v=x\\\n# not a comment\nw=1", {"v": "x# not a comment", "w": "1"}),
    ("x=1\nx=2", {"x": "2"}),
    ("=y", {"": "y"}),
    ("z=\\\n\n aa=1", {"aa": "1", "z": ""}),
    ("  ab\t:\tac  ", {"ab": "ac  "}),
    ("ad=\\\\\\\nae", {"ad": "\\ae"}),
    ("af\\\n=1", {"af": "1"}),
    ("ag=\f1\f", {"ag": "1\f"}),
    ("ah=1\\\r\n 2", {"ah": "12"}),
]


@pytest.mark.parametrize(("text", "java"), JAVA, ids=lambda value: repr(value)[:30])
def test_a_file_is_read_as_java_reads_it(text: str, java: dict[str, str]) -> None:
    assert {entry.key: entry.value for entry in parse_properties(text)} == java


def test_an_entry_knows_the_line_it_begins_in() -> None:
    assert parse_properties("# one\n\na=1\\\n  2\nb=3") == [Entry(3, "a", "12"), Entry(5, "b", "3")]


def test_a_broken_escape_names_its_line() -> None:
    with pytest.raises(MalformedError, match="line 2"):
        parse_properties("a=1\nb=\\u12")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_escaped_comes_back(values: dict[str, str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else letter for letter in text)

    text = "".join(f"{escaped(key)}={escaped(value)}\n" for key, value in values.items())
    assert {entry.key: entry.value for entry in parse_properties(text)} == values


@given(st.text(alphabet=" \t\\=:#!\r\nua0"))
def test_no_text_is_too_odd(text: str) -> None:
    try:
        entries = parse_properties(text)
    except MalformedError:
        return
    lines = [entry.line for entry in entries]
    assert lines == sorted(set(lines)) and all(0 < line <= len(text) + 1 for line in lines)
