"""Kafka's primitive types: what is written is read again, and nothing is read that is not there."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kio.serial import writers as kio

from coterie.errors import MalformedError
from coterie.protocol.buffer import MAX_STRING, Reader, Writer, uvarint


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1)


# Each type by its name, which is the same in Reader and Writer, with the values it can hold.
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "int8": integers(8),
    "int16": integers(16),
    "int32": integers(32),
    "int64": integers(64),
    "uvarint": st.integers(0, 2**32 - 1),
    "string": st.text(),
    "nullable_string": st.none() | st.text(),
    "compact_string": st.text(),
    "nullable_compact_string": st.none() | st.text(),
    "binary": st.binary(),
    "nullable_binary": st.none() | st.binary(),
    "compact_binary": st.binary(),
    "uuid": st.uuids(),
    "int32_array": st.lists(integers(32)),
    "tagged_fields": st.dictionaries(st.integers(0, 2**32 - 1), st.binary()),
}
SOME: dict[str, Any] = {
    "uvarint": 300,
    "uuid": UUID(int=7),
    "int32_array": [1, 2],
    "tagged_fields": {3: b"three"},
}


def written(kind: str, value: Any) -> bytes:
    writer = Writer()
    getattr(writer, kind)(value)
    return writer.done()


@pytest.mark.parametrize("kind", VALUES)
@given(data=st.data())
def test_a_value_is_read_as_it_was_written_and_reading_stops_behind_it(kind: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    both = written(kind, value) + b"rest"
    for buffer in (both, memoryview(both)):
        reader = Reader(buffer)
        assert getattr(reader, kind)() == value
        assert reader.remaining == 4


@pytest.mark.parametrize("kind", VALUES)
def test_a_value_cut_short_is_malformed_wherever_it_is_cut(kind: str) -> None:
    value = SOME.get(kind, 7 if "int" in kind else "text" if "string" in kind else b"data")
    whole = written(kind, value)
    for end in range(len(whole)):
        with pytest.raises(MalformedError, match=f"of {end} bytes left"):
            getattr(Reader(whole[:end]), kind)()


# kio was written by others from Kafka's own schemas, and checked by them against Java.
KIO: dict[str, tuple[Callable[..., None], st.SearchStrategy[Any]]] = {
    "uvarint": (kio.write_unsigned_varint, st.integers(0, 2**31 - 1)),
    "string": (kio.write_legacy_string, st.text()),
    "nullable_string": (kio.write_nullable_legacy_string, st.none() | st.text()),
    "compact_string": (kio.write_compact_string, st.text()),
    "nullable_compact_string": (kio.write_nullable_compact_string, st.none() | st.text()),
    "uuid": (kio.write_uuid, st.uuids()),
}


@pytest.mark.parametrize("kind", KIO)
@given(data=st.data())
def test_our_bytes_are_those_of_kio(kind: str, data: st.DataObject) -> None:
    write, values = KIO[kind]
    value, out = data.draw(values), io.BytesIO()
    write(out, value)
    assert written(kind, value) == out.getvalue()


def test_an_error_says_what_was_being_read_and_where_it_stopped() -> None:
    reader = Reader(b"\x00\x01\x00\x05abc", "greeting")
    reader.int16()
    with pytest.raises(MalformedError, match=r"^greeting: expected a string of 5 bytes at byte 4; 3 of 7 bytes left$"):
        reader.string()


@pytest.mark.parametrize(
    ("kind", "data"),
    [("string", b"\xff\xff"), ("binary", b"\xff\xff\xff\xff"), ("compact_string", b"\0"), ("compact_binary", b"\0")],
)
def test_null_is_refused_where_it_is_not_allowed(kind: str, data: bytes) -> None:
    with pytest.raises(MalformedError, match="but it is null"):
        getattr(Reader(data), kind)()


@pytest.mark.parametrize("count", [b"\xff\xff\xff\xff", b"\x80\0\0\0"])
def test_a_null_array_is_refused(count: bytes) -> None:
    with pytest.raises(MalformedError, match="an array, but it is null"):
        Reader(count).array_length(1)
    with pytest.raises(MalformedError, match="an array, but it is null"):
        Reader(b"\0").compact_array_length(1)


def test_text_that_is_not_utf_8_is_malformed() -> None:
    with pytest.raises(MalformedError, match="2 bytes of UTF-8 at byte 2"):
        Reader(b"\0\2\xff\xfe").string()


@pytest.mark.parametrize("data", [b"\x80" * 20, b"\xff\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\x00"])
def test_a_varint_of_more_than_32_bits_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedError, match="at most 32 bits"):
        Reader(data).uvarint()


ABSURD = {
    "string": b"\x7f\xff",
    "compact_string": uvarint(2**32 - 1),
    "binary": b"\x7f\xff\xff\xff",
    "compact_binary": uvarint(2**32 - 1),
    "int32_array": b"\x7f\xff\xff\xff",
    "tagged_fields": uvarint(2**32 - 1),
}


@pytest.mark.parametrize("kind", ABSURD)
def test_an_absurd_length_is_refused_before_anything_is_allocated(kind: str) -> None:
    reader = Reader(ABSURD[kind] + bytes(100))
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError):
            getattr(reader, kind)()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@given(data=st.binary(max_size=60), kind=st.sampled_from(sorted(VALUES)))
@example(data=b"\xff" * 60, kind="tagged_fields")
def test_any_bytes_give_a_value_or_are_malformed(data: bytes, kind: str) -> None:
    reader = Reader(data)
    try:
        getattr(reader, kind)()
    except MalformedError:
        return
    assert reader.position <= len(data)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int8", 128),
        ("int16", -(2**15) - 1),
        ("int32", 2**31),
        ("int64", 2**63),
        ("uvarint", -1),
        ("string", "x" * (MAX_STRING + 1)),
        ("nullable_string", "ä" * 16_384),
        ("int32_array", [0, 2**31]),
    ],
)
def test_what_a_type_cannot_hold_is_not_written(kind: str, value: Any) -> None:
    with pytest.raises(MalformedError, match=r"cannot hold|does not fit|allows 32767"):
        written(kind, value)


def test_the_longest_string_is_written() -> None:
    assert Reader(written("string", "x" * MAX_STRING)).string() == "x" * MAX_STRING


def test_tagged_fields_are_written_in_order_of_their_tags() -> None:
    """KIP-482 demands ascending tags."""
    assert written("tagged_fields", {5: b"b", 1: b"a"}) == b"\2\1\1a\5\1b"
