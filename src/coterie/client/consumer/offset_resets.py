"""Where a reader begins that has no committed offset, or one that is gone: `auto.offset.reset`. No I/O."""

from __future__ import annotations

from typing import NamedTuple

from coterie.protocol.apis import list_offsets
from coterie.settings.client_settings import duration_ms

__all__ = ["EARLIEST", "LATEST", "NO_RESET", "Reset", "parse_reset"]


class Reset(NamedTuple):
    name: str
    back_ms: int | None = None
    """by_duration (KIP-1106): so long before now."""

    def timestamp(self, now_ms: int) -> int:
        """What ListOffsets is asked for."""
        if self.back_ms is not None:
            return max(now_ms - self.back_ms, 0)
        return list_offsets.EARLIEST if self.name == "earliest" else list_offsets.LATEST


EARLIEST = Reset("earliest")
LATEST = Reset("latest")
NO_RESET = Reset("none")


def parse_reset(text: str) -> Reset:
    """Of a value that the settings have accepted."""
    kind, _, duration = text.partition(":")
    return Reset(text, duration_ms(duration)) if kind == "by_duration" else Reset(kind)
