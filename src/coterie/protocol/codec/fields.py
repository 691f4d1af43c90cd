"""The fields of a message: types are annotations, versions are beside the field.

    @message
    class Partition:
        error: ErrorCode
        partition: Int32
        leader_epoch: Int32 = wire(since=7, default=-1)

The order of the fields is their order on the wire, in every version that has them. `str`, `bool`, `bytes`, `UUID`,
`ErrorCode`, `Sequence[...]` and other messages mean themselves; a number needs its width. `X | None` may be null from
version `nullable` on. A tagged field is written only if it differs from its default (KIP-482).
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints
from uuid import UUID

from coterie.errors import ErrorCode
from coterie.structs import REQUIRED, DataStruct, default_of, field_names

T = TypeVar("T")

Int8 = Annotated[int, "b"]
Int16 = Annotated[int, "h"]
Int32 = Annotated[int, "i"]
Int64 = Annotated[int, "q"]
UInt16 = Annotated[int, "H"]
Float64 = Annotated[float, "d"]

Records = Annotated[bytes | memoryview, "records"]
"""Record batches as received: a view of the frame when read, never copied or parsed here."""

EVER = 1 << 15
"""Higher than any version."""


class Wire(NamedTuple):
    """The versions that have a field, the first in which it may be null, and its tag if it has one."""

    since: int = 0
    until: int = EVER
    nullable: int = 0
    tag: int | None = None


class _Described(NamedTuple):
    wire: Wire
    default: Any


def wire(
    *,
    since: int = 0,
    until: int = EVER,
    nullable: int = 0,
    tag: int | None = None,
    default: Any = REQUIRED,
) -> Any:
    """Describe a field; one that is not in every version needs a default for the others."""
    return _Described(Wire(since, until, nullable, tag), default)


_WIRES: dict[type, dict[str, Wire]] = {}


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(described: type[T]) -> type[T]:
    """Make a message of a class whose fields are annotated, and described by `wire` where they need it."""
    namespace = {name: value for name, value in vars(described).items() if name not in {"__dict__", "__weakref__"}}
    wires = {}
    for name, value in vars(described).items():
        if isinstance(value, _Described):
            wires[name] = value.wire
            del namespace[name]
            if value.default is not REQUIRED:
                namespace[name] = value.default
    struct: Any = type(DataStruct)
    made: Any = struct(described.__name__, (DataStruct,), namespace, kw_only=True)
    _WIRES[made] = wires
    return made  # type: ignore[no-any-return]


def is_message(hint: Any) -> bool:
    """Return whether it is a message: a class made by `message`, or a data struct whose fields need no `wire`."""
    return isinstance(hint, type) and issubclass(hint, DataStruct)


class MessageField(NamedTuple):
    """A field of a message, for the reader and the writer: its type without None, and the versions that have it."""

    name: str
    type: Any
    optional: bool
    wire: Wire
    default: Any

    def may_be_null(self, version: int) -> bool:
        return self.optional and version >= self.wire.nullable


@cache
def members(message: type) -> tuple[MessageField, ...]:
    hints = get_type_hints(message, include_extras=True)
    return tuple(_member(message, name, hints[name]) for name in field_names(message))


def _member(message: type, name: str, hint: Any) -> MessageField:
    optional = False
    if get_origin(hint) in {Union, UnionType}:
        hint, *others = (arg for arg in get_args(hint) if arg is not NoneType)
        assert not others, f"{name}: one type, and None, is all a field can be"
        optional = True
    assert hint is not UUID or optional, f"{name}: the zero UUID means none"
    return MessageField(name, hint, optional, _WIRES.get(message, {}).get(name) or Wire(), default_of(message, name))


def present(message: type, version: int, *, tagged: bool) -> list[MessageField]:
    """Return the fields that a version has, in order."""
    return [
        member
        for member in members(message)
        if member.wire.since <= version <= member.wire.until and (member.wire.tag is not None) is tagged
    ]


def number_format(hint: Any) -> str | None:
    """Return the struct code of a number; None for a type without fixed size."""
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
