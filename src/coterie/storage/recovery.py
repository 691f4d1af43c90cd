"""Opening a log: load segments, leader epochs and producers from disk, reading only what must be read.

After a clean shutdown the files are trusted: the last rows of indexes are checked, the end of the last segment is read,
producers come from the last snapshot. After an unclean one every batch beyond the recovery point is checked with its
checksum, and the log ends where the first one fails: a write that was torn by the crash. What is cut is in
`Recovery.cuts`, which `coterie serve` prints; if whole batches are found behind the tear (the disk lost some other
page), the bytes are saved in a file beside. Only what is beyond the known durable end (`durable_ends.py`) is cut:
anything missing or wrong before it is damage, and then nothing is changed.

Then batches of the journal that continue the log are appended unchanged; those that the log has already are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from coterie.errors import MalformedError
from coterie.protocol.batch import BatchError, BatchHeader, MisplacedBatchError, batches
from coterie.protocol.records import marker_of
from coterie.storage.cleanup import finish_swaps
from coterie.storage.durable_ends import Damage, DamageError, LogFound, LogState, SegmentFound, SegmentState, damages_of
from coterie.storage.files import File, Files, read_file
from coterie.storage.leader_epochs import LeaderEpochs
from coterie.storage.log_config import LogConfig
from coterie.storage.producer_state import ProducerStateManager, decode_snapshot
from coterie.storage.segment import Segment
from coterie.storage.segment_files import (
    CHUNK,
    INDEX,
    LEFTOVERS,
    LOG,
    LOG_STARTS,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    BatchInFile,
    headers,
    join,
    named,
    offsets_of,
    whole_batches,
)
from coterie.storage.transaction_index import AbortedTransaction
from coterie.structs import DataStruct, field

CUT = ".cut"


class Cut(DataStruct, frozen=True):
    """Bytes that opening took off the end of the log."""

    path: str
    position: int
    size: int
    offset: int
    """The end of the log now."""
    why: str
    kept_as: str | None = None
    """The file that has the bytes, if whole batches are among them."""


class Recovery(DataStruct):
    """The things that opening a log had to repair."""

    batches_checked: int = 0
    cuts: list[Cut] = field(default_factory=list)
    indexes_rebuilt: list[str] = field(default_factory=list)
    restored: int = 0
    """The number of batches that only the journal had."""


class LoadedLog(DataStruct):
    """A log as it was loaded from disk."""

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStateManager
    recovery: Recovery
    damages: list[Damage] = field(default_factory=list)
    epochs_known_to: int = 0
    """The leader epochs before this offset are known. No checksum covers those in the headers of batches."""

    @property
    def log_end_offset(self) -> int:
        return self.segments[-1].next_offset

    def note(
        self, found: BatchInFile, *, is_news: bool = True, segment: Segment | None = None
    ) -> AbortedTransaction | None:
        """Update producers and epochs with a batch; `is_news` is False if the producers' snapshot has it.

        `segment` is the open segment that has the batch, if its indexes are being built.
        """
        if found.header.base_offset >= self.epochs_known_to:
            self.epochs.assign(found.header.leader_epoch, found.header.base_offset)
        aborted = self.producers.note(found.header, found.marker) if is_news else None
        if aborted is not None and segment is not None:
            segment.note_aborted(aborted)
        return aborted


class _Journaled:
    """The entries of a log in the journal, in order; batches beyond `end` are not used."""

    def __init__(self, entries: Sequence[bytes], end: int | None) -> None:
        self._entries = entries
        self._end = end

    def reach(self, end: int) -> int:
        """Return where a log that ends at `end` will end with what the journal has."""
        for header in self._headers():
            if header.base_offset == end and (self._end is None or header.next_offset <= self._end):
                end = header.next_offset
        return end

    def first_beyond(self, end: int) -> int | None:
        """Return the first offset after a hole that begins at `end`; None if there is no hole."""
        if self._end is not None:
            return None
        return min((header.base_offset for header in self._headers() if header.base_offset > end), default=None)

    def _headers(self) -> Iterator[BatchHeader]:
        return (header for data in self._entries for _, header in batches(data))

    def continue_segment(self, loaded: LoadedLog, slot: int) -> bool:
        """Append to a segment what continues it; return whether there was any.

        It need not be the last segment: one may have lost its end in the crash, while the next exists already.
        """
        segment = loaded.segments[slot]
        limits = [after.base_offset for after in loaded.segments[slot + 1 : slot + 2]]
        limits += [] if self._end is None else [self._end]
        before = loaded.recovery.restored
        for data in self._entries:
            previous = b""
            for at, header in batches(data):
                batch = memoryview(data)[at : at + header.size]
                fits = all(header.next_offset <= limit for limit in limits)
                if header.base_offset == segment.next_offset and fits:
                    if previous and previous != segment.read(segment.next_offset - 1, 1, segment.next_offset):
                        break  # it is of a write that failed, after which other batches were appended
                    segment.append(batch, [header])
                    marker = marker_of(data, header, at) if header.is_control else None
                    loaded.note(BatchInFile(at, header, marker), segment=segment)
                    loaded.recovery.restored += 1
                previous = bytes(batch)
        return loaded.recovery.restored > before


def load(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    now_ms: int,
    journaled: Sequence[bytes] = (),
    end: int | None = None,
    known: LogState | None = None,
) -> LoadedLog:
    """Load a log. `journaled` is what the journal has of it; batches beyond `end` are not used.

    `known` is what is known to be durable: `DamageError` if it is not there.
    """
    was_swapping = finish_swaps(files, directory)
    segments = _find_segments(files, directory, config, log_start_offset, known)
    try:
        loaded = _load(
            files,
            directory,
            config,
            segments,
            recovery_point,
            _Journaled(journaled, end),
            clean=clean,
            known=known,
            txn_indexes_are_right=not was_swapping,
        )
        _settle(files, directory, config, loaded, log_start_offset, now_ms, known)
    except BaseException:
        for segment in segments:
            segment.close()
        raise
    return loaded


def load_cut(
    files: Files,
    directory: str,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    end: int,
    now_ms: int,
    journaled: Sequence[bytes] = (),
) -> LoadedLog:
    """Load a log as after a crash, and end it with the last whole batch before `end`.

    What only the journal made durable is written again: after a failed fsync the kernel marks the pages clean. Reads
    still return them, but later fsyncs skip them. Nothing is written to a segment that was sealed below the recovery
    point: a write that fails may leave a part behind, and a start takes such a segment for whole.
    """

    def loaded(journaled: Sequence[bytes]) -> LoadedLog:
        return load(
            files,
            directory,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=False,
            now_ms=now_ms,
            journaled=journaled,
            end=end,
        )

    found = loaded(())
    if found.log_end_offset <= end and not journaled:
        return found
    keep = min(end, recovery_point) if journaled else end
    segments = found.segments
    try:
        while len(segments) > 1 and segments[-1].base_offset > keep:  # one that begins there goes on, from nothing
            segments.pop().delete()
        segments[-1].cut_at(keep)
    finally:
        for segment in segments:
            segment.close()
    return loaded(journaled)


def _load(
    files: Files,
    directory: str,
    config: LogConfig,
    segments: list[Segment],
    recovery_point: int,
    journaled: _Journaled,
    *,
    clean: bool,
    known: LogState | None,
    txn_indexes_are_right: bool,
) -> LoadedLog:
    epochs = LeaderEpochs.load(files, directory)
    if known is not None:
        epochs = epochs_known(epochs, known.epochs, clean=clean)
    producers = ProducerStateManager(config.max_producers, config.producer_id_expiration_ms)
    loaded = LoadedLog(segments, epochs or LeaderEpochs(), producers, Recovery())
    if known is not None and known.epochs:
        loaded.epochs_known_to = recovery_point
    states = {state.base_offset: state for state in known.segments} if known is not None else {}
    if (clean or segments[-1].is_open) and _is_whole(files, segments[-1], states):
        first_unsure = len(segments)
        known_to = loaded.log_end_offset
    else:
        first_unsure = _first_beyond(segments, recovery_point)
        known_to = segments[first_unsure].base_offset
    sealed = segments[: min(first_unsure, len(segments) - 1)]
    found = [_found(segment, states, loaded.recovery) for segment in sealed]
    if known is not None:
        after = segments[len(sealed)].base_offset
        if clean and len(sealed) == len(segments) - 1:
            active = segments[-1]
            found.append(SegmentFound(active.path(LOG), active.base_offset, files.size(active.path(LOG))))
            after = max(active.base_offset, known.end)
        loaded.damages += damages_of(known, LogFound(directory, found, after, is_clean=clean))
    else:
        loaded.damages += [
            Damage(one.path, one.wrong, directory, (one.base, segment.next_offset))
            for one, segment in zip(found, sealed, strict=True)
            if one.wrong
        ]
    if not loaded.damages:
        snapshot_at = _read_producers(files, directory, producers, known_to)
        trusted = segments[:first_unsure]
        if not (txn_indexes_are_right and all(_has_its_txn_index(one, states) for one in trusted)):
            _rebuild_txn_indexes(config, trusted, loaded.recovery)
        _replay(directory, loaded, segments[:first_unsure], snapshot_at, epochs_known=epochs is not None)
    gaps_below = None
    if known is not None:
        # A log is compacted only up to the recovery point before. A gap beyond it is a wrong base offset.
        gaps_below = 0 if is_gapless(config, known) else max(min(known.end, recovery_point), known.gaps_below)
    _recover(files, directory, loaded, first_unsure, journaled, known, clean=clean, gaps_below=gaps_below)
    if loaded.damages:
        raise DamageError(list({damage.path: damage for damage in reversed(loaded.damages)}.values())[::-1])
    return loaded


def epochs_known(found: LeaderEpochs | None, known: Sequence[tuple[int, int]], *, clean: bool) -> LeaderEpochs | None:
    """Return the leader epochs if their file agrees with the checkpoint, else those of the checkpoint.

    The file has no checksum. None: neither has any, and they are read from the log.
    """
    if clean:
        return LeaderEpochs(list(known))
    if found is None or not found.entries:
        return LeaderEpochs(list(known)) if known else found
    # The log may start later now, so that first entries were moved or dropped.
    first = found.entries[0][1]
    agrees = {entry for entry in known if entry[1] > first} <= set(found.entries)
    return found if agrees else LeaderEpochs(list(known))


def is_gapless(config: LogConfig, known: LogState | None) -> bool:
    """Return whether each batch must begin where the one before ends: a log that was never compacted has no gaps."""
    return known is not None and not config.compacts and not known.compacted and not known.gaps_below


def _settle(
    files: Files,
    directory: str,
    config: LogConfig,
    loaded: LoadedLog,
    log_start_offset: int,
    now_ms: int,
    known: LogState | None,
) -> None:
    segments, producers = loaded.segments, loaded.producers
    if log_start_offset > loaded.log_end_offset:
        if known is None:  # the log start has no checksum that confirms it
            end = loaded.log_end_offset
            wrong = f"says that {directory} starts at offset {log_start_offset}, and the log ends at {end}"
            raise DamageError([Damage(LOG_STARTS, wrong, directory, (segments[0].base_offset, end))])
        for segment in segments:  # all of it was deleted, and the rest, which was never durable, is lost
            segment.delete()
        segments[:] = [Segment.create(files, directory, log_start_offset, config.index_interval_bytes)]
    producers.expire(now_ms)
    loaded.epochs.cut_end(loaded.log_end_offset)
    for offset in offsets_of(files.names(directory), SNAPSHOT):
        if offset > loaded.log_end_offset:
            files.delete(join(directory, named(offset, SNAPSHOT)))


def _find_segments(
    files: Files, directory: str, config: LogConfig, log_start_offset: int, known: LogState | None
) -> list[Segment]:
    names = files.names(directory)
    _remove(files, [join(directory, name) for name in names if name.endswith(LEFTOVERS)])
    bases = offsets_of(names, LOG)
    for suffix in (INDEX, TIME_INDEX, TXN_INDEX):
        orphans = set(offsets_of(names, suffix)).difference(bases)
        _remove(files, [join(directory, named(offset, suffix)) for offset in orphans])
    interval = config.index_interval_bytes
    if not bases:
        if known is not None and known.end > known.start:
            raise DamageError([Damage(directory, "has no segments", directory, (known.start, known.end))])
        return [Segment.create(files, directory, max(log_start_offset, known.end if known else 0), interval)]
    nexts = [*bases[1:], bases[-1]]  # where the last one ends is found by reading it
    return [Segment.sealed(files, directory, base, after, interval) for base, after in zip(bases, nexts, strict=True)]


def _is_whole(files: Files, active: Segment, states: Mapping[int, SegmentState]) -> bool:
    """Open the last segment after a clean shutdown; return False if it is not what that leaves."""
    try:
        if not active.is_open:
            active.activate()
            state = states.get(active.base_offset)
            if state is not None and active.size == state.size:
                sizes = files.size(active.path(INDEX)), files.size(active.path(TIME_INDEX))
                return sizes == (state.index_size, state.time_index_size)
    except (BatchError, FileNotFoundError):
        return False
    return True


def _first_beyond(segments: list[Segment], recovery_point: int) -> int:
    for slot, segment in enumerate(segments[:-1]):
        if segment.next_offset > recovery_point:
            return slot
    return len(segments) - 1


def _found(segment: Segment, states: Mapping[int, SegmentState], recovery: Recovery) -> SegmentFound:
    """Check the end of a sealed segment; indexes that do not fit it are built again."""
    state = states.get(segment.base_offset)
    sizes = (state.index_size, state.time_index_size) if state is not None and state.size == segment.size else None
    end, wrong = None, ""
    try:
        if not segment.indexes_look_right(sizes):
            segment.rebuild_indexes()
            recovery.indexes_rebuilt.append(segment.path(INDEX))
        end = segment.last_end()
    except BatchError as error:
        wrong = _damaged(error)
    return SegmentFound(segment.path(LOG), segment.base_offset, segment.size, end, wrong)


def _damaged(error: BatchError) -> str:
    return f"is damaged, though it was whole when it was closed: {error}"


def _read_producers(files: Files, directory: str, producers: ProducerStateManager, up_to: int) -> int:
    """Fill `producers` from the newest valid snapshot up to `up_to`; return its offset, 0 if there is none."""
    for offset in reversed(offsets_of(files.names(directory), SNAPSHOT)):
        if offset <= up_to:
            path = join(directory, named(offset, SNAPSHOT))
            try:
                decode_snapshot(read_file(files, path), producers)
            except MalformedError:
                files.delete(path)
            else:
                return offset
    return 0


def _replay(
    directory: str, loaded: LoadedLog, segments: list[Segment], snapshot_at: int, *, epochs_known: bool
) -> None:
    """Read from headers alone what the snapshot and the file of epochs do not have."""
    start = snapshot_at if epochs_known else 0
    for segment in segments:
        if segment.next_offset > start:
            try:
                for found in segment.replay(max(start, segment.base_offset)):
                    loaded.note(found, is_news=found.header.base_offset >= snapshot_at)
            except BatchError as error:
                lost = segment.base_offset, segment.next_offset
                loaded.damages.append(Damage(segment.path(LOG), _damaged(error), directory, lost))


def _has_its_txn_index(segment: Segment, states: Mapping[int, SegmentState]) -> bool:
    state = states.get(segment.base_offset)
    known = state.txn_index_size if state is not None and state.size == segment.size else None
    return segment.is_open or segment.txn_index_looks_right(known)


def _rebuild_txn_indexes(config: LogConfig, segments: Sequence[Segment], recovery: Recovery) -> None:
    """Find the aborted transactions of sealed segments again, from the headers of all batches."""
    producers = ProducerStateManager(config.max_producers, config.producer_id_expiration_ms)
    for segment in segments:
        found = (producers.note(each.header, each.marker) for each in segment.replay(segment.base_offset))
        rows = [row for row in found if row is not None]
        if not segment.is_open:
            segment.replace_txn_index(rows)
            recovery.indexes_rebuilt.append(segment.path(TXN_INDEX))


def _recover(
    files: Files,
    directory: str,
    loaded: LoadedLog,
    first_unsure: int,
    journaled: _Journaled,
    known: LogState | None,
    *,
    clean: bool,
    gaps_below: int | None,
) -> None:
    """Check every batch from `first_unsure` on. If there is damage nothing is cut or written.

    After a clean shutdown nothing is torn: what is not whole is damage, even if all offsets are there. So is a whole
    batch with durable records that does not continue the log, unless a torn write can leave it.
    """
    segments, damages = loaded.segments, loaded.damages
    durable_end, holes_below = (known.end, known.gaps_below) if known is not None else (0, 0)
    slot = first_unsure
    while slot < len(segments):
        segment = segments[slot]
        expected = max(segment.base_offset, segments[slot - 1].next_offset if slot else 0)
        stored = files.size(segment.path(LOG))
        why, is_misplaced = "", False
        try:
            for found in segment.recover(expected, gaps_below=gaps_below):
                loaded.recovery.batches_checked += 1
                loaded.note(found, segment=segment)
        except BatchError as error:
            why = str(error)
            is_misplaced = (
                isinstance(error, MisplacedBatchError)
                and error.base_offset < durable_end
                and not _may_be_torn(error.base_offset, segment.next_offset)
            )
        # It must reach `due`: the end of what was durable, or the next segment. Of a log whose ends were not kept, and
        # where compaction left gaps, nothing is known to be missing.
        due = min([durable_end, *(after.base_offset for after in segments[slot + 1 : slot + 2])])
        is_kept = known is not None and due > known.start
        is_short = journaled.reach(segment.next_offset) < due and (why or segment.base_offset >= holes_below)
        if is_kept and (is_short or is_misplaced or (why and clean)):
            wrong = f"is damaged: {why}" if why else _too_short(segment.next_offset, clean=clean)
            lost = (expected if is_misplaced else segment.next_offset), due
            damages.append(Damage(segment.path(LOG), wrong, directory, lost))
        if damages:
            slot += 1
            continue
        if why:
            loaded.recovery.cuts += _cut(files, segment, stored, why, segments[slot + 1 :])
            del segments[slot + 1 :]
        restored = journaled.continue_segment(loaded, slot)
        slot += 1
        if slot < len(segments) or stored or restored:  # it may only be in the system's cache
            for sync in segment.seal() if slot < len(segments) else [segment.later()]:
                sync.run()
    if known is not None and not damages:
        _drop_empty_end(segments, max(durable_end, holes_below))
    beyond = journaled.first_beyond(loaded.log_end_offset)
    if beyond is not None and not damages:
        wrong = f"ends at offset {loaded.log_end_offset}, and the journal goes on at {beyond}"
        damages.append(Damage(segments[-1].path(LOG), wrong, directory, (loaded.log_end_offset, beyond)))
    if loaded.log_end_offset < durable_end and not damages:
        wrong = _too_short(loaded.log_end_offset, clean=clean)
        damages.append(Damage(segments[-1].path(LOG), wrong, directory, (loaded.log_end_offset, durable_end)))


def _too_short(end: int, *, clean: bool) -> str:
    """Say where a log ends. After a crash, the journal should have had what segments did not have yet."""
    return f"ends at offset {end}" + ("" if clean else ", and coterie-journal does not have the rest")


def _drop_empty_end(segments: list[Segment], durable_end: int) -> None:
    """Delete a last segment without batches if the one before it has lost its end, which was never durable.

    Its name may reach the disk before the batches that come before it. The log would have a hole at its end.
    """
    while len(segments) > 1 and not segments[-1].size and segments[-1].base_offset > durable_end:
        if segments[-2].next_offset == segments[-1].base_offset:
            return
        segments.pop().delete()
        segments[-1].activate()


def _may_be_torn(base_offset: int, expected: int) -> bool:
    """Return whether a whole batch has this base offset because its write was torn.

    No checksum covers the base offset, and a page may end inside of it. If that page was not written, and the next one
    was, the first bytes of the offset are zero and the others are right.
    """
    return any(base_offset == expected % (1 << bits) for bits in range(0, 64, 8))


def _cut(files: Files, segment: Segment, stored: int, why: str, later: list[Segment]) -> Iterator[Cut]:
    """End the log with the valid part of `segment`; cut what is beyond, and the segments after it."""
    path = segment.path(LOG)
    kept_as = _keep_tail(files, path, segment.size)
    segment.cut_tail()
    yield Cut(path, segment.size, stored - segment.size, segment.next_offset, why, kept_as)
    for other in later:
        path, size = other.path(LOG), files.size(other.path(LOG))
        kept_as = path + CUT if size else None
        if kept_as:
            files.rename(path, kept_as)
        _remove(files, [path, other.path(INDEX), other.path(TIME_INDEX), other.path(TXN_INDEX)])
        yield Cut(path, 0, size, segment.next_offset, "the log ends in an earlier segment", kept_as)


def _keep_tail(files: Files, path: str, position: int) -> str | None:
    """Copy what is to be cut into a file of its own, if there is a whole batch in it; return that file's path."""
    source = files.open(path)
    try:
        if not _holds_whole_batch(source, position):
            return None
        kept_as = f"{path}.{position}{CUT}"
        target = files.open(kept_as, create=True)
        try:
            target.truncate(0)
            while data := source.pread(CHUNK, position):
                target.append(data)
                position += len(data)
            target.sync()
        finally:
            target.close()
    finally:
        source.close()
    return kept_as


def _holds_whole_batch(file: File, position: int) -> bool:
    """Return whether the batch at `position` is whole (and out of order), or the one behind it."""
    try:
        _, failed = next(headers(file, position, file.size))
    except (BatchError, StopIteration):
        return False
    return any(_is_whole_batch(file, at) for at in (position, position + failed.size))


def _is_whole_batch(file: File, at: int) -> bool:
    try:
        return next(whole_batches(file, at, file.size, verify=True), None) is not None
    except BatchError:
        return False


def _remove(files: Files, paths: list[str]) -> None:
    for path in paths:
        files.delete(path)
