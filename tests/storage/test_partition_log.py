"""One partition's log: what goes in comes out, by offset and by time, durable or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ErrorCode
from coterie.protocol.batch import BatchError, BatchHeader, Compression, TimestampType, batches, parse_header
from coterie.protocol.buffer import Buffer
from coterie.protocol.records import BatchRecord, EndMarker, build_batch, marker_of
from coterie.storage import (
    Files,
    LogConfig,
    LogOffsetOutOfRangeError,
    LogWriteError,
    MemoryFiles,
    Origin,
    PartitionLog,
    RefusedError,
    segment_files,
)
from coterie.structs import replace
from logs import NOW, SMALL, FaultyFiles, batch, build_marker, fill, offsets_in, opened, values_in

# --- appending and reading --------------------------------------------------------------------------------------------


def test_batches_get_the_next_offsets_and_the_leaders_epoch(files: Files) -> None:
    log = opened(files)
    log.lead(7)()
    first = log.append(batch(b"a", b"b"), NOW)
    second = log.append(batch(b"c"), NOW)
    assert (first.base_offset, first.last_offset, second.base_offset, log.log_end_offset) == (0, 1, 2, 3)
    data = log.read(0, 10_000, log.log_end_offset)
    assert values_in(data) == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert [header.leader_epoch for _, header in batches(data)] == [7, 7]


def test_bytes_pass_through_untouched_but_for_offset_and_epoch(files: Files) -> None:
    """The broker neither decompresses nor recompresses."""
    log = opened(files)
    for compression in Compression:
        sent = bytes(build_batch([BatchRecord(b"k", b"v" * 200, NOW)], compression=compression))
        at = log.append(sent, NOW).base_offset
        stored = log.read(at, 1, log.log_end_offset)
        assert stored[:8] == at.to_bytes(8, "big") and stored[16:] == sent[16:]


def test_a_writable_buffer_is_changed_in_place_and_bytes_are_not(files: Files) -> None:
    log = opened(files)
    fixed, free = bytes(batch(b"a")), memoryview(batch(b"a"))
    log.append(fixed, NOW)
    log.append(free, NOW)
    assert (parse_header(fixed).base_offset, parse_header(free).base_offset) == (0, 1)


def test_a_read_returns_whole_batches_within_its_bytes_and_one_at_least(files: Files) -> None:
    log = opened(files, LogConfig())
    fill(log, 10)
    size = len(log.read(0, 1, 10))
    assert offsets_in(log.read(0, 1, 10)) == [0]
    assert offsets_in(log.read(3, 3 * size, 10)) == [3, 4, 5]
    assert offsets_in(log.read(3, 3 * size - 1, 10)) == [3, 4]
    assert offsets_in(log.read(3, 3 * size + 1, 10)) == [3, 4, 5]


def test_a_read_in_the_middle_of_a_batch_returns_the_batch(files: Files) -> None:
    log = opened(files)
    log.append(batch(b"a", b"b", b"c"), NOW)
    log.append(batch(b"d"), NOW)
    assert offsets_in(log.read(1, 1, log.log_end_offset)) == [0, 1, 2]


def test_nothing_at_or_beyond_the_limit_is_read(files: Files) -> None:
    log = opened(files)
    fill(log, 30)
    for limit in range(31):
        for start in range(limit):
            assert max(offsets_in(log.read(start, 10_000, limit))) < limit
        assert log.read(limit, 10_000, limit) == b""


def test_a_batch_that_straddles_the_limit_is_not_read(files: Files) -> None:
    log = opened(files)
    log.append(batch(b"a", b"b", b"c"), NOW)
    assert log.read(0, 10_000, 2) == b""


def test_offsets_outside_of_the_log_are_refused(files: Files) -> None:
    log = opened(files)
    fill(log, 3)
    assert log.read(3, 100, 3) == b""
    for offset in (-1, 4):
        with pytest.raises(LogOffsetOutOfRangeError, match="from 0 to before 3"):
            log.read(offset, 100, 3)


def test_every_offset_is_found_in_every_segment(files: Files) -> None:
    log = opened(files)
    fill(log, 60)
    assert log.segment_count > 5
    for offset in range(60):
        assert offsets_in(log.read(offset, 1, 60)) == [offset]


@given(st.lists(st.integers(0, 29), max_size=20))
def test_what_was_read_before_does_not_change_what_is_found(asked: list[int]) -> None:
    """A segment remembers where it last found a batch, from which a reader that goes on need not walk far."""
    log = opened(MemoryFiles(), LogConfig())  # one segment, and few rows in its index
    fill(log, 10)
    for end, offset in enumerate(asked, 10):
        assert offsets_in(log.read(min(offset, end - 1), 1, end)) == [min(offset, end - 1)]
        fill(log, 1)


def test_who_follows_a_log_finds_the_next_batch_without_those_before(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(files, LogConfig())
    fill(log, 40)
    looked_at: list[int] = []

    def noting(data: Buffer, at: int = 0) -> BatchHeader:
        header = parse_header(data, at)
        looked_at.append(header.base_offset)
        return header

    log.read(39, 10_000, 40)
    fill(log, 1)
    monkeypatch.setattr(segment_files, "parse_header", noting)
    assert offsets_in(log.read(40, 10_000, 41)) == [40]
    assert looked_at == [39, 40], "where the last read began, and what follows"


# --- what is refused --------------------------------------------------------------------------------------------------


def refusal(log: PartitionLog, data: bytes | bytearray, now_ms: int = NOW) -> ErrorCode:
    before = (log.log_end_offset, log.size)
    try:
        log.append(data, now_ms)
    except (RefusedError, BatchError) as error:
        assert (log.log_end_offset, log.size) == before, "refused means untouched"
        return error.code
    pytest.fail("it was taken")


def test_a_producer_sends_exactly_one_batch(files: Files) -> None:
    """Rule D2."""
    log = opened(files)
    assert refusal(log, b"") is ErrorCode.INVALID_RECORD
    assert refusal(log, batch(b"a") + batch(b"b")) is ErrorCode.INVALID_RECORD


def test_a_batch_that_is_damaged_on_the_way_is_corrupt(files: Files) -> None:
    log = opened(files)
    damaged = batch(b"a")
    damaged[-1] ^= 1
    assert refusal(log, damaged) is ErrorCode.CORRUPT_MESSAGE
    assert refusal(log, batch(b"a")[:-1]) is ErrorCode.CORRUPT_MESSAGE


def test_sizes_have_limits(files: Files) -> None:
    log = opened(files, replace(SMALL, max_message_bytes=500))
    assert refusal(log, batch(bytes(500))) is ErrorCode.MESSAGE_TOO_LARGE
    log.config = replace(SMALL, segment_bytes=400)
    assert refusal(log, batch(bytes(500))) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_far_from_now_are_refused(files: Files) -> None:
    config = replace(SMALL, message_timestamp_after_max_ms=100, message_timestamp_before_max_ms=200)
    log = opened(files, config)
    assert refusal(log, batch(b"a", timestamps=[NOW + 101])) is ErrorCode.INVALID_TIMESTAMP
    assert refusal(log, batch(b"a", timestamps=[NOW - 201])) is ErrorCode.INVALID_TIMESTAMP
    log.append(batch(b"a", timestamps=[NOW + 100]), NOW)
    log.append(batch(b"a", timestamps=[NOW - 200]), NOW)
    log.append(batch(b"a", timestamps=[-1]), NOW)


def test_a_compacted_topic_wants_keys(files: Files) -> None:
    log = opened(files, replace(SMALL, compacts=True))
    keyless = build_batch([BatchRecord(b"k", b"v", NOW), BatchRecord(None, b"v", NOW)], compression=Compression.GZIP)
    assert refusal(log, keyless) is ErrorCode.INVALID_RECORD
    log.append(build_batch([BatchRecord(b"", b"v", NOW)], compression=Compression.GZIP), NOW)


def test_a_bomb_is_not_unpacked_beyond_the_limit(files: Files) -> None:
    log = opened(files, LogConfig(compacts=True, max_decompressed_bytes=10_000))
    bomb = build_batch([BatchRecord(b"k", bytes(100_000), NOW)], compression=Compression.ZSTD)
    assert refusal(log, bomb) is ErrorCode.INVALID_RECORD


def test_control_batches_are_for_coordinators(files: Files) -> None:
    log = opened(files)
    marker = build_marker(EndMarker(committed=True), producer_id=1, producer_epoch=0, timestamp=NOW)
    assert refusal(log, marker) is ErrorCode.INVALID_RECORD
    assert log.append(marker, NOW, Origin.COORDINATOR).base_offset == 0


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stamped", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_what_is_our_own_is_stored_as_if_it_had_been_checked(files: Files, stamped: TimestampType) -> None:
    pairs: list[tuple[bytes, bytes | None]] = [(b"k", b"v"), (b"gone", None), (b"", bytes(300))]
    config = replace(SMALL, message_timestamp_type=stamped)
    ours, checked = (PartitionLog.open(files, path, config, NOW) for path in ("ours-0", "checked-0"))
    for log in (ours, checked):
        log.lead(3)
    for _ in range(6):
        content = [BatchRecord(key, value, NOW) for key, value in pairs]
        taken = checked.append(build_batch(content), NOW, Origin.COORDINATOR)
        assert ours.append_own(pairs, NOW) == taken.base_offset
    assert ours.segment_count == checked.segment_count > 1 and ours.size == checked.size
    for offset in range(0, 18, 3):
        assert ours.read(offset, 1, 18) == checked.read(offset, 1, 18)


@pytest.mark.parametrize("stamped", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_our_own_transactions_are_stored_as_if_they_had_been_checked(files: Files, stamped: TimestampType) -> None:
    """TL1, TO4: records and markers, and what the log knows of their producers."""
    config = replace(SMALL, message_timestamp_type=stamped)
    ours, checked = (PartitionLog.open(files, path, config, NOW) for path in ("ours-0", "checked-0"))
    for log in (ours, checked):
        log.lead(3)
    for number in range(8):
        producer_id, epoch = producer = number % 2, number
        content = [BatchRecord(b"k", b"v", NOW), BatchRecord(b"gone", None, NOW)]
        pending = build_batch(
            content, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
        )
        taken = checked.append(pending, NOW, Origin.COORDINATOR)
        assert ours.append_own([(b"k", b"v"), (b"gone", None)], NOW, producer) == taken.base_offset
        end = EndMarker(number % 3 > 0, number)
        marker = build_marker(end, producer_id=producer_id, producer_epoch=epoch, timestamp=NOW)
        taken = checked.append(marker, NOW, Origin.COORDINATOR)
        assert ours.append_marker(end, producer, NOW) == taken.base_offset
    assert ours.segment_count == checked.segment_count > 1 and ours.size == checked.size
    for offset in range(24):
        data = ours.read(offset, 1, 24)
        assert data == checked.read(offset, 1, 24)
        assert ours.aborted_transactions(offset, data) == checked.aborted_transactions(offset, data)
    assert [(key, repr(one), since) for key, one, since in ours.producers()] == [
        (key, repr(one), since) for key, one, since in checked.producers()
    ]


def test_our_own_transactions_are_refused_where_anothers_would_be(files: Files) -> None:
    """TL7: the epoch and the coordinator's epoch must not be older, and nothing is written then."""
    log = opened(files)
    log.append_own([(b"k", b"v")], NOW, (7, 3))
    refused: dict[ErrorCode, list[Callable[[], int]]] = {
        ErrorCode.INVALID_PRODUCER_EPOCH: [
            lambda: log.append_own([(b"k", b"v")], NOW, (7, 2)),
            lambda: log.append_marker(EndMarker(committed=True), (7, 2), NOW),
            lambda: log.append_marker(EndMarker(committed=True), (7, 3), NOW, is_strict=True),
        ],
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: [
            lambda: log.append_marker(EndMarker(committed=True, coordinator_epoch=4), (7, 4), NOW)
        ],
    }
    log.append_marker(EndMarker(committed=True, coordinator_epoch=5), (7, 3), NOW)
    log.append_own([(b"k", b"v")], NOW, (7, 3))
    end = log.log_end_offset
    for code, writes in refused.items():
        for write in writes:
            with pytest.raises(RefusedError) as caught:
                write()
            assert caught.value.code is code
    assert log.log_end_offset == end


