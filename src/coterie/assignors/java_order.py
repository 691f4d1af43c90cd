"""Java's order of strings and Kafka's orders of members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter
from struct import iter_unpack

from coterie.assignors.model import Member
from coterie.protocol.java_hash import capacity_for, spread

_LONGEST = 1024
"""The longest id that is hashed with others: this many characters times 2^7 times 2^32 fit into 64 bits."""


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Sort as `String.compareTo`: by UTF-16 units, which is not Python's order beyond the basic plane."""
    return sorted(texts, key=_utf16)


def by_id(members: Sequence[Member]) -> list[Member]:
    """Return members as the sticky assignors order them: by member id, static or not."""
    if all(member.id.isascii() for member in members):
        return sorted(members, key=attrgetter("id"))
    return sorted(members, key=lambda member: _utf16(member.id))


def by_instance_then_id(members: Sequence[Member]) -> list[Member]:
    """Return members as range and roundrobin order them: static ones by instance id, then the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, _utf16(m.instance_id or ""), _utf16(m.id)))


def hash_order(ids: Sequence[str]) -> list[int]:
    """Return positions of `ids` in the order in which Java's `HashMap` of them iterates.

    Inside a bucket Java keeps the order of insertion; here it is the order of `ids`, which callers sort first, so that
    an assignment never depends on the order of the input.
    """
    mask = capacity_for(len(ids)) - 1
    buckets = [spread & mask for spread in spreads(ids)]
    return sorted(range(len(ids)), key=buckets.__getitem__)


def spreads(ids: Sequence[str]) -> list[int]:
    """Return `java_hash.spread` of each id. Thousands of ids are hashed at once, as one number with 64 bits for each.

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


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
