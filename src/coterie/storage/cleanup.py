"""Segments that leave a log: which ones are deleted or compacted, and how their files are replaced and removed.

**Retention** deletes segments before the log start, beyond `retention.bytes` and older than `retention.ms`.

**Compaction** never takes the active segment, nor what is not durable, what an open transaction may still undo, and
what is younger than `min.compaction.lag.ms`. A log is worth compacting when enough of the rest was never compacted
(`min.cleanable.dirty.ratio`), or when that has waited for too long (`max.compaction.lag.ms`). These are Kafka's rules.

**A compacted segment replaces others** in steps. A crash at any moment leaves the log as it was or as it will be:

1. Its files are written and synced under names that end in `.cleaned`: an opening removes them.
2. They are renamed to end in `.swap`, the `.log` file last. From then on an opening does what is left to do.
3. The segments it replaces get names that end in `.deleted`: an opening removes them.
4. The names of the new files lose their ending, again the `.log` file last.

Between these steps the directory is synced: no order of names on disk is relied on that was not made certain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, takewhile

from coterie.protocol.batch import HEADER_SIZE, BatchError
from coterie.storage.files import Files, parent_of
from coterie.storage.log_config import UNLIMITED, LogConfig
from coterie.storage.log_errors import writing
from coterie.storage.segment import MAX_RELATIVE, Segment
from coterie.storage.segment_files import (
    CLEANED,
    DELETED,
    INDEX,
    LOG,
    SWAP,
    TIME_INDEX,
    TIME_ROW,
    TXN_INDEX,
    headers,
    join,
    named,
    offsets_of,
)
from coterie.structs import DataStruct


def reasons_to_drop(
    segments: Sequence[Segment], config: LogConfig, log_start_offset: int, high_watermark: int, now_ms: int
) -> list[str]:
    """Return why each segment may be deleted, from the oldest on; the last one may be too, if it is not empty."""
    last = len(segments) - 1
    size_from = [*accumulate((segment.size for segment in reversed(segments)), initial=0)][::-1]

    def is_before_start(slot: int) -> bool:
        return slot < last and segments[slot].next_offset <= log_start_offset

    def is_too_much(slot: int) -> bool:
        return config.retention_bytes != UNLIMITED and size_from[slot + 1] >= config.retention_bytes

    def is_too_old(slot: int) -> bool:
        since = segments[slot].max_timestamp
        if since < 0:
            since = segments[slot].last_write_ms
        return config.retention_ms != UNLIMITED and now_ms - since > config.retention_ms

    rules: dict[str, Callable[[int], bool]] = {"before the log start": is_before_start}
    if config.deletes:
        rules |= {"retention.bytes": is_too_much, "retention.ms": is_too_old}
    reasons: list[str] = []
    for why, applies in rules.items():
        while (
            (slot := len(reasons)) <= last
            and segments[slot].next_offset <= high_watermark
            and (slot < last or segments[slot].size)
            and applies(slot)
        ):
            reasons.append(why)
    return reasons


class Compactable(DataStruct, frozen=True):
    """The part of a log that can be compacted."""

    segments: list[Segment]
    """The first segments of the log; they end at `bound`."""
    first_dirty: int
    bound: int
    dirty_ratio: float
    is_worth_it: bool


def first_dirty_offset(compacted_to: int, log_start_offset: int, log_end_offset: int) -> int:
    """Return where compaction continues: where it ended, unless the log ends before or starts after that now."""
    return compacted_to if log_start_offset <= compacted_to <= log_end_offset else log_start_offset


def compactable(
    segments: Sequence[Segment], config: LogConfig, first_dirty: int, stable_end: int, now_ms: int
) -> Compactable | None:
    """Return what of a log can be compacted, or None. Before `stable_end` it is durable and no transaction is open."""

    def may_be(segment: Segment) -> bool:
        is_young = config.min_compaction_lag_ms and segment.max_timestamp > now_ms - config.min_compaction_lag_ms
        is_dirty = segment.next_offset > first_dirty
        return not segment.is_open and segment.next_offset <= stable_end and not (is_young and is_dirty)

    ready = list(takewhile(may_be, segments[:-1]))
    dirty = [segment for segment in ready if segment.next_offset > first_dirty]
    size = sum(segment.size for segment in ready)
    dirty_size = sum(segment.size for segment in dirty)
    if not dirty_size:
        return None
    ratio = dirty_size / size
    is_worth_it = ratio > config.min_cleanable_dirty_ratio or _has_waited(dirty, config, now_ms)
    return Compactable(ready, first_dirty, ready[-1].next_offset, ratio, is_worth_it)


def _has_waited(dirty: Sequence[Segment], config: LogConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= now_ms:
        return False
    since = [stamp for stamp in (segment.first_stamp() for segment in dirty) if stamp > 0]
    return bool(since) and min(since) < now_ms - config.max_compaction_lag_ms


def is_worth_rolling(segments: Sequence[Segment], config: LogConfig, first_dirty: int) -> bool:
    """Return whether the active segment should be rolled so that it can be compacted; Kafka has no such rule.

    It should if the log is worth compacting then.
    """
    active = segments[-1]
    if config.roll_dirty_bytes == UNLIMITED or active.size < config.roll_dirty_bytes:
        return False
    dirty_size = sum(segment.size for segment in segments if segment.next_offset > first_dirty)
    return dirty_size / sum(segment.size for segment in segments) > config.min_cleanable_dirty_ratio


def grouped(segments: Sequence[Segment], config: LogConfig) -> list[list[Segment]]:
    """Return groups of neighbours that fit into one segment, even if all of their records stay."""
    groups: list[list[Segment]] = []
    for segment in segments:
        if groups and _fit([*groups[-1], segment], config):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return groups


def _fit(segments: Sequence[Segment], config: LogConfig) -> bool:
    size = sum(segment.size for segment in segments)
    rows = size // max(config.index_interval_bytes, HEADER_SIZE) + 2  # the most there can be; sealing adds one
    offsets = segments[-1].next_offset - segments[0].base_offset
    return (
        size <= config.segment_bytes and rows * TIME_ROW.size <= config.segment_index_bytes and offsets <= MAX_RELATIVE
    )


class DeletedSegment(DataStruct, frozen=True):
    """A segment that is not part of its log any more, and whose files still exist."""

    base_offset: int
    next_offset: int
    size: int
    why: str
    paths: tuple[str, ...]
    """Its files: `rename_files` gives them other names, `remove_files` frees their space."""


def rename_files(files: Files, deleted: Iterable[DeletedSegment]) -> None:
    """Give the files of deleted segments names that end in `.deleted`, which is quick; on any thread.

    The logs' starts are durable already, so a crash may leave any of these names as it was.
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
    """Delete renamed files, which may take long; on any thread."""
    for path in _paths(deleted):
        files.delete(path + DELETED)


