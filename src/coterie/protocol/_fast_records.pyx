# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The records of a batch, compiled: the twin of `_pure_records.py`, where every function is explained.

One module in several files: here what a record is and records as objects, in `_fast_columns.pxi` records as columns, in
`_fast_writer.pxi` records written, in `_fast_commit.pxi` a commit read, in `_fast_iteration.pxi` records handed out, in
`_fast_quick_append.pxi` one record appended.

Bytes come from strangers. `next_record` is the one place that reads them: it never looks beyond the end it is given,
and what it hands out lies within. Whatever it refuses is read again by the twin, which says what is wrong.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from coterie.protocol import _pure_records as twin
from coterie.protocol.batch import HEADER_SIZE as _HEADER_SIZE, TimestampType

__all__ = [
    "AsyncRecordIterator", "Columns", "QuickAppend", "Record", "RecordBuffer", "RecordIterator", "RecordWriter",
    "SentRecord", "append_rows", "murmur2", "partitions_of_keys", "read_records", "read_usual_commit",
]

cdef int64_t HEADER_SIZE = _HEADER_SIZE
cdef int64_t MAX_PLAIN = INT32_MAX - HEADER_SIZE
cdef int64_t MAX_MILLISECONDS = INT64_MAX // 1000
cdef int64_t SMALLEST_RECORD = 7
cdef int64_t MOST_ROWS = twin.MOST_ROWS
cdef int APPEND_TIME_BIT = 0x08
cdef object CREATE_TIME = TimestampType.CREATE_TIME
cdef object LOG_APPEND_TIME = TimestampType.LOG_APPEND_TIME


# --- one record -------------------------------------------------------------------------------------------------------

cdef struct Span:
    const uint8_t* at
    int64_t size  # -1: null

cdef struct Raw:
    int64_t offset_delta
    int64_t timestamp_delta
    Span key
    Span value
    int64_t header_count
    const uint8_t* headers


cdef inline const uint8_t* varint(const uint8_t* at, const uint8_t* end, int64_t* found) noexcept nogil:
    """Where it ends; NULL if it does not end before `end`, or has more than 64 bits."""
    cdef uint64_t value = 0
    cdef uint64_t byte
    cdef int shift = 0
    while at < end:
        byte = at[0]
        at += 1
        if shift == 63 and byte > 1:
            return NULL
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            found[0] = <int64_t>(value >> 1) ^ -<int64_t>(value & 1)
            return at
        shift += 7
    return NULL


cdef inline const uint8_t* span(const uint8_t* at, const uint8_t* end, Span* found) noexcept nogil:
    cdef int64_t size = 0
    at = varint(at, end, &size)
    if at == NULL or size > end - at:
        return NULL
    found.at = at
    if size < 0:
        found.size = -1
        return at
    found.size = size
    return at + size


cdef inline const uint8_t* next_record(const uint8_t* at, const uint8_t* data_end, Raw* found) noexcept nogil:
    """Where the next one begins; NULL if this one makes no sense."""
    cdef int64_t length = 0
    cdef int64_t index
    cdef Span name, content
    cdef const uint8_t* end
    at = varint(at, data_end, &length)
    if at == NULL or length < SMALLEST_RECORD - 1 or length > data_end - at:
        return NULL
    end = at + length
    at = varint(at + 1, end, &found.timestamp_delta)
    if at == NULL:
        return NULL
    at = varint(at, end, &found.offset_delta)
    if at == NULL:
        return NULL
    at = span(at, end, &found.key)
    if at == NULL:
        return NULL
    at = span(at, end, &found.value)
    if at == NULL:
        return NULL
    at = varint(at, end, &found.header_count)
    if at == NULL or found.header_count < 0 or found.header_count > (end - at) // 2:
        return NULL
    found.headers = at
    for index in range(found.header_count):
        at = span(at, end, &name)
        if at == NULL or name.size < 0:
            return NULL
        at = span(at, end, &content)
        if at == NULL:
            return NULL
    return at if at == end else NULL


cdef inline bint adds_up(int64_t base, int64_t delta) noexcept nogil:
    return delta <= INT64_MAX - base if base >= 0 else delta >= INT64_MIN - base


cdef struct Place:  # what the header of the batch says of its records
    int64_t count
    int64_t base_offset
    int64_t last_delta
    int64_t base_timestamp
    int64_t append_time
    bint has_append_time


cdef Place place_of(header) except *:
    cdef Place place
    place.count = header.record_count
    place.base_offset = header.base_offset
    place.last_delta = header.last_offset_delta
    place.base_timestamp = header.base_timestamp
    place.append_time = header.max_timestamp
    place.has_append_time = (<int>header.attributes & APPEND_TIME_BIT) != 0
    if not adds_up(place.base_offset, place.last_delta):
        place.count = -1  # which nobody reads
    return place


