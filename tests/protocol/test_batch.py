"""The header of a batch: what is read from it, what is refused, and what may be changed in place."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.batch import (
    HEADER_SIZE,
    MAX_SEQUENCE,
    BatchHeader,
    Compression,
    CorruptBatchError,
    InvalidBatchError,
    OldMagicError,
    TimestampType,
    UnknownCompressionError,
    assign,
    batches,
    check_from_client,
    check_sum,
    pack_header,
    parse_header,
    stamp_producer,
    stamp_time,
)
from coterie.protocol.records import BatchRecord, build_batch, records
from coterie.protocol.records import EndMarker as Marker
from logs import build_marker

# One record "key" -> "value" at timestamp 1600000000000, written by hand from the specification of the format.
BY_HAND = bytes.fromhex(
    "0000000000000000"  # base offset
    "00000040"  # length: 64 bytes follow
    "ffffffff"  # leader epoch
    "02"  # magic
    "00000000"  # checksum, computed below
    "0000"  # attributes
    "00000000"  # last offset delta
    "00000174876e8000"  # base timestamp
    "00000174876e8000"  # latest timestamp
    "ffffffffffffffff"  # producer id
    "ffff"  # producer epoch
    "ffffffff"  # base sequence
    "00000001"  # records
    "1c"  # a record of 14 bytes
    "000000"  # attributes, timestamp delta, offset delta
    "066b6579"  # key
    "0a76616c7565"  # value
    "00"  # headers
)


def header_of(**fields: int) -> BatchHeader:
    return parse_header(build_batch([BatchRecord(b"k", b"v", 5)]))._replace(**fields)


def test_a_batch_has_the_bytes_of_the_specification() -> None:
    built = build_batch([BatchRecord(b"key", b"value", 1_600_000_000_000)])
    assert built[:17] == BY_HAND[:17] and built[21:] == BY_HAND[21:]
    assert BY_HAND[8:12] == (len(BY_HAND) - 12).to_bytes(4, "big")


def test_every_field_is_read() -> None:
    batch = build_batch(
        [BatchRecord(b"k", b"v", 20), BatchRecord(b"k", None, 10)],
        compression=Compression.ZSTD,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        is_transactional=True,
    )
    assign(batch, 0, 1000, 4)
    header = parse_header(batch)
    assert header.size == len(batch) and header.magic == 2
    assert (header.base_offset, header.last_offset, header.next_offset, header.leader_epoch) == (1000, 1001, 1002, 4)
    assert (header.base_timestamp, header.max_timestamp) == (20, 20)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 3, 11, 12)
    assert header.record_count == 2 and header.compression is Compression.ZSTD
    assert header.is_transactional and not header.is_control and header.has_producer
    assert header.timestamp_type is TimestampType.CREATE_TIME


def test_sequences_wrap_to_zero() -> None:
    assert header_of(base_sequence=MAX_SEQUENCE, last_offset_delta=0).last_sequence == MAX_SEQUENCE
    assert header_of(base_sequence=MAX_SEQUENCE, last_offset_delta=2).last_sequence == 1
    assert header_of(base_sequence=-1, last_offset_delta=2).last_sequence == -1


def test_offset_and_epoch_are_outside_of_the_checksum() -> None:
    batch = build_batch([BatchRecord(b"k", b"v", 5)])
    assign(batch, 0, 2**40, 9)
    check_sum(batch, parse_header(batch))


@pytest.mark.parametrize("view", [bytearray, lambda data: memoryview(bytearray(data))])
def test_append_time_gives_all_records_the_time_of_the_broker(view: type[bytearray]) -> None:
    batch = view(build_batch([BatchRecord(b"k", b"v", 5), BatchRecord(b"k", b"v", 6)]))
    stamp_time(batch, 0, TimestampType.LOG_APPEND_TIME, 77)
    header = parse_header(batch)
    check_sum(batch, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in records(batch, header)] == [77, 77]
    stamp_time(batch, 0, TimestampType.CREATE_TIME, 6)
    assert [record.timestamp for record in records(batch, parse_header(batch))] == [5, 6]


@given(st.data())
def test_any_change_of_a_byte_is_noticed(data: st.DataObject) -> None:
    """Beyond offset and epoch, which are the broker's."""
    batch = build_batch([BatchRecord(b"key", b"value", 5)], producer_id=1, producer_epoch=0, base_sequence=0)
    at = data.draw(st.sampled_from([*range(8, 12), *range(16, len(batch))]))
    batch[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(MalformedError):
        list(batches(batch))


@given(st.integers(0, 200))
def test_a_batch_cut_anywhere_is_corrupt_and_never_an_index_error(length: int) -> None:
    batch = build_batch([BatchRecord(b"key", b"v" * 100, 5)])
    if 0 < length < len(batch):
        with pytest.raises(CorruptBatchError):
            list(batches(batch[:length]))


@given(st.binary(max_size=200))
def test_no_bytes_at_all_make_the_parser_fail_otherwise(data: bytes) -> None:
    with suppress(MalformedError):
        for at, header in batches(data):
            list(records(data, header, at))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6))
