"""Segments that a log need not keep any more: it has let go of them, their files are still there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from coterie.storage.files import Files, parent_of
from coterie.storage.layout import DELETED
from coterie.storage.log_errors import writing

__all__ = ["DeletedSegment", "remove_files", "rename_files"]


@dataclass(frozen=True, slots=True)
class DeletedSegment:
    base_offset: int
    next_offset: int
    size: int
    why: str
    paths: tuple[str, ...]
    """Its files: `rename_files` takes them out of the log by name, `remove_files` frees their space."""


def rename_files(files: Files, deleted: Iterable[DeletedSegment]) -> None:
    """Take the files of segments that `retain` dropped out of the log, which is quick; on any thread.

    The logs' starts are durable already: a crash may leave any of these names as it was.
    """
    with writing("cannot delete old segments"):
        directories: dict[str, None] = {}
        for path in _paths(deleted):
            directories[parent_of(path)] = None
            if files.exists(path):
                files.rename(path, path + DELETED)
        for directory in directories:
            files.sync_directory(directory)


def remove_files(files: Files, deleted: Iterable[DeletedSegment]) -> None:
    """Free the space of renamed files, which may take long; on any thread."""
    for path in _paths(deleted):
        files.delete(path + DELETED)


def _paths(deleted: Iterable[DeletedSegment]) -> Iterator[str]:
    return (path for segment in deleted for path in segment.paths)
