"""Repair of a damaged data directory: find all that is wrong, save what is whole, write down what is lost.

    found = inspect(files)                        # reads all logs whole; changes nothing
    carry_out(files, found, aside="damaged-...")  # after which the directory can be opened

Every file that is changed is first copied into the directory `aside`. A segment is rewritten with all whole batches
of the old one; offsets whose records are lost are filled with a batch without records, so that the log ends where it
did, no offset is given away again, and the loss is never taken for more damage. Any step may be interrupted and the
whole begun again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from coterie.errors import MalformedError
from coterie.protocol.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    BatchError,
    BatchHeader,
    batches,
    check_sum,
    pack_header,
    parse_header,
)
from coterie.storage.checkpoints import (
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_partition_metadata,
    encode_properties,
)
from coterie.storage.directory import CLEAN_FILE, COMPACTED, PARTITION_FILE, RECOVERY_POINTS
from coterie.storage.durable_ends import (
    ENDS_FILE,
    Checkpoint,
    DurableEnds,
    LogState,
    number_followed,
    read_checkpoint,
    write_checkpoint,
)
from coterie.storage.files import Files, parent_of, read_file, replace_file
from coterie.storage.journal import read_journal
from coterie.storage.layout import INDEX, LOG, LOG_STARTS, SNAPSHOT, TIME_INDEX, join, named, offsets_of
from coterie.storage.log_errors import DamagedFileError, DirectoryError
from coterie.storage.own_files import LEADERS, META, PRODUCER_IDS, TOPICS
from coterie.storage.swapping import finish_swaps
from coterie.storage.topics_file import Topic, encode_topics, is_legal_name, read_topics

__all__ = ["FileFinding", "Findings", "LogFinding", "batches_left", "carry_out", "inspect"]

_NEEDED = {META.path: {"cluster.id", "node.id"}, LEADERS.path: {"nodes", "topics"}, PRODUCER_IDS.path: {"next"}}
MOST_FILLED = 2**31 - 1
"""Offsets that one batch can stand for."""
_MAGIC_AT = 16


@dataclass(slots=True)
class LogFinding:
    """A log that is not what it should be."""

    topic: Topic
    partition: int
    wrong: list[str] = field(default_factory=list)
    """What is wrong, with the names of the files."""
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Offsets from, and until before; those of which nothing is left."""
    rewritten: dict[int, list[bytes]] = field(default_factory=dict)
    """Segments to be written, by base offset: their batches."""
    start: int = 0
    end: int = 0
    is_compacted: bool = False

    @property
    def path(self) -> str:
        return f"{self.topic.name}-{self.partition}"

    @property
    def is_damaged(self) -> bool:
        return bool(self.wrong)


@dataclass(slots=True)
class FileFinding:
    """A small file that is not what it should be."""

    path: str
    wrong: str
    remedy: str
    content: Callable[[], bytes] | None = None
    """What it is replaced by; None if it is only set aside."""


@dataclass(slots=True)
class Findings:
    files: list[FileFinding] = field(default_factory=list)
    logs: list[LogFinding] = field(default_factory=list)
    """All of them, damaged or not."""
    number: int = 0
    """The number of the checkpoint."""
    states: Mapping[tuple[UUID, int], LogState] = field(default_factory=dict)
    knew_ends: bool = False
    batches: int = 0

    @property
    def damaged_logs(self) -> list[LogFinding]:
        return [log for log in self.logs if log.is_damaged]

    @property
    def is_damaged(self) -> bool:
        return bool(self.files or self.damaged_logs)


