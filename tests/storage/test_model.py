"""A log against a plain list: whatever is done to both, they hold the same."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from coterie.protocol.batch import Compression, batches
from coterie.protocol.records import BatchRecord, build_batch, records
from coterie.storage import UNLIMITED, LogConfig, MemoryFiles, PartitionLog, rename_files
from coterie.storage.segment_files import offsets_of
from coterie.structs import replace
from logs import cut, values_in

CONFIG = LogConfig(
    segment_bytes=700,
    index_interval_bytes=120,
    segment_ms=10**12,
    retention_ms=UNLIMITED,
    producer_id_expiration_ms=10**12,
)


class LogAgainstList(RuleBasedStateMachine):
    """`stored` has a (timestamp, value) for each offset; `bounds` has where batches begin."""

    def __init__(self) -> None:
        super().__init__()
        self.files = MemoryFiles()
        self.now = 1_000
        self.stored: list[tuple[int, bytes]] = []
        self.bounds: list[int] = []
        self.start = 0
        self.durable = 0
        self.sequences: dict[int, list[tuple[int, int, int]]] = {}

    @initialize()
    def create(self) -> None:
        self.log = PartitionLog.open(self.files, "t-0", CONFIG, self.now)

    def reopen(self, *, clean: bool) -> None:
        point = self.durable
        self.log = PartitionLog.open(
            self.files, "t-0", CONFIG, self.now, log_start_offset=self.start, recovery_point=point, clean=clean
        )
        self.durable = self.log.log_end_offset

    # --- changes

    @rule(
        values=st.lists(st.binary(max_size=80), min_size=1, max_size=4),
        ages=st.lists(st.integers(0, 50), min_size=4, max_size=4),
        compression=st.sampled_from(Compression),
        producer=st.sampled_from([None, 1, 2]),
    )
    def append(self, values: list[bytes], ages: list[int], compression: Compression, producer: int | None) -> None:
        self.now += 10
        content = [BatchRecord(b"k", value, self.now - age) for value, age in zip(values, ages, strict=False)]
        if producer is None:
            data = build_batch(content, compression=compression)
        else:
            sent = self.sequences.setdefault(producer, [])
            sequence = sent[-1][0] + sent[-1][1] if sent else 0
            sent.append((sequence, len(values), len(self.stored)))
            data = build_batch(
                content, compression=compression, producer_id=producer, producer_epoch=0, base_sequence=sequence
            )
        appended = self.log.append(data, self.now)
        assert (appended.base_offset, appended.is_duplicate) == (len(self.stored), False)
        self.bounds.append(len(self.stored))
        self.stored += [(record.timestamp, record.value or b"") for record in content]

    @rule(producer=st.sampled_from([1, 2]), back=st.integers(1, 5))
    def repeat(self, producer: int, back: int) -> None:
        """Rule D1, across segments, restarts and crashes."""
        sent = self.sequences.get(producer, [])
        if back <= len(sent):
            sequence, count, offset = sent[-back]
            again = build_batch(
                [BatchRecord(b"k", b"", self.now)] * count,
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequence,
            )
            appended = self.log.append(again, self.now)
            assert (appended.base_offset, appended.is_duplicate) == (offset, True)

    @rule()
    def flush(self) -> None:
        self.log.flush()
        self.durable = len(self.stored)
        assert self.log.durable_end == self.durable

    @rule()
    def stop_and_open(self) -> None:
        self.log.close()
        self.reopen(clean=True)
        assert self.log.recovery.batches_checked == 0 and not self.log.recovery.indexes_rebuilt

    @rule()
    def crash_and_open(self) -> None:
        self.log.release()
        self.reopen(clean=False)
        assert not self.log.recovery.cuts

    @precondition(lambda self: self.bounds and self.bounds[-1] >= self.durable and self.bounds[-1] >= self.start)
    @rule(data=st.data())
    def crash_with_a_torn_batch_and_open(self, data: st.DataObject) -> None:
        """The last batch was not synced, and not all of it reached the disk."""
        self.log.release()
        base = offsets_of(self.files.names("t-0"), ".log")[-1]
        file = self.files.open(f"t-0/{base:020d}.log")
        *_, (at, header) = batches(file.pread(file.size, 0))
        file.truncate(data.draw(st.integers(at, at + header.size - 1)))
        self.cut_to(self.bounds[-1])
        self.reopen(clean=False)

    @precondition(lambda self: self.bounds)
    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        """Only what is not durable is ever cut."""
        allowed = [bound for bound in self.bounds if bound >= max(self.start, self.durable)]
        if allowed:
            end = data.draw(st.sampled_from(allowed))
            cut(self.log, end, self.now)
            self.cut_to(end)
            self.durable = self.log.log_end_offset

    def cut_to(self, end: int) -> None:
        del self.stored[end:]
        self.bounds = [bound for bound in self.bounds if bound < end]
        for sent in self.sequences.values():
            sent[:] = [each for each in sent if each[2] < end]

    @rule(part=st.floats(0, 1))
    def delete_records(self, part: float) -> None:
        before = int(part * len(self.stored))
        self.start = max(self.start, before)
        assert self.log.delete_records(before, len(self.stored)) == self.start
        rename_files(self.files, self.log.retain(self.now, len(self.stored)))

    @rule(kept=st.integers(0, 3000))
    def retain_by_size(self, kept: int) -> None:
        self.log.config = replace(CONFIG, retention_bytes=kept)
        size = self.log.size
        deleted = self.log.retain(self.now, len(self.stored))
        rename_files(self.files, deleted)
        self.log.config = CONFIG
        assert self.log.size == size - sum(each.size for each in deleted)
        # What lies before the log's start goes whatever the size is.
        assert self.log.size >= kept or all(each.why == "before the log start" for each in deleted)
        self.start = self.log.log_start_offset
        if deleted:
            assert self.start >= deleted[-1].next_offset

    # --- questions

    @rule(part=st.floats(0, 1), max_bytes=st.integers(1, 1500), limit=st.floats(0, 1))
    def read(self, part: float, max_bytes: int, limit: float) -> None:
        end = len(self.stored)
        offset = self.start + int(part * (end - self.start))
        up_to = offset + int(limit * (end - offset))
        data = self.log.read(offset, max_bytes, up_to)
        found = values_in(data)
        assert [value for _, value in found] == [self.stored[at][1] for at, _ in found]
        ends = [*self.bounds[1:], end]
        whole = [bound for bound in ends if bound <= up_to]
        if not found:
            assert not whole or whole[-1] <= offset
        else:
            first = [bound for bound in self.bounds if bound <= offset][-1]
            assert found[0][0] == first and found[-1][0] < up_to
            assert [at for at, _ in found] == list(range(first, found[-1][0] + 1)) and found[-1][0] + 1 in ends
            assert len(data) <= max_bytes or len(list(batches(data))) == 1

    @rule(timestamp=st.integers(900, 2000))
    def find_by_time(self, timestamp: int) -> None:
        found = self.log.offset_for_timestamp(timestamp, len(self.stored))
        expected = [at for at in range(self.start, len(self.stored)) if self.stored[at][0] >= timestamp]
        assert (found.offset if found else None) == (expected[0] if expected else None)
        assert found is None or found.timestamp == self.stored[found.offset][0]

    @invariant()
    def ends_agree(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, len(self.stored))
            assert self.log.durable_end == self.durable

    def teardown(self) -> None:
        if hasattr(self, "log") and self.start < len(self.stored):
            at, values = self.start, []
            while at < len(self.stored):
                data = self.log.read(at, 500, len(self.stored))
                values += [
                    record.value
                    for position, header in batches(data)
                    for record in records(data, header, position)
                    if record.offset >= at
                ]
                at = self.start + len(values)
            assert values == [value for _, value in self.stored[self.start :]]


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
