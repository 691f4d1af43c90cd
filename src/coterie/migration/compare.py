"""Compare the records of a partition in the source with their copies: contents and order, by checksums."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple, Protocol

from coterie.migration.translation import Segment
from coterie.protocol.records import Record

MOST_PROBLEMS = 5
"""How many differences of a partition are described. All are counted."""
Place = tuple[int, int]
"""A segment's number, and the place of the record in it."""


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...


def _checksum() -> _Hash:
    return blake2b(digest_size=8)


def contents(record: Record) -> bytes:
    """Return what a copy must keep: timestamp, key, value and headers, unambiguously."""
    parts: list[bytes | None] = [record.key, record.value]
    for name, value in record.headers:
        parts += [name.encode(), value]
    sized = (b"\xff" * 4 if part is None else struct.pack(">I", len(part)) + part for part in parts)
    return struct.pack(">qI", record.timestamp, len(parts)) + b"".join(sized)


class Compared(NamedTuple):
    """The result for one partition, or for a piece of one. The fields are those of a `Comparison`."""

    compared: int = 0
    only_source: int = 0
    only_target: int = 0
    not_compared: int = 0
    differences: int = 0
    source_checksum: str = ""
    target_checksum: str = ""
    problems: tuple[str, ...] = ()

    @property
    def is_equal(self) -> bool:
        return not self.differences and self.source_checksum == self.target_checksum


def merged(pieces: Sequence[Compared]) -> Compared:
    """Return the result for a partition, of pieces in their order. The checksum of several is that of theirs."""
    if len(pieces) == 1:
        return pieces[0]
    source, target = _checksum(), _checksum()
    for one in pieces:
        source.update(one.source_checksum.encode())
        target.update(one.target_checksum.encode())
    return Compared(
        compared=sum(one.compared for one in pieces),
        only_source=sum(one.only_source for one in pieces),
        only_target=sum(one.only_target for one in pieces),
        not_compared=sum(one.not_compared for one in pieces),
        differences=sum(one.differences for one in pieces),
        source_checksum=source.hexdigest(),
        target_checksum=target.hexdigest(),
        problems=tuple([problem for one in pieces for problem in one.problems][:MOST_PROBLEMS]),
    )


@dataclass
class Comparison:
    """The comparison of one partition, while it is made."""

    compared: int = 0
    """Records that both sides have."""
    only_source: int = 0
    only_target: int = 0
    not_compared: int = 0
    """Records of the source, of a compacted topic, whose copies are not known one by one any more."""
    differences: int = 0
    problems: list[str] = field(default_factory=list)
    _source: _Hash = field(default_factory=_checksum)
    _target: _Hash = field(default_factory=_checksum)

    @property
    def source_checksum(self) -> str:
        return self._source.hexdigest()

    @property
    def target_checksum(self) -> str:
        return self._target.hexdigest()

    @property
    def is_equal(self) -> bool:
        return not self.differences and self.source_checksum == self.target_checksum

    def result(self) -> Compared:
        counts = self.compared, self.only_source, self.only_target, self.not_compared, self.differences
        return Compared(*counts, self.source_checksum, self.target_checksum, tuple(self.problems))

    def add(self, source: Record, target: Record) -> None:
        one, other = contents(source), contents(target)
        self.compared += 1
        self._source.update(one)
        self._target.update(other)
        if one != other:
            what = [name for name in ("timestamp", "key", "value", "headers") if _part(source, name, target)]
            self.report(f"offset {source.offset}, {target.offset} in the target: another {', '.join(what)}")

    def report(self, problem: str) -> None:
        self.differences += 1
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(problem)


def _part(source: Record, name: str, target: Record) -> bool:
    return bool(getattr(source, name) != getattr(target, name))


def compare(
    source: Iterable[Record], target: Iterable[Record], segments: Sequence[Segment], *, is_compacted: bool
) -> Comparison:
    """Compare the records of the segments. Records outside, such as those of other producers, are passed over.

    In a compacted topic either side may have removed records. A record that only the source has needs a later one with
    its key in the target, unless it is a tombstone.
    """
    found = Comparison()
    lost_keys: dict[bytes, int] = {}
    """The keys that a later record of the target must have, and the offset of a record of the source."""
    knows = [one.is_exact or not is_compacted for one in segments]
    """True for each segment of which it is known which record is the copy of which."""
    ours = _placed(source, [(one.source, one.source_end) for one in segments], segments)
    copies = _placed(target, [(one.target, one.target_end) for one in segments], segments)
    left, right = next(ours, None), next(copies, None)
    while left is not None or right is not None:
        if left is not None and (right is None or left[0] < right[0]):
            _only_source(found, left[1], lost_keys, is_known=knows[left[0][0]], is_compacted=is_compacted)
            left = next(ours, None)
            continue
        assert right is not None
        is_known, is_pair = knows[right[0][0]], left is not None and left[0] == right[0]
        if lost_keys:
            lost_keys.pop(_key(right[1]), None)
        if is_known and left is not None and is_pair:
            found.add(left[1], right[1])
            left = next(ours, None)
        elif is_known:
            found.only_target += 1
            if not is_compacted:
                found.report(f"offset {right[1].offset} in the target: not in the source")
        right = next(copies, None)
    for offset in lost_keys.values():
        found.report(f"offset {offset}: not in the target, and no later record has its key")
    return found


def _only_source(
    found: Comparison, record: Record, lost_keys: dict[bytes, int], *, is_known: bool, is_compacted: bool
) -> None:
    if not is_known:
        found.not_compared += 1
        return
    found.only_source += 1
    if not is_compacted:
        found.report(f"offset {record.offset}: not in the target")
    elif record.value is None:
        lost_keys.pop(_key(record), None)
    else:
        lost_keys[_key(record)] = record.offset


def _placed(
    records: Iterable[Record], bounds: Sequence[tuple[int, int]], segments: Sequence[Segment]
) -> Iterator[tuple[Place, Record]]:
    """Return the records inside the bounds with their places: in an exact segment by offset, else one by one."""
    at = place = 0
    for record in records:
        while at < len(bounds) and record.offset >= bounds[at][1]:
            at, place = at + 1, 0
        if at == len(bounds):
            return
        begin = bounds[at][0]
        if record.offset >= begin:
            yield (at, record.offset - begin if segments[at].is_exact else place), record
            place += 1


def _key(record: Record) -> bytes:
    return blake2b(record.key or b"", digest_size=16).digest()
