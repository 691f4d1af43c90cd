"""A fetch as Arrow columns: the same records as objects would be, in the columns of Spark's Kafka source."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.arrow import ArrowReader, ArrowWriter
from coterie.protocol.batch import Compression, TimestampType, assign, stamp_time
from coterie.protocol.fetched import FetchedBatches, FetchedRecords
from coterie.protocol.records import BatchBuilder, BatchRecord, EndMarker, Record, build_batch, murmur2
from logs import build_marker

batch_records = st.builds(
    BatchRecord,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=100),
    timestamp=st.integers(0, 4_000_000_000_000),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    offset=st.just(0),
)
lists_of_batches = st.lists(
    st.tuples(st.lists(batch_records, min_size=1, max_size=12), st.sampled_from(Compression), st.booleans()), max_size=4
)


def log_of(content: list[tuple[list[BatchRecord], Compression, bool]]) -> bytes:
    """The batches one after the other, from offset 0; some with the broker's time."""
    data, offset = b"", 0
    for records, compression, append_time in content:
        batch = build_batch(records, compression=compression)
        assign(batch, 0, offset, 2)
        if append_time:
            stamp_time(batch, 0, TimestampType.LOG_APPEND_TIME, 1_700_000_000_123)
        data, offset = data + batch, offset + len(records)
    return data


def row_of(record: Record, *, with_headers: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "key": record.key,
        "value": record.value,
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": int(record.timestamp_type),
    }
    if with_headers:
        row["headers"] = [{"key": name, "value": content} for name, content in record.headers]
    return row


def rows_of(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    batch.validate(full=True)
    names = batch.schema.names
    times = batch.column("timestamp").cast(pa.int64())
    plain = batch.set_column(names.index("timestamp"), "timestamp", times)
    rows: list[dict[str, Any]] = plain.to_pylist()
    return rows


@given(lists_of_batches, st.integers(0, 20), st.integers(0, 50), st.booleans(), st.sampled_from([1, 200, 1 << 22]))
def test_columns_hold_what_records_do(
    content: list[tuple[list[BatchRecord], Compression, bool]], first: int, until: int, headers: bool, at_most: int
) -> None:
    data = log_of(content)
    as_records = FetchedRecords("orders", 3, data, next_offset=first, until_offset=until)
    expected = [row_of(each, with_headers=headers) for each in as_records.take(1000)]
    assert as_records.take(1) == []
    reader = ArrowReader(with_headers=headers)
    fetched = FetchedBatches("orders", 3, data, next_offset=first, until_offset=until)
    found: list[dict[str, Any]] = []
    while (batch := reader.take(fetched, at_most)).num_rows:
        found += rows_of(batch)
    assert found == expected
    assert fetched.next_offset == as_records.next_offset


def test_a_reader_serves_many_partitions_and_sizes() -> None:
    """The columns that repeat are kept from one fetch to the next."""
    reader = ArrowReader()
    for topic, partition, count in (("a", 0, 5), ("a", 0, 3), ("a", 0, 9), ("a", 1, 2), ("b", 1, 4)):
        data = build_batch([BatchRecord(b"k", b"%d" % index, index) for index in range(count)])
        rows = rows_of(reader.take(FetchedBatches(topic, partition, data, next_offset=0)))
        assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
            (topic, partition, index) for index in range(count)
        ]


def test_markers_and_aborted_records_are_not_shown_and_move_the_position() -> None:
    data = build_batch([BatchRecord(None, b"aborted", 1)], producer_id=1, is_transactional=True)
    marker = build_marker(EndMarker(committed=False), producer_id=1, producer_epoch=0, timestamp=1)
    assign(marker, 0, 1, 0)
    fetched = FetchedBatches("t", 0, data + marker, next_offset=0, aborted=[(0, 1)])
    batch = ArrowReader(with_headers=True).take(fetched)
    assert batch.num_rows == 0 and fetched.next_offset == 2
    batch.validate(full=True)


def test_what_is_before_a_broken_batch_comes_before_the_error() -> None:
    broken = build_batch([BatchRecord(None, b"b", 1)])
    assign(broken, 0, 1, 0)
    broken[-1] ^= 1
    fetched = FetchedBatches("t", 0, build_batch([BatchRecord(None, b"a", 1)]) + broken, next_offset=0)
    reader = ArrowReader()
    assert [row["value"] for row in rows_of(reader.take(fetched))] == [b"a"]
    for _ in range(2):
        with pytest.raises(MalformedError, match="checksum"):
            reader.take(fetched)
        assert fetched.next_offset == 1
    other = FetchedBatches("t", 0, build_batch([BatchRecord(None, b"c", 1)]), next_offset=0)
    assert [row["value"] for row in rows_of(reader.take(other))] == [b"c"], "nothing of the broken one stays behind"


def test_the_columns_are_those_of_sparks_kafka_source() -> None:
    assert str(ArrowReader(with_headers=True).schema) == (
        "key: binary\nvalue: binary\ntopic: string\npartition: int32\noffset: int64\n"
        "timestamp: timestamp[us, tz=UTC]\ntimestampType: int32\n"
        "headers: list<element: struct<key: string not null, value: binary>>\n"
        "  child 0, element: struct<key: string not null, value: binary>\n"
        "      child 0, key: string not null\n"
        "      child 1, value: binary"
    )


# --- writing ----------------------------------------------------------------------------------------------------------

cells = st.none() | st.binary(max_size=30)


