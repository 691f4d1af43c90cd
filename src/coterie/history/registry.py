"""The port: all that a design asks of ZooKeeper, as values. Who answers is a real server or a model of one.

A question is an `Ask`; its answer comes back as `Answered`. A watch is set by a look at children and rings once, as
`Changed`; whoever wants to hear more looks again. A session is a number: what was asked in one that is over is not
done, and what is ephemeral ends with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

__all__ = [
    "ANY_SESSION",
    "Answered",
    "Ask",
    "Changed",
    "Children",
    "Create",
    "Delete",
    "Get",
    "Node",
    "Operation",
    "Puts",
    "SessionBegan",
    "SessionEnded",
    "Trouble",
    "kinds",
]

ANY_SESSION = 0
"""Do it in whichever session there is, if need be in the next one: so Kafka's first consumers wrote their offsets."""


@dataclass(frozen=True, slots=True)
class Children:
    """Answered by their names, in order. A path without a node has none, and is made, since only a node is watched."""

    path: str
    watch: bool = True


@dataclass(frozen=True, slots=True)
class Get:
    """Answered by a `Node`, or None."""

    path: str


@dataclass(frozen=True, slots=True)
class Create:
    """Answered by whether it was made; False: there is one already."""

    path: str
    data: bytes
    is_ephemeral: bool = True


@dataclass(frozen=True, slots=True)
class Delete:
    """Answered by whether there was one."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Puts:
    """All of these or none, made if they are not there. With a guard: only if that node still has that version.

    Answered by whether it was done.
    """

    values: Mapping[str, bytes]
    guard: tuple[str, int] | None = None


Operation = Children | Get | Create | Delete | Puts


def kinds(operation: Operation) -> Sequence[str]:
    """What it is counted as: a write or a read, and of reads a look at who is there."""
    if not isinstance(operation, Children | Get):
        return ("writes",)
    is_look = isinstance(operation, Children) or operation.path.rpartition("/")[0].endswith("/ids")
    return ("reads", "looks") if is_look else ("reads",)


class Node(NamedTuple):
    data: bytes
    version: int


class Trouble(Enum):
    LOST = "the connection was lost: it may have been done or not"
    EXPIRED = "the session is over: it was not done"


@dataclass(frozen=True, slots=True)
class Ask:
    operation: Operation
    session: int
    about: Any = None
    """What the asker wants to know again when it is answered."""


@dataclass(frozen=True, slots=True)
class Answered:
    ask: Ask
    value: Any = None
    trouble: Trouble | None = None


@dataclass(frozen=True, slots=True)
class Changed:
    """A watch has rung, or may have been missed since the connection was lost."""

    path: str


@dataclass(frozen=True, slots=True)
class SessionBegan:
    number: int


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """It has expired, and with it went all that was ephemeral. One hears of it when one reaches a server again."""

    number: int = field(default=0)
