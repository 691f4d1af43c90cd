"""One owner each: when a member had a partition, by what it wrote down itself, and whether two had it at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["Stretch", "gaps", "overlaps"]


class Stretch(NamedTuple):
    """A member read these offsets of a partition at its own, in this time; nothing, if it only owned it."""

    member: str
    partition: int
    began_s: float
    ended_s: float
    from_offset: int = 0
    until_offset: int = 0
    is_repeated: bool = False
    """Begun in one life of the member and ended in another; who had it meanwhile, or has it now, is another matter."""


def overlaps(stretches: Iterable[Stretch]) -> list[tuple[Stretch, Stretch]]:
    """Of different members, in one partition, at one time."""
    found = []
    open_ones: dict[int, list[Stretch]] = {}
    for one in sorted((each for each in stretches if not each.is_repeated), key=lambda each: each.began_s):
        others = [each for each in open_ones.get(one.partition, []) if each.ended_s > one.began_s]
        found += [(each, one) for each in others if each.member != one.member]
        open_ones[one.partition] = [*others, one]
    return found


def gaps(stretches: Sequence[Stretch]) -> list[tuple[Stretch, Stretch]]:
    """Two readings of one member, one after the other with nobody in between, that leave something out."""
    found = []
    last: dict[int, Stretch] = {}
    for one in sorted(stretches, key=lambda each: each.began_s):
        before = last.get(one.partition)
        if before is not None and before.member == one.member and before.until_offset != one.from_offset:
            found.append((before, one))
        last[one.partition] = one
    return found
