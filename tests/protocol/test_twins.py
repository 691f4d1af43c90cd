"""The compiled reader and writer of records next to the one in Python: the same for whatever bytes there are."""

from __future__ import annotations

import asyncio
import copy
import pickle
import shutil
import sysconfig
from array import array
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol import _pure_iteration as pure_iteration
from coterie.protocol import _pure_quick_append as pure_quick_append
from coterie.protocol import _pure_records as pure
from coterie.protocol.batch import BatchHeader, TimestampType
from coterie.protocol.records import IS_COMPILED, Record

try:
    from coterie.protocol import _fast_records as fast
except ImportError:
    fast = pure  # type: ignore[misc]  # then these tests hold what must hold of either

MANY = (1 << 63) - 1
BOTH = [pure, fast]

contents = st.none() | st.binary(max_size=20) | st.integers(60, 200).map(bytes)
header_lists = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
times = st.integers(-1, 2**63 - 2) | st.integers(1_700_000_000_000, 1_700_000_100_000)
rows = st.tuples(contents, contents, times, header_lists)


def batch_header(count: int, **changes: int) -> BatchHeader:
    return BatchHeader(5, 0, 7, 2, 0, 0, max(count - 1, 0), 1_000, 2_000, -1, -1, -1, count)._replace(**changes)


def plain_of(records: list[Any]) -> bytes:
    writer = pure.RecordWriter(1 << 30)
    for each in records:
        assert writer.append(*each)
    return bytes(writer.plain())


def outcome(read: Any, *args: Any) -> Any:
    """What comes out, or what is said about it."""
    try:
        return read(*args)
    except MalformedError as error:
        return f"malformed: {error}"


def fields(record: Record) -> tuple[Any, ...]:
    return tuple(getattr(record, name) for name in pure.Record.__match_args__)


def objects(twin: Any, plain: bytes, header: BatchHeader, first: int, end: int) -> Any:
    return [fields(each) for each in twin.read_records(plain, header, "t", 3, first, end)]


def flat(columns: Any) -> Any:
    """Columns as plain bytes, however they are kept."""
    if isinstance(columns, tuple):
        return [flat(each) for each in columns]
    return columns if columns is None or isinstance(columns, int) else bytes(columns)


def columns_of(twin: Any, batches: list[tuple[bytes, BatchHeader, int, int]], *, with_headers: bool) -> Any:
    """What is refused on the way must leave no trace in the columns."""
    columns = twin.Columns(with_headers)
    said = [outcome(columns.add, *batch) for batch in batches]
    return said, columns.rows, columns.plain_bytes, flat(columns.finish()), flat(columns.finish())


def test_where_there_is_a_compiler_the_compiled_one_was_built() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    assert fast is not pure or shutil.which(compiler) is None, "run: make venv"
    assert Record is (fast.Record if IS_COMPILED else pure.Record)


@given(st.lists(rows, max_size=12), st.data())
def test_both_read_the_same_of_what_was_written(content: list[Any], data: st.DataObject) -> None:
    header = batch_header(len(content), attributes=data.draw(st.sampled_from([0, 8, 0x18])))
    first, end = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))
    batch = (plain_of(content), header, first, end)
    assert outcome(objects, pure, *batch) == outcome(objects, fast, *batch)
    for with_headers in (False, True):
        batches = [batch] * 2
        assert columns_of(pure, batches, with_headers=with_headers) == columns_of(
            fast, batches, with_headers=with_headers
        )


int64s = st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])


