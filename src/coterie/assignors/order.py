"""Java's order of strings and Kafka's orders of members."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from coterie.assignors.model import Member
from coterie.javahash import capacity_for, spread

__all__ = ["by_id", "by_instance_then_id", "hash_order", "java_sorted"]


def java_sorted(texts: Iterable[str]) -> list[str]:
    """As `String.compareTo` sorts: by UTF-16 units, which is not Python's order beyond the basic plane."""
    return sorted(texts, key=_utf16)


def by_id(members: Sequence[Member]) -> list[Member]:
    """The sticky assignors: by member id, static or not."""
    return sorted(members, key=lambda member: _utf16(member.id))


def by_instance_then_id(members: Sequence[Member]) -> list[Member]:
    """Range and roundrobin: static members first, by instance id, then the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, _utf16(m.instance_id or ""), _utf16(m.id)))


def hash_order(ids: Sequence[str]) -> list[int]:
    """Positions of `ids` in the order in which Java's `HashMap` of them iterates.

    Inside a bucket Java keeps the order of insertion; here it is the order of `ids`, which callers sort first, so that
    an answer never depends on the order of the input.
    """
    mask = capacity_for(len(ids)) - 1
    return sorted(range(len(ids)), key=lambda i: spread(ids[i]) & mask)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
