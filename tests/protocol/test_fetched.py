"""What a fetch brought: order, cuts, control batches, aborted transactions, broken bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.batch import Compression, TimestampType, assign, parse_header, stamp_time
from coterie.protocol.fetched import NO_PROGRESS, FetchedRecords, end_of
from coterie.protocol.records import BatchRecord, EndMarker, OpenBatch, Record, build_batch, emptied
from logs import build_marker


def batch_at(
    offset: int, count: int = 3, *, producer_id: int = -1, compression: Compression = Compression.NONE
) -> bytearray:
    """Records whose values say where they are."""
    content = [BatchRecord(None, b"%d" % (offset + index), 1000 + index) for index in range(count)]
    batch = build_batch(content, compression=compression, producer_id=producer_id, is_transactional=producer_id >= 0)
    assign(batch, 0, offset, 7)
    return batch


def marker_at(offset: int, producer_id: int, *, committed: bool) -> bytearray:
    batch = build_marker(EndMarker(committed=committed), producer_id=producer_id, producer_epoch=0, timestamp=5)
    assign(batch, 0, offset, 7)
    return batch


def fetched(*batches: bytes | bytearray, at: int = 0, **how: object) -> FetchedRecords:
    return FetchedRecords("t", 3, b"".join(batches), next_offset=at, **how)  # type: ignore[arg-type]


def offsets(records: list[Record]) -> list[int]:
    assert [int(record.value or b"") for record in records] == [record.offset for record in records]
    return [record.offset for record in records]


def test_a_record_says_all_there_is_about_it() -> None:
    batch = build_batch([BatchRecord(b"k", b"v", 9, [("h", b"x"), ("n", None)]), BatchRecord(None, None, 8)])
    assign(batch, 0, 40, 7)
    first, second = fetched(batch).take(10)
    assert first == Record("t", 3, 40, 9, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"), ("n", None)), 7)
    assert second == Record("t", 3, 41, 8, leader_epoch=7)
    stamp_time(batch, 0, TimestampType.LOG_APPEND_TIME, 77)
    assert {(each.timestamp, each.timestamp_type) for each in fetched(batch).take(10)} == {(77, 1)}


@given(st.integers(1, 9), st.integers(0, 14), st.integers(0, 14), st.sampled_from(Compression))
def test_taken_in_any_portions_all_come_once_and_the_position_follows(
    portion: int, first: int, until: int, compression: Compression
) -> None:
    """Offsets 3, 4 and 11 are gone, as compaction leaves it; the position still passes them at a batch's end."""
    data = [batch_at(0, compression=compression), batch_at(5, 6, compression=compression), batch_at(12, 2)]
    found = fetched(*data, at=first, until_offset=until)
    all_taken: list[int] = []
    while taken := found.take(portion):
        assert len(taken) <= portion
        all_taken += offsets(taken)
        assert found.next_offset > all_taken[-1]
    assert all_taken == [each for each in (0, 1, 2, 5, 6, 7, 8, 9, 10, 12, 13) if first <= each < until]
    assert found.next_offset == max(first, min(until, 14))


KINDS = ("records", "compacted", "emptied", "aborted", "marker", "broken")


def of_kind(kind: str, offset: int, count: int) -> bytearray:
    """A batch with as many offsets as `count`, whatever is shown of it."""
    if kind == "marker":
        return marker_at(offset, 1, committed=False)
    batch = batch_at(offset, count, producer_id=1 if kind == "aborted" else -1)
    if kind == "emptied":
        batch = emptied(parse_header(batch))
    elif kind == "compacted":
        batch = OpenBatch(batch, parse_header(batch)).keep([at % 2 == 0 for at in range(count)])
    elif kind == "broken":
        batch[-1] ^= 1
    return batch


@given(
    st.lists(st.tuples(st.sampled_from(KINDS[:5] * 3 + KINDS), st.integers(1, 4)), min_size=1, max_size=8),
    st.lists(st.tuples(st.booleans(), st.integers(1, 9)), min_size=1, max_size=20),
    st.integers(0, 5),
    st.integers(0, 2000),
)
def test_batches_that_are_opened_ahead_change_nothing_but_when_they_are_opened(
    kinds: list[tuple[str, int]], portions: list[tuple[bool, int]], first: int, most: int
) -> None:
    """Records, position, leader epoch, bytes that wait, errors: all as they are without it, at any time."""
    data, end, offset = [], first, 0
    for at, (kind, count) in enumerate(kinds):
        batch = of_kind(kind, offset, count)
        assign(batch, 0, offset, 7 + at)
        data.append(batch)
        offset += 1 if kind == "marker" else count
    ahead, plain = (fetched(*data, at=first, aborted=[(0, 1)]) for _ in range(2))
    for opens, portion in portions:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("coterie.protocol.fetched.READ_AHEAD_RECORDS", most % 20)
            patch.setattr("coterie.protocol.fetched.READ_AHEAD_BYTES", most)
            if opens:
                ahead.read_ahead()
                assert (ahead.next_offset, ahead.last_epoch, ahead.size) == (end, plain.last_epoch, plain.size)
        results: list[object] = []
        for one in (ahead, plain):
            try:
                results.append(one.take(portion))
            except MalformedError as error:
                results.append(str(error))
        assert results[0] == results[1]
        assert ahead.next_offset == plain.next_offset >= end, "it never goes back"
        assert (ahead.last_epoch, ahead.size) == (plain.last_epoch, plain.size)
        end = plain.next_offset


