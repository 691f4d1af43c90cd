"""Readers made from a message's fields: `read(frame, at)` returns the message and the position after it.

See `coterie.wire.encoding` for why they may run past the end, and who notices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, is_dataclass
from functools import cache
from struct import Struct, calcsize, unpack_from
from typing import Any, get_args, get_origin
from uuid import UUID

from coterie.apis.fields import Wire
from coterie.apis.members import Member, is_records, members, number_format, present
from coterie.errors import ErrorCode, MalformedError
from coterie.wire.encoding import Encoding, read_tags

__all__ = ["MAX_ENTRIES", "NO_LIMIT", "Read", "message_reader"]

Read = Callable[[bytes, int], tuple[Any, int]]

MAX_ENTRIES = 100_000
"""What a request may list, everything in it counted: an entry costs a hundred times the memory of its bytes, and time
in which nobody else is answered. The largest topic there can be has a tenth as many partitions."""
NO_LIMIT = 1 << 31

_ZERO_UUID = bytes(16)
_ERRORS = {int(code): code for code in ErrorCode}


@cache
def message_reader(message: type, version: int, encoding: Encoding, most: int = NO_LIMIT) -> Read:
    """`most`: how many entries all its lists together may have."""
    plan: list[tuple[Any, int]] = []  # numbers side by side and their size, or a reader and 0
    names: list[str] = []
    run = ""
    for member in present(message, version, tagged=False):
        names.append(member.name)
        code = number_format(member.type)
        if code and member.type is not ErrorCode:
            run += code
            continue
        run = _end_run(plan, run)
        plan.append((_value_reader(member, version, encoding, most), 0))
    _end_run(plan, run)
    tagged = [
        (member.wire.tag, member.name, _plain_reader(member, version, encoding, most))
        for member in present(message, version, tagged=True)
    ]
    for member in members(message):
        assert member.name in names or member.default is not MISSING, f"{message}.{member.name} needs a default"

    def read(frame: bytes, at: int) -> tuple[Any, int]:
        values: list[Any] = []
        for reader, size in plan:
            if size:
                values += reader(frame, at)
                at += size
            else:
                value, at = reader(frame, at)
                values.append(value)
        found = dict(zip(names, values, strict=True))
        if encoding.flexible:
            if frame[at]:
                places, at = read_tags(frame, at)
                for tag, name, reader in tagged:
                    if tag in places:
                        found[name] = reader(frame, places[tag])[0]
            else:
                at += 1
        return message(**found), at

    return read


def _end_run(plan: list[tuple[Any, int]], run: str) -> str:
    if run:
        shape = Struct(">" + run)
        plan.append((shape.unpack_from, shape.size))
    return ""


def _value_reader(member: Member, version: int, encoding: Encoding, most: int) -> Read:
    read = _plain_reader(member, version, encoding, most)
    if number_format(member.type) or member.type is UUID:
        return read  # these cannot be null
    if is_dataclass(member.type):
        return _read_unless_null(read) if member.may_be_null(version) else read
    return read if member.may_be_null(version) else _never_null(read, member.name, version)


def _plain_reader(member: Member, version: int, encoding: Encoding, most: int) -> Read:
    hint = member.type
    if hint is str:
        return encoding.read_string
    if hint is bytes:
        return encoding.read_bytes
    if hint is UUID:
        return _read_uuid
    if hint is ErrorCode:
        return _read_error
    if is_records(hint):
        return _records_reader(encoding)
    if get_origin(hint) is Sequence:
        return _array_reader(get_args(hint)[0], version, encoding, most)
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return message_reader(hint, version, encoding, most)
    return _number_reader(hint)


def _never_null(read: Read, name: str, version: int) -> Read:
    def read_present(frame: bytes, at: int) -> tuple[Any, int]:
        value, end = read(frame, at)
        if value is None:
            raise MalformedError(f"{name} at byte {at} is null, which version {version} does not allow")
        return value, end

    return read_present


def _read_unless_null(read: Read) -> Read:
    def read_optional(frame: bytes, at: int) -> tuple[Any, int]:  # a byte before it: negative is null (KIP-893)
        return (None, at + 1) if frame[at] >= 0x80 else read(frame, at + 1)

    return read_optional


def _read_uuid(frame: bytes, at: int) -> tuple[UUID | None, int]:
    data = frame[at : at + 16]
    if len(data) < 16:
        raise IndexError
    return (None if data == _ZERO_UUID else UUID(int=int.from_bytes(data))), at + 16


def _read_error(frame: bytes, at: int) -> tuple[ErrorCode, int]:
    code = int.from_bytes(frame[at : at + 2], "big", signed=True)
    return _ERRORS.get(code, ErrorCode.UNKNOWN_SERVER_ERROR), at + 2  # a newer broker may know more codes


def _number_reader(hint: Any) -> Read:
    shape = Struct(f">{number_format(hint)}")

    def read(frame: bytes, at: int) -> tuple[Any, int]:
        return shape.unpack_from(frame, at)[0], at + shape.size

    return read


def _records_reader(encoding: Encoding) -> Read:
    read_length = encoding.read_length

    def read(frame: bytes, at: int) -> tuple[memoryview | None, int]:
        length, at = read_length(frame, at)
        if length < 0:
            return None, at
        return memoryview(frame)[at : at + length], at + length

    return read


def _array_reader(hint: Any, version: int, encoding: Encoding, most: int) -> Read:
    code = number_format(hint)
    if code:
        return _numbers_reader(code, encoding, most)
    element = Member("an element", hint, optional=hint is UUID, wire=Wire(), default=MISSING)
    read_element = _value_reader(element, version, encoding, most)
    entries_in = _counter(hint, version) if most < NO_LIMIT else None
    read_length = encoding.read_length

    def read(frame: bytes, at: int) -> tuple[list[Any] | None, int]:
        length, at = read_length(frame, at)
        if length < 0:
            return None, at
        if length > len(frame) - at:  # an element takes a byte or more
            raise IndexError
        if length > most:
            raise _too_many(most)
        elements = []
        count = length
        for _ in range(length):
            element, at = read_element(frame, at)
            elements.append(element)
            if entries_in is not None:
                count += entries_in(element)
                if count > most:
                    raise _too_many(most)
        return elements, at

    return read


def _too_many(most: int) -> MalformedError:
    return MalformedError(f"a request lists more than {most} entries, which is the most allowed; ask in several")


@cache
def _counter(hint: Any, version: int) -> Callable[[Any], int] | None:
    """How many entries an element's own lists have; None if it has no lists."""
    if not is_dataclass(hint):
        return None
    assert isinstance(hint, type)
    lists = [
        (member.name, _counter(get_args(member.type)[0], version))
        for member in present(hint, version, tagged=False)
        if get_origin(member.type) is Sequence
    ]
    if not lists:
        return None

    def count(element: Any) -> int:
        total = 0
        for name, entries_in in lists:
            entries = getattr(element, name)
            if entries:
                total += len(entries)
                if entries_in is not None:
                    total += sum(map(entries_in, entries))
        return total

    return count


def _numbers_reader(code: str, encoding: Encoding, most: int) -> Read:
    size = calcsize(f">{code}")
    read_length = encoding.read_length

    def read(frame: bytes, at: int) -> tuple[list[int] | None, int]:
        length, at = read_length(frame, at)
        if length < 0:
            return None, at
        if length * size > len(frame) - at:
            raise IndexError
        if length > most:
            raise _too_many(most)
        return list(unpack_from(f">{length}{code}", frame, at)), at + length * size

    return read