def inspect(files: Files, *, cluster_id: str, node_id: int = 1) -> Findings:
    """Read everything; the ids are for a directory that has lost its own."""
    if not any(name.startswith("coterie-") or name == META.path for name in files.names()):
        raise DirectoryError("this is not a data directory of coterie: none of its files is here")
    findings = Findings()
    topics = _topics(files, findings)
    _small_files(files, findings, cluster_id, node_id)
    known: Mapping[tuple[UUID, int], LogState] | None = None
    try:
        checkpoint = read_checkpoint(files)
        if checkpoint is not None:
            findings.number, known = checkpoint.number, checkpoint.logs
            findings.knew_ends = True
    except DamagedFileError as error:
        remedy = "rewritten from what the logs have: what may be missing at their ends cannot be noticed"
        findings.files.append(FileFinding(error.path, error.wrong, remedy))
        findings.states = _states_of_kafkas_files(files, topics)
    ends = dict(DurableEnds(files).read())
    is_clean = files.exists(CLEAN_FILE)
    journal = _journal(files, findings) if not is_clean else {}
    findings.states = known if known is not None else findings.states
    for topic in topics:
        for partition in range(topic.partitions):
            key = topic.id, partition
            state = None
            if known is not None:
                state = known.get(key, LogState())
                state = state._replace(end=max(state.end, ends.get(key, 0)))
            start = findings.states.get(key, LogState()).start
            findings.logs.append(_Log(files, topic, partition, state, journal.get(key, ()), start).look(findings))
    return findings


def _states_of_kafkas_files(files: Files, topics: Sequence[Topic]) -> dict[tuple[UUID, int], LogState]:
    """Kafka's own checkpoint files have log starts and compacted offsets too, without a checksum."""
    kept: dict[str, dict[tuple[str, int], int]] = {}
    for path in (LOG_STARTS, COMPACTED):
        try:
            kept[path] = decode_offsets(read_file(files, path), path) if files.exists(path) else {}
        except MalformedError:
            kept[path] = {}
    return {
        (topic.id, partition): LogState(
            start=kept[LOG_STARTS].get((topic.name, partition), 0),
            compacted=kept[COMPACTED].get((topic.name, partition), 0),
        )
        for topic in topics
        for partition in range(topic.partitions)
    }


def _topics(files: Files, findings: Findings) -> list[Topic]:
    try:
        named_there = read_topics(files)
        known = {topic.id for topic in named_there.topics.values()} | set(named_there.deleted)
        others = [
            topic
            for topic in _topics_in_directories(files)
            if topic.id not in known and topic.name not in named_there.topics and _has_records(files, topic)
        ]
        if not others:
            return list(named_there.topics.values())
        raise TOPICS.damaged(f"does not name {', '.join(topic.name for topic in others)}")
    except DamagedFileError as error:
        topics = _topics_in_directories(files)
        with suppress(DamagedFileError):
            kept = read_topics(files).topics
            topics = [*kept.values(), *(topic for topic in topics if topic.name not in kept)]
        remedy = f"rewritten with {len(topics)} topics, those of directories that it has not named without configs"
        findings.files.append(
            FileFinding(error.path, error.wrong, remedy, lambda: TOPICS.encode(encode_topics(topics, {})))
        )
        return topics


def _topics_in_directories(files: Files) -> list[Topic]:
    found: dict[str, tuple[UUID, int]] = {}
    for name in files.names():
        topic, _, number = name.rpartition("-")
        if number.isdigit() and is_legal_name(topic) and files.exists(f"{name}/{PARTITION_FILE}"):
            try:
                topic_id = decode_partition_metadata(read_file(files, f"{name}/{PARTITION_FILE}"))
            except MalformedError:
                continue
            first_id, count = found.get(topic, (topic_id, 0))
            found[topic] = first_id, max(count, int(number) + 1)
    return [Topic(name, topic_id, count) for name, (topic_id, count) in sorted(found.items())]


def _has_records(files: Files, topic: Topic) -> bool:
    """A directory without any was left by a creation that a crash has interrupted: an opening sets it aside."""
    return any(
        name.endswith(LOG) and files.size(join(path, name))
        for path in (f"{topic.name}-{partition}" for partition in range(topic.partitions))
        if files.exists(path)
        for name in files.names(path)
    )


