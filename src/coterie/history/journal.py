"""What a real process has read and done, line by line in two files: whatever becomes of it, this stays.

`NAME.done` has partition and offset of every record it has processed. `NAME.reads` has a line of JSON each time that
what it reads has changed: when, what, and how often it has asked and was told so far.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from coterie.history.design_types import Partition

__all__ = ["COMMIT_MS", "Journal", "Line", "done_by", "lines_of", "now_ms"]

COMMIT_MS = 500
"""Whoever keeps a journal commits so often, whatever its design: so what is processed twice can be compared."""


def now_ms() -> int:
    return time.monotonic_ns() // 1_000_000  # noqa: TID251  this is the real world


@dataclass(frozen=True, slots=True)
class Line:
    at_ms: int
    reads: frozenset[Partition]
    counts: Mapping[str, int]


class Journal:
    def __init__(self, home: Path, name: str) -> None:
        self._done = (home / f"{name}.done").open("a", buffering=1)
        self._reads = (home / f"{name}.reads").open("a", buffering=1)
        self._last: frozenset[Partition] | None = None

    def done(self, records: Collection[tuple[int, int]]) -> None:
        """Partition and offset of each. In one write: a process that is killed leaves whole lines."""
        self._done.write("".join(f"{partition} {offset}\n" for partition, offset in records))

    def reads(self, reads: frozenset[Partition], counts: Mapping[str, int], *, is_news: bool = False) -> None:
        if reads == self._last and not is_news:
            return
        self._last = reads
        self._reads.write(json.dumps({"at_ms": now_ms(), "reads": sorted(reads), "counts": dict(counts)}) + "\n")

    def close(self) -> None:
        self._done.close()
        self._reads.close()


def lines_of(home: Path) -> dict[str, list[Line]]:
    """By process."""
    return {path.stem: list(_lines(path)) for path in sorted(home.glob("*.reads"))}


def _lines(path: Path) -> Iterator[Line]:
    for text in path.read_text().splitlines():
        said = json.loads(text)
        yield Line(said["at_ms"], frozenset((topic, number) for topic, number in said["reads"]), said["counts"])


def done_by(home: Path) -> dict[str, list[tuple[int, int]]]:
    """By process: partition and offset of all it has processed."""
    found = {}
    for path in sorted(home.glob("*.done")):
        rows = (line.split() for line in path.read_text().splitlines())
        found[path.stem] = [(int(partition), int(offset)) for partition, offset in rows]
    return found