@given(
    st.lists(st.lists(st.tuples(cells, cells, st.integers(0, 2**50)), max_size=20), max_size=3),
    st.integers(1, 3),
    st.integers(61, 400),
    st.sampled_from(Compression),
    st.integers(0, 3),
)
def test_rows_of_columns_arrive_in_their_partitions_in_order(
    chunks: list[list[tuple[bytes | None, bytes | None, int]]],
    partitions: int,
    limit: int,
    compression: Compression,
    sliced: int,
) -> None:
    writer = ArrowWriter(partitions, lambda: BatchBuilder(limit, compression), lambda: 0)
    done, expected = [], []
    for chunk in chunks:
        arrays = [pa.array([row[index] for row in chunk], kind) for index, kind in enumerate(KINDS)]
        done += list(writer.add(*(array.slice(sliced) for array in arrays)))
        expected += chunk[sliced:]
    done += writer.rest()
    assert writer.rest() == []
    found: list[list[tuple[bytes | None, bytes | None, int]]] = [[] for _ in range(partitions)]
    for partition, builder in done:
        if compression is Compression.NONE:
            assert builder.size == len(builder.finish()) and (builder.size <= limit or builder.count == 1)
        fetched = FetchedRecords("t", partition, builder.finish(), next_offset=0)
        found[partition] += [(each.key, each.value, each.timestamp) for each in fetched.take(100)]
    for partition, rows in enumerate(found):
        keyed = [row for row in rows if row[0] is not None]
        assert keyed == [row for row in expected if row[0] is not None and place(row[0], partitions) == partition]
    assert sum(map(len, found)) == len(expected)


KINDS = [pa.binary(), pa.binary(), pa.int64()]


def place(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def test_rows_may_name_their_partition_and_columns_may_be_text() -> None:
    writer = ArrowWriter(3, lambda: BatchBuilder(1000), lambda: 1)
    keys, values = pa.nulls(3), pa.array(["a", "b", None])
    times, partitions = pa.array([1, 2, 3], pa.int32()), pa.array([2, 0, 2])
    assert list(writer.add(keys, values, times, partitions)) == []
    found = {
        partition: [(each.key, each.value) for each in FetchedRecords("t", 0, batch.finish(), next_offset=0).take(9)]
        for partition, batch in writer.rest()
    }
    assert found == {0: [(None, b"b")], 2: [(None, b"a"), (None, None)]}
    key = pa.array([b"k", b"k", None])
    assert list(writer.add(key, pa.array([b"1", b"2", b"3"]), 7, pa.array([0, None, None], pa.int32()))) == []
    assert {partition: batch.count for partition, batch in writer.rest()} == {0: 1, place(b"k", 3): 1, 1: 1}


def test_rows_that_do_not_fit_together_are_refused() -> None:
    writer = ArrowWriter(3, lambda: BatchBuilder(1000), lambda: 0)
    two, three = pa.array([b"a", b"b"]), pa.array([1, 2, 3])
    with pytest.raises(ValueError, match="different lengths"):
        list(writer.add(two, two, three))
    with pytest.raises(ValueError, match="1 of the timestamps are null"):
        list(writer.add(two, two, pa.array([1, None])))
    with pytest.raises(ValueError, match="row 1 goes to partition 3; there are 3"):
        list(writer.add(two, two, pa.array([1, 2]), pa.array([0, 3])))
    with pytest.raises(ValueError, match="row 0 goes to partition -1; there are 3"):
        list(writer.add(two, two, 1, pa.array([-1, 0])))
    with pytest.raises(ValueError, match="different lengths"):
        list(writer.add(two, two, 1, None, [()]))


def test_rows_without_a_key_fill_a_batch_and_go_on_where_the_rng_say() -> None:
    """KIP-480: batches are full, and no partition has all."""
    places = [0, 2, 1, 0, 1, 2, 0]
    drawn = iter(places)
    writer = ArrowWriter(3, lambda: BatchBuilder(200), lambda: next(drawn))
    full = []
    for _ in range(2):
        full += list(writer.add(pa.nulls(10), pa.array([b"v" * 30] * 10), 1))
    assert [partition for partition, _ in full] == places[: len(full)]
    assert {builder.count for _, builder in full} == {3}
    assert sum(builder.count for _, builder in [*full, *writer.rest()]) == 20


def test_keys_may_be_ignored_and_are_written_nevertheless() -> None:
    """partitioner.ignore.keys of Kafka's producers."""
    writer = ArrowWriter(5, lambda: BatchBuilder(1000), lambda: 3, ignores_keys=True)
    keys = [b"%d" % number for number in range(9)]
    assert list(writer.add(pa.array(keys), pa.array(keys), 1)) == []
    ((partition, batch),) = writer.rest()
    found = FetchedRecords("t", 0, batch.finish(), next_offset=0).take(9)
    assert (partition, [each.key for each in found]) == (3, keys)


def test_rows_may_have_headers_and_a_topic_may_grow() -> None:
    writer = ArrowWriter(1, lambda: BatchBuilder(1000), lambda: 0)
    writer.grow(2)
    cells = pa.array([b"a", b"b"])
    assert list(writer.add(cells, cells, 1, pa.array([1, 1]), [[("h", b"x"), ("i", None)], []])) == []
    ((partition, batch),) = writer.rest()
    found = FetchedRecords("t", 0, batch.finish(), next_offset=0).take(9)
    assert (partition, [list(each.headers) for each in found]) == (1, [[("h", b"x"), ("i", None)], []])
