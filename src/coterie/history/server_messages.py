"""Design 2: what coordinator and members say to each other, and the line of JSON each is on a real connection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import MalformedError
from coterie.history.design_types import Offsets

__all__ = [
    "NO_GENERATION",
    "Commit",
    "HasStopped",
    "Hello",
    "Message",
    "Refused",
    "Start",
    "Stop",
    "read_message",
    "write_message",
]

NO_GENERATION = 0


@dataclass(frozen=True, slots=True)
class Hello:
    """A member comes, or has found its coordinator again. `generation`: in which it reads something, if it does."""

    group_id: str
    member_id: str
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Stop:
    """The coordinator wants everybody to stop: a rebalance begins."""

    generation: int


@dataclass(frozen=True, slots=True)
class HasStopped:
    generation: int
    positions: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Start:
    """Read these, in this generation, from there on."""

    generation: int
    offsets: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Commit:
    generation: int
    positions: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refused:
    """You speak of a generation that is over, or of what is not yours in it."""

    generation: int


Message = Hello | Stop | HasStopped | Start | Commit | Refused
_KINDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (Hello, Stop, HasStopped, Start, Commit, Refused)}
_OFFSETS = ("positions", "offsets")


def write_message(message: Message) -> bytes:
    said = {name: getattr(message, name) for name in message.__slots__}
    for name in _OFFSETS:
        if name in said:
            said[name] = [[topic, number, at] for (topic, number), at in sorted(said[name].items())]
    return json.dumps({"kind": type(message).__name__, **said}).encode() + b"\n"


def read_message(line: bytes) -> Message:
    try:
        said = json.loads(line)
        kind = _KINDS[said.pop("kind")]
        for name in _OFFSETS:
            if name in said:
                said[name] = {(topic, number): at for topic, number, at in said[name]}
        message: Message = kind(**said)
    except (ValueError, KeyError, TypeError, AttributeError) as problem:
        raise MalformedError(f"not a message between a member and its coordinator: {line[:80]!r} ({problem})") from None
    return message
