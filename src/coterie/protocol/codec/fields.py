"""How a message says what it looks like on the wire: types as annotations, versions beside the field.

    @dataclass(slots=True, kw_only=True)
    class Partition:
        error: ErrorCode
        partition: Int32
        leader_epoch: Int32 = wire(since=7, default=-1)

The order of the fields is their order on the wire, in every version that has them. `str`, `bool`, `bytes`, `UUID`,
`ErrorCode`, `Sequence[...]` and other messages mean themselves; a number needs its width. `X | None` may be null from
version `nullable` on. A tagged field is written only if it differs from its default (KIP-482).
"""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Annotated, Any, NamedTuple

__all__ = ["EVER", "Int8", "Int16", "Int32", "Int64", "Records", "Wire", "wire"]

Int8 = Annotated[int, "b"]
Int16 = Annotated[int, "h"]
Int32 = Annotated[int, "i"]
Int64 = Annotated[int, "q"]

Records = Annotated[bytes | memoryview, "records"]
"""Record batches as they came: a view of the frame when read, never copied or looked into here."""

EVER = 1 << 15
"""No version is this high."""


class Wire(NamedTuple):
    """In which versions a field is there, from which on it may be null, and its tag if it has one."""

    since: int = 0
    until: int = EVER
    nullable: int = 0
    tag: int | None = None


def wire(
    *,
    since: int = 0,
    until: int = EVER,
    nullable: int = 0,
    tag: int | None = None,
    default: Any = MISSING,
) -> Any:
    """A field that is not in every version needs a default: what the versions without it mean."""
    return field(default=default, metadata={"wire": Wire(since, until, nullable, tag)})
