"""The names of files in a partition's directory, as Kafka gives them: 20 digits of base offset and what it is."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = [
    "CLEANED",
    "DELETED",
    "INDEX",
    "LEFTOVERS",
    "LOG",
    "LOG_STARTS",
    "SNAPSHOT",
    "SWAP",
    "TIME_INDEX",
    "join",
    "named",
    "offsets_of",
]

LOG_STARTS = "log-start-offset-checkpoint"
LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
"""Behind the names of a compacted segment's files, until all of it is on disk."""
SWAP = ".swap"
"""Behind the same, from then on: it stands for what is between its first offset and its last."""
LEFTOVERS = (DELETED, CLEANED, ".tmp")
"""What a stop in the middle of something leaves behind; nothing refers to it."""

_DIGITS = 20


def named(offset: int, suffix: str) -> str:
    return f"{offset:0{_DIGITS}d}{suffix}"


def offsets_of(names: Iterable[str], suffix: str) -> list[int]:
    """The offsets of all files of one kind, ascending; other names are not ours to judge."""
    stems = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(stem) for stem in stems if len(stem) == _DIGITS and stem.isascii() and stem.isdigit())


def join(directory: str, name: str) -> str:
    return f"{directory}/{name}" if directory else name
