"""A compacted log says the same as the whole one, to whoever replays it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coterie.coordinator.classic import Group
from coterie.coordinator.runtime.coordinator import Replay
from coterie.protocol.batch import BatchHeader, Compression, CorruptBatchError, batches
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup
from coterie.protocol.offsets_topic import write_record
from coterie.protocol.records import BatchRecord, EndMarker, build_batch, marker_of, records
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.storage import Compaction, Files, LogConfig, MemoryFiles, Origin, PartitionLog
from coterie.storage.compaction import KEY_BYTES
from coterie.storage.files import read_file
from coterie.structs import replace
from logs import build_marker, compact

NOW = 1_000_000
KEPT_MS = 1_000
CONFIG = LogConfig(
    segment_bytes=600, index_interval_bytes=100, compacts=True, min_cleanable_dirty_ratio=0, delete_retention_ms=KEPT_MS
)

Pair = tuple[bytes, bytes | None]


def opened(files: Files | None = None, config: LogConfig = CONFIG, **options: Any) -> PartitionLog:
    return PartitionLog.open(files if files is not None else MemoryFiles(), "t-0", config, NOW, **options)


def batches_of(log: PartitionLog) -> list[tuple[bytes, BatchHeader]]:
    """Every batch, read as a consumer reads; offsets only rise."""
    found: list[tuple[bytes, BatchHeader]] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        data = log.read(at, 250, log.log_end_offset)
        assert data, f"nothing at {at} of {log.log_end_offset}"
        for position, header in batches(data):
            assert header.base_offset >= at or not found, "offsets rise"
            found.append((data[position : position + header.size], header))
            at = header.next_offset
    return found


def table_of(log: PartitionLog) -> dict[bytes | None, bytes | None]:
    """What a reader of committed records has at the end: the last value of each key."""
    table: dict[bytes | None, bytes | None] = {}
    pending: dict[int, dict[bytes | None, tuple[int, bytes | None]]] = {}
    at: dict[bytes | None, int] = {}

    def put(key: bytes | None, offset: int, value: bytes | None) -> None:
        if offset > at.get(key, -1):
            at[key] = offset
            table[key] = value

    for data, header in batches_of(log):
        if header.is_control:
            marker = marker_of(data, header)
            ended = pending.pop(header.producer_id, {})
            for key, (offset, value) in ended.items() if marker is None or marker.committed else ():
                put(key, offset, value)
            continue
        for record in records(data, header):
            if header.is_transactional:
                pending.setdefault(header.producer_id, {})[record.key] = record.offset, record.value
            else:
                put(record.key, record.offset, record.value)
    return {key: value for key, value in table.items() if value is not None}


# --- by example


def write(log: PartitionLog, *pairs: Pair, **options: Any) -> None:
    log.append(build_batch([BatchRecord(key, value, NOW) for key, value in pairs], **options), NOW)


def test_many_small_segments_become_one_with_the_last_of_each_key(files: Files) -> None:
    log = opened(files)
    for number in range(40):
        write(log, (b"k%d" % (number % 3), b"%d" % number))
    log.flush()
    before, segments = log.size, log.segment_count
    log.config = replace(CONFIG, segment_bytes=100_000)
    compacted_to = compact(files, log, NOW)
    assert segments > 4 and log.segment_count == 2
    assert compacted_to == log._segments[1].base_offset
    assert log.size < before / 3
    assert table_of(log) == {b"k0": b"39", b"k1": b"37", b"k2": b"38"}
    assert log.read(0, 1_000, log.log_end_offset)[:8] == log.read(20, 1_000, log.log_end_offset)[:8], (
        "a gap is read over"
    )
    log.close()
    for clean in (True, False):
        again = opened(files, clean=clean)
        assert table_of(again) == table_of(log) and not again.recovery.cuts and not again.recovery.indexes_rebuilt
        again.release()


def test_a_record_is_found_by_time_after_compaction(files: Files) -> None:
    log = opened(files)
    for number in range(30):
        log.append(build_batch([BatchRecord(b"k%d" % (number % 4), b"v", NOW + number)]), NOW)
    log.flush()
    compact(files, log, NOW)
    left = [record for data, header in batches_of(log) for record in records(data, header)]
    for number in range(30):
        found = log.offset_for_timestamp(NOW + number, log.log_end_offset)
        assert found is not None and found.offset == next(r.offset for r in left if r.timestamp >= NOW + number)


def test_a_producer_goes_on_where_it_was_after_compaction_and_a_crash() -> None:
    """Its last batch has its sequence, also when all records of it are gone."""
    files = MemoryFiles()
    log = opened(files)
    for number in range(30):
        write(log, (b"k", b"%d" % number), producer_id=5, producer_epoch=0, base_sequence=number)
    for _ in range(15):
        write(log, (b"k", b"other"))
    log.flush()
    compact(files, log, NOW)
    for name in files.names("t-0"):
        if name.endswith(".snapshot"):
            files.delete(f"t-0/{name}")
    log.release()
    again = opened(files)
    sent = build_batch([BatchRecord(b"k", b"29", NOW)], producer_id=5, producer_epoch=0, base_sequence=29)
    assert again.append(sent, NOW).is_duplicate
    write(again, (b"k", b"30"), producer_id=5, producer_epoch=0, base_sequence=30)


def test_more_keys_than_memory_take_several_rounds() -> None:
    files = MemoryFiles()
    log = opened(files)
    for number in range(200):
        write(log, (b"k%d" % (number % 50), b"%d" % number))
    log.flush()
    expected = table_of(log)
    reached = [0]
    while (end := compact(files, log, NOW, compacted_to=reached[-1], buffer_bytes=10 * KEY_BYTES)) is not None:
        assert end > reached[-1] and table_of(log) == expected
        reached.append(end)
    assert len(reached) > 10
    closed = [h for _, h in batches_of(log) if h.base_offset < reached[-1] and h.record_count]
    assert len(closed) == len({data for data, h in batches_of(log) if h in closed}) <= 50


def test_a_log_that_need_not_change_is_left_as_it_is() -> None:
    files = MemoryFiles()
    log = opened(files)
    for number in range(30):
        write(log, (b"k%d" % number, b"v" * 100))
    log.flush()
    plan = log.compactable(0, NOW)
    assert plan is not None
    work = Compaction(files, log.path, plan, log.config, {}, 1 << 20, NOW)
    for _ in work.read_keys():
        pass
    for group in work.groups:
        assert len(group) == 1
        for _ in work.compact(group):
            pass
        assert work.cleaned is None
    assert not [name for name in files.names("t-0") if name.endswith(".cleaned")]


def test_who_stops_in_the_middle_leaves_nothing_behind() -> None:
    files = MemoryFiles()
    log = opened(files, replace(CONFIG, segment_bytes=50_000))
    for number in range(2_000):
        write(log, (b"k%d" % (number % 9), b"%d" % number))
    log.flush()
    before = files.names("t-0")
    plan = log.compactable(0, NOW)
    assert plan is not None
    work = Compaction(files, log.path, plan, log.config, {}, 1 << 20, NOW)
    assert sum(1 for _ in work.read_keys()) >= 10, "it is done in small steps"
    steps = work.compact(work.groups[0])
    next(steps)
    assert files.names("t-0") != before
    del steps
    assert files.names("t-0") == before


def test_bytes_that_are_not_what_was_written_are_not_compacted() -> None:
    files = MemoryFiles()
    log = opened(files)
    for number in range(30):
        write(log, (b"k", b"%d" % number))
    log.flush()
    files._contents[f"t-0/{0:020d}.log"][100] ^= 1
    with pytest.raises(CorruptBatchError):
        compact(files, log, NOW)


def test_retention_takes_compacted_segments_as_others() -> None:
    """`cleanup.policy=compact,delete`."""
    files = MemoryFiles()
    log = opened(files)
    for number in range(30):
        write(log, (b"k%d" % (number % 3), b"%d" % number))
    log.flush()
    compact(files, log, NOW)
    log.config = replace(CONFIG, deletes=True, retention_ms=100)
    deleted = log.retain(NOW + 101, log.log_end_offset)
    assert [segment.why for segment in deleted] == ["retention.ms"] * len(deleted)
    assert log.log_start_offset == log.log_end_offset == 30 and log.segment_count == 1


# --- by chance: topics of users

keys = st.sampled_from([b"a", b"b", b"c", b"d" * 100])
values = st.one_of(st.none(), st.binary(max_size=40))
pairs = st.lists(st.tuples(keys, values), min_size=1, max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), pairs, st.sampled_from(Compression)),
        st.tuples(st.just("send"), pairs, st.integers(0, 2)),
        st.tuples(st.just("begin"), pairs, st.integers(10, 12)),
        st.tuples(st.just("end"), st.booleans(), st.integers(10, 12)),
        st.tuples(st.just("compact"), st.integers(0, 2 * KEPT_MS), st.sampled_from([1, 3, 1_000])),
        st.tuples(st.just("open"), st.booleans(), st.just(0)),
    ),
    max_size=60,
)


class Topic:
    """A log that is compacted now and then, and the same log that never is."""

    def __init__(self) -> None:
        self.files = MemoryFiles()
        self.log = opened(self.files)
        self.whole = opened(config=LogConfig())
        self.now_ms = NOW
        self.compacted_to = 0
        self.sequences = dict.fromkeys(range(3), 0)

    def append(self, batch: bytearray, origin: Origin = Origin.CLIENT) -> None:
        self.whole.append(bytearray(batch), NOW, origin)
        self.log.append(batch, NOW, origin)
        self.log.flush()

    def write(self, content: list[Pair], compression: Compression) -> None:
        self.append(build_batch([BatchRecord(*pair, NOW) for pair in content], compression=compression))

    def send(self, content: list[Pair], producer: int) -> None:
        sent = build_batch(
            [BatchRecord(*pair, NOW) for pair in content],
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequences[producer],
        )
        self.sequences[producer] += len(content)
        self.append(sent)

    def begin(self, content: list[Pair], producer: int) -> None:
        batch = build_batch(
            [BatchRecord(*pair, NOW) for pair in content],
            producer_id=producer,
            producer_epoch=0,
            is_transactional=True,
        )
        self.append(batch, Origin.COORDINATOR)

    def end(self, committed: bool, producer: int) -> None:
        self.append(
            build_marker(EndMarker(committed), producer_id=producer, producer_epoch=0, timestamp=NOW),
            Origin.COORDINATOR,
        )

    def compact(self, later_ms: int, capacity: int) -> None:
        self.now_ms += later_ms
        end = compact(
            self.files,
            self.log,
            self.now_ms,
            compacted_to=self.compacted_to,
            buffer_bytes=capacity * KEY_BYTES,
        )
        if end is not None:
            assert end >= self.compacted_to
            self.compacted_to = end

    def open(self, clean: bool, _: int) -> None:
        self.log.close() if clean else self.log.release()
        self.log = opened(self.files, clean=clean)
        assert not self.log.recovery.cuts

    def check(self) -> None:
        assert table_of(self.log) == table_of(self.whole)
        assert (self.log.log_end_offset, self.log.last_stable_offset(10**9)) == (
            self.whole.log_end_offset,
            self.whole.last_stable_offset(10**9),
        )
        for producer, sequence in self.sequences.items():
            if sequence:
                assert self.log._producers._by_id[producer].last_sequence == sequence - 1

    def files_now(self) -> dict[str, bytes]:
        names = [f"t-0/{name}" for name in self.files.names("t-0") if name.endswith((".log", "index"))]
        return {name: read_file(self.files, name) for name in names}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps)
def test_a_topic_reads_the_same_compacted_and_whole(steps: list[tuple[str, Any, Any]]) -> None:
    """The last value of each key, where stable reading ends, and every producer's sequence; through any restart."""
    topic = Topic()
    for name, *arguments in steps:
        getattr(topic, name)(*arguments)
        topic.check()
    topic.compact(0, 1_000)
    topic.check()
    # What was left of many segments becomes one. Only then does the marker of a transaction whose records are gone get
    # the time at which it may go too (KIP-534): a compaction later than its records.
    for _ in range(2):
        topic.compacted_to = 0
        topic.compact(0, 1_000)
    before = topic.files_now()
    topic.compacted_to = 0
    topic.compact(0, 1_000)
    assert topic.files_now() == before, "compacting what is compacted changes nothing"