cdef inline bint is_placed(const Place* place, const Raw* raw) noexcept nogil:
    return 0 <= raw.offset_delta <= place.last_delta and (
        place.has_append_time or adds_up(place.base_timestamp, raw.timestamp_delta)
    )


cdef inline int64_t time_of(const Place* place, const Raw* raw) noexcept nogil:
    return place.append_time if place.has_append_time else place.base_timestamp + raw.timestamp_delta


cdef inline object content_of(const Span* found):
    return None if found.size < 0 else PyBytes_FromStringAndSize(<const char*>found.at, <Py_ssize_t>found.size)


cdef inline object text_of(const Span* found):
    return PyUnicode_DecodeUTF8(<const char*>found.at, <Py_ssize_t>found.size, NULL)


# --- records as objects -----------------------------------------------------------------------------------------------

cdef tuple _FIELDS = (
    "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers", "leader_epoch"
)


@cython.no_gc  # a record refers to bytes and text; to walk through a million of them is not worth what it might find
@cython.freelist(512)
cdef class Record:
    __match_args__ = _FIELDS

    cdef public object topic
    cdef public int32_t partition
    cdef public int64_t offset
    cdef public int64_t timestamp
    cdef public object timestamp_type
    cdef public object key
    cdef public object value
    cdef public object headers
    cdef public int32_t leader_epoch

    def __init__(
        self, topic, int32_t partition, int64_t offset, int64_t timestamp=-1, timestamp_type=CREATE_TIME,
        key=None, value=None, headers=(), int32_t leader_epoch=-1,
    ):
        self.topic, self.partition, self.offset, self.timestamp = topic, partition, offset, timestamp
        self.timestamp_type, self.key, self.value = timestamp_type, key, value
        self.headers, self.leader_epoch = headers, leader_epoch

    cdef tuple fields(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp, self.timestamp_type, self.key, self.value,
            self.headers, self.leader_epoch,
        )

    def __eq__(self, other):
        return self.fields() == (<Record>other).fields() if type(other) is Record else NotImplemented

    def __repr__(self):
        return f"Record({', '.join([f'{name}={value!r}' for name, value in zip(_FIELDS, self.fields())])})"

    def __reduce__(self):
        return twin.restored_record, self.fields()


def read_records(plain, header, topic, int32_t partition, int64_t first, int64_t end):
    cdef Place place = place_of(header)
    cdef object kind = LOG_APPEND_TIME if place.has_append_time else CREATE_TIME
    cdef int32_t leader_epoch = header.leader_epoch
    cdef Py_buffer view
    cdef const uint8_t* at
    cdef const uint8_t* data_end
    cdef Raw raw
    cdef Record record
    cdef int64_t index, offset
    cdef bint good
    cdef list found = []
    PyObject_GetBuffer(plain, &view, PyBUF_SIMPLE)
    try:
        at = <const uint8_t*>view.buf
        data_end = at + view.len
        good = 0 <= place.count <= view.len // SMALLEST_RECORD
        for index in range(place.count if good else 0):
            at = next_record(at, data_end, &raw)
            if at == NULL or not is_placed(&place, &raw):
                good = False
                break
            offset = place.base_offset + raw.offset_delta
            if offset < first or offset >= end:
                continue
            record = Record.__new__(Record)
            record.topic = topic
            record.partition = partition
            record.offset = offset
            record.timestamp = time_of(&place, &raw)
            record.timestamp_type = kind
            record.key = content_of(&raw.key)
            record.value = content_of(&raw.value)
            record.leader_epoch = leader_epoch
            record.headers = ()
            if raw.header_count:
                try:
                    record.headers = headers_of(&raw, at)
                except UnicodeDecodeError:
                    good = False
                    break
            found.append(record)
        good = good and at == data_end
    finally:
        PyBuffer_Release(&view)
    if not good:
        twin.read_records(plain, header, topic, partition, first, end)
        raise AssertionError("the compiled reader refuses a batch that its twin can read")
    return found


cdef tuple headers_of(const Raw* raw, const uint8_t* end):
    """They have been looked through by `next_record`: all are there, up to `end`."""
    cdef const uint8_t* at = raw.headers
    cdef Span name, content
    cdef int64_t index
    cdef list found = []
    name.at = content.at = NULL
    name.size = content.size = 0
    for index in range(raw.header_count):
        at = span(at, end, &name)
        at = span(at, end, &content)
        found.append((text_of(&name), content_of(&content)))
    return tuple(found)


include "_fast_columns.pxi"
include "_fast_writer.pxi"
include "_fast_commit.pxi"
include "_fast_iteration.pxi"
include "_fast_quick_append.pxi"