@given(
    st.lists(rows, min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(-2, 2),
    st.integers(0, 3),
    int64s,
    st.sampled_from([5, 0, -1, 2**63 - 1, 2**63 - 3, -(2**63)]),
    st.booleans(),
    st.sampled_from([(0, MANY), (6, 7)]),
)
def test_both_refuse_the_same_bytes_with_the_same_words(
    content: list[Any],
    changes: list[tuple[int, int]],
    miscount: int,
    cut: int,
    base_timestamp: int,
    base_offset: int,
    with_headers: bool,
    window: tuple[int, int],
) -> None:
    spoiled = bytearray(plain_of(content))
    good = (bytes(spoiled), batch_header(len(content)), *window)
    for at, byte in changes:
        spoiled[at % len(spoiled)] = byte
    header = batch_header(len(content) + miscount, base_timestamp=base_timestamp, base_offset=base_offset)
    bad = (bytes(spoiled[: len(spoiled) - cut]), header, *window)
    assert outcome(objects, pure, *bad) == outcome(objects, fast, *bad)
    batches = [good, bad, good]
    assert columns_of(pure, batches, with_headers=with_headers) == columns_of(fast, batches, with_headers=with_headers)


@given(st.binary(max_size=60), st.integers(-1, 8), st.integers(-1, 8))
def test_both_say_the_same_of_any_bytes_at_all(data: bytes, count: int, last_delta: int) -> None:
    batch = (data, batch_header(count, last_offset_delta=last_delta), 0, MANY)
    assert outcome(objects, pure, *batch) == outcome(objects, fast, *batch)
    assert columns_of(pure, [batch], with_headers=True) == columns_of(fast, [batch], with_headers=True)


odd = st.binary(max_size=5).flatmap(lambda data: st.sampled_from([bytearray(data), memoryview(data)]))


@given(
    st.lists(st.tuples(contents | odd, contents | odd, times, header_lists), max_size=12),
    st.integers(0, 500),
    st.sampled_from([1.0, 0.5, 0.123, 1.7]),
)
def test_both_write_the_same_and_are_full_at_the_same_record(content: list[Any], limit: int, ratio: float) -> None:
    writers = [twin.RecordWriter(limit, ratio) for twin in BOTH]
    for each in content:
        first, second = (
            (writer.append(*each), writer.count, writer.size, writer.plain_size, writer.base_timestamp)
            for writer in writers
        )
        assert first == second
        assert first[2] == 61 + int(first[3] * ratio)
        assert first[2] <= limit or first[1] == 1, "only the first may be too large"
    assert bytes(writers[0].plain()) == bytes(writers[1].plain())
    assert writers[0].max_timestamp == writers[1].max_timestamp


@given(pairs=st.lists(st.tuples(contents, contents), max_size=8), when=times, limit=st.integers(0, 500))
def test_both_write_many_of_one_time_as_one_by_one(pairs: list[Any], when: int, limit: int) -> None:
    found = []
    for twin in BOTH:
        writer, one_by_one = twin.RecordWriter(limit), twin.RecordWriter(limit)
        assert writer.extend(pairs, when) == all(one_by_one.append(key, value, when) for key, value in pairs)
        assert bytes(writer.plain()) == bytes(one_by_one.plain())
        found.append((bytes(writer.plain()), writer.count, writer.base_timestamp, writer.max_timestamp))
    assert found[0] == found[1]
    for twin in BOTH:
        for bad in (-2, 2**63 - 1, 2**70):
            with pytest.raises(MalformedError, match=f"not {bad}"):
                twin.RecordWriter(limit).extend([(b"k", b"v")], bad)
            with pytest.raises(MalformedError, match=f"not {bad}"):
                twin.RecordWriter(limit).extend_offsets(bytes(18), b"k", b"v", bad)


@given(rows=st.binary(max_size=100), key=st.binary(max_size=5), tail=st.binary(max_size=5))
def test_both_write_the_offsets_of_a_commit_alike(rows: bytes, key: bytes, tail: bytes) -> None:
    pairs = pure.offset_pairs(rows, key, tail)
    assert len(pairs) == len(rows) // 18
    for twin in BOTH:
        for limit in (0, 200, 100_000):
            writer, one_by_one = twin.RecordWriter(limit), twin.RecordWriter(limit)
            assert writer.extend_offsets(rows, key, tail, 5) == one_by_one.extend(pairs, 5)
            assert bytes(writer.plain()) == bytes(one_by_one.plain()) and writer.count == one_by_one.count


@pytest.mark.parametrize("twin", BOTH)
def test_what_cannot_be_written_is_refused_and_leaves_the_batch_as_it_was(twin: Any) -> None:
    writer = twin.RecordWriter(1 << 40)
    assert writer.append(b"k", None, 5)
    before = bytes(writer.plain())
    for timestamp in (-2, 2**63 - 1, 2**63, -(2**70)):
        with pytest.raises(MalformedError, match=f"not {timestamp}"):
            writer.append(b"k", b"v", timestamp)
    with pytest.raises(TypeError, match="the key of a record is bytes or None, not str"):
        writer.append("k", b"v", 1)
    with pytest.raises(TypeError, match="the value of a record is bytes or None, not int"):
        writer.append(b"k", 5, 1)
    with pytest.raises(TypeError, match="the header of a record is bytes or None, not str"):
        writer.append(b"k", b"v", 1, [("name", "text")])
    gibibyte = bytes(1 << 30)  # never touched, so it takes no memory
    with pytest.raises(MalformedError, match="has to fit into 31 bits"):
        writer.append(gibibyte, gibibyte, 1)
    assert bytes(writer.plain()) == before and writer.count == 1
    for ratio in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="compression leaves"):
            twin.RecordWriter(100, ratio)


