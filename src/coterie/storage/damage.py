"""Damage: what is missing or wrong though it was durable, and the rules that find it.

A crash tears what was being written, which is beyond what is known to be durable (`durable_ends.py`). Anything else
that is missing or changed was lost by the disk or by a person: nothing is cut or recreated in its place, and the broker
does not start. `repair.py` repairs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from coterie.storage.durable_ends import LogState
from coterie.storage.log_errors import DirectoryError

__all__ = ["Damage", "DamageError", "LogFound", "SegmentFound", "damages_of", "missing_directory"]


class Damage(NamedTuple):
    path: str
    wrong: str
    """What is wrong with it: "is missing"."""
    log: str
    """The partition it is about."""
    lost: tuple[int, int] | None = None
    """Offsets from, and until before; None if they are not known."""

    @property
    def stake(self) -> str:
        if self.lost is None:
            return f"records of {self.log}"
        first, after = self.lost
        if after <= first:
            return f"the end of {self.log}, which is offset {after}"
        return (
            f"offset {first} of {self.log}" if after - first == 1 else f"offsets {first} to {after - 1} of {self.log}"
        )

    def __str__(self) -> str:
        return f"{self.path} {self.wrong}; at stake: {self.stake}"


class DamageError(DirectoryError):
    """The logs are not what they were when they were known to be durable."""

    def __init__(self, damages: Sequence[Damage]) -> None:
        listed = "".join(f"\n  {damage}" for damage in damages)
        super().__init__(
            f"the data directory is damaged, and was left as it is:{listed}\n"
            "Bring the files back from a copy. Or run `coterie repair` on the data directory: it shows what can be "
            "saved, and with --accept-loss it sets the damaged files aside, saves the rest and writes down what is lost"
        )
        self.damages = tuple(damages)


class SegmentFound(NamedTuple):
    """A segment as it was found on disk."""

    path: str
    base: int
    size: int
    end: int | None = None
    """Where its last batch ends; None if that is not known, because it was not read or is invalid."""
    wrong: str = ""
    """Why it is invalid."""


class LogFound(NamedTuple):
    """A log as it was found on disk."""

    log: str
    segments: Sequence[SegmentFound]
    """The sealed segments, and the last one after a clean shutdown."""
    next_base: int
    """The base offset of the segment that follows them; the end of the log if there is none."""
    is_clean: bool

    def with_next(self) -> Iterator[tuple[SegmentFound, int]]:
        """Yield each segment, and where the next one begins."""
        for slot, segment in enumerate(self.segments, 1):
            yield segment, self.segments[slot].base if slot < len(self.segments) else self.next_base


Rule = Callable[[LogState, LogFound], Iterable[Damage]]


def missing_directory(log: str, known: LogState) -> Damage:
    return Damage(log, "is missing", log, (known.start, known.end) if known.end > known.start else None)


def _ends_with_a_batch(_known: LogState, found: LogFound) -> Iterable[Damage]:
    """A sealed segment is whole to its end."""
    for segment, after in found.with_next():
        if segment.wrong:
            yield Damage(segment.path, segment.wrong, found.log, (segment.base, after))


def _starts_where_it_did(known: LogState, found: LogFound) -> Iterable[Damage]:
    first = found.segments[0].base if found.segments else found.next_base
    if first > known.start:
        yield Damage(found.log, f"has no segment before offset {first}", found.log, (known.start, first))


def _has_no_holes(known: LogState, found: LogFound) -> Iterable[Damage]:
    """Each segment ends where the next one begins, also when it was compacted: its last batch stays."""
    for segment, after in found.with_next():
        if segment.end is not None and segment.end != after and segment.base >= known.gaps_below:
            yield Damage(
                segment.path,
                f"ends at offset {segment.end}, and the next segment begins at {after}",
                found.log,
                (min(segment.end, after), after),
            )


def _has_its_segments(known: LogState, found: LogFound) -> Iterable[Damage]:
    """After a clean shutdown all segments are there, with the size they had."""
    if not found.is_clean or not known.segments:
        return
    sizes = {segment.base: segment for segment in found.segments}
    for one, after in pairwise([*known.segments, None]):
        assert one is not None
        lost = one.base_offset, known.end if after is None else after.base_offset
        there = sizes.get(one.base_offset)
        if there is None:
            if lost[1] > lost[0]:
                yield Damage(f"{found.log}/{one.base_offset:020d}.log", "is missing", found.log, lost)
        elif there.size != one.size:
            yield Damage(
                there.path, f"has {there.size} bytes, and had {one.size} at the last clean stop", found.log, lost
            )


RULES: tuple[Rule, ...] = (_has_its_segments, _ends_with_a_batch, _starts_where_it_did, _has_no_holes)


def damages_of(known: LogState, found: LogFound) -> list[Damage]:
    """Return one damage for each file: the first rule that it breaks says what is wrong."""
    damages: dict[str, Damage] = {}
    for rule in RULES:
        for damage in rule(known, found):
            if damage.lost is not None and damage.lost[1] <= known.start:
                continue  # it was deleted: a crash may bring back some of the files
            covered = any(one.lost and damage.lost and _covers(one.lost, damage.lost) for one in damages.values())
            if damage.path not in damages and not covered:
                damages[damage.path] = damage
    return list(damages.values())


def _covers(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[0] and other[1] <= one[1]