def test_what_is_our_own_is_refused_where_anything_would_be(files: Files) -> None:
    log = PartitionLog.open(files, "t-0", replace(SMALL, max_message_bytes=200), NOW)
    with pytest.raises(RefusedError, match=r"a batch of \d+ bytes; max.message.bytes allows 200") as refused:
        log.append_own([(b"k", bytes(200))], NOW)
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE and log.log_end_offset == 0
    log.append_own([(b"k", b"v")], NOW)
    log.cut_back(0)
    with pytest.raises(LogWriteError, match="still to be cut back to offset 0"):
        log.append_own([(b"k", b"v")], NOW)


def test_append_time_is_the_brokers(files: Files) -> None:
    log = opened(files, replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert log.append(batch(b"a", timestamps=[5]), NOW + 7).append_time_ms == NOW + 7
    found = log.offset_for_timestamp(NOW, log.log_end_offset)
    assert found is not None and (found.offset, found.timestamp) == (0, NOW + 7)
    pretending = build_batch([BatchRecord(b"k", b"v", 5)])
    pretending[22] |= 0x08
    pretending[17:21] = bytes(4)
    assert refusal(log, pretending) is ErrorCode.CORRUPT_MESSAGE


def test_a_client_cannot_claim_append_time(files: Files) -> None:
    """As Kafka: with append time it is refused, with create time the claim is taken off."""
    from coterie.protocol.batch import stamp_time

    claim = batch(b"a", timestamps=[5])
    stamp_time(claim, 0, TimestampType.LOG_APPEND_TIME, 900)
    log = opened(files, replace(SMALL, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert refusal(log, bytes(claim)) is ErrorCode.INVALID_TIMESTAMP
    log.config = SMALL
    log.append(bytes(claim), NOW)
    ((_, header),) = batches(log.read(0, 1, 1))
    assert header.timestamp_type is TimestampType.CREATE_TIME and header.max_timestamp == 900


def test_an_offset_is_found_by_time(files: Files) -> None:
    log = opened(files)
    for start in range(0, 600, 10):
        log.append(batch(b"a", b"b", timestamps=[start, start + 5]), NOW)
    assert log.segment_count > 3
    for timestamp in range(600):
        found = log.offset_for_timestamp(timestamp, log.log_end_offset)
        expected = -(-timestamp // 5)
        assert found is None if expected >= log.log_end_offset else found and found.offset == expected
    assert log.offset_for_timestamp(600, log.log_end_offset) is None
    assert log.offset_for_timestamp(300, 60) is None


def test_times_that_go_back_are_searched_from_the_front(files: Files) -> None:
    log = opened(files)
    times = [50, 10, 70, 20, 70, 30]
    for time in times:
        log.append(batch(bytes(100), timestamps=[time]), NOW)
    for timestamp in range(71):
        found = log.offset_for_timestamp(timestamp, log.log_end_offset)
        assert found is not None
        assert found.offset == next(offset for offset, time in enumerate(times) if time >= timestamp)
    latest = log.offset_of_latest_timestamp(log.log_end_offset)
    assert latest is not None and (latest.offset, latest.timestamp) == (2, 70)


def test_a_log_without_records_or_timestamps_knows_no_time(files: Files) -> None:
    log = opened(files)
    assert log.offset_for_timestamp(0, 0) is None and log.offset_of_latest_timestamp(0) is None
    log.append(batch(b"a", timestamps=[-1]), NOW)
    assert log.offset_for_timestamp(0, 1) is None and log.offset_of_latest_timestamp(1) is None


# --- rolling ----------------------------------------------------------------------------------------------------------


def test_a_segment_is_named_after_its_first_offset(files: Files) -> None:
    log = opened(files)
    fill(log, 8, size=100)
    logs = [name for name in files.names("t-0") if name.endswith(".log")]
    assert logs == ["00000000000000000000.log", "00000000000000000005.log"]


def test_a_full_segment_is_rolled_before_it_is_too_large(files: Files) -> None:
    log = opened(files)
    fill(log, 100)
    sizes = [files.size(f"t-0/{name}") for name in files.names("t-0") if name.endswith(".log")]
    assert len(sizes) > 10 and max(sizes) <= SMALL.segment_bytes


def test_an_old_segment_is_rolled_by_the_time_of_its_batches(files: Files) -> None:
    log = opened(files, LogConfig(segment_ms=100))
    for time, segments in ((500, 1), (600, 1), (601, 2), (650, 2)):
        log.append(batch(b"a", timestamps=[time]), NOW)
        assert log.segment_count == segments
    untimed = PartitionLog.open(files, "u-0", LogConfig(segment_ms=100), NOW)
    for now in (NOW, NOW + 100, NOW + 101):
        untimed.append(batch(b"a", timestamps=[-1]), now)
    assert untimed.segment_count == 2


def test_a_segment_is_rolled_when_its_index_is_full(files: Files) -> None:
    log = opened(files, LogConfig(index_interval_bytes=1, segment_index_bytes=5 * 12))
    for time in range(40):
        log.append(batch(b"a", timestamps=[time]), NOW)
    assert log.segment_count > 5
    log.flush()
    assert max(files.size(f"t-0/{name}") for name in files.names("t-0") if name.endswith("index")) <= 60
    assert offsets_in(log.read(33, 1, 40)) == [33]


def test_snapshots_of_producers_are_kept_for_the_last_segments_only(files: Files) -> None:
    log = opened(files)
    fill(log, 200)
    log.flush()
    snapshots = [name for name in files.names("t-0") if name.endswith(".snapshot")]
    assert log.segment_count > 20 and len(snapshots) == 10


# --- producers and transactions ---------------------------------------------------------------------------------------


def test_a_repeated_batch_is_answered_with_its_first_offset_and_stored_once(files: Files) -> None:
    """Rule D1."""
    log = opened(files)
    log.append(batch(b"x"), NOW)
    first = log.append(batch(b"a", b"b", producer=(1, 0, 0)), NOW)
    again = log.append(batch(b"a", b"b", producer=(1, 0, 0)), NOW)
    assert (again.base_offset, again.last_offset, again.is_duplicate) == (1, 2, True)
    assert not first.is_duplicate and log.log_end_offset == 3
    assert refusal(log, batch(b"c", producer=(1, 0, 5))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, batch(b"c", producer=(1, 0, 1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_are_known_after_opening_again(files: Files, clean: bool) -> None:
    log = opened(files)
    for sequence in range(30):
        log.append(batch(b"%d" % sequence, producer=(1, 0, sequence)), NOW)
    log.close() if clean else log.release()
    log = PartitionLog.open(files, "t-0", SMALL, NOW, clean=clean)
    for sequence in range(25, 30):
        assert log.append(batch(b"%d" % sequence, producer=(1, 0, sequence)), NOW).base_offset == sequence
    assert refusal(log, batch(b"24", producer=(1, 0, 24))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.append(batch(b"30", producer=(1, 0, 30)), NOW).base_offset == 30


def test_a_write_that_failed_is_not_remembered_as_the_producers() -> None:
    disk = FaultyFiles()
    log = opened(disk)
    disk.room = 10
    with pytest.raises(LogWriteError):
        log.append(batch(b"a", producer=(1, 0, 0)), NOW)
    disk.room = None
    assert log.append(batch(b"a", producer=(1, 0, 0)), NOW).is_duplicate is False


def test_a_coordinators_transaction_is_read_back_as_written(files: Files) -> None:
    log = opened(files)
    pending = build_batch([BatchRecord(b"k", b"v", NOW)], producer_id=5, producer_epoch=2, is_transactional=True)
    log.append(pending, NOW, Origin.COORDINATOR)
    log.append(batch(b"other"), NOW)
    assert (log.last_stable_offset(log.log_end_offset), log.last_stable_offset(0)) == (0, 0)
    marker = build_marker(EndMarker(committed=True), producer_id=5, producer_epoch=2, timestamp=NOW)
    log.append(marker, NOW, Origin.COORDINATOR)
    assert log.last_stable_offset(log.log_end_offset) == 3
    data = log.read(0, 10_000, 3)
    found = list(batches(data))
    assert [(header.producer_id, header.is_transactional, header.is_control) for _, header in found] == [
        (5, True, False),
        (-1, False, False),
        (5, True, True),
    ]
    assert marker_of(data, found[2][1], found[2][0]) == EndMarker(committed=True)


def test_an_open_transaction_is_open_after_opening_again(files: Files) -> None:
    log = opened(files)
    fill(log, 5)
    pending = build_batch([BatchRecord(b"k", b"v", NOW)], producer_id=5, producer_epoch=2, is_transactional=True)
    log.append(pending, NOW, Origin.COORDINATOR)
    fill(log, 50)
    for clean in (True, False):
        log.close() if clean else log.release()
        log = PartitionLog.open(files, "t-0", SMALL, NOW, clean=clean)
        assert log.last_stable_offset(log.log_end_offset) == 5


def test_a_coordinator_may_write_several_batches_at_once(files: Files) -> None:
    log = opened(files)
    appended = log.append(batch(b"a") + batch(b"b", b"c"), NOW, Origin.COORDINATOR)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert values_in(log.read(0, 10_000, 3)) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_producers_expire(files: Files) -> None:
    log = opened(files, replace(SMALL, producer_id_expiration_ms=100))
    log.append(batch(b"a", producer=(1, 0, 0), timestamps=[NOW]), NOW)
    assert log.expire_producers(NOW + 99) == [] and log.producer_count == 1
    assert log.expire_producers(NOW + 100) == [1] and log.producer_count == 0


# --- leader epochs ----------------------------------------------------------------------------------------------------


def test_epochs_are_kept_and_can_be_asked_where_they_ended(files: Files) -> None:
    log = opened(files)
    log.lead(0)()
    fill(log, 3)
    log.lead(2)()
    fill(log, 2)
    log.close()
    log = PartitionLog.open(files, "t-0", SMALL, NOW, clean=True)
    assert log.leader_epoch == 2
    assert [log.end_of_epoch(epoch) for epoch in (-1, 0, 1, 2, 3)] == [(-1, -1), (0, 3), (0, 3), (2, 5), (-1, -1)]
    assert b"0\n2\n0 0\n2 3\n" in files.open("t-0/leader-epoch-checkpoint").pread(100, 0)
