"""Which partition a record goes to, as Java's producer decides it.

- a record with a key: murmur2 of the key, so that equal keys share a partition, whoever wrote them;
- without one: a partition drawn at random that it sticks to until enough bytes for a batch have gone there (KIP-480),
  so that every partition gets as many bytes as any other (KIP-794). Where queues are of different length the draw
  favours the short ones: a slow broker is given less.

The rng come in with the call: anything from 0 to 2^31 - 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

from coterie.protocol.records import murmur2

__all__ = ["Sticky", "draw_partition", "partition_for_key"]

_POSITIVE = 0x7FFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    return (murmur2(key) & _POSITIVE) % partitions


def draw_partition(rng: int, available: Sequence[int], queued: Mapping[int, int] | None = None) -> int:
    """One of `available`; the fewer batches are `queued` for a partition, the likelier."""
    lengths = [queued.get(partition, 0) for partition in available] if queued else []
    if not lengths or min(lengths) == max(lengths):
        return available[rng % len(available)]
    most = max(lengths)
    up_to = list(accumulate(most + 1 - length for length in lengths))
    return available[bisect_right(up_to, rng % up_to[-1])]


class Sticky:
    """The partition of one topic that records without a key go to at the moment."""

    __slots__ = ("_batch_size", "_draw", "partition", "produced")

    def __init__(self, batch_size: int, draw: Callable[[], int]) -> None:
        """`draw` draws a random number and looks at the queues: see `draw_partition`."""
        self._batch_size = max(1, batch_size)
        self._draw = draw
        self.produced = 0
        self.partition = draw()

    def note(self, size: int, *, batch_is_full: bool) -> None:
        """So many bytes went there. It moves on between batches, so that it leaves none half full; twice the size is
        too much to wait for that.
        """
        self.produced += size
        if self.produced >= self._batch_size and (batch_is_full or self.produced >= 2 * self._batch_size):
            self.produced = 0
            self.partition = self._draw()
