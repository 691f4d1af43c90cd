"""Repair of one log: find its whole batches, and what its segments have to become.

A segment is rewritten with all whole batches of the old one; offsets whose records are lost are filled with batches
without records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coterie.errors import MalformedError
from coterie.protocol.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    check_sum,
    pack_header,
    parse_header,
)
from coterie.storage.cleanup import finish_swaps
from coterie.storage.durable_ends import LogState
from coterie.storage.files import Files, read_file
from coterie.storage.metadata_files import StoredTopic, decode_partition_metadata
from coterie.storage.segment import MAX_RELATIVE
from coterie.storage.segment_files import LOG, join, named, offsets_of
from coterie.storage.stray_directories import PARTITION_FILE
from coterie.structs import DataStruct, field

MOST_FILLED = 2**31 - 1
"""The most offsets that one batch can fill."""
_MAGIC_AT = 16


class LogFinding(DataStruct):
    """The damage of a log, and what its segments have to become."""

    topic: StoredTopic
    partition: int
    wrong: list[str] = field(default_factory=list)
    """The damage, with the names of the files."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of lost offsets: the first, and the one after the last."""
    rewritten: dict[int, list[bytes]] = field(default_factory=dict)
    """The batches of each segment that has to be written, by its base offset."""
    start: int = 0
    end: int = 0
    is_compacted: bool = False
    batches: int = 0
    """The number of its whole batches."""

    @property
    def path(self) -> str:
        return f"{self.topic.name}-{self.partition}"

    @property
    def is_damaged(self) -> bool:
        return bool(self.wrong)


class LogInspection:
    """Reads one log whole, and decides what its segments have to become."""

    def __init__(
        self,
        files: Files,
        topic: StoredTopic,
        partition: int,
        known: LogState | None,
        journaled: Sequence[bytes],
        start: int,
        synced_end: int,
    ) -> None:
        """`synced_end` is the end of the log in the last checkpoint: only what is before it was compacted."""
        self._files = files
        self._synced_end = synced_end
        self._known = known
        self._start = start
        self._journaled = journaled
        """The batches that the journal has of this log."""
        self._found = LogFinding(topic, partition)
        self._found.is_compacted = topic.configs.get("cleanup.policy", "").find("compact") >= 0 or (
            topic.name.startswith("__") or (known is not None and bool(known.compacted or known.gaps_below))
        )

    def run(self) -> LogFinding:
        found, known, files = self._found, self._known or LogState(), self._files
        path = found.path
        found.start = found.end = known.start
        if not files.exists(path):
            self._is_lost(f"{path} is missing", known.start, known.end)
            found.start = found.end = known.end
            found.rewritten[known.end] = []
            return found
        self._check_id(path)
        finish_swaps(files, path)
        bases = offsets_of(files.names(path), LOG)
        if not bases:
            if known.end > known.start:
                self._is_lost(f"{path} has no segments", known.start, known.end)
                found.rewritten[known.end] = []
            found.start = found.end = max(known.start, known.end)
            return found
        found.start = max(self._start, bases[0])
        if self._known is not None and bases[0] > known.start:
            self._is_lost(f"{path} has no segment before offset {bases[0]}", known.start, bases[0])
        offset = bases[0]
        for slot, base in enumerate(bases):
            after = bases[slot + 1] if slot + 1 < len(bases) else None
            if after is not None and after <= self._start:
                continue  # it was deleted: a crash may bring back some of the files
            offset = self._look_at(base, max(offset, base), after)
        found.end = offset
        found.start = min(found.start, found.end)
        return found

    def _is_lost(self, wrong: str, first: int, after: int) -> None:
        self._found.wrong.append(wrong)
        if after > first:
            self._found.lost.append((first, after))

    def _check_id(self, path: str) -> None:
        try:
            topic_id = decode_partition_metadata(read_file(self._files, f"{path}/{PARTITION_FILE}"))
        except (FileNotFoundError, MalformedError):
            return  # an opening creates it again
        if topic_id != self._found.topic.id:
            self._found.wrong.append(f"{path}/{PARTITION_FILE} names another topic")

    def _look_at(self, base: int, offset: int, after: int | None) -> int:
        """Inspect a segment; return where it ends now. `after` is where the next one begins, None if there is none."""
        found, known = self._found, self._known or LogState()
        name = join(found.path, named(base, LOG))
        data = read_file(self._files, name)
        pieces: list[bytes] = []
        wrong: list[str] = []
        epoch = 0
        at = 0
        due = after if after is not None else known.end
        most = base + MAX_RELATIVE + 1
        last = after if after is not None else most
        may_end = most if self._known is None else max(self._synced_end, known.gaps_below)
        gaps_below = may_end if found.is_compacted else 0
        for position, header, why in _walk(data, offset, last, gaps_below):
            if header is None:
                if after is None and offset >= known.end and position == len(data):
                    break  # it was torn by a crash: an opening cuts it
                wrong.append(f"{name} is damaged at byte {at}: {why}")
                at = position
                continue
            found.batches += 1
            if header.base_offset > offset and wrong:
                pieces += _filled(offset, header.base_offset, epoch)
                found.lost.append((offset, header.base_offset))
            pieces.append(data[position : position + header.size])
            offset, epoch, at = header.next_offset, header.leader_epoch, position + header.size
        is_gap = found.is_compacted and not wrong and base < known.gaps_below
        journaled = self._journaled if after is None else ()
        while not is_gap and (self._known is not None or wrong):
            for piece in journaled:
                header = parse_header(piece)
                if header.base_offset == offset:
                    pieces.append(piece)
                    offset, epoch = header.next_offset, header.leader_epoch
            beyond = (parse_header(piece).base_offset for piece in journaled)
            until = min((first for first in beyond if first > offset), default=due)
            if until <= offset:
                break
            if not wrong:
                wrong.append(f"{name} ends at offset {offset}, and should reach to {until}")
            pieces += _filled(offset, until, epoch)
            found.lost.append((offset, until))
            offset = until
        if after is not None:
            offset = after
        if wrong:
            found.wrong += wrong
            found.rewritten[base] = pieces
        return offset