@pytest.mark.parametrize("twin", BOTH)
def test_columns_end_before_an_int32_does(twin: Any) -> None:
    """Arrow counts the bytes of a column in 31 bits."""
    columns = twin.Columns(False)
    columns.add(plain_of([(None, b"v", 1)]), batch_header(1), 0, MANY)
    with pytest.raises(OverflowError, match="finish them"):
        columns.add(bytes((1 << 31) - 60), batch_header(1), 0, MANY)
    assert columns.finish().rows == 1


@pytest.mark.parametrize("twin", BOTH)
def test_a_time_beyond_microseconds_is_refused_in_columns_alone(twin: Any) -> None:
    plain = plain_of([(None, None, 0)])
    for time, fits in ((2**63 // 1000, True), (2**63 // 1000 + 1, False), (-(2**63) // 1000, False)):
        header = batch_header(1, base_timestamp=time)
        assert twin.read_records(plain, header, "t", 0, 0, MANY)[0].timestamp == time
        said = outcome(twin.Columns(False).add, plain, header, 0, MANY)
        assert (said is None) == fits and (fits or "in microseconds" in said)


@pytest.mark.parametrize("twin", BOTH)
def test_a_record_compares_prints_travels_and_matches(twin: Any) -> None:
    record = twin.Record("t", 3, 40, 9, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"),), 7)
    assert record == twin.Record("t", 3, 40, 9, key=b"k", value=b"v", headers=(("h", b"x"),), leader_epoch=7)
    assert record != twin.Record("t", 3, 41, 9, key=b"k", value=b"v", headers=(("h", b"x"),), leader_epoch=7)
    assert record != 5 and copy.copy(twin.Record("t", 3, 1)) is not None
    assert repr(record) == repr(pure.Record("t", 3, 40, 9, TimestampType.CREATE_TIME, b"k", b"v", (("h", b"x"),), 7))
    restored = pickle.loads(pickle.dumps(record))
    assert type(restored) is Record and fields(restored) == fields(record)
    match record:
        case twin.Record(topic, partition, offset):
            assert (topic, partition, offset) == ("t", 3, 40)
        case _:
            raise AssertionError("no match")
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


@pytest.mark.parametrize("twin", BOTH)
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
        (b"", 275646681),
    ],
)
def test_murmur2_is_that_of_kafkas_java_client(twin: Any, key: bytes, hashed: int) -> None:
    assert twin.murmur2(key) == hashed & 0xFFFFFFFF
    assert twin.murmur2(memoryview(key)) == hashed & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_both_hash_alike(key: bytes) -> None:
    assert pure.murmur2(key) == fast.murmur2(key)


# --- rows of somebody else's columns ----------------------------------------------------------------------------------

cells = st.lists(st.none() | st.binary(max_size=12), min_size=1, max_size=20)


def ints(*values: int) -> bytes:
    return array("i", values).tobytes()


def column_of(content: list[bytes | None]) -> pure.BinaryColumn:
    ends = array("i", accumulate([0, *(len(each or b"") for each in content)]))
    bits = sum(1 << row for row, each in enumerate(content) if each is not None)
    validity = bits.to_bytes(len(content) // 8 + 1, "little")
    return pure.BinaryColumn(content.count(None), validity, ends.tobytes(), b"".join(each or b"" for each in content))


@given(cells, st.integers(1, 3), st.integers(61, 200), st.integers(0, 2), st.none() | header_lists)
def test_both_spread_rows_alike(
    keys: list[bytes | None], partitions: int, limit: int, first: int, headers: list[Any] | None
) -> None:
    column = column_of(keys)
    where = pure.partitions_of_keys(column, len(keys), partitions, pure.ANYWHERE)
    assert where == fast.partitions_of_keys(column, len(keys), partitions, pure.ANYWHERE)
    when = array("q", range(5, 5 + len(keys))).tobytes()
    rows = min(first, len(keys)), len(keys)
    more = None if headers is None else [headers] * len(keys)
    ends = []
    for twin in BOTH:
        writers = [twin.RecordWriter(limit) for _ in range(partitions)]
        end = twin.append_rows(writers, where, column, column, when, *rows, anywhere=partitions - 1, headers=more)
        ends.append((end, [(bytes(writer.plain()), writer.count) for writer in writers]))
    assert ends[0] == ends[1]
    assert sum(count for _, count in ends[0][1]) == ends[0][0] - min(first, len(keys))


@pytest.mark.parametrize("twin", BOTH)
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"ends": ints(0, 2, 1)}, "row 1 from byte 2 to 1 of a column of 4"),
        ({"ends": ints(0, 2, 5)}, "row 1 from byte 2 to 5"),
        ({"ends": ints(-1, 2, 4)}, "row 0 from byte -1"),
        ({"ends": ints(0, 2)}, "without row 1"),
        ({"null_count": 1, "validity": b""}, "without row 0"),
    ],
)
def test_a_column_that_contradicts_itself_is_refused(twin: Any, changes: dict[str, Any], why: str) -> None:
    good = column_of([b"ab", b"cd"])
    bad = good._replace(**changes)
    where, when = array("i", [0, 0]).tobytes(), array("q", [1, 1]).tobytes()
    for keys, values in ((good, bad), (bad, good)):
        with pytest.raises(ValueError, match=why):
            twin.append_rows([twin.RecordWriter(1000)], where, keys, values, when, 0, 2)
    with pytest.raises(ValueError, match=why):
        twin.partitions_of_keys(bad, 2, 4, 0)


