"""Taking turns: what costs much waits while the loop is behind, so that what costs little is answered in between.

The loop handles all that has arrived before it looks at its sockets again. A thousand fetches of megabytes at once
would hold up every heartbeat for as long as all of them take; so, once a stretch of work has lasted, fetches and large
requests stand in a queue of their own, and some of them are done each time round.
"""

from __future__ import annotations

from collections import deque

from coterie.apis import fetch
from coterie.broker.calls import Connection

__all__ = ["TURN_MS", "Turns"]

TURN_MS = 20
"""How long a stretch of work may last before the others are looked at."""
LARGE = 16 * 1024
"""A request of so many bytes is not small."""
_FETCH = fetch.API.key.to_bytes(2, "big")


class Turns:
    def __init__(self) -> None:
        self._since_ms = 0
        self._until_ms = 0
        self.queue: deque[Connection] = deque()
        """Whose next request has to wait."""

    def must_wait(self, frame: bytes, now_ms: int) -> bool:
        if now_ms - self._until_ms > 1:  # the loop was idle
            self._since_ms = now_ms
            return False
        return now_ms - self._since_ms > TURN_MS and (frame.startswith(_FETCH) or len(frame) > LARGE)

    def worked(self, now_ms: int) -> None:
        """Something has been done, until now."""
        self._until_ms = now_ms