def _small_files(files: Files, findings: Findings, cluster_id: str, node_id: int) -> None:
    meta = encode_properties({"version": "1", "cluster.id": cluster_id, "node.id": str(node_id)})
    remedies: dict[str, tuple[str, Callable[[], bytes] | None]] = {
        META.path: (f"rewritten with cluster.id {cluster_id} and node.id {node_id}", lambda: META.encode(meta)),
        LEADERS.path: ("set aside: every partition is led where it was created", None),
        PRODUCER_IDS.path: ("set aside: ids go on behind the highest that the logs have", None),
    }
    for own in (META, LEADERS, PRODUCER_IDS):
        if own is not META and not files.exists(own.path):
            continue
        try:
            payload = own.read(files).payload
            content = json.loads(payload) if own is LEADERS else decode_properties(payload)
            if not _NEEDED[own.path] <= set(content):
                raise own.damaged("does not have what it should")
        except (DamagedFileError, ValueError) as error:
            wrong = error.wrong if isinstance(error, DamagedFileError) else "is not what we write"
            findings.files.append(FileFinding(own.path, wrong, *remedies[own.path]))


def _journal(files: Files, findings: Findings) -> dict[tuple[UUID, int], list[bytes]]:
    """The batches that the journal has of each log."""
    try:
        entries = read_journal(files)
    except DamagedFileError as error:
        findings.files.append(FileFinding(error.path, error.wrong, "set aside; the segments are believed"))
        return {}
    return {
        (UUID(bytes=key[:16]), int.from_bytes(key[16:20], "big")): [
            data[at : at + header.size] for data in written for at, header in batches(data)
        ]
        for key, written in entries.items()
    }


# --- one log ----------------------------------------------------------------------------------------------------------


class _Log:
    """Looks through one log, and decides what its segments have to become."""

    def __init__(
        self,
        files: Files,
        topic: Topic,
        partition: int,
        known: LogState | None,
        journaled: Sequence[bytes],
        start: int,
    ) -> None:
        self._files = files
        self._known = known
        self._start = start
        self._journaled = journaled
        """The batches that the journal has of this log."""
        self._found = LogFinding(topic, partition)
        self._found.is_compacted = topic.configs.get("cleanup.policy", "").find("compact") >= 0 or (
            topic.name.startswith("__") or (known is not None and bool(known.compacted or known.gaps_below))
        )

    def look(self, findings: Findings) -> LogFinding:
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
                continue  # deleted: a crash may bring back some of the files
            offset = self._look_at(base, max(offset, base), after, findings)
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
            return  # created again by an opening
        if topic_id != self._found.topic.id:
            self._found.wrong.append(f"{path}/{PARTITION_FILE} names another topic")

    def _look_at(self, base: int, offset: int, after: int | None, findings: Findings) -> int:
        """A segment; where it ends now. `after` is where the next one begins, None if there is none."""
        found, known = self._found, self._known or LogState()
        name = join(found.path, named(base, LOG))
        data = read_file(self._files, name)
        pieces: list[bytes] = []
        wrong: list[str] = []
        epoch = 0
        at = 0
        due = after if after is not None else known.end
        for position, header, why in _walk(data, offset, is_compacted=found.is_compacted, after=after):
            if header is None:
                if after is None and offset >= known.end and position == len(data):
                    break  # what a crash has torn: an opening cuts it
                wrong.append(f"{name} is damaged at byte {at}: {why}")
                at = position
                continue
            findings.batches += 1
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


def _walk(
    data: bytes, offset: int, *, is_compacted: bool, after: int | None
) -> Iterator[tuple[int, BatchHeader | None, str]]:
    """Each whole batch that continues the log; and where it goes on, None and a reason, behind one that does not."""
    at = 0
    last = after if after is not None else 2**62
    while at < len(data):
        header, why = _batch_at(data, at, offset, last)
        if header is not None and not is_compacted and header.base_offset != offset:
            why = f"the batch begins at offset {header.base_offset}, not {offset}"
            header = None
        if header is None:
            at = _next_batch(data, at + 1, offset, last)
            yield at, None, why
            if at < len(data):
                header, why = _batch_at(data, at, offset, last)
                assert header is not None
                yield at, header, ""
                at, offset = at + header.size, header.next_offset
            continue
        yield at, header, ""
        at, offset = at + header.size, header.next_offset


def _batch_at(data: bytes, at: int, first: int, last: int) -> tuple[BatchHeader | None, str]:
    try:
        header = parse_header(data, at)
        check_sum(data, header, at)
    except BatchError as error:
        return None, str(error)
    if not (first <= header.base_offset and header.last_offset_delta >= 0 and header.next_offset <= last):
        return None, f"the batch begins at offset {header.base_offset}, where {first} or more is next"
    return header, ""