@pytest.mark.parametrize("twin", BOTH)
def test_rows_that_have_no_place_are_refused(twin: Any) -> None:
    column, when = column_of([b"ab", b"cd"]), array("q", [1, 1]).tobytes()
    for partition in (-1, 1):
        where = array("i", [0, partition]).tobytes()
        with pytest.raises(ValueError, match=f"row 1 goes to partition {partition}; there are 1"):
            twin.append_rows([twin.RecordWriter(1000)], where, column, column, when, 0, 2)
    for first, end in ((0, 3), (-1, 1), (2, 1)):
        with pytest.raises(ValueError, match=r"rows .* of 2 partitions and 2 timestamps"):
            twin.append_rows([twin.RecordWriter(1000)], bytes(8), column, column, when, first, end)
    with pytest.raises(ValueError, match=r"rows 0 to 2 of"):
        twin.append_rows([twin.RecordWriter(1000)], bytes(8), column, column, when, 0, 2, headers=[()])
    old = array("q", [-2, 1]).tobytes()
    with pytest.raises(MalformedError, match="not -2"):
        twin.append_rows([twin.RecordWriter(1000)], bytes(8), column, column, old, 0, 2)
    with pytest.raises(ValueError, match="over 0 partitions"):
        twin.partitions_of_keys(column, 2, 0, 0)


