"""Sets of small numbers as the bits of an int: union, intersection and difference of thousands at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

__all__ = ["ONE", "bits_of", "each", "positions", "union"]

ONE = ord("1")

_SPARSE = 12
"""With fewer than one bit in so many set, picking them one by one beats reading them all."""


def bits_of(numbers: Iterable[int], width: int) -> int:
    """The set of these numbers, all below `width`."""
    text = bytearray(b"0") * (width or 1)
    for number in numbers:
        text[-1 - number] = ONE
    return int(text, 2)


def positions(bits: int) -> list[int]:
    """The numbers in the set, ascending."""
    if bits.bit_count() * _SPARSE < bits.bit_length():
        return list(each(bits))
    return [number for number, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]


def each(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def union(sets: Iterable[int]) -> int:
    together = 0
    for bits in sets:
        together |= bits
    return together
