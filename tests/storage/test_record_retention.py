"""Kafka's rules of what outlives compaction, one by one (Cleaner.shouldRetainRecord, RecordFilter, KIP-534)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.protocol.batch import HEADER_SIZE, BatchHeader, assign, pack_header, parse_header
from coterie.protocol.records import BatchRecord, EndMarker, build_batch, marker_of, records
from coterie.storage.compaction import LastRecord, OffsetMap, RecordRetention
from logs import build_marker

NOW = 10_000
KEPT_MS = 1_000
Batch = bytearray


def data(at: int, *pairs: tuple[bytes | None, bytes | None], **options: Any) -> Batch:
    batch = build_batch([BatchRecord(key, value, 5_000) for key, value in pairs], **options)
    assign(batch, 0, at, 0)
    return batch


def marker(at: int, producer: int, *, committed: bool, epoch: int = 0) -> Batch:
    batch = build_marker(EndMarker(committed, 0), producer_id=producer, producer_epoch=epoch, timestamp=5_000)
    assign(batch, 0, at, 0)
    return batch


def in_transaction(at: int, producer: int, *pairs: tuple[bytes, bytes | None]) -> Batch:
    return data(at, *pairs, producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True)


def compacted(
    *log: Batch,
    now_ms: int = NOW,
    producers: Mapping[int, LastRecord] | None = None,
    start: int = 0,
    bound: int = 1_000,
    capacity: int = 100,
) -> tuple[list[Batch], OffsetMap]:
    """A whole rebalance over these batches."""
    latest = OffsetMap(start, capacity)
    for batch in log:
        header = parse_header(batch)
        if header.next_offset <= start:
            continue
        if latest.is_full:
            break
        if header.is_control:
            latest.end_transaction(header, marker_of(batch, header))
        else:
            latest.add(header, records(batch, header))  # type: ignore[arg-type]
    survivors = RecordRetention(
        latest, producers or {}, bound=bound, delete_retention_ms=KEPT_MS, limit=1 << 20, now_ms=now_ms
    )
    left = []
    for batch in log:
        header = parse_header(batch)
        should_discard = survivors.should_discard(header)
        left.append(survivors.filter_batch(bytes(batch), 0, header))
        assert not should_discard or not left[-1], "what is clear without opening a batch is true"
    return [bytearray(batch) for batch in left if batch], latest


def content(batches: list[Batch]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [
        (record.offset, record.key, record.value) for batch in batches for record in records(batch, parse_header(batch))
    ]


def header_of(batches: list[Batch]) -> BatchHeader:
    (batch,) = batches
    return parse_header(batch)


def test_of_each_key_the_last_record_stays_with_its_offset() -> None:
    left, latest = compacted(data(0, (b"a", b"1"), (b"b", b"2")), data(2, (b"a", b"3")))
    assert content(left) == [(1, b"b", b"2"), (2, b"a", b"3")]
    assert [(parse_header(batch).base_offset, parse_header(batch).last_offset) for batch in left] == [(0, 1), (2, 2)]
    assert latest.known_to == 3


def test_a_long_key_is_known_as_well_as_a_short_one() -> None:
    long, other = b"k" * 1_000, b"k" * 999 + b"l"
    left, _ = compacted(data(0, (long, b"1"), (other, b"2"), (long, b"3")))
    assert content(left) == [(1, other, b"2"), (2, long, b"3")]


def test_a_record_without_a_key_goes() -> None:
    """From when the topic was not compacted: nobody can ask for it."""
    left, _ = compacted(data(0, (None, b"1"), (b"a", b"2")))
    assert content(left) == [(1, b"a", b"2")]


def test_a_tombstone_stays_until_its_horizon_and_then_goes() -> None:
    log = [data(0, (b"a", b"1")), data(1, (b"a", None), (b"b", b"2"))]
    once, _ = compacted(*log)
    assert content(once) == [(1, b"a", None), (2, b"b", b"2")]
    assert header_of(once).delete_horizon_ms == NOW + KEPT_MS
    again, _ = compacted(*once, now_ms=NOW + KEPT_MS - 1)
    assert again == once, "the horizon is set once"
    later, _ = compacted(*once, now_ms=NOW + KEPT_MS)
    assert content(later) == [(2, b"b", b"2")]


def test_a_tombstone_that_is_not_the_last_of_its_key_goes_at_once() -> None:
    left, _ = compacted(data(0, (b"a", None)), data(1, (b"a", b"1")))
    assert content(left) == [(1, b"a", b"1")]


def test_what_was_not_looked_at_stays_as_it_is() -> None:
    """The keys did not fit: a later rebalance goes on."""
    log = [data(0, (b"a", b"1")), data(1, (b"a", b"2"), (b"b", b"3")), data(3, (b"b", b"4")), data(4, (b"b", b"5"))]
    left, latest = compacted(*log, capacity=2)
    assert latest.end == 3
    assert left == [log[1], log[2], log[3]]


def test_the_last_batch_of_a_producer_stays_empty_with_its_sequence() -> None:
    mine = {"producer_id": 7, "producer_epoch": 1}
    log = [
        data(0, (b"a", b"1"), base_sequence=0, **mine),
        data(1, (b"a", b"2"), (b"a", b"3"), base_sequence=1, **mine),
        data(3, (b"a", b"4")),
    ]
    left, _ = compacted(*log, producers={7: LastRecord(1, 2)})
    assert [parse_header(batch).base_offset for batch in left] == [1, 3]
    header = parse_header(left[0])
    assert (header.record_count, header.last_offset, header.last_sequence) == (0, 2, 2)
    gone, _ = compacted(*log)
    assert content(gone) == [(3, b"a", b"4")], "a producer that is forgotten keeps nothing"
    again, _ = compacted(*left, producers={7: LastRecord(1, 2)})
    assert again == left


def test_the_last_batch_of_a_rebalance_stays_so_that_the_end_of_the_log_is_known() -> None:
    log = [data(0, (b"a", b"1"), (None, b"2"), (None, b"3")), data(3, (None, b"4"))]
    left, _ = compacted(*log, bound=4)
    assert content(left) == [(0, b"a", b"1")] and parse_header(left[-1]).next_offset == 4


def test_what_was_aborted_goes_and_counts_for_nothing() -> None:
    log = [
        data(0, (b"a", b"1")),
        in_transaction(1, 7, (b"a", b"2")),
        in_transaction(2, 8, (b"b", b"3")),
        marker(3, 7, committed=False),
        marker(4, 8, committed=True),
    ]
    left, _ = compacted(*log)
    assert content(left)[:2] == [(0, b"a", b"1"), (2, b"b", b"3")]
    assert [parse_header(batch).base_offset for batch in left] == [0, 2, 3, 4], "markers stay while batches were there"


def test_a_marker_goes_some_time_after_the_last_batch_of_its_transaction() -> None:
    log = [in_transaction(0, 7, (b"a", b"1")), marker(1, 7, committed=False), marker(2, 8, committed=True)]
    once, _ = compacted(*log)
    assert [parse_header(batch).delete_horizon_ms for batch in once] == [None, NOW + KEPT_MS]
    twice, _ = compacted(*once, now_ms=NOW + 500)
    assert [parse_header(batch).delete_horizon_ms for batch in twice] == [NOW + 500 + KEPT_MS, NOW + KEPT_MS]
    assert [marker_of(batch, parse_header(batch)) for batch in twice] == [EndMarker(False, 0), EndMarker(True, 0)]
    later, _ = compacted(*twice, now_ms=NOW + KEPT_MS)
    assert [parse_header(batch).base_offset for batch in later] == [1]
    last, _ = compacted(*twice, now_ms=NOW + 5 * KEPT_MS)
    assert last == []


def test_the_last_marker_of_a_producer_stays_for_its_epoch() -> None:
    """Whatever is left of it: a producer of an older epoch must still be told that it is one."""
    log = [marker(0, 7, committed=True, epoch=3), marker(1, 7, committed=True, epoch=4)]
    once, _ = compacted(*log)
    left, _ = compacted(*once, now_ms=NOW + KEPT_MS, producers={7: LastRecord(4, None)})
    header = header_of(left)
    assert (header.producer_epoch, header.record_count, header.is_control) == (4, 0, True)
    again, _ = compacted(*left, now_ms=NOW + KEPT_MS, producers={7: LastRecord(4, None)})
    assert again == left
    assert compacted(*left, now_ms=NOW + KEPT_MS)[0] == []


def test_a_transaction_that_has_not_ended_is_left_alone_and_looked_at_again() -> None:
    log = [
        data(0, (b"a", b"1"), (b"b", b"1")),
        in_transaction(2, 7, (b"a", b"2"), (b"b", None)),
        data(4, (b"b", b"3")),
    ]
    left, latest = compacted(*log)
    assert content(left) == [(0, b"a", b"1"), (2, b"a", b"2"), (3, b"b", None), (4, b"b", b"3")]
    assert latest.known_to == 2, "the next rebalance begins where it began"
    ended = [*left, marker(5, 7, committed=True)]
    after, _ = compacted(*ended, start=2)
    assert content(after)[:2] == [(2, b"a", b"2"), (4, b"b", b"3")]
    undone, _ = compacted(*left, marker(5, 7, committed=False), start=2)
    assert content(undone)[:2] == [(0, b"a", b"1"), (4, b"b", b"3")]


def test_of_a_committed_transaction_each_record_counts_at_its_own_place() -> None:
    log = [in_transaction(0, 7, (b"a", b"1")), data(1, (b"a", b"2")), marker(2, 7, committed=True)]
    left, _ = compacted(*log)
    assert content(left)[0] == (1, b"a", b"2")


def test_records_that_cannot_be_read_stay() -> None:
    broken = data(0, (b"a", b"1"))
    broken[61] = 200
    latest = OffsetMap(0, 10)
    latest.skip(parse_header(broken))
    survivors = RecordRetention(latest, {}, bound=9, delete_retention_ms=1, limit=1 << 20, now_ms=NOW)
    assert not survivors.should_discard(parse_header(broken))
    assert survivors.filter_batch(bytes(broken), 0, parse_header(broken)) == broken


def test_a_tombstone_whose_time_is_too_far_from_any_horizon_stays() -> None:
    """Whoever sends such a thing does not keep the rest of the log from being compacted."""
    usual = data(0, (b"a", None))
    odd = pack_header(parse_header(usual)._replace(base_timestamp=-(2**63)), bytes(usual[HEADER_SIZE:]))
    left, _ = compacted(odd)
    assert left == [odd]