def test_what_was_passed_is_not_shown_again_by_a_batch_that_overlaps() -> None:
    found = fetched(batch_at(0, 4), batch_at(2, 4))
    found.take(1)
    found.read_ahead()
    assert offsets(found.take(9)) == [1, 2, 3, 4, 5]


def test_a_batch_cut_short_is_left_for_the_next_fetch() -> None:
    for cut in (1, 17, 60, 61, 70):
        found = fetched(batch_at(0), batch_at(3)[:cut])
        assert offsets(found.take(10)) == [0, 1, 2]
        assert found.take(10) == [] and found.next_offset == 3


def test_an_answer_without_a_whole_batch_would_never_move_on_and_says_so() -> None:
    with pytest.raises(MalformedError, match=r"of t-3 at offset 0 hold no whole batch.*max\.partition\.fetch\.bytes"):
        fetched(batch_at(0)[:-1]).take(1)
    assert fetched(b"").take(1) == []


def test_control_batches_move_the_position_and_are_not_shown() -> None:
    found = fetched(batch_at(0, producer_id=9), marker_at(3, 9, committed=True), batch_at(4, 1))
    assert offsets(found.take(9)) == [0, 1, 2, 4]
    assert found.control_batches == 1
    last = fetched(batch_at(0), marker_at(3, 9, committed=False))
    assert len(last.take(9)) == 3 and last.take(9) == [] and last.next_offset == 4


def test_aborted_transactions_are_dropped_from_their_first_offset_to_their_marker() -> None:
    """KIP-98: two producers interleaved; one aborts and then commits another transaction."""
    data = [
        batch_at(0, 2, producer_id=1),
        batch_at(2, 2, producer_id=2),
        batch_at(4, 2, producer_id=1),
        marker_at(6, 1, committed=False),
        batch_at(7, 1, producer_id=1),
        batch_at(8, 1),
        marker_at(9, 2, committed=True),
        marker_at(10, 1, committed=True),
    ]
    committed = fetched(*data, aborted=[(0, 1)])
    assert offsets(committed.take(99)) == [2, 3, 7, 8]
    assert committed.take(1) == [] and committed.next_offset == 11
    assert (committed.aborted_batches, committed.control_batches) == (2, 3)
    assert offsets(fetched(*data, aborted=None).take(99)) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert offsets(fetched(*data, aborted=[]).take(99)) == [0, 1, 2, 3, 4, 5, 7, 8]
    assert offsets(fetched(*data, aborted=[(4, 1)]).take(99)) == [0, 1, 2, 3, 7, 8], "it begins at its first offset"
    twice = [batch_at(0, 1, producer_id=1), marker_at(1, 1, committed=False)]
    twice += [batch_at(2, 1, producer_id=1), marker_at(3, 1, committed=False), batch_at(4, 1)]
    assert offsets(fetched(*twice, aborted=[(2, 1), (0, 1)]).take(99)) == [4], "in whatever order they are listed"


def test_an_idempotent_producer_outside_a_transaction_is_not_dropped() -> None:
    batch = build_batch([BatchRecord(None, b"0", 1)], producer_id=1)
    assert offsets(fetched(batch, aborted=[(0, 1)]).take(9)) == [0]


def test_what_is_before_a_broken_batch_comes_before_the_error() -> None:
    broken = batch_at(3)
    broken[-2] ^= 1  # of the last value
    found = fetched(batch_at(0), broken, batch_at(6))
    assert offsets(found.take(10)) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(MalformedError, match="checksum"):
            found.take(10)
        assert found.next_offset == 3
    unchecked = fetched(batch_at(0), broken, check_crcs=False)
    assert len(unchecked.take(10)) == 6


def test_offsets_that_run_backwards_are_refused() -> None:
    """Or a position would move backwards, and the same records come for ever."""
    for field, at in ((-5, 0), ((1 << 63) - 2, 0)):
        batch = batch_at(0)
        assign(batch, at, field, 0)
        with pytest.raises(MalformedError, match="has offsets"):
            fetched(batch).take(1)


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 255)), max_size=6), st.sampled_from(Compression))
def test_garbage_raises_malformed_and_nothing_else(changes: list[tuple[int, int]], compression: Compression) -> None:
    data = batch_at(0, compression=compression) + batch_at(3, compression=compression)
    for at, byte in changes:
        data[at % len(data)] = byte
    found = fetched(data, check_crcs=False)
    before = 0
    try:
        while found.take(2):
            assert before <= found.next_offset
            before = found.next_offset
    except MalformedError:
        pass


# --- where the next fetch begins --------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 400))
def test_the_next_fetch_begins_behind_the_last_whole_batch_as_if_all_had_been_read(counts: list[int], cut: int) -> None:
    starts = [sum(counts[:at]) for at in range(len(counts))]
    data = b"".join(batch_at(start, count) for start, count in zip(starts, counts, strict=True))
    data = data[: max(len(data) - cut, 0)]
    found = fetched(data)
    try:
        found.take(1_000)
    except MalformedError:
        assert end_of(memoryview(data), 0) == NO_PROGRESS
    else:
        assert end_of(memoryview(data), 0) == (found.next_offset or NO_PROGRESS)


def test_bytes_that_lead_nowhere_make_no_progress() -> None:
    whole = bytes(batch_at(0))
    absurd = bytearray(batch_at(3))
    absurd[8:12] = b"\0\0\0\1"
    for data, offset in ((b"", 0), (whole[:-1], 0), (whole, 3), (whole + absurd, 0)):
        assert end_of(memoryview(data), offset) == NO_PROGRESS
    assert end_of(memoryview(whole + whole[:70]), 1) == 3
