"""What the designs share: events that come in and effects that go out, beside those of the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

__all__ = [
    "Arm",
    "CommitDue",
    "Connect",
    "Connected",
    "Effects",
    "HangUp",
    "Heard",
    "Hung",
    "Machine",
    "Offsets",
    "Partition",
    "Rang",
    "Say",
    "StartReading",
    "StopReading",
    "Stopped",
]

Partition = tuple[str, int]
Offsets = Mapping[Partition, int]
"""Where whoever reads on has to begin."""
Effects = list[Any]


class Machine(Protocol):
    """The one shape: an event and the time come in, effects go out."""

    def handle(self, event: Any, now_ms: int) -> Effects: ...


# --- time and records -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arm:
    """Comes back as `Rang`. Armed again under the same key, the earlier one is forgotten."""

    key: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Rang:
    key: str


@dataclass(frozen=True, slots=True)
class StartReading:
    """These and nothing else, from there on."""

    offsets: Offsets


@dataclass(frozen=True, slots=True)
class StopReading:
    """All of it. Comes back as `Stopped`, when nothing more is processed."""


@dataclass(frozen=True, slots=True)
class Stopped:
    positions: Offsets


@dataclass(frozen=True, slots=True)
class CommitDue:
    """So far everything is processed."""

    positions: Offsets = field(default_factory=dict)


# --- connections between members and coordinators ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Connect:
    """To the coordinator at this address. Comes back as `Connected`, or as `Hung`."""

    address: str


@dataclass(frozen=True, slots=True)
class Connected:
    pass


@dataclass(frozen=True, slots=True)
class Hung:
    """The connection is gone. `peer`: whose, as far as one knew; a member has only one."""

    peer: str = ""


@dataclass(frozen=True, slots=True)
class HangUp:
    to: str


@dataclass(frozen=True, slots=True)
class Say:
    """`to` a member; a member has only its coordinator to speak to."""

    message: Any
    to: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    message: Any
    peer: str = ""
