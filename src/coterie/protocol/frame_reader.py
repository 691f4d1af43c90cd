"""Frames read straight to where they stay: for a socket that fills a buffer of ours (asyncio.BufferedProtocol).

`FrameCutter` takes pieces that somebody else has allocated and puts them together, which is right for many small
frames. An answer of a megabyte would be copied twice on that way; here it is not copied at all.
"""

from __future__ import annotations

from coterie.errors import MalformedError

__all__ = ["SMALL", "FrameReader"]

SMALL = 64 * 1024
"""The size of the buffer for small frames."""
FIRST_GUESS = 2 * 1024 * 1024


class FrameReader:
    """Holds what has arrived and a little more, never all that a size merely announces.

    `shared` is where small frames arrive, `SMALL` bytes that many readers may use: what a reader has not handed out
    when `filled` returns, it keeps elsewhere. A large frame gets a buffer of its own.

    After `MalformedError` the stream cannot be understood any more: close it.
    """

    __slots__ = ("_at", "_large", "_max_size", "_missing", "_rest", "_shared")

    def __init__(self, max_size: int, shared: bytearray) -> None:
        self._max_size = max_size
        self._shared = shared
        self._rest = b""
        """The beginning of a small frame."""
        self._large: bytearray | None = None
        self._at = 0
        self._missing = 0
        """Of the large frame: how far it has come, and how much it still lacks."""

    @property
    def held(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._rest) if self._large is None else self._at

    def buffer(self) -> memoryview:
        """Where the next bytes go; it is never full."""
        if self._large is not None:
            return memoryview(self._large)[self._at :]
        self._shared[: len(self._rest)] = self._rest
        return memoryview(self._shared)[len(self._rest) :]

    def filled(self, count: int) -> list[bytes | bytearray]:
        """So many bytes have come; the frames they complete, in order, without their sizes."""
        return self._cut(len(self._rest) + count) if self._large is None else self._filled_large(self._large, count)

    def _filled_large(self, large: bytearray, count: int) -> list[bytes | bytearray]:
        self._at += count
        self._missing -= count
        if not self._missing:
            self._large = None
            return [large]
        if self._at == len(large):
            # Twice as much, now that so much has come. A new one: whoever fills the old one holds on to it still.
            self._large = bytearray(min(2 * len(large), len(large) + self._missing))
            self._large[: self._at] = large
        return []

    def _cut(self, end: int) -> list[bytes | bytearray]:
        view = memoryview(self._shared)
        frames: list[bytes | bytearray] = []
        at = 0
        while end - at >= 4:
            size = int.from_bytes(view[at : at + 4], "big", signed=True)
            if not 0 <= size <= self._max_size:
                raise MalformedError(
                    f"a frame of {size} bytes was announced; a size is 0 to {self._max_size}. "
                    "Is the other side speaking Kafka's protocol, without TLS?"
                )
            after = at + 4 + size
            if after > end:
                if size > SMALL - 4:
                    self._begin_large(view[at + 4 : end], size)
                    return frames
                break
            frames.append(bytes(view[at + 4 : after]))
            at = after
        self._rest = bytes(view[at:end])
        return frames

    def _begin_large(self, come: memoryview, size: int) -> None:
        self._rest = b""
        self._large = bytearray(min(size, FIRST_GUESS))
        self._large[: len(come)] = come
        self._at, self._missing = len(come), size - len(come)