def _next_batch(data: bytes, at: int, first: int, last: int) -> int:
    """Where the next whole batch begins; the end if there is none."""
    at = data.find(2, at + _MAGIC_AT)
    while at >= 0:
        if len(data) - at + _MAGIC_AT >= HEADER_SIZE and _batch_at(data, at - _MAGIC_AT, first, last)[0] is not None:
            return at - _MAGIC_AT
        at = data.find(2, at + 1)
    return len(data)


def _filled(first: int, after: int, epoch: int) -> Iterator[bytes]:
    """Batches without records that stand for offsets whose records are lost."""
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
    """The whole batches of a damaged log."""
    if files.exists(log.path):
        for base in offsets_of(files.names(log.path), LOG):
            if base not in log.rewritten:
                data = read_file(files, join(log.path, named(base, LOG)))
                for position, header, _ in _walk(data, base, is_compacted=True, after=None):
                    if header is not None:
                        yield data[position : position + header.size]
    for pieces in log.rewritten.values():
        yield from pieces


# --- carrying it out --------------------------------------------------------------------------------------------------


def carry_out(files: Files, findings: Findings, aside: str, report: bytes) -> None:
    """Set aside what is damaged, save what is whole, and keep the report beside it."""
    files.mkdir(aside)
    replace_file(files, f"{aside}/report.txt", report)
    for finding in findings.files:
        _copy_aside(files, finding.path, aside)
    for log in findings.damaged_logs:
        _repair_log(files, log, aside)
    for finding in findings.files:
        if finding.content is not None:
            replace_file(files, finding.path, finding.content())
        else:
            files.delete(finding.path)
    for path in (ENDS_FILE, LOG_STARTS, RECOVERY_POINTS, CLEAN_FILE):
        _copy_aside(files, path, aside)
    _write_states(files, findings)
    files.delete(CLEAN_FILE)
    files.sync_directory()


def _repair_log(files: Files, log: LogFinding, aside: str) -> None:
    path = log.path
    is_new = not files.exists(path)
    files.mkdir(path)
    for base, pieces in log.rewritten.items():
        for suffix in (LOG, INDEX, TIME_INDEX):
            _copy_aside(files, join(path, named(base, suffix)), aside)
        replace_file(files, join(path, named(base, LOG)), b"".join(pieces))
        for suffix in (INDEX, TIME_INDEX):
            files.delete(join(path, named(base, suffix)))
    for name in files.names(path):  # they follow from the batches, which are not what they were
        if name.endswith(SNAPSHOT) or name == "leader-epoch-checkpoint":
            _copy_aside(files, join(path, name), aside)
            files.delete(join(path, name))
    metadata = join(path, PARTITION_FILE)
    if files.exists(metadata):
        _copy_aside(files, metadata, aside)
    if is_new or files.exists(metadata):
        replace_file(files, metadata, encode_partition_metadata(log.topic.id))
    files.sync_directory(path)
    files.sync_directory()


def _write_states(files: Files, findings: Findings) -> None:
    """Write a checkpoint of what is there now."""
    states = {}
    for log in findings.logs:
        key = log.topic.id, log.partition
        known = findings.states.get(key)
        if not findings.knew_ends or known is None:
            compacted = known.compacted if known is not None else 0
            known = LogState(compacted=compacted, gaps_below=log.end if log.is_compacted or compacted else 0)
        end = log.end if log.is_damaged else min(log.end, known.end)
        states[key] = LogState(log.start, end, known.compacted, known.gaps_below)
    checkpoint = Checkpoint(max(findings.number, number_followed(files)) + 1, states)
    write_checkpoint(files, checkpoint)
    ends = DurableEnds(files)
    ends.read()
    ends.follow(checkpoint)
    ends.release()


def _copy_aside(files: Files, path: str, aside: str) -> None:
    """Unless it is there already: of a repair that was interrupted."""
    target = f"{aside}/{path}"
    if files.exists(path) and not files.exists(target):
        if parent_of(path):
            files.mkdir(parent_of(target))
        replace_file(files, target, read_file(files, path))
