"""What is left of a batch when compaction has taken records away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.batch import (
    HEADER_SIZE,
    Compression,
    TimestampType,
    assign,
    check_sum,
    pack_header,
    parse_header,
    stamp_time,
)
from coterie.protocol.records import BatchRecord, OpenBatch, build_batch, emptied, records

content = st.lists(
    st.builds(
        BatchRecord,
        key=st.one_of(st.none(), st.binary(max_size=200)),
        value=st.one_of(st.none(), st.binary(max_size=200)),
        timestamp=st.integers(0, 2**41),
        headers=st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


@given(
    content,
    st.sampled_from(Compression),
    st.one_of(st.none(), st.integers(0, 2**41), st.just(2**63 - 1)),
    st.booleans(),
    st.data(),
)
def test_records_that_stay_are_what_they_were(
    written: list[BatchRecord], compression: Compression, horizon: int | None, by_append: bool, data: st.DataObject
) -> None:
    """Offsets, timestamps and headers too, whatever the batch's delete horizon is."""
    kept = data.draw(st.lists(st.booleans(), min_size=len(written), max_size=len(written)).filter(any))
    batch = build_batch(written, compression=compression, producer_id=7, producer_epoch=3, base_sequence=11)
    assign(batch, 0, 1_000, 5)
    if by_append:
        stamp_time(batch, 0, TimestampType.LOG_APPEND_TIME, 77)
    before = parse_header(batch)
    left = OpenBatch(batch, before).keep(kept, horizon)
    after = parse_header(left)
    check_sum(left, after)
    stay = [record for record, stays in zip(records(batch, before), kept, strict=True) if stays]
    assert list(records(left, after)) == stay
    assert after.record_count == len(stay)
    assert after.max_timestamp == (77 if by_append else max(record.timestamp for record in stay))
    assert after.delete_horizon_ms == horizon
    same = ("base_offset", "last_offset", "leader_epoch", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert (after.compression, after.timestamp_type) == (before.compression, before.timestamp_type)


def test_a_horizon_stays_when_more_records_go() -> None:
    batch = build_batch([BatchRecord(b"k", None, 10), BatchRecord(b"l", b"v", 20)])
    once = OpenBatch(batch, parse_header(batch)).keep([True, True], 500)
    twice = OpenBatch(once, parse_header(once)).keep([True, False])
    header = parse_header(twice)
    assert header.delete_horizon_ms == 500
    assert [record.timestamp for record in records(twice, header)] == [10]


def test_an_empty_batch_still_says_whose_it_is_and_how_far_it_reaches() -> None:
    """KAFKA-5490: the producer's sequence goes on after it."""
    content = [BatchRecord(b"k", b"v", 10), BatchRecord(b"k", None, 20)]
    batch = build_batch(
        content, compression=Compression.GZIP, producer_id=7, producer_epoch=3, base_sequence=11, is_transactional=True
    )
    assign(batch, 0, 40, 2)
    marked = OpenBatch(batch, parse_header(batch)).keep([True, True], 500)
    left = emptied(parse_header(marked))
    header = parse_header(left)
    check_sum(left, header)
    assert len(left) == HEADER_SIZE and list(records(left, header)) == []
    assert (header.base_offset, header.last_offset, header.last_sequence, header.max_timestamp) == (40, 41, 12, 20)
    assert (header.base_timestamp, header.compression, header.delete_horizon_ms) == (-1, Compression.NONE, None)
    assert header.is_transactional


def test_records_that_make_no_sense_are_not_opened() -> None:
    batch = build_batch([BatchRecord(b"k", b"v", 10)])
    batch[HEADER_SIZE] = 200
    with pytest.raises(MalformedError):
        OpenBatch(batch, parse_header(batch))


def test_a_timestamp_too_far_from_the_horizon_is_refused() -> None:
    usual = build_batch([BatchRecord(b"k", None, 0)])
    batch = pack_header(parse_header(usual)._replace(base_timestamp=-(2**63)), bytes(usual[HEADER_SIZE:]))
    with pytest.raises(MalformedError, match="64 bits"):
        OpenBatch(batch, parse_header(batch)).keep([True], 2**62)
