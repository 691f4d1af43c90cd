"""Scheduling: how the event loop is shared among connections.

A connection gets a few requests answered at a time. If it has sent more, they wait, the broker stops reading from the
connection, and the connection goes into a queue. In each turn of the loop the queue is served for a short time, one
connection after the other. So a client that sends a flood of requests delays the others by no more than that time.

A request that arrives alone, on a connection that is not in the queue, is answered at once. Of several requests that
arrive together some are, while few were in this turn of the loop; otherwise all of them wait. Fetches and large
requests wait even if they arrive alone, once the loop has been busy for long.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from coterie.protocol.apis import fetch

if TYPE_CHECKING:
    from coterie.broker.io.sockets import Link

__all__ = ["BUSY_MS", "FRAMES", "LARGE_READ", "READ_BYTES", "READ_ON", "SLICE_MS", "SPARE", "Scheduling"]

FRAMES = 16
"""Requests of one connection that are answered in a row."""
SPARE = 64
"""Requests that are answered as they arrive, in one turn of the loop, beside those that arrive alone."""
SLICE_MS = 2
"""The time for one connection, or for the whole queue, before the loop reads its sockets again."""
READ_BYTES = 1 << 20
"""Bytes that are read from one connection in a row."""
READ_ON = 4
"""Connections in the queue that are read from again in each turn: each may bring much."""
LARGE_READ = 1 << 17
"""A read of this many bytes has probably more behind it."""
BUSY_MS = 20
"""The loop is overloaded after this time without a pause; then expensive requests wait."""
LARGE = 16 * 1024
"""The size from which a request is large."""
_FETCH = fetch.API.key.to_bytes(2, "big")


class Scheduling:
    def __init__(self) -> None:
        self._since_ms = 0
        self._until_ms = 0
        self.spare = SPARE
        """The number of them that are left in this turn of the loop."""
        self.queue: deque[Link] = deque()
        """Connections whose next requests must wait."""

    def at_once(self, frames: list[bytes], now_ms: int) -> int:
        """Return how many of these requests of one connection are answered as they arrive."""
        if self.must_wait(frames[0], now_ms):
            return 0
        if len(frames) == 1:
            return 1
        some = min(len(frames), FRAMES, self.spare)
        self.spare -= some
        return some

    def must_wait(self, frame: bytes, now_ms: int) -> bool:
        """Return whether a request waits even if it arrives alone."""
        if now_ms - self._until_ms > 1:  # the loop was idle
            self._since_ms = now_ms
            return False
        return now_ms - self._since_ms > BUSY_MS and (frame.startswith(_FETCH) or len(frame) > LARGE)

    @property
    def share(self) -> int:
        """The number of requests that the next connection gets answered: the longer the queue, the fewer."""
        return max(FRAMES // (len(self.queue) + 1), 1)

    def worked(self, now_ms: int) -> None:
        """Note that the loop has worked until now."""
        self._until_ms = now_ms
