"""Compacting a log: read its uncompacted part for the last offset of each key, then write each group of segments again.

    work = Compaction(files, log.path, plan, log.config, ...)
    for _ in work.look_through(): ...              # long, on any thread, in steps of well under a millisecond
    for group in work.groups:
        for _ in work.compact(group): ...          # the same
        if work.cleaned is not None: ...           # `swapping.py`, where nobody else changes the directory

Only closed segments are read, and nothing they have is changed: whoever stops in between has lost some time. What may
be compacted is decided in `compaction.py`, what is left of a batch in `survivors.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import takewhile

from coterie.errors import MalformedError
from coterie.protocol.batch import NO_TIMESTAMP, BatchHeader, check_sum, parse_header
from coterie.protocol.buffer import Buffer
from coterie.protocol.compacted import OpenBatch, emptied
from coterie.protocol.records import marker_of
from coterie.storage.compaction import Compactable, grouped
from coterie.storage.files import Files
from coterie.storage.latest import KEY_BYTES, LatestOffsets
from coterie.storage.layout import CLEANED, LOG
from coterie.storage.log_config import LogConfig
from coterie.storage.scan import contents
from coterie.storage.segment import Segment
from coterie.storage.survivors import LastOfProducer, Survivors

__all__ = ["Compaction"]

_STEP = 8 * 1024
_WRITE = 256 * 1024
_SYNC = 4 * 1024 * 1024
"""Synced bit by bit: one large sync would hold up those of others."""


class Compaction:
    """One round of one log. `producers` are those that may come back, `buffer_bytes` what the keys may take."""

    def __init__(
        self,
        files: Files,
        path: str,
        plan: Compactable,
        config: LogConfig,
        producers: Mapping[int, LastOfProducer],
        buffer_bytes: int,
        now_ms: int,
    ) -> None:
        self._files = files
        self._path = path
        self._plan = plan
        self._config = config
        self._latest = LatestOffsets(plan.first_dirty, buffer_bytes // KEY_BYTES)
        self._survivors = Survivors(
            self._latest,
            producers,
            bound=plan.bound,
            delete_retention_ms=config.delete_retention_ms,
            limit=config.max_decompressed_bytes,
            now_ms=now_ms,
        )
        self._since_step = 0
        self.cleaned: Segment | None = None
        """What the last group has become, open; None if it need not change."""

    @property
    def compacted_to(self) -> int:
        """Where the next round begins, when all groups were compacted."""
        return self._latest.known_to

    @property
    def groups(self) -> list[list[Segment]]:
        """What there is to compact: all segments from the log's beginning to where the looking ended."""
        end = self._latest.end
        return grouped(list(takewhile(lambda segment: segment.base_offset < end, self._plan.segments)), self._config)

    def _is_step(self, header: BatchHeader) -> bool:
        """Whether enough was done for others to have their turn."""
        self._since_step += header.size
        if self._since_step < _STEP:
            return False
        self._since_step = 0
        return True

    # --- looking ------------------------------------------------------------------------------------------------------

    def look_through(self) -> Iterator[None]:
        latest = self._latest
        for segment in self._plan.segments:
            if segment.next_offset <= self._plan.first_dirty:
                continue
            for data, at, header in self._batches(segment):
                if header.next_offset > self._plan.first_dirty:
                    if latest.is_full:
                        return
                    self._look_at(data, at, header)
                if self._is_step(header):
                    yield
            latest.end = max(latest.end, segment.next_offset)

    def _look_at(self, data: bytes, at: int, header: BatchHeader) -> None:
        latest = self._latest
        check_sum(data, header, at)
        try:
            if header.is_control:
                latest.end_transaction(header, marker_of(data, header, at))
            else:
                latest.add(header, OpenBatch(data, header, at, self._config.max_decompressed_bytes).records)
        except MalformedError:
            latest.skip(header)

    def _batches(self, segment: Segment) -> Iterator[tuple[bytes, int, BatchHeader]]:
        with closing(self._files.open(segment.path(LOG))) as file:
            yield from contents(file, segment.size)

    # --- writing ------------------------------------------------------------------------------------------------------

    def compact(self, group: Sequence[Segment]) -> Iterator[None]:
        self.cleaned = None
        cleaned = Segment.create(
            self._files, self._path, group[0].base_offset, self._config.index_interval_bytes, ending=CLEANED
        )
        is_done = False
        try:
            is_other = len(group) > 1
            writer = _Writer(cleaned)
            for segment in group:
                for data, at, header in self._batches(segment):
                    left = self._left_of(data, at, header)
                    if not left and header.next_offset == group[-1].next_offset:
                        # It stays without records: a segment ends where the next one begins, or it was damaged.
                        whole = memoryview(data)[at : at + header.size]
                        left = emptied(header._replace(max_timestamp=NO_TIMESTAMP)) if header.record_count else whole
                    is_same = isinstance(left, memoryview)
                    if left:
                        writer.add(left, header if is_same else parse_header(left))
                    is_other |= not is_same
                    if self._is_step(header):
                        yield
            if is_other:
                writer.finish(group[-1])
                self.cleaned = cleaned
                is_done = True
        finally:
            if not is_done:
                with suppress(OSError):  # an opening removes them as well
                    cleaned.delete()

    def _left_of(self, data: bytes, at: int, header: BatchHeader) -> Buffer:
        if self._survivors.is_gone(header):
            return b""
        check_sum(data, header, at)
        return self._survivors.left_of(data, at, header)


class _Writer:
    """Gathers batches and writes many at once."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._batches: list[Buffer] = []
        self._headers: list[BatchHeader] = []
        self._size = 0
        self._synced = 0

    def add(self, batch: Buffer, header: BatchHeader) -> None:
        self._batches.append(batch)
        self._headers.append(header)
        self._size += header.size
        if self._size >= _WRITE:
            self._write()

    def _write(self) -> None:
        segment = self._segment
        segment.append(b"".join(self._batches), self._headers)
        self._batches, self._headers, self._size = [], [], 0
        if segment.size - self._synced >= _SYNC:
            segment.later().run()
            self._synced = segment.size

    def finish(self, last: Segment) -> None:
        """All of it is on disk, and reaches to where the last of those it replaces does."""
        segment = self._segment
        self._write()
        segment.next_offset = last.next_offset
        segment.quiet_since_ms = last.quiet_since_ms
        segment.end()
        segment.write_indexes()
        segment.later().run()
