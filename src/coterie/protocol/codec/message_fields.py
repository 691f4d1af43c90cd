"""What `coterie.protocol.codec.fields` says about a message, taken apart for the reader and the writer."""

from __future__ import annotations

from dataclasses import Field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.protocol.codec.fields import Wire

__all__ = ["Member", "is_records", "members", "number_format", "present"]


class Member(NamedTuple):
    """A field of a message: its type with null taken away, and in which versions it is there."""

    name: str
    type: Any
    optional: bool
    wire: Wire
    default: Any

    def may_be_null(self, version: int) -> bool:
        return self.optional and version >= self.wire.nullable


@cache
def members(message: type) -> tuple[Member, ...]:
    hints = get_type_hints(message, include_extras=True)
    return tuple(_member(field, hints[field.name]) for field in fields(message))


def _member(field: Field[Any], hint: Any) -> Member:
    optional = False
    if get_origin(hint) in {Union, UnionType}:
        hint, *others = (arg for arg in get_args(hint) if arg is not NoneType)
        assert not others, f"{field.name}: one type, and None, is all a field can be"
        optional = True
    assert hint is not UUID or optional, f"{field.name}: the zero UUID means none"
    return Member(field.name, hint, optional, field.metadata.get("wire") or Wire(), field.default)


def present(message: type, version: int, *, tagged: bool) -> list[Member]:
    """The fields that a version has, in the order of the wire."""
    return [
        member
        for member in members(message)
        if member.wire.since <= version <= member.wire.until and (member.wire.tag is not None) is tagged
    ]


def number_format(hint: Any) -> str | None:
    """The struct code of a number; None for what has no fixed size."""
    if hint is bool:
        return "?"
    if hint is ErrorCode:
        return "h"
    if get_origin(hint) is Annotated and not is_records(hint):
        code: str = get_args(hint)[1]
        return code
    return None


def is_records(hint: Any) -> bool:
    return get_origin(hint) is Annotated and get_args(hint)[1] == "records"
