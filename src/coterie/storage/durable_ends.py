"""The durable ends of logs, and the rules that find damage: data that is missing or wrong though it was durable.

A crash tears what was being written, which is beyond the durable ends. Anything else that is missing or changed was
lost by the disk or by a person: nothing is truncated or recreated in its place, and the broker does not start.
`repair.py` repairs it.

`coterie-checkpoint.json` has what was on disk when it was written, for each log: where it starts, how far it is synced,
its leader epochs, its segments and their sizes. It is written from time to time, before segments are deleted, and at a
clean shutdown. After each flush the ends of the flushed logs are appended to `coterie-durable-ends`. That file is not
synced: it survives the process, and after a power failure it says less, never too much.

Each entry of the ends has a checksum; reading stops at the first that is not whole. The first line has the number of
the checkpoint that the ends follow, so a checkpoint that was replaced by an older copy is noticed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.checksums import crc32c
from coterie.storage.files import DiskFile, File, Files, PreparedWrite, read_file
from coterie.storage.log_errors import DamagedFileError, DirectoryError
from coterie.storage.metadata_files import ChecksummedFile, id_text, parse_id

CHECKPOINT = ChecksummedFile(
    "coterie-checkpoint.json",
    1,
    "how far each log was on the disk, and where it starts",
    "it reads all logs whole and writes the file again from what they have",
)
ENDS_FILE = "coterie-durable-ends"
_FIRST_LINE = re.compile(rb"coterie-durable-ends 1 follows ([0-9]+) crc32c ([0-9a-f]{8})\n")
_ENTRY = Struct(">16siqI")
"""Topic id, partition, end, and the checksum of these."""
_CHECKED = _ENTRY.size - 4
_LONG = 1 << 20
"""A file of more bytes than this is rewritten with one entry per log."""

WITHIN_SEGMENTS = -1

TopicPartition = tuple[UUID, int]
NO_TOPIC = UUID(int=0)
PRODUCER_IDS_END: TopicPartition = NO_TOPIC, -1
"""The key of the end of assigned producer ids: if the file of producer ids is lost, none is assigned again."""
ACLS_END: TopicPartition = NO_TOPIC, -2
"""The key of the number of the last change of the ACLs: if their file is lost or an old copy, that is noticed."""


class SegmentState(NamedTuple):
    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    txn_index_size: int = 0


class LogState(NamedTuple):
    """The state of one log in a checkpoint."""

    start: int = 0
    end: int = 0
    """All offsets before it are durable."""
    compacted: int = 0
    """The end of its compacted part."""
    gaps_below: int = 0
    """An earlier release compacted it up to here and left gaps between segments; -1: gaps only within segments."""
    epochs: tuple[tuple[int, int], ...] = ()
    segments: tuple[SegmentState, ...] = ()
    """The sealed segments in order; after a clean shutdown these are all."""


class DirectoryCheckpoint(NamedTuple):
    number: int = 0
    logs: Mapping[TopicPartition, LogState] = {}


def write_checkpoint(files: Files, checkpoint: DirectoryCheckpoint) -> None:
    rows = [
        [id_text(topic), partition, *state[:-1], [_row_of(segment) for segment in state.segments]]
        for (topic, partition), state in checkpoint.logs.items()
    ]
    lines = ",\n".join(map(json.dumps, rows))
    CHECKPOINT.write(files, f'{{"number": {checkpoint.number}, "logs": [\n{lines}\n]}}\n'.encode())


def _row_of(segment: SegmentState) -> Sequence[int]:
    """Most segments have no aborted transactions: then their row is as earlier releases wrote it."""
    return segment if segment.txn_index_size else segment[:-1]


def read_checkpoint(files: Files) -> DirectoryCheckpoint | None:
    """Read the checkpoint; None if the directory is of an earlier release, which had none."""
    follows = _number_in(_content(files))
    if not files.exists(CHECKPOINT.path) and follows is None:
        return None
    content = CHECKPOINT.read(files)
    try:
        found = json.loads(content.payload)
        checkpoint = DirectoryCheckpoint(int(found["number"]), dict(map(_state_of, found["logs"])))
    except (MalformedError, ValueError, KeyError, TypeError) as error:
        raise CHECKPOINT.damaged(f"is not what we write: {error!r}") from None
    if follows is not None and checkpoint.number < follows:
        raise older_copy(checkpoint.number, follows)
    return checkpoint


def number_followed(files: Files) -> int:
    """Return the number of the checkpoint that the ends follow; 0 if there is none."""
    return _number_in(_content(files)) or 0


def older_copy(number: int, follows: int) -> DamagedFileError:
    return CHECKPOINT.damaged(f"is an older copy: it is number {number}, and {follows} was written")


def _state_of(row: list[Any]) -> tuple[TopicPartition, LogState]:
    topic, partition, start, end, compacted, gaps_below, epochs, segments = row
    state = LogState(
        start,
        end,
        compacted,
        gaps_below,
        tuple((epoch, at) for epoch, at in epochs),
        tuple(SegmentState(*one) for one in segments),
    )
    return (parse_id(topic), partition), state


class DurableEnds:
    """The ends of logs since the last checkpoint.

    They are used only by the thread that waits for the disk, and by the event loop while that has nothing to do.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._file: File | None = None
        self._number = 0
        self._prepared: Sequence[tuple[TopicPartition, int]] = ()
        self._ends: dict[TopicPartition, int] = {}

    def read(self) -> Mapping[TopicPartition, int]:
        """Read up to where each log is known to be durable."""
        data = _content(self._files)
        self._ends = {}
        if _number_in(data) is not None:
            at = data.index(b"\n") + 1
            while at + _ENTRY.size <= len(data):
                topic, partition, end, checksum = _ENTRY.unpack_from(data, at)
                if crc32c(data[at : at + _CHECKED]) != checksum:
                    break
                key = UUID(bytes=topic), partition
                self._ends[key] = max(end, self._ends.get(key, 0))
                at += _ENTRY.size
        return self._ends

    def end_of(self, key: TopicPartition) -> int:
        return self._ends.get(key, 0)

    def follow(self, checkpoint: DirectoryCheckpoint) -> None:
        """Keep only ends beyond a checkpoint that is on disk."""
        self._number = checkpoint.number
        known = checkpoint.logs
        self._ends = {
            key: end for key, end in self._ends.items() if key[0] == NO_TOPIC or (key in known and end > known[key].end)
        }
        self._start_over()

    def add(self, ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """Append the new ends of logs; if that fails, nothing is lost but this knowledge."""
        if self._file is None:
            return
        added = dict(ends)
        self._ends |= added
        if not added:
            return
        try:
            self._file.append(b"".join(map(_entry, added.items())))
            if self._file.size > _LONG:
                self._start_over()
        except OSError:
            self.release()

    @property
    def can_prepare(self) -> bool:
        """Return whether `prepare` does what `add` does: it does not, if the file has to be rewritten."""
        return self._file is None or (isinstance(self._file, DiskFile) and self._file.size <= _LONG)

    def prepare(self, ends: Iterable[tuple[TopicPartition, int]]) -> PreparedWrite | None:
        """Return the write that appends the new ends of logs, for a `DiskWriter`; then call `ended`.

        None: there is nothing to write.
        """
        self._prepared = list(ends)
        if not self._prepared or not isinstance(self._file, DiskFile):
            return None
        return self._file.prepare(b"".join(map(_entry, self._prepared)))

    def ended(self, *, well: bool) -> None:
        """The write that was prepared has ended."""
        if not isinstance(self._file, DiskFile) or not self._prepared:
            return
        self._ends.update(self._prepared)
        if well:
            self._file.appended(_ENTRY.size * len(self._prepared))
        else:
            self.release()

    def _start_over(self) -> None:
        self.release()
        head = b"coterie-durable-ends 1 follows %d" % self._number
        content = b"%s crc32c %08x\n" % (head, crc32c(head)) + b"".join(map(_entry, self._ends.items()))
        temporary = ENDS_FILE + ".tmp"
        with suppress(OSError):
            self._files.delete(temporary)
            file = self._files.open(temporary, create=True)
            try:
                file.append(content)
                self._files.rename(temporary, ENDS_FILE)
            except OSError:
                file.close()
                raise
            self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _entry(item: tuple[TopicPartition, int]) -> bytes:
    (topic, partition), end = item
    data = _ENTRY.pack(topic.int.to_bytes(16, "big"), partition, end, 0)[:_CHECKED]
    return data + crc32c(data).to_bytes(4, "big")


def _content(files: Files) -> bytes:
    return read_file(files, ENDS_FILE) if files.exists(ENDS_FILE) else b""


def _number_in(data: bytes) -> int | None:
    """Return which checkpoint the ends follow; None if their first line is not whole, as after a power failure."""
    found = _FIRST_LINE.match(data)
    if found is None or crc32c(b"coterie-durable-ends 1 follows " + found[1]) != int(found[2], 16):
        return None
    return int(found[1])


class Damage(NamedTuple):
    path: str
    wrong: str
    """The kind of damage: "is missing"."""
    log: str
    """The partition it is about."""
    lost: tuple[int, int] | None = None
    """Offsets from, and until before; None if they are not known."""

    @property
    def stake(self) -> str:
        if self.lost is None:
            return f"records of {self.log}"
        first, after = self.lost
        if after <= first:
            return f"the end of {self.log}, which is offset {after}"
        return (
            f"offset {first} of {self.log}" if after - first == 1 else f"offsets {first} to {after - 1} of {self.log}"
        )

    def __str__(self) -> str:
        return f"{self.path} {self.wrong}; at stake: {self.stake}"


class DamageError(DirectoryError):
    """The logs are not what they were when they were known to be durable."""

    def __init__(self, damages: Sequence[Damage]) -> None:
        listed = "".join(f"\n  {damage}" for damage in damages)
        super().__init__(
            f"the data directory is damaged, and was left as it is:{listed}\n"
            "Bring the files back from a copy. Or run `coterie repair` on the data directory: it shows what can be "
            "saved, and with --accept-loss it sets the damaged files aside, saves the rest and writes down what is lost"
        )
        self.damages = tuple(damages)


class SegmentFound(NamedTuple):
    """A segment as it was found on disk."""

    path: str
    base: int
    size: int
    end: int | None = None
    """The end of its last batch; None if that is not known, because it was not read or is invalid."""
    wrong: str = ""
    """The reason why it is invalid."""


class LogFound(NamedTuple):
    """A log as it was found on disk."""

    log: str
    segments: Sequence[SegmentFound]
    """The sealed segments, and the last one after a clean shutdown."""
    next_base: int
    """The base offset of the segment that follows them; the end of the log if there is none."""
    is_clean: bool

    def with_next(self) -> Iterator[tuple[SegmentFound, int]]:
        """Yield each segment, and where the next one begins."""
        for slot, segment in enumerate(self.segments, 1):
            yield segment, self.segments[slot].base if slot < len(self.segments) else self.next_base


Rule = Callable[[LogState, LogFound], Iterable[Damage]]


def missing_directory(log: str, known: LogState) -> Damage:
    return Damage(log, "is missing", log, (known.start, known.end) if known.end > known.start else None)


def _ends_with_a_batch(_known: LogState, found: LogFound) -> Iterable[Damage]:
    """A sealed segment is whole to its end."""
    for segment, after in found.with_next():
        if segment.wrong:
            yield Damage(segment.path, segment.wrong, found.log, (segment.base, after))


def _starts_where_it_did(known: LogState, found: LogFound) -> Iterable[Damage]:
    first = found.segments[0].base if found.segments else found.next_base
    if first > known.start:
        yield Damage(found.log, f"has no segment before offset {first}", found.log, (known.start, first))


def _has_no_holes(known: LogState, found: LogFound) -> Iterable[Damage]:
    """Each segment ends where the next one begins, also when it was compacted: its last batch stays."""
    for segment, after in found.with_next():
        if segment.end is not None and segment.end != after and segment.base >= known.gaps_below:
            yield Damage(
                segment.path,
                f"ends at offset {segment.end}, and the next segment begins at {after}",
                found.log,
                (min(segment.end, after), after),
            )


def _has_its_segments(known: LogState, found: LogFound) -> Iterable[Damage]:
    """Find segments that are missing, or have another size than at the clean shutdown."""
    if not found.is_clean or not known.segments:
        return
    sizes = {segment.base: segment for segment in found.segments}
    for one, after in pairwise([*known.segments, None]):
        assert one is not None
        lost = one.base_offset, known.end if after is None else after.base_offset
        there = sizes.get(one.base_offset)
        if there is None:
            if lost[1] > lost[0]:
                yield Damage(f"{found.log}/{one.base_offset:020d}.log", "is missing", found.log, lost)
        elif there.size != one.size:
            yield Damage(
                there.path, f"has {there.size} bytes, and had {one.size} at the last clean stop", found.log, lost
            )


RULES: tuple[Rule, ...] = (_has_its_segments, _ends_with_a_batch, _starts_where_it_did, _has_no_holes)


def damages_of(known: LogState, found: LogFound) -> list[Damage]:
    """Return one damage for each file: the first rule that it breaks says what is wrong."""
    damages: dict[str, Damage] = {}
    for rule in RULES:
        for damage in rule(known, found):
            if damage.lost is not None and damage.lost[1] <= known.start:
                continue  # it was deleted: a crash may bring back some of the files
            covered = any(one.lost and damage.lost and _covers(one.lost, damage.lost) for one in damages.values())
            if damage.path not in damages and not covered:
                damages[damage.path] = damage
    return list(damages.values())


def _covers(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[0] and other[1] <= one[1]
