"""Java's `String.hashCode` and the order in which a `HashMap` hands out its keys.

Kafka finds the partition of a group by the first (rule C1), and the leader, ties and the order of members by the second
(rules 7, 8).
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import mul
from struct import iter_unpack

# 31^0, 31^1, ... modulo 2^32: the weight of the last character, the one before it, ...
_POWERS = [pow(31, i, 1 << 32) for i in range(1024)]

MIN_CAPACITY = 16
_LONGEST = 1024
"""The longest id that is hashed with others: this many characters times 2^7 times 2^32 fit into 64 bits."""


def java_hash(text: str) -> int:
    """`String.hashCode`: over UTF-16 units, as a signed 32-bit int."""
    if text.isascii():
        units: bytes | list[int] = text.encode()[::-1]
    else:
        units = memoryview(text.encode("utf-16-le", "surrogatepass")).cast("H").tolist()[::-1]
    while len(_POWERS) < len(units):
        _POWERS.append(_POWERS[-1] * 31 & 0xFFFFFFFF)
    total: int = sum(map(mul, units, _POWERS)) & 0xFFFFFFFF
    return total - (1 << 32) if total & 0x80000000 else total


def spread(key: str) -> int:
    """Return the hash of a key as `HashMap` spreads it, before it takes the lowest bits."""
    h = java_hash(key) & 0xFFFFFFFF
    return h ^ (h >> 16)


def capacity_for(size: int, capacity: int = MIN_CAPACITY) -> int:
    """The number of buckets after `size` insertions into a map of `capacity`: doubled beyond 3/4, never shrinking."""
    while size * 4 > capacity * 3:
        capacity *= 2
    return capacity


def map_order(keys: list[str]) -> list[str]:
    """`keys`, given in order of insertion, as a fresh `HashMap` of them would iterate."""
    mask = capacity_for(len(keys)) - 1
    return sorted(keys, key=lambda key: spread(key) & mask)


def hash_order(ids: Sequence[str]) -> list[int]:
    """Return positions of `ids` in the order in which Java's `HashMap` of them iterates.

    Inside a bucket Java keeps the order of insertion; here it is the order of `ids`, which callers sort first, so that
    an assignment never depends on the order of the input.
    """
    mask = capacity_for(len(ids)) - 1
    buckets = [spread & mask for spread in spreads(ids)]
    return sorted(range(len(ids)), key=buckets.__getitem__)


def spreads(ids: Sequence[str]) -> list[int]:
    """Return `spread` of each id. Thousands of ids are hashed at once, as one number with 64 bits for each.

    The hash is a sum of characters times powers of 31, so the first characters of all ids, as one number, are
    multiplied by their power, then the second ones, and so on. NULs in front make all ids equally long and add nothing.
    """
    longest = max(map(len, ids), default=0)
    if longest > _LONGEST or not all(map(str.isascii, ids)):
        return [spread(text) for text in ids]
    characters = b"".join([text.encode().rjust(longest, b"\0") for text in ids])
    total, power = 0, 1
    for column in range(longest - 1, -1, -1):
        lanes = bytearray(8 * len(ids))
        lanes[::8] = characters[column::longest]
        total += int.from_bytes(lanes, "little") * power
        power = power * 31 & 0xFFFFFFFF
    hashes = [lane & 0xFFFFFFFF for (lane,) in iter_unpack("<Q", total.to_bytes(8 * len(ids), "little"))]
    return [value ^ value >> 16 for value in hashes]
