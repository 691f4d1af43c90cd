"""The log of one partition: batches in, batches out, by offset or by time.

    log = PartitionLog.open(files, "orders-0", LogConfig(), now_ms)
    taken = log.append(batch, now_ms)              # written to the operating system, not yet durable
    target = log.flush_target()                    # what to sync, captured now
    target.run()                                   # on another thread, while appends go on
    log.flushed(target)                            # `durable_end` has moved
    log.read(taken.base_offset, 1 << 20, up_to=log.durable_end)

`log_end_offset` is the offset of the next batch; `durable_end` is the end of what is on disk. The caller chooses which
of the two is the high watermark (`--flush os` or `sync`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Self

from coterie.protocol.batch import NO_TIMESTAMP, BatchHeader, TimestampType, end_of, stamp_time, writable
from coterie.protocol.buffer import Buffer
from coterie.protocol.records import EndMarker, build_placed_batch, build_placed_marker
from coterie.storage.cleanup import (
    Compactable,
    DeletedSegment,
    compactable,
    first_dirty_offset,
    is_worth_rolling,
    reasons_to_drop,
)
from coterie.storage.compaction import LastRecord
from coterie.storage.durable_ends import LogState, SegmentState, TopicPartition
from coterie.storage.files import DiskChange, Files
from coterie.storage.flush import FlushState, FlushTarget, JournalPart, JournalTarget, Sealing
from coterie.storage.log_config import LogConfig
from coterie.storage.log_errors import LogOffsetOutOfRangeError, LogReadError, LogWriteError, writing
from coterie.storage.log_reader import find_timestamp, read_batches, slot_of
from coterie.storage.producer_state import ProducerStateEntry, snapshot_later
from coterie.storage.recovery import LoadedLog, Recovery, is_gapless, load, load_cut
from coterie.storage.segment import Segment, TimestampedOffset
from coterie.storage.segment_files import LOG
from coterie.storage.transaction_index import AbortedTransaction
from coterie.storage.validation import LogAppendInfo, Origin, assign_offsets, check_batches, too_large


class PartitionLog:
    """The log of one partition."""

    def __init__(self, files: Files, path: str, config: LogConfig, now_ms: int) -> None:
        self._files = files
        self.path = path
        self.config = config
        self.log_start_offset = 0
        self._active_since_ms = now_ms
        self._is_new = not files.exists(path)
        """True if this process made the log and has written nothing to it."""
        self._flushing = FlushState(files, path, is_new=self._is_new)
        self._has_torn_tail = False
        self._cut_to: int | None = None
        self._is_untouched = False
        self._is_gapless = False
        """True if each batch begins where the one before it ends, as far as is known."""
        self.key: TopicPartition | None = None
        """The key of this log in `durable_ends.py`."""
        self.journal: JournalPart | None = None
        """The journal for small writes, if they are not always synced in place."""
        self.leader_epoch = -1

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        config: LogConfig,
        now_ms: int,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        clean: bool = False,
        journaled: Sequence[bytes] = (),
        known: LogState | None = None,
    ) -> Self:
        """Open or create a log. `clean`: it was closed, so nothing is torn; see `recovery.py`.

        `known` is what must be there, or else `DamageError`.
        """
        log = cls(files, path, config, now_ms)
        files.mkdir(path)
        log._load(log_start_offset, recovery_point, journaled, known, clean=clean, now_ms=now_ms)
        if not clean and log.log_end_offset > log.log_start_offset:
            log._flushing.sync_names()
        return log

    def _load(
        self,
        log_start_offset: int,
        recovery_point: int,
        journaled: Sequence[bytes],
        known: LogState | None,
        *,
        clean: bool,
        now_ms: int,
    ) -> None:
        loaded = load(
            self._files,
            self.path,
            self.config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            now_ms=now_ms,
            journaled=journaled,
            known=known,
        )
        self._take(loaded, log_start_offset, now_ms)
        self._is_gapless = is_gapless(self.config, known)
        self._is_untouched = clean
        self._is_new = not self.log_end_offset  # an empty log was closed without a sync: its names are not durable
        self._flushing.start_over(self.log_end_offset, names_are_durable=clean and not self._is_new)

    def _take(self, loaded: LoadedLog, log_start_offset: int, now_ms: int) -> None:
        self._segments = loaded.segments
        self._epochs = loaded.epochs
        self.leader_epoch = max(self.leader_epoch, self._epochs.latest)
        self._producers = loaded.producers
        self.recovery: Recovery = loaded.recovery
        self.log_start_offset = max(log_start_offset, self._segments[0].base_offset)
        self._epochs.cut_start(self.log_start_offset)  # it is not saved when the log start moves
        for segment in self._segments:
            segment.last_write_ms = now_ms

    # --- where things are ---------------------------------------------------------------------------------------------

    @property
    def _active(self) -> Segment:
        return self._segments[-1]

    @property
    def log_end_offset(self) -> int:
        return self._segments[-1].next_offset

    @property
    def durable_end(self) -> int:
        return self._flushing.durable_end

    @property
    def synced_end(self) -> int:
        """The end of what is durable without the journal."""
        return self._flushing.synced_end

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments as they are now: `has` says later whether they still are."""
        return tuple(self._segments)

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def producer_count(self) -> int:
        return len(self._producers)

    def producers(self) -> Iterator[tuple[int, ProducerStateEntry, int | None]]:
        """Yield the id of each producer, what is known of it, and where its open transaction begins, if it has one."""
        for producer_id, producer in self._producers:
            yield producer_id, producer, self._producers.open_since(producer_id)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset, which is at most the high watermark."""
        unstable = self._producers.first_unstable_offset(high_watermark)
        return high_watermark if unstable is None else max(self.log_start_offset, min(unstable, high_watermark))

    def note_high_watermark(self, high_watermark: int) -> None:
        """Note how far the log can be read: transactions that ended before are stable, and need not be remembered."""
        self._producers.decide(high_watermark)

    def epoch_of_producer(self, producer_id: int) -> int:
        """Return the epoch with which a producer has written last; -1 if it is not known."""
        return self._producers.epoch_of(producer_id)

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has a transaction open here, with this epoch."""
        return self._producers.open_since(producer_id) is not None and self._producers.epoch_of(producer_id) == epoch

    @property
    def believes_syncs(self) -> bool:
        """True if syncs can be trusted: after one that failed, not until the log was opened again."""
        return self._flushing.believes_syncs

    def state(self, known: LogState) -> LogState:
        """Return what a checkpoint records of this log, without compaction, which the caller adds."""
        return LogState(
            self.log_start_offset,
            self.synced_end,
            known.compacted,
            known.gaps_below,
            tuple(self._epochs.entries),
            tuple(
                SegmentState(segment.base_offset, segment.size, *segment.index_sizes, segment.txn_index_size)
                for segment in self._segments
                if not segment.is_open
            ),
        )

    # --- leadership ---------------------------------------------------------------------------------------------------

    def lead(self, epoch: int) -> Callable[[], None]:
        """Append with this leader epoch from now on; the caller runs the result, which saves it, on any thread."""
        self.leader_epoch = epoch
        self._epochs.assign(epoch, self.log_end_offset)
        return self._epochs.saving(self._files, self.path)

    def epoch_at(self, offset: int) -> int:
        return self._epochs.at(offset)

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        return self._epochs.end_of(epoch, self.log_end_offset)

    # --- appending ----------------------------------------------------------------------------------------------------

    def append(
        self, data: Buffer, now_ms: int, origin: Origin = Origin.CLIENT, *, is_strict: bool = False
    ) -> LogAppendInfo:
        """Store batches as received, with offsets assigned; a writable buffer is changed in place.

        `is_strict` is for KIP-890: a new producer starts at sequence 0, and a marker bumps the epoch.

        Nothing is stored if it raises: `BatchError` and `RefusedError` are the sender's fault, `LogWriteError` the
        disk's.
        """
        self._check_uncut()
        incoming = check_batches(data, self.config, origin, now_ms)
        if origin is Origin.CLIENT:
            duplicate = self._check_producer(incoming[0].header, starts_at_zero=is_strict)
            if duplicate is not None:
                return duplicate
        else:
            for each in incoming:
                if each.header.has_producer:
                    self._producers.check_producer_epoch(each.header, each.marker, must_bump_epoch=is_strict)
        buffer = writable(data)
        placed = assign_offsets(buffer, incoming, self.config, self.log_end_offset, max(self.leader_epoch, 0), now_ms)
        self._store(buffer, placed, now_ms)
        for header, each in zip(placed, incoming, strict=True):
            aborted = self._producers.note(header, each.marker)
            if aborted is not None:
                self._active.note_aborted(aborted)
        append_time = now_ms if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        return LogAppendInfo(placed[0].base_offset, placed[-1].last_offset, append_time, self.log_start_offset)

    def append_own(
        self,
        pairs: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Append keys and values of the broker itself; return the offset of the first. They need no validation.

        `producer` is the id and the epoch of the producer whose transaction they are part of.
        """
        if self._cut_to is not None:
            self._check_uncut()
        base_offset = self._segments[-1].next_offset
        data, header = build_placed_batch(pairs, now_ms, base_offset, max(self.leader_epoch, 0), producer)
        if len(data) > self.config.max_message_bytes:
            raise too_large(len(data), self.config.max_message_bytes)
        if producer is not None:
            self._producers.check_producer_epoch(header, None)
        self._append_built(data, header, now_ms)
        if producer is not None:
            self._producers.note(header)
        return header.base_offset

    def append_marker(
        self, marker: EndMarker, producer: tuple[int, int], now_ms: int, *, is_strict: bool = False
    ) -> int:
        """End the transaction of a producer id and epoch; return the offset of the marker.

        `is_strict` is for KIP-890: the marker bumps the epoch.
        """
        self._check_uncut()
        data, header = build_placed_marker(marker, producer, now_ms, self.log_end_offset, max(self.leader_epoch, 0))
        self._producers.check_producer_epoch(header, marker, must_bump_epoch=is_strict)
        self._append_built(data, header, now_ms)
        aborted = self._producers.note(header, marker)
        if aborted is not None:
            self._active.note_aborted(aborted)
        return header.base_offset

    def _append_built(self, data: bytearray, header: BatchHeader, now_ms: int) -> None:
        if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            stamp_time(data, 0, TimestampType.LOG_APPEND_TIME, now_ms)
        self._store(data, [header], now_ms)

    def _store(self, buffer: Buffer, placed: list[BatchHeader], now_ms: int) -> None:
        self._is_untouched = self._is_new = False
        try:
            self._roll_if_full(len(buffer), placed, now_ms)
            self._write(buffer, placed)
            self._segments[-1].last_write_ms = now_ms
            if self.journal is not None:
                self._flushing.appended(buffer)
        except OSError as error:
            raise LogWriteError.of(f"cannot write to {self._active.path(LOG)}", error) from error
        if self._epochs.latest < self.leader_epoch:  # the start of this epoch was cut off
            self._epochs.assign(self.leader_epoch, placed[0].base_offset)

    def _check_producer(self, header: BatchHeader, *, starts_at_zero: bool) -> LogAppendInfo | None:
        if not header.has_producer:
            return None
        stored = self._producers.duplicate_of(header)
        if stored is None:
            self._producers.check_sequence(header, starts_at_zero=starts_at_zero)
            return None
        append_time = (
            stored.timestamp if self.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        )
        return LogAppendInfo(
            stored.first_offset, stored.last_offset, append_time, self.log_start_offset, is_duplicate=True
        )

    def _write(self, buffer: Buffer, placed: list[BatchHeader]) -> None:
        if self._has_torn_tail:
            self._cut_torn_tail()
        try:
            self._segments[-1].append(buffer, placed, is_buffered=self.journal is not None)
        except OSError:
            self._has_torn_tail = True
            with suppress(OSError):  # then the next append tries again, before it writes
                self._cut_torn_tail()
            raise

    def _cut_torn_tail(self) -> None:
        if self._has_torn_tail:
            self._active.cut_tail()
            self._has_torn_tail = False

    # --- rolling ------------------------------------------------------------------------------------------------------

    def _roll_if_full(self, size: int, placed: list[BatchHeader], now_ms: int) -> None:
        active = self._segments[-1]
        if active.size == 0:
            self._active_since_ms = now_ms
            return
        newest = placed[0].max_timestamp if len(placed) == 1 else max([header.max_timestamp for header in placed])
        first = active.first_timestamp
        waited = newest - first if first is not None and first >= 0 else now_ms - self._active_since_ms
        if (
            active.size + size > self.config.segment_bytes
            or waited > self.config.max_segment_ms
            or not active.can_take(placed[-1].last_offset, self.config.segment_index_bytes)
        ):
            self._roll(now_ms)

    def _roll(self, now_ms: int) -> None:
        """Start another segment; the next flush writes the indexes of the old one."""
        self._cut_torn_tail()  # a sealed segment is read to the end of its file
        created = Segment.create(self._files, self.path, self.log_end_offset, self.config.index_interval_bytes)
        self._active.end()
        self._flushing.rolled(Sealing(self._active, self._snapshot()))
        created.last_write_ms = now_ms
        self._segments.append(created)
        self._active_since_ms = now_ms

    def _snapshot(self) -> Callable[[], None]:
        return snapshot_later(self._files, self.path, self.log_end_offset, self._producers)

    # --- making durable -----------------------------------------------------------------------------------------------

    def flush_target(self, *, in_place: bool = False) -> FlushTarget | None:
        """Return what must be synced for all appends to be durable, or None if they are; one at a time.

        `in_place`: what only the journal has counts as not durable.
        """
        if self._flushing.is_done(self.log_end_offset, in_place=in_place):
            return None
        return self._flushing.target(self._active)

    @property
    def is_small_flush(self) -> bool:
        """Return whether all that is to be flushed can be written to the journal instead."""
        return self._flushing.is_small

    def journal_target(self) -> JournalTarget:
        """Return what must be written to the journal for all appends to be durable."""
        return self._flushing.journal_target(self._segments[-1].next_offset)

    def write_out(self) -> None:
        """Write to the segment's file what is only in memory and in the journal, without a sync."""
        if self.is_in_order:
            self._active.write_out()

    @property
    def is_sealing(self) -> bool:
        """True if a segment waits for a flush to write its indexes."""
        return self._flushing.is_sealing

    def flushed(self, target: FlushTarget | JournalTarget) -> None:
        """Note that the target's `run` has succeeded."""
        self._flushing.ended(target, well=True)

    def flush_failed(self, target: FlushTarget | JournalTarget) -> None:
        """Cut back to what is known to be durable, after the target's `run` has failed.

        The caller answers those that wait for what was beyond with an error. Where batches are acknowledged before
        they are durable, call `flush_refused` instead, which cuts nothing.
        """
        self._flushing.ended(target, well=False)
        self.cut_back(self.durable_end)

    def flush_refused(self, target: FlushTarget | JournalTarget) -> None:
        """Note that the target's `run` has failed: nothing more is called durable until the log is opened again."""
        self._flushing.ended(target, well=False)

    def flush(self) -> None:
        """Flush, and wait for it; if it fails, nothing is cut."""
        target = self.flush_target(in_place=True)
        if target is not None:
            well = False
            try:
                target.run()
                well = True
            finally:
                self._flushing.ended(target, well=well)

    def cut_back(self, end: int) -> None:
        """End the log with the last whole batch before `end`; nothing is read or written until `repair` has done it."""
        self._cut_to = end
        self._flushing.durable_end = min(self.durable_end, end)
        self._flushing.synced_end = min(self.synced_end, end)

    @property
    def is_in_order(self) -> bool:
        return self._cut_to is None

    def repair(self, now_ms: int) -> DiskChange[None]:
        """Finish what `cut_back` began: load the log again from disk, with producers and epochs as of its new end."""
        end = self._cut_to
        assert end is not None, "a log in order needs no repairing"

        def work() -> LoadedLog:
            with writing(f"cannot cut {self.path} back to offset {end}"):
                self.release()
                return load_cut(
                    self._files,
                    self.path,
                    self.config,
                    log_start_offset=self.log_start_offset,
                    recovery_point=self.synced_end,
                    end=end,
                    now_ms=now_ms,
                    journaled=self.journal.entries() if self.journal is not None else (),
                )

        def take(loaded: LoadedLog) -> None:
            self._take(loaded, self.log_start_offset, now_ms)
            self._flushing.start_over(self.log_end_offset, names_are_durable=False)
            self._cut_to = None

        return DiskChange(work, take)

    # --- reading ------------------------------------------------------------------------------------------------------

    def read(self, from_offset: int, max_bytes: int, up_to: int) -> bytes:
        """Return whole batches as stored, from the one with `from_offset`, all before `up_to`, from one segment.

        They have at most `max_bytes`, except that the first batch is returned whatever its size, so that no reader gets
        stuck. It may begin before `from_offset`; clients skip records that they did not ask for.
        """
        self._check_order()
        if not self.log_start_offset <= from_offset <= self.log_end_offset:
            raise LogOffsetOutOfRangeError(
                f"{self.path} has offsets from {self.log_start_offset} to before {self.log_end_offset}, "
                f"not {from_offset}"
            )
        gapless = self._is_gapless and not self.config.compacts
        return read_batches(self._segments, self.path, from_offset, max_bytes, up_to, gapless=gapless)

    def aborted_transactions(self, from_offset: int, records: Buffer) -> list[AbortedTransaction]:
        """Return the aborted transactions that a reader of `records` must skip, in the order of their markers (TL5).

        `records` are what `read` returned for `from_offset`.
        """
        first = slot_of(self._segments, from_offset)
        found: list[AbortedTransaction] = []
        if not any(segment.has_aborted for segment in self._segments[first:]):
            return found
        up_to = end_of(records)
        try:
            for segment in self._segments[first:]:
                for row in segment.aborted_from(from_offset):
                    if row.first_offset < up_to:
                        found.append(row)
                    if row.last_stable_offset >= up_to:
                        return found
        except OSError as error:
            raise LogReadError.of(f"cannot read the aborted transactions of {self.path}", error) from error
        return found

    def _check_order(self) -> None:
        if self._cut_to is not None:
            raise LogReadError(f"{self.path} cannot be read until it is cut back to offset {self._cut_to}", None)

    def offset_for_timestamp(self, timestamp: int, up_to: int) -> TimestampedOffset | None:
        """Return the first record before `up_to` that is not older than `timestamp`."""
        self._check_order()
        found = find_timestamp(self._segments, self.path, self.config, timestamp, self.log_start_offset)
        return found if found is not None and found.offset < up_to else None

    def offset_of_latest_timestamp(self, up_to: int) -> TimestampedOffset | None:
        """Return the first record with the latest timestamp of the log."""
        self._check_order()
        latest = max((segment.max_timestamp for segment in self._segments), default=NO_TIMESTAMP)
        return None if latest == NO_TIMESTAMP else self.offset_for_timestamp(latest, up_to)

    # --- deleting -----------------------------------------------------------------------------------------------------

    def check_start(self, offset: int, high_watermark: int) -> None:
        """Raise `LogOffsetOutOfRangeError` unless the log may start at `offset`."""
        if not 0 <= offset <= high_watermark:
            raise LogOffsetOutOfRangeError(
                f"cannot delete to offset {offset}: {self.path} can be read to {high_watermark}"
            )

    def delete_records(self, before: int, high_watermark: int) -> int:
        """Let the log start at `before`, unless it starts later already; return its start. `retain` frees the space.

        The caller saves the new start (`checkpoints.py`) and gives it to `open`.
        """
        self.check_start(before, high_watermark)
        self._start_at(before)
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self._epochs.cut_start(offset)

    def retain(self, now_ms: int, high_watermark: int) -> list[DeletedSegment]:
        """Remove the segments from the log that retention does not keep; none that reaches beyond `high_watermark`.

        Their files still exist, for `rename_files` and then `remove_files`.
        """
        if not self.is_in_order:
            return []
        reasons = reasons_to_drop(self._segments, self.config, self.log_start_offset, high_watermark, now_ms)
        if reasons and len(reasons) == len(self._segments):
            with writing(f"cannot delete old segments of {self.path}"):
                self._roll(now_ms)
        deleted = []
        for why, segment in zip(reasons, self._segments, strict=False):
            segment.close()
            deleted.append(DeletedSegment(segment.base_offset, segment.next_offset, segment.size, why, segment.paths))
        if deleted:
            del self._segments[: len(deleted)]
            self._start_at(deleted[-1].next_offset)
        return deleted

    # --- compacting ---------------------------------------------------------------------------------------------------

    def compactable(self, compacted_to: int, now_ms: int) -> Compactable | None:
        """Return what can be compacted, if it was already up to `compacted_to`; rolls first if that is worth it."""
        if not (self.config.compacts and self.is_in_order):
            return None
        first_dirty = first_dirty_offset(compacted_to, self.log_start_offset, self.log_end_offset)
        rolls = is_worth_rolling(self._segments, self.config, first_dirty)
        if not rolls and len(self._segments) == 1:  # nothing but the active segment, as in most logs
            return None
        with writing(f"cannot look for what to compact in {self.path}"):
            if rolls:
                self._is_untouched = False
                self._roll(now_ms)
            return compactable(
                self._segments, self.config, first_dirty, self.last_stable_offset(self.synced_end), now_ms
            )

    @property
    def highest_producer_id(self) -> int:
        """The highest producer id that the log remembers; -1 if there is none."""
        return max((producer_id for producer_id, _ in self._producers), default=-1)

    def last_records(self) -> dict[int, LastRecord]:
        return self._producers.last_ones()

    def has(self, segments: Sequence[Segment]) -> bool:
        """Return whether these segments are still part of the log, one after the other, and it can be changed."""
        slot = slot_of(self._segments, segments[0].base_offset)
        return self.is_in_order and self._segments[slot : slot + len(segments)] == list(segments)

    def replace(self, segments: Sequence[Segment], cleaned: Segment) -> None:
        """Read `cleaned` from now on, instead of these segments of the log."""
        self._is_gapless = False
        slot = slot_of(self._segments, segments[0].base_offset)
        self._segments[slot : slot + len(segments)] = [cleaned]

    def expire_producers(self, now_ms: int) -> list[int]:
        return self._producers.expire(now_ms)

    # --- closing ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Flush and close the log, so that opening it `clean` reads next to nothing."""
        if self._is_new:  # an opening makes what is missing, and takes no name for durable
            self.release()
            return
        if self._is_untouched:
            with writing(f"cannot close {self.path}"):
                self._flushing.sync_new_names()
            self.release()
            return
        if self._cut_to is not None:
            self.release()
            self._check_uncut()
        self.flush()
        with writing(f"cannot close {self.path}"):
            self._flushing.seal()
            self._flushing.sync_new_names()
            self._snapshot()()
            for sync in self._active.seal():
                sync.run()

    def _check_uncut(self) -> None:
        if self._cut_to is not None:
            raise LogWriteError(f"{self.path} is still to be cut back to offset {self._cut_to}", None)

    def release(self) -> None:
        """Close the files as they are, as if the process had ended."""
        for segment in self._segments:
            segment.close()
        self._flushing.forget()
