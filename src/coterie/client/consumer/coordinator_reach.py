"""Notices that a coordinator has not answered for 10 s, and that it answers again. No I/O; the time comes in.

A join or a sync may wait for other members as long as it likes, so that only its failure counts. A coordinator that was
looked up with success is not reached yet: if the next request fails, the time goes on from where it began.
"""

from __future__ import annotations

__all__ = ["Reach"]

PATIENCE_MS = 10_000


class Reach:
    __slots__ = ("_before_ms", "_is_told", "_since_ms", "_why")

    def __init__(self) -> None:
        self._since_ms: int | None = None
        """When the first request that was not answered was sent."""
        self._before_ms: int | None = None
        """The same, while the coordinator has been found again and nothing was heard of it yet."""
        self._is_told = False
        self._why = ""

    @property
    def due_ms(self) -> int | None:
        """When `look` should be called, if nothing else happens."""
        return None if self._since_ms is None or self._is_told else self._since_ms + PATIENCE_MS

    def asked(self, now_ms: int) -> None:
        """A request that is answered at once was sent, or a lookup began."""
        if self._since_ms is None:
            self._since_ms = now_ms

    def failed(self, why: str, now_ms: int) -> None:
        """No answer came."""
        self._why = why
        if self._since_ms is None or self._before_ms is not None:
            self._since_ms = self._before_ms if self._before_ms is not None else now_ms
            self._before_ms = None

    def found(self) -> None:
        """Another node has said where the coordinator is."""
        if self._before_ms is None:
            self._before_ms = self._since_ms
        self._since_ms = None

    def answered(self, now_ms: int) -> int | None:
        """The coordinator has answered. Return for how long it had not, if `look` has told of that."""
        since_ms = self._since_ms if self._before_ms is None else self._before_ms
        was_told, self._is_told = self._is_told, False
        self._since_ms = self._before_ms = None
        self._why = ""
        return now_ms - since_ms if was_told and since_ms is not None else None

    def look(self, now_ms: int) -> tuple[int, str] | None:
        """Return for how long nothing was heard, and why, if that is long enough to tell; once."""
        due_ms = self.due_ms
        if due_ms is None or now_ms < due_ms:
            return None
        self._is_told = True
        return now_ms - due_ms + PATIENCE_MS, self._why
