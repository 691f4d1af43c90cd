"""A compacted segment takes the place of others, and a crash at any moment leaves the log as it was or as it will be.

1. Its files are written and synced under names that end in `.cleaned`: an opening removes them.
2. They are renamed to end in `.swap`, the log last. From then on an opening does what is left to do.
3. The segments it replaces get names that end in `.deleted`: an opening removes them.
4. The names of the new one lose their ending, again the log last.

Between these the directory is synced: no order of names on disk is relied upon that was not made certain.
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.protocol.batch import BatchError
from coterie.storage.deleted import DeletedSegment
from coterie.storage.files import Files
from coterie.storage.layout import CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX, join, named, offsets_of
from coterie.storage.scan import headers
from coterie.storage.segment import Segment

__all__ = ["finish_swaps", "offer", "swap", "withdraw"]


def offer(files: Files, directory: str, cleaned: Segment) -> None:
    """Step 2, of a segment that is wholly on disk."""
    cleaned.rename(SWAP)
    files.sync_directory(directory)


def withdraw(files: Files, directory: str, cleaned: Segment) -> None:
    """Undo as much of steps 1 and 2 as was done: of a segment that is not wanted any more."""
    cleaned.close()
    for ending in (SWAP, CLEANED):
        for suffix in (LOG, INDEX, TIME_INDEX):
            files.delete(join(directory, named(cleaned.base_offset, suffix)) + ending)
    if files.exists(directory):  # else its topic was deleted
        files.sync_directory(directory)


def swap(files: Files, directory: str, replaced: Sequence[Segment], cleaned: Segment) -> list[DeletedSegment]:
    """Steps 3 and 4, when nobody reads the replaced segments any more; may be tried again. What is to be removed."""
    for segment in replaced:
        for suffix in (LOG, INDEX, TIME_INDEX):
            path = segment.path(suffix)
            is_new = segment.base_offset == cleaned.base_offset and not files.exists(path + SWAP)
            if not is_new and files.exists(path):
                files.rename(path, path + DELETED)
    files.sync_directory(directory)
    cleaned.rename("")
    files.sync_directory(directory)
    return [
        DeletedSegment(segment.base_offset, segment.next_offset, segment.size, "compacted", segment.paths)
        for segment in replaced
    ]


def finish_swaps(files: Files, directory: str) -> None:
    """On opening: what a crash has interrupted is done, or undone where step 2 had not ended."""
    names = files.names(directory)
    bases = offsets_of(names, LOG + SWAP)
    for base in bases:
        _finish(files, directory, base, offsets_of(names, LOG))
    for name in names:
        if name.endswith(SWAP) and files.exists(join(directory, name)):
            files.delete(join(directory, name))
    if bases:
        files.sync_directory(directory)


def _finish(files: Files, directory: str, base: int, others: Sequence[int]) -> None:
    end = _end_of(files, join(directory, named(base, LOG + SWAP)), base)
    if end is None and base in others:
        return  # not what was written: the segments it stands for are still there, and better
    for other in others:
        if end is not None and base < other < end:
            for suffix in (LOG, INDEX, TIME_INDEX):
                files.delete(join(directory, named(other, suffix)))
    files.sync_directory(directory)
    for suffix in (TIME_INDEX, INDEX, LOG):
        path = join(directory, named(base, suffix))
        if files.exists(path + SWAP):
            files.rename(path + SWAP, path)
        else:
            files.delete(path)  # of the old log


def _end_of(files: Files, path: str, base: int) -> int | None:
    """Where the last batch of a segment ends; None if its headers make no sense."""
    file = files.open(path)
    end = base
    try:
        for _, header in headers(file, 0, file.size):
            end = header.next_offset
    except BatchError:
        return None
    finally:
        file.close()
    return end