def _walk(data: bytes, offset: int, last: int, gaps_below: int) -> Iterator[tuple[int, BatchHeader | None, str]]:
    """Yield position and header of each whole batch that continues the log, up to the offset `last`.

    At one that does not, yield where the next whole one begins, None and the reason. The rule of gaps is that of
    `Segment.recover`. A batch behind a gap is wrong if the next one begins within the gap or the batch.
    """
    at = 0
    while at < len(data):
        header, why = _batch_at(data, at, offset, last, gaps_below)
        if header is None:
            at = _next_batch(data, at + 1, offset, last)
            yield at, None, why
            if at == len(data):
                return
            header = _whole_at(data, at, offset, last)[0]
            assert header is not None
        yield at, header, ""
        at, offset = at + header.size, header.next_offset


def _batch_at(data: bytes, at: int, first: int, last: int, gaps_below: int) -> tuple[BatchHeader | None, str]:
    """Return the header of the batch if it continues the log; else None and the reason."""
    header, why = _whole_at(data, at, first, last)
    if header is None or header.base_offset == first:
        return header, why
    following = _whole_at(data, at + header.size, first, last)[0]
    if header.next_offset > gaps_below or (following is not None and following.base_offset < header.next_offset):
        return None, f"the batch begins at offset {header.base_offset}, not {first}"
    return header, ""


def _whole_at(data: bytes, at: int, first: int, last: int) -> tuple[BatchHeader | None, str]:
    """Return the header of the batch if it is whole and within the offsets; else None and the reason."""
    try:
        header = parse_header(data, at)
        check_sum(data, header, at)
    except BatchError as error:
        return None, str(error)
    if not (first <= header.base_offset and header.last_offset_delta >= 0 and header.next_offset <= last):
        return None, f"the batch begins at offset {header.base_offset}, where {first} or more is next"
    return header, ""


def _next_batch(data: bytes, at: int, first: int, last: int) -> int:
    """Return where the next whole batch begins; the end if there is none."""
    at = data.find(2, at + _MAGIC_AT)
    while at >= 0:
        if len(data) - at + _MAGIC_AT >= HEADER_SIZE and _whole_at(data, at - _MAGIC_AT, first, last)[0] is not None:
            return at - _MAGIC_AT
        at = data.find(2, at + 1)
    return len(data)


def _filled(first: int, after: int, epoch: int) -> Iterator[bytes]:
    """Yield batches without records for offsets whose records are lost."""
    while first < after:
        count = min(after - first, MOST_FILLED)
        header = BatchHeader(
            base_offset=first,
            length=0,
            leader_epoch=epoch,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=count - 1,
            base_timestamp=NO_TIMESTAMP,
            max_timestamp=NO_TIMESTAMP,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=NO_PRODUCER_EPOCH,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        )
        yield bytes(pack_header(header, b""))
        first += count


def batches_left(files: Files, log: LogFinding) -> Iterator[bytes]:
    """Yield the whole batches of a damaged log."""
    if files.exists(log.path):
        for base in offsets_of(files.names(log.path), LOG):
            if base not in log.rewritten:
                data = read_file(files, join(log.path, named(base, LOG)))
                last = base + MAX_RELATIVE + 1
                for position, header, _ in _walk(data, base, last, gaps_below=last):
                    if header is not None:
                        yield data[position : position + header.size]
    for pieces in log.rewritten.values():
        yield from pieces