# --- by chance: groups and their offsets

GROUPS = ("g", "h")
group_steps = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.sampled_from(GROUPS), st.integers(0, 2), st.integers(0, 100)),
        st.tuples(st.just("forget"), st.sampled_from(GROUPS), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("round"), st.sampled_from(GROUPS), st.integers(0, 100), st.just(0)),
        st.tuples(st.just("delete"), st.sampled_from(GROUPS), st.just(0), st.just(0)),
        st.tuples(st.just("pend"), st.sampled_from(GROUPS), st.integers(0, 2), st.integers(10, 11)),
        st.tuples(st.just("end"), st.booleans(), st.integers(10, 11), st.just(0)),
        st.tuples(st.just("compact"), st.integers(0, 2 * KEPT_MS), st.sampled_from([2, 1_000]), st.just(0)),
    ),
    max_size=60,
)


class Offsets(Topic):
    """A partition of `__consumer_offsets`, with what a coordinator writes there."""

    def put(self, *written: OffsetRecord | GroupRecord, producer: int | None = None) -> None:
        content = [BatchRecord(*write_record(record), NOW) for record in written]
        if producer is None:
            self.append(build_batch(content), Origin.COORDINATOR)
        else:
            self.append(
                build_batch(content, producer_id=producer, producer_epoch=0, is_transactional=True), Origin.COORDINATOR
            )

    def commit(self, group: str, partition: int, offset: int) -> None:
        self.put(OffsetRecord(group, "t", partition, CommittedOffset(offset, commit_timestamp_ms=NOW)))

    def forget(self, group: str, partition: int, _: int) -> None:
        self.put(OffsetRecord(group, "t", partition, None))

    def round(self, group: str, generation: int, _: int) -> None:
        self.put(GroupRecord(group, StoredGroup("consumer", generation, None, None, NOW, [])))

    def delete(self, group: str, *_: int) -> None:
        """All of a group goes at once, as a coordinator deletes it, what is pending too."""
        self.put(*(OffsetRecord(group, "t", partition, None) for partition in range(3)), GroupRecord(group, None))

    def pend(self, group: str, partition: int, producer: int) -> None:
        value = CommittedOffset(self.log.log_end_offset, commit_timestamp_ms=NOW)
        self.put(OffsetRecord(group, "t", partition, value), producer=producer)

    def end(self, committed: bool, producer: int, _: int = 0) -> None:
        super().end(committed, producer)

    def compact(self, later_ms: int, capacity: int, _: int = 0) -> None:
        super().compact(later_ms, capacity)

    def check(self) -> None:
        assert groups_of(self.log) == groups_of(self.whole)
        assert (self.log.log_end_offset, self.log.last_stable_offset(10**9)) == (
            self.whole.log_end_offset,
            self.whole.last_stable_offset(10**9),
        )


def groups_of(log: PartitionLog) -> dict[str, Any]:
    """What a start finds, but for groups of which nothing is left: the next expiry check takes them."""
    replay = Replay()
    for data, header in batches_of(log):
        if header.is_control:
            marker = marker_of(data, header)
            if marker is not None:
                replay.marker(header.producer_id, committed=marker.committed)
            continue
        producer_id = header.producer_id if header.is_transactional else None
        for record in records(data, header):
            replay.record(record.offset, record.key or b"", record.value, producer_id)
    found = {}
    for group in replay.groups(GroupCoordinatorSettings(), NOW):
        assert isinstance(group, Group)
        pending = {producer: offsets for producer, offsets in group.pending_offsets.items() if offsets}
        if group.offsets or pending or group.generation_id or group.protocol_type:
            found[group.group_id] = (group.generation_id, group.protocol_type, group.offsets, pending)
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(group_steps)
def test_groups_come_back_the_same_from_a_compacted_log(steps: list[tuple[str, Any, Any, Any]]) -> None:
    """C4: members, offsets, and what transactions that are open have committed."""
    topic = Offsets()
    for name, *arguments in steps:
        getattr(topic, name)(*arguments)
        if name in {"compact", "end"}:
            topic.check()
    topic.check()
