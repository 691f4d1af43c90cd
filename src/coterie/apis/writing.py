"""Writers made from a message's fields: `write(append, value)` appends the message piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from functools import cache
from operator import attrgetter
from struct import Struct, pack
from typing import Any, get_args, get_origin
from uuid import UUID

from coterie.apis.members import Member, is_records, number_format, present
from coterie.wire.buffer import uvarint
from coterie.wire.encoding import Encoding

__all__ = ["Append", "Write", "message_writer"]

Append = Callable[[bytes | memoryview], None]
Write = Callable[[Append, Any], None]

_ZERO_UUID = bytes(16)


@cache
def message_writer(message: type, version: int, encoding: Encoding) -> Write:
    steps: list[Write] = []
    run: list[Member] = []
    for member in present(message, version, tagged=False):
        if number_format(member.type):
            run.append(member)
            continue
        run = _end_run(steps, run)
        steps.append(_field_writer(member, version, encoding))
    _end_run(steps, run)
    if encoding.flexible:
        steps.append(_tags_writer(message, version, encoding))

    def write(append: Append, value: Any) -> None:
        for step in steps:
            step(append, value)

    return write


def _end_run(steps: list[Write], run: list[Member]) -> list[Member]:
    """Numbers side by side are packed together."""
    if run:
        shape = Struct(">" + "".join(number_format(member.type) or "" for member in run))
        get = attrgetter(*(member.name for member in run))
        if len(run) == 1:
            steps.append(lambda append, value: append(shape.pack(get(value))))
        else:
            steps.append(lambda append, value: append(shape.pack(*get(value))))
    return []


def _field_writer(member: Member, version: int, encoding: Encoding) -> Write:
    write = _value_writer(member.type, version, encoding)
    get = attrgetter(member.name)
    if member.type is UUID or (member.may_be_null(version) and not is_dataclass(member.type)):
        return lambda append, value: write(append, get(value))

    def write_optional(append: Append, value: Any) -> None:
        inner = get(value)
        append(b"\xff" if inner is None else b"\x01")  # KIP-893
        if inner is not None:
            write(append, inner)

    def write_present(append: Append, value: Any) -> None:
        inner = get(value)
        if inner is None:
            raise ValueError(f"{type(value).__name__}.{member.name} is None, which version {version} cannot say")
        write(append, inner)

    return write_optional if member.may_be_null(version) else write_present


def _value_writer(hint: Any, version: int, encoding: Encoding) -> Write:
    if hint is str:
        string = encoding.string
        return lambda append, text: append(string(text))
    if hint is bytes or is_records(hint):
        return _bytes_writer(encoding)
    if hint is UUID:
        return lambda append, value: append(_ZERO_UUID if value is None else value.bytes)
    if get_origin(hint) is Sequence:
        return _array_writer(get_args(hint)[0], version, encoding)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return message_writer(hint, version, encoding)
    shape = Struct(f">{number_format(hint)}")
    return lambda append, value: append(shape.pack(value))


def _bytes_writer(encoding: Encoding) -> Write:
    length = encoding.length

    def write(append: Append, data: bytes | memoryview | None) -> None:
        if data is None:
            append(length(-1))
        else:
            append(length(len(data)))
            append(data)

    return write


def _array_writer(hint: Any, version: int, encoding: Encoding) -> Write:
    length = encoding.length
    code = number_format(hint)
    if code:

        def write_numbers(append: Append, numbers: Sequence[int] | None) -> None:
            if numbers is None:
                append(length(-1))
            else:
                append(length(len(numbers)) + pack(f">{len(numbers)}{code}", *numbers))

        return write_numbers

    write_element = _value_writer(hint, version, encoding)

    def write(append: Append, elements: Sequence[Any] | None) -> None:
        if elements is None:
            append(length(-1))
            return
        append(length(len(elements)))
        for element in elements:
            write_element(append, element)

    return write


def _tags_writer(message: type, version: int, encoding: Encoding) -> Write:
    tagged = sorted(present(message, version, tagged=True), key=lambda member: member.wire.tag or 0)
    if not tagged:
        return lambda append, _value: append(b"\0")
    writers = [(member, _value_writer(member.type, version, encoding)) for member in tagged]

    def write(append: Append, value: Any) -> None:
        given = []
        for member, write_value in writers:
            inner = getattr(value, member.name)
            if inner != member.default:
                parts: list[bytes | memoryview] = []
                write_value(parts.append, inner)
                data = b"".join(parts)
                given.append(uvarint(member.wire.tag or 0) + uvarint(len(data)) + data)
        append(uvarint(len(given)) + b"".join(given))

    return write
