"""What every member script shares: its orders come as one JSON argument, and it tells what happens as JSON lines.

A line is written at once and whole, so that what a member did before a SIGKILL is known after it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Orders", "Stopping", "note", "orders", "say", "say_committed", "say_consumed", "say_partitions"]


@dataclass(frozen=True)
class Orders:
    """What a member is told: Kafka's settings under one name for all libraries."""

    bootstrap: str
    group: str
    client_id: str
    assignor: str
    topics: Sequence[str] = ()
    pattern: str | None = None
    """A regular expression instead of topics, without an anchor."""
    instance_id: str | None = None
    session_timeout_ms: int = 10_000
    heartbeat_interval_ms: int = 300
    metadata_max_age_ms: int = 300_000
    max_poll_interval_ms: int = 300_000
    protocol: str = "classic"
    """`consumer`: the group is one of KIP-848, whose assignor and timeouts are the broker's."""
    slow_ms: int = 0
    """How long the processing takes that SIGUSR1 makes long."""


def orders() -> Orders:
    told = Orders(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGUSR1, lambda _number, _frame: _slowness.append(told.slow_ms))
    return told


_slowness: list[int] = []
_lines = 0


def note() -> str:
    """Return what a commit carries, so that the judge knows what had been told before it: who, and how many lines."""
    return f"{json.loads(sys.argv[1])['client_id']} {_lines}"


def say(event: str, **details: Any) -> None:
    global _lines  # noqa: PLW0603
    _lines += 1
    line = json.dumps({"event": event, "at_ms": time.time_ns() // 1_000_000, **details}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


class Place(Protocol):
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...


def say_partitions(event: str, partitions: Iterable[Place]) -> None:
    say(event, partitions=sorted((one.topic, one.partition) for one in partitions))


def say_consumed(records: Sequence[tuple[str, int, int, str]]) -> None:
    """Topic, partition, offset, value: this is all the processing there is, so it is done when it is told."""
    if _slowness:
        say("busy")
        time.sleep(_slowness.pop() / 1_000)
    say("consumed", records=records)


def say_committed(offsets: Iterable[tuple[str, int, int]]) -> None:
    say("committed", offsets=sorted(offsets))


class Stopping:
    """SIGTERM asks a member to leave in order; true as soon as it was asked."""

    def __init__(self) -> None:
        self._asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self._asked = True

    def __bool__(self) -> bool:
        return self._asked
