"""The records in a batch: what is built is read again, whatever the compression; what is odd is refused."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.batch import Compression, batches, pack_header, parse_header
from coterie.protocol.records import BatchBuilder, BatchRecord, EndMarker, build_batch, marker_of, records
from logs import build_marker

header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
batch_records = st.builds(
    BatchRecord,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=300),
    timestamp=st.integers(0, 2**53),
    headers=header_lists,
    offset=st.just(0),
)


def read(data: bytes | bytearray) -> list[BatchRecord]:
    ((at, header),) = batches(data)
    return list(records(data, header, at))


@given(st.lists(batch_records, min_size=1, max_size=8), st.sampled_from(Compression))
def test_what_is_built_is_read_again(content: list[BatchRecord], compression: Compression) -> None:
    found = read(build_batch(content, compression=compression))
    assert [record.offset for record in found] == list(range(len(content)))
    assert [record._replace(offset=0) for record in found] == content


@given(st.lists(batch_records, min_size=1, max_size=3), st.data())
def test_garbage_in_the_body_raises_malformed_and_nothing_else(content: list[BatchRecord], data: st.DataObject) -> None:
    """The checksum is right, the sender is wrong."""
    batch = build_batch(content, compression=data.draw(st.sampled_from(Compression)))
    body = bytearray(batch[61:])
    for _ in range(3):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    spoiled = pack_header(parse_header(batch), bytes(body))
    with suppress(MalformedError):
        read(spoiled)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("0c00000001010000", "1 bytes follow"),
        ("0e000000010100", "a record of 7 bytes"),
        ("0a0000000101", "each takes 7"),
        ("0a000000010100", "a record of 5 bytes"),
        ("0c000000640100", "50 bytes at byte"),
        ("0c00000001010e", "counts 7 headers"),
        ("0e00000001010000", "ends at byte 7, its length says 8"),
        ("1a00ffffffffffffffffffff0000", "more than 64 bits"),
        ("100000000101020101", "without a name"),
        ("1200000001010202ff01", "not UTF-8"),
    ],
)
def test_records_that_contradict_themselves(body: str, why: str) -> None:
    header = parse_header(build_batch([BatchRecord(None, None, 0)]))
    assert read(pack_header(header, bytes.fromhex("0c000000010100"))) == [BatchRecord(None, None, 0, [], 0)]
    with pytest.raises(MalformedError, match=why):
        read(pack_header(header, bytes.fromhex(body)))


def test_an_absurd_count_is_refused_at_once() -> None:
    batch = build_batch([BatchRecord(b"k", b"v", 0)])
    for count in (2**31 - 1, -1):
        lying = pack_header(parse_header(batch)._replace(record_count=count), bytes(batch[61:]))
        with pytest.raises(MalformedError, match="each takes 7"):
            read(lying)


def test_an_empty_batch_cannot_be_built() -> None:
    with pytest.raises(MalformedError, match="one record at least"):
        build_batch([])


@pytest.mark.parametrize("marker", [EndMarker(committed=True, coordinator_epoch=5), EndMarker(committed=False)])
def test_a_marker_is_read_again(marker: EndMarker) -> None:
    batch = build_marker(marker, producer_id=9, producer_epoch=2, timestamp=1)
    assert marker_of(batch, parse_header(batch)) == marker


def test_other_control_records_are_no_end_of_a_transaction() -> None:
    """A leader change (type 2) is one of the controllers' log."""
    other = build_batch([BatchRecord(b"\x00\x00\x00\x02", b"", 1)], is_control=True)
    assert marker_of(other, parse_header(other)) is None
    short = build_batch([BatchRecord(b"\x00", b"", 1)], is_control=True)
    with pytest.raises(MalformedError, match="too short"):
        marker_of(short, parse_header(short))


def test_large_records_of_all_sizes_keep_their_lengths() -> None:
    content = [BatchRecord(UUID(int=size).bytes, bytes(size), size) for size in (0, 63, 64, 8191, 8192, 1_048_576)]
    assert [len(record.value or b"") for record in read(build_batch(content))] == [0, 63, 64, 8191, 8192, 1_048_576]


@given(st.lists(batch_records, min_size=1, max_size=20), st.integers(61, 800))
def test_a_batch_grows_until_it_is_full_and_knows_its_size(content: list[BatchRecord], limit: int) -> None:
    builder = BatchBuilder(limit)
    for index, record in enumerate(content):
        if not builder.append(record.key, record.value, record.timestamp, record.headers):
            assert index >= 1
            one_more = build_batch(content[: index + 1])
            assert len(one_more) > limit >= 61 and builder.count == index
            break
        assert builder.size == len(build_batch(content[: index + 1]))
    assert builder.finish() == build_batch(content[: builder.count]) == builder.finish()
    header = parse_header(builder.finish(producer_id=5, producer_epoch=2, base_sequence=9, is_transactional=True))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (5, 2, 9, True)
    times = [record.timestamp for record in content[: builder.count]]
    assert (header.base_timestamp, header.max_timestamp) == (times[0], max(times))


def test_with_compression_the_size_is_what_the_ratio_lets_expect() -> None:
    builder = BatchBuilder(1000, Compression.ZSTD, ratio=0.25)
    while builder.append(None, bytes(100), 1):
        pass
    assert 950 < builder.size <= 1000 and builder.plain_size > 3500
    assert len(builder.finish()) < 200