def test_batches_in_a_row_are_found_one_by_one(counts: list[int]) -> None:
    parts = [build_batch([BatchRecord(b"k", bytes(count), 1)] * count) for count in counts]
    data = b"".join(parts)
    found = list(batches(data))
    assert [header.record_count for _, header in found] == counts
    assert [bytes(data[at : at + header.size]) for at, header in found] == parts


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(magic: int) -> None:
    old = bytearray(40)  # a v0 message may be shorter than a v2 header
    old[16] = magic
    with pytest.raises(OldMagicError, match=f"format v{magic}") as refused:
        parse_header(old)
    assert refused.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"base_offset": 3}, "starts at offset 0"),
        ({"record_count": 2}, "one offset for each record"),
        ({"record_count": 0, "last_offset_delta": -1}, "one record at least"),
        ({"last_offset_delta": 5}, "one offset for each record"),
        ({"attributes": 0x20}, "control batches"),
        ({"producer_id": 5, "producer_epoch": 0, "base_sequence": -1}, "neither can be negative"),
        ({"producer_id": 5, "producer_epoch": -1, "base_sequence": 0}, "neither can be negative"),
        ({"attributes": 0x10}, "no producer id"),
    ],
)
def test_what_a_client_may_not_send(fields: dict[str, int], why: str) -> None:
    with pytest.raises(InvalidBatchError, match=why) as refused:
        check_from_client(header_of(**fields))
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_an_unknown_compression_has_a_code_of_its_own() -> None:
    with pytest.raises(UnknownCompressionError, match="compression 5") as refused:
        check_from_client(header_of(attributes=5))
    assert refused.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_plain_batch_from_a_client_is_fine() -> None:
    check_from_client(header_of())


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_an_absurd_length_is_refused_before_anything_is_allocated(length: int) -> None:
    batch = bytearray(build_batch([BatchRecord(b"k", b"v", 5)]))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError, match="says it has"):
        list(batches(batch))


def test_a_header_alone_is_a_batch_without_records() -> None:
    """Compaction leaves such batches behind, to keep a producer's last sequence."""
    empty = pack_header(header_of(record_count=0, last_offset_delta=4), b"")
    assert len(empty) == HEADER_SIZE
    ((_, header),) = batches(empty)
    assert list(records(empty, header)) == [] and header.next_offset == 5


def test_a_marker_is_a_control_batch_in_a_transaction() -> None:
    header = parse_header(build_marker(Marker(committed=True), producer_id=4, producer_epoch=1, timestamp=9))
    assert header.is_control and header.is_transactional and header.base_sequence == -1 and header.record_count == 1


def test_a_batch_is_given_to_another_producer_in_place() -> None:
    """A producer whose epoch was raised sends what it has again, under the new one (KIP-360)."""
    one = bytearray(3) + build_batch([BatchRecord(b"k", b"v", 1)], producer_id=1, producer_epoch=0, base_sequence=5)
    stamp_producer(one, 3, 7, 2, 0)
    assert one[3:] == build_batch([BatchRecord(b"k", b"v", 1)], producer_id=7, producer_epoch=2, base_sequence=0)