# --- handing out, and appending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", [pure_iteration, fast], ids=["pure", "compiled"])
def test_a_buffer_counts_what_was_taken_until_it_is_stopped_or_its_time_is_over(twin: Any) -> None:
    twin = twin if twin is not pure else pure_iteration
    buffer, now_ms = twin.RecordBuffer(), [0]
    all_records = [Record("t", 0, offset) for offset in range(5)]
    assert buffer.take() is None
    buffer.start(all_records, 1, 10, lambda: now_ms[0])
    assert [buffer.take().offset, buffer.take().offset] == [1, 2]
    now_ms[0] = 10
    assert buffer.take() is None
    now_ms[0] = 9
    assert buffer.take().offset == 3
    buffer.stop()
    buffer.stop()
    assert (buffer.take(), buffer.count) == (None, 3)
    buffer.start(all_records, 4, 10, lambda: 0)
    assert (buffer.take().offset, buffer.take()) == (4, None)
    buffer.stop()
    assert buffer.count == 1


@pytest.mark.parametrize("twin", [pure_iteration, fast], ids=["pure", "compiled"])
def test_iterators_ask_where_the_buffer_has_nothing_and_go_on_after_an_error(twin: Any) -> None:
    twin = twin if twin is not pure else pure_iteration
    buffer = twin.RecordBuffer()
    answers: list[Any] = ["first", ValueError("once"), "second", "third"]

    def otherwise() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        buffer.start([Record("t", 0, 7)], 0, 1, lambda: 0)
        return answer

    async def otherwise_soon() -> Any:
        return otherwise()

    iterator = twin.RecordIterator(buffer, otherwise)
    assert iter(iterator) is iterator
    assert [next(iterator), next(iterator).offset] == ["first", 7]
    with pytest.raises(ValueError, match="once"):
        next(iterator)
    assert [next(iterator), next(iterator).offset] == ["second", 7]

    async def one_more() -> list[Any]:
        found = []
        async for record in twin.AsyncRecordIterator(buffer, otherwise_soon):
            found.append(record)
            if len(found) == 2:
                break
        return found

    third, buffered = asyncio.run(one_more())
    assert (third, buffered.offset) == ("third", 7)


HALF = "\ud800"
"""Half of a character, which cannot be sent."""


@pytest.mark.skipif(not IS_COMPILED, reason="in Python it is never open")
def test_a_quick_append_writes_what_the_writer_does_and_stops_where_it_must() -> None:
    quick, writer = fast.QuickAppend(fast.SentRecord, None, 12), fast.RecordWriter(200)
    assert quick.append("t", b"closed") is None
    quick.start("t", "the batch", writer, 100)
    sent = quick.append("t", b"one")
    assert (sent._batch, sent._index, quick.weight) == ("the batch", 0, 15)
    assert quick.append("t", "zwei \N{GREEK SMALL LETTER BETA}")._index == 1
    assert quick.append("t", None)._index == 2
    taken = quick.weight
    for topic, value in (
        ("u", b""),
        (b"t", b""),
        ("t", bytearray(b"")),
        ("t", 3),
        ("t", b"x" * (100 - taken - 12)),
        ("t", HALF),
    ):
        assert quick.append(topic, value) is None
    assert (writer.count, quick.weight) == (3, taken)
    same = fast.RecordWriter(200)
    for content in (b"one", "zwei \N{GREEK SMALL LETTER BETA}".encode(), None):
        same.append(None, content, writer.base_timestamp)
    if writer.max_timestamp == writer.base_timestamp:  # all within a millisecond, as nearly always
        assert writer.plain() == same.plain()
    quick.stop()
    assert quick.append("t", b"") is None
    quick.start("t", "the batch", writer, 10_000)
    assert quick.append("t", b"x" * 200) is None, "the batch is full"
    assert pure_quick_append.QuickAppend(pure_quick_append.SentRecord, None, 12).append("t", b"") is None
