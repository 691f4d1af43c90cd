"""The surroundings of a client besides its event loop: the time, the random source, and the class of connections.

The simulator gives a client others, and an event loop with a virtual clock (`sim/event_loop.py`), and so runs the code
that is shipped.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random  # noqa: TID251  jitter: so that clients that failed together do not return together

from coterie.client.network.connection import BrokerConnection
from coterie.structs import DataStruct

__all__ = ["REAL", "Runtime", "clock_ms"]


_WALL_NS = time.time_ns() - time.monotonic_ns()  # noqa: TID251


def clock_ms() -> int:
    """Return the time of day when the process started, plus the time since: setting the clock does not change it."""
    return (time.monotonic_ns() + _WALL_NS) // 1_000_000  # noqa: TID251


class Runtime(DataStruct, frozen=True):
    clock_ms: Callable[[], int]
    """Never goes back: timers and deadlines count by it."""
    wall_ms: Callable[[], int]
    """The time of day, as the system has it now: records carry it."""
    rng: Random
    connection: type[BrokerConnection]


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


REAL = Runtime(clock_ms, _wall_ms, Random(), BrokerConnection)  # noqa: S311  not the module's own, which users may have seeded
