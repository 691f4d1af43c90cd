"""Java's `String.hashCode` and the order in which a `HashMap` hands out its keys.

Kafka finds the partition of a group by the first (rule C1), and the leader, ties and the order of members by the second
(rules 7, 8).
"""

from __future__ import annotations

from operator import mul

# 31^0, 31^1, ... modulo 2^32: the weight of the last character, the one before it, ...
_POWERS = [pow(31, i, 1 << 32) for i in range(1024)]

MIN_CAPACITY = 16


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