def _paths(deleted: Iterable[DeletedSegment]) -> Iterator[str]:
    return (path for segment in deleted for path in segment.paths)


def offer(files: Files, directory: str, cleaned: Segment) -> None:
    """Take step 2 for a segment that is completely on disk."""
    cleaned.rename(SWAP)
    files.sync_directory(directory)


def withdraw(files: Files, directory: str, cleaned: Segment) -> None:
    """Undo as much of steps 1 and 2 as was done for a segment that is not wanted any more."""
    cleaned.close()
    for ending in (SWAP, CLEANED):
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            files.delete(join(directory, named(cleaned.base_offset, suffix)) + ending)
    if files.exists(directory):  # else its topic was deleted
        files.sync_directory(directory)


def swap(files: Files, directory: str, replaced: Sequence[Segment], cleaned: Segment) -> list[DeletedSegment]:
    """Take steps 3 and 4, when no reader uses the replaced segments; return what `remove_files` may remove.

    May be tried again if it fails.
    """
    for segment in replaced:
        for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
            path = segment.path(suffix)
            has_it = suffix != TXN_INDEX or cleaned.txn_index_size
            is_new = segment.base_offset == cleaned.base_offset and has_it and not files.exists(path + SWAP)
            if not is_new and files.exists(path):
                files.rename(path, path + DELETED)
    files.sync_directory(directory)
    cleaned.rename("")
    files.sync_directory(directory)
    return [
        DeletedSegment(segment.base_offset, segment.next_offset, segment.size, "compacted", segment.paths)
        for segment in replaced
    ]


def finish_swaps(files: Files, directory: str) -> bool:
    """Finish the swaps of a log that a crash has interrupted, or undo them if step 2 had not ended.

    Return whether there were any: then an index of aborted transactions may be missing.
    """
    names = files.names(directory)
    bases = offsets_of(names, LOG + SWAP)
    for base in bases:
        _finish(files, directory, base, offsets_of(names, LOG))
    for name in names:
        if name.endswith(SWAP) and files.exists(join(directory, name)):
            files.delete(join(directory, name))
    if bases:
        files.sync_directory(directory)
    return bool(bases)


def _finish(files: Files, directory: str, base: int, others: Sequence[int]) -> None:
    end = _end_of(files, join(directory, named(base, LOG + SWAP)), base)
    if end is None and base in others:
        return  # it is not what was written: the segments that it should replace are still there
    for other in others:
        if end is not None and base < other < end:
            for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX):
                files.delete(join(directory, named(other, suffix)))
    files.sync_directory(directory)
    for suffix in (TXN_INDEX, TIME_INDEX, INDEX, LOG):
        path = join(directory, named(base, suffix))
        if files.exists(path + SWAP):
            files.rename(path + SWAP, path)
        else:
            files.delete(path)  # an index of the old segment


def _end_of(files: Files, path: str, base: int) -> int | None:
    """Return where the last batch of a segment ends; None if a header is invalid."""
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
