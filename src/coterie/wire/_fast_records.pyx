# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The records of a batch, compiled: the twin of `_pure_records.py`, where every function is explained.

Bytes come from strangers. `next_record` is the one place that reads them: it never looks beyond the end it is given,
and what it hands out lies within. Whatever it refuses is read again by the twin, which says what is wrong.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from coterie.wire import _pure_records as twin
from coterie.wire.batch import HEADER_SIZE as _HEADER_SIZE, TimestampType

__all__ = ["Columns", "Record", "RecordWriter", "append_rows", "murmur2", "partitions_of_keys", "read_records"]

cdef int64_t HEADER_SIZE = _HEADER_SIZE
cdef int64_t MAX_PLAIN = INT32_MAX - HEADER_SIZE
cdef int64_t MAX_MILLISECONDS = INT64_MAX // 1000
cdef int64_t SMALLEST_RECORD = 7
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


# --- memory that grows ------------------------------------------------------------------------------------------------

cdef struct Memory:
    uint8_t* data
    int64_t used
    int64_t room


cdef int reserve(Memory* memory, int64_t more) except -1:
    cdef int64_t room = memory.used + more
    cdef uint8_t* data
    if room <= memory.room:
        return 0
    room = max(room, memory.room + memory.room // 2, 512)
    data = <uint8_t*>realloc(memory.data, <size_t>room)
    if data == NULL:
        raise MemoryError(f"no memory for {room} bytes of records")
    memory.data, memory.room = data, room
    return 0


cdef inline void put(Memory* memory, const void* data, int64_t size) noexcept nogil:
    memcpy(memory.data + memory.used, data, <size_t>size)
    memory.used += size


cdef inline void put_int32(Memory* memory, int32_t value) noexcept nogil:
    put(memory, &value, sizeof(value))


cdef inline void put_int64(Memory* memory, int64_t value) noexcept nogil:
    put(memory, &value, sizeof(value))


cdef bytes hand_over(Memory* memory):
    """A copy of exactly that size. What is kept here is warm: new pages for each fetch cost more than to copy."""
    cdef bytes data = PyBytes_FromStringAndSize(<const char*>memory.data, <Py_ssize_t>memory.used)
    memory.used = 0
    return data


# --- records as columns -----------------------------------------------------------------------------------------------

cdef struct Binary:
    Memory validity
    Memory ends
    Memory data
    int64_t count
    int64_t nulls


cdef int reserve_binary(Binary* column, int64_t count, int64_t size) except -1:
    reserve(&column.validity, (column.count + count) // 8 + 1 - column.validity.used)
    reserve(&column.ends, 4 * (count + 1))
    reserve(&column.data, size)
    if column.ends.used == 0:
        put_int32(&column.ends, 0)
    return 0


cdef inline void put_span(Binary* column, const Span* content) noexcept nogil:
    cdef uint8_t bit = <uint8_t>(1 << (column.count & 7))
    if bit == 1:
        column.validity.data[column.validity.used] = 0
        column.validity.used += 1
    if content.size < 0:
        column.nulls += 1
    else:
        column.validity.data[column.validity.used - 1] |= bit
        put(&column.data, content.at, content.size)
    column.count += 1
    put_int32(&column.ends, <int32_t>column.data.used)


cdef object hand_over_binary(Binary* column):
    found = twin.BinaryColumn(
        column.nulls, hand_over(&column.validity), hand_over(&column.ends), hand_over(&column.data)
    )
    column.count = column.nulls = 0
    return found


cdef inline void free_binary(Binary* column) noexcept nogil:
    free(column.validity.data)
    free(column.ends.data)
    free(column.data.data)


cdef inline void clear_spare_bits(Binary* column) noexcept nogil:
    """Bits beyond the last row are 0."""
    if column.count & 7:
        column.validity.data[column.validity.used - 1] &= <uint8_t>((1 << (column.count & 7)) - 1)


cdef struct Gathered:
    int64_t rows
    Memory offsets
    Memory timestamps
    Memory types
    Binary keys
    Binary values
    Memory header_ends
    Binary names
    Binary contents


cdef class Columns:
    cdef bint with_headers
    cdef readonly int64_t plain_bytes
    cdef Gathered has

    def __cinit__(self, bint with_headers):
        self.with_headers = with_headers

    def __dealloc__(self):
        free(self.has.offsets.data)
        free(self.has.timestamps.data)
        free(self.has.types.data)
        free(self.has.header_ends.data)
        free_binary(&self.has.keys)
        free_binary(&self.has.values)
        free_binary(&self.has.names)
        free_binary(&self.has.contents)

    @property
    def rows(self):
        return self.has.rows

    def add(self, plain, header, int64_t first, int64_t end):
        cdef Place place = place_of(header)
        cdef Gathered before
        cdef Py_buffer view
        cdef bint good = False
        PyObject_GetBuffer(plain, &view, PyBUF_SIMPLE)
        try:
            if self.plain_bytes + view.len > MAX_PLAIN:
                raise OverflowError(f"columns of more than {MAX_PLAIN} bytes; finish them before the next batch")
            if 0 <= place.count <= view.len // SMALLEST_RECORD:
                self.make_room(place.count, view.len)
                before = self.has
                try:
                    good = self.fill(&view, &place, first, end)
                except UnicodeDecodeError:
                    good = False
                finally:
                    if not good:
                        self.go_back(&before)
                if self.has.rows > before.rows:
                    self.plain_bytes += view.len
        finally:
            PyBuffer_Release(&view)
        if not good:
            twin.Columns(self.with_headers).add(plain, header, first, end)
            raise AssertionError("the compiled reader refuses a batch that its twin can read")

    cdef int make_room(self, int64_t rows, int64_t size) except -1:
        """For whatever so many bytes can hold: what is reserved and not used costs nothing."""
        reserve(&self.has.offsets, 8 * rows)
        reserve(&self.has.timestamps, 8 * rows)
        reserve(&self.has.types, 4 * rows)
        reserve_binary(&self.has.keys, rows, size)
        reserve_binary(&self.has.values, rows, size)
        if self.with_headers:
            reserve(&self.has.header_ends, 4 * (rows + 1))
            if self.has.header_ends.used == 0:
                put_int32(&self.has.header_ends, 0)
            reserve_binary(&self.has.names, size // 2, size)
            reserve_binary(&self.has.contents, size // 2, size)
        return 0

    cdef void go_back(self, const Gathered* before) noexcept:
        """A batch is added whole or not at all."""
        self.has = before[0]
        clear_spare_bits(&self.has.keys)
        clear_spare_bits(&self.has.values)
        clear_spare_bits(&self.has.names)
        clear_spare_bits(&self.has.contents)

    cdef bint fill(self, Py_buffer* view, const Place* place, int64_t first, int64_t end) except -1:
        cdef const uint8_t* at = <const uint8_t*>view.buf
        cdef const uint8_t* data_end = at + view.len
        cdef Raw raw
        cdef int64_t index, offset, time
        cdef int32_t kind = 1 if place.has_append_time else 0
        for index in range(place.count):
            at = next_record(at, data_end, &raw)
            if at == NULL or not is_placed(place, &raw):
                return False
            offset = place.base_offset + raw.offset_delta
            if offset < first or offset >= end:
                continue
            time = time_of(place, &raw)
            if not -MAX_MILLISECONDS <= time <= MAX_MILLISECONDS:
                return False
            self.has.rows += 1
            put_int64(&self.has.offsets, offset)
            put_int64(&self.has.timestamps, 1000 * time)
            put_int32(&self.has.types, kind)
            put_span(&self.has.keys, &raw.key)
            put_span(&self.has.values, &raw.value)
            if self.with_headers:
                self.fill_headers(&raw, at)
        return at == data_end

    cdef int fill_headers(self, const Raw* raw, const uint8_t* end) except -1:
        """They have been looked through by `next_record`: all are there, up to `end`."""
        cdef const uint8_t* at = raw.headers
        cdef Span name, content
        cdef int64_t index
        name.at = content.at = NULL
        name.size = content.size = 0
        for index in range(raw.header_count):
            at = span(at, end, &name)
            at = span(at, end, &content)
            text_of(&name)  # or it raises: Arrow wants text
            put_span(&self.has.names, &name)
            put_span(&self.has.contents, &content)
        put_int32(&self.has.header_ends, <int32_t>self.has.names.count)
        return 0

    def finish(self):
        cdef int64_t rows = self.has.rows
        self.make_room(0, 0)
        headers = None
        if self.with_headers:
            headers = twin.HeaderColumns(
                hand_over(&self.has.header_ends),
                hand_over_binary(&self.has.names),
                hand_over_binary(&self.has.contents),
            )
        self.has.rows = self.plain_bytes = 0
        return twin.ColumnBuffers(
            rows,
            hand_over(&self.has.offsets),
            hand_over(&self.has.timestamps),
            hand_over(&self.has.types),
            hand_over_binary(&self.has.keys),
            hand_over_binary(&self.has.values),
            headers,
        )


# --- writing ----------------------------------------------------------------------------------------------------------


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)


cdef inline int64_t varint_size(int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    cdef int64_t size = 1
    while rest >= 0x80:
        rest >>= 7
        size += 1
    return size


cdef inline void put_varint(Memory* memory, int64_t value) noexcept nogil:
    cdef uint64_t rest = zigzag(value)
    while rest >= 0x80:
        memory.data[memory.used] = <uint8_t>(rest & 0x7F | 0x80)
        memory.used += 1
        rest >>= 7
    memory.data[memory.used] = <uint8_t>rest
    memory.used += 1


cdef inline int64_t sized(const Span* content) noexcept nogil:
    return varint_size(content.size) + max(content.size, 0)


cdef inline void put_sized(Memory* memory, const Span* content) noexcept nogil:
    put_varint(memory, content.size)
    if content.size > 0:
        put(memory, content.at, content.size)


cdef inline void take_span(object content, Span* found):
    """Of bytes or None, which the caller keeps alive."""
    if content is None:
        found.at, found.size = NULL, -1
    else:
        found.at = <const uint8_t*>PyBytes_AS_STRING(content)
        found.size = PyBytes_GET_SIZE(content)


cdef class RecordWriter:
    cdef int64_t limit
    cdef double ratio
    cdef Memory memory
    cdef readonly int64_t count
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp

    def __init__(self, int64_t limit, double ratio=1.0):
        twin.check_ratio(ratio)
        self.limit, self.ratio = limit, ratio
        self.memory.used = self.count = 0
        self.base_timestamp = self.max_timestamp = -1

    def __dealloc__(self):
        free(self.memory.data)

    @property
    def plain_size(self):
        return self.memory.used

    @property
    def size(self):
        return HEADER_SIZE + <int64_t>(<double>self.memory.used * self.ratio)

    def append(self, key, value, timestamp, headers=()):
        cdef Span key_span, value_span
        cdef list raw = twin.raw_headers(headers) if headers else None
        cdef int64_t when
        if type(key) is not bytes:
            key = twin.as_bytes(key, "key")
        if type(value) is not bytes:
            value = twin.as_bytes(value, "value")
        take_span(key, &key_span)
        take_span(value, &value_span)
        try:
            when = timestamp
        except OverflowError:
            when = INT64_MAX
        if when < -1 or when == INT64_MAX:
            twin.check_timestamp(timestamp)
        return self.put_record(&key_span, &value_span, when, raw)

    cdef bint put_record(self, const Span* key, const Span* value, int64_t timestamp, list headers) except -1:
        cdef int64_t base = timestamp if self.count == 0 else self.base_timestamp
        cdef int64_t length = 1 + varint_size(timestamp - base) + varint_size(self.count) + sized(key) + sized(value)
        cdef int64_t size
        cdef Span name_span, content_span
        length += varint_size(len(headers)) if headers is not None else 1
        if headers is not None:
            for name, content in headers:
                take_span(name, &name_span)
                take_span(content, &content_span)
                length += sized(&name_span) + sized(&content_span)
        size = self.memory.used + varint_size(length) + length
        if self.count and HEADER_SIZE + <int64_t>(<double>size * self.ratio) > self.limit:
            return False
        if size > MAX_PLAIN:
            twin.refuse_size(size)
        reserve(&self.memory, size - self.memory.used)
        put_varint(&self.memory, length)
        self.memory.data[self.memory.used] = 0
        self.memory.used += 1
        put_varint(&self.memory, timestamp - base)
        put_varint(&self.memory, self.count)
        put_sized(&self.memory, key)
        put_sized(&self.memory, value)
        put_varint(&self.memory, len(headers) if headers is not None else 0)
        if headers is not None:
            for name, content in headers:
                take_span(name, &name_span)
                take_span(content, &content_span)
                put_sized(&self.memory, &name_span)
                put_sized(&self.memory, &content_span)
        self.base_timestamp = base
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.count += 1
        return True

    def plain(self):
        return PyBytes_FromStringAndSize(<const char*>self.memory.data, <Py_ssize_t>self.memory.used)


cdef class Rows:
    """A binary column of Arrow's, made by somebody else: nothing it says is taken for granted."""

    cdef object column
    cdef Py_buffer validity
    cdef Py_buffer ends
    cdef Py_buffer data
    cdef bint has_nulls
    cdef int64_t count

    def __init__(self, column):
        self.column = column
        self.has_nulls = column.null_count != 0
        PyObject_GetBuffer(column.ends, &self.ends, PyBUF_SIMPLE)
        PyObject_GetBuffer(column.data, &self.data, PyBUF_SIMPLE)
        self.count = self.ends.len // 4 - 1
        if self.has_nulls:
            PyObject_GetBuffer(column.validity, &self.validity, PyBUF_SIMPLE)
            self.count = min(self.count, 8 * self.validity.len)

    def __dealloc__(self):
        PyBuffer_Release(&self.validity)
        PyBuffer_Release(&self.ends)
        PyBuffer_Release(&self.data)

    cdef int refuse(self, int64_t row) except -1:
        twin.row_of(self.column, row)
        raise AssertionError("the compiled reader refuses a column that its twin can read")

    cdef inline int find(self, int64_t row, Span* found) except -1:
        cdef const int32_t* ends = <const int32_t*>self.ends.buf
        if row >= self.count:
            self.refuse(row)
        found.at, found.size = NULL, -1
        if self.has_nulls and not (<const uint8_t*>self.validity.buf)[row >> 3] >> (row & 7) & 1:
            return 0
        if not 0 <= ends[row] <= ends[row + 1] <= self.data.len:
            self.refuse(row)
        found.at = <const uint8_t*>self.data.buf + ends[row]
        found.size = ends[row + 1] - ends[row]
        return 0


def append_rows(writers, partitions, keys, values, timestamps, int64_t first, int64_t end):
    cdef Rows key_rows = Rows(keys)
    cdef Rows value_rows = Rows(values)
    cdef list all_writers = list(writers)
    cdef Py_ssize_t count = len(all_writers)
    cdef Py_buffer where, when
    cdef const int32_t* partition
    cdef const int64_t* timestamp
    cdef Span key, value
    cdef int64_t row
    cdef RecordWriter writer
    PyObject_GetBuffer(partitions, &where, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(timestamps, &when, PyBUF_SIMPLE)
        try:
            if not 0 <= first <= end <= min(where.len // 4, when.len // 8):
                raise ValueError(f"rows {first} to {end} of {where.len // 4} partitions and {when.len // 8} timestamps")
            partition = <const int32_t*>where.buf
            timestamp = <const int64_t*>when.buf
            for row in range(first, end):
                if not 0 <= partition[row] < count:
                    raise ValueError(f"row {row} goes to partition {partition[row]}; there are {count}")
                key_rows.find(row, &key)
                value_rows.find(row, &value)
                if timestamp[row] < -1 or timestamp[row] == INT64_MAX:
                    twin.check_timestamp(timestamp[row])
                writer = all_writers[partition[row]]
                if not writer.put_record(&key, &value, timestamp[row], None):
                    return row
            return end
        finally:
            PyBuffer_Release(&when)
    finally:
        PyBuffer_Release(&where)


# --- choosing a partition ---------------------------------------------------------------------------------------------


cdef inline uint32_t hash_of(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint32_t value = <uint32_t>0x9747B28C ^ <uint32_t>size
    cdef uint32_t part
    cdef int64_t at = 0
    while size - at >= 4:
        part = data[at] | <uint32_t>data[at + 1] << 8 | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24
        part *= <uint32_t>0x5BD1E995
        part = (part ^ (part >> 24)) * <uint32_t>0x5BD1E995
        value = (value * <uint32_t>0x5BD1E995) ^ part
        at += 4
    if size > at:
        if size - at == 3:
            value ^= <uint32_t>data[at + 2] << 16
        if size - at >= 2:
            value ^= <uint32_t>data[at + 1] << 8
        value = (value ^ data[at]) * <uint32_t>0x5BD1E995
    value = (value ^ (value >> 13)) * <uint32_t>0x5BD1E995
    return value ^ (value >> 15)


def murmur2(data):
    cdef Py_buffer view
    cdef uint32_t found
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    found = hash_of(<const uint8_t*>view.buf, view.len)
    PyBuffer_Release(&view)
    return found


def partitions_of_keys(keys, int64_t rows, int64_t partitions, int32_t without_key):
    cdef Rows key_rows = Rows(keys)
    cdef Span key
    cdef int64_t row
    cdef bytes found
    cdef int32_t* put_at
    if partitions < 1:
        raise ValueError(f"keys cannot be spread over {partitions} partitions")
    if rows > key_rows.count:
        key_rows.refuse(key_rows.count)
    found = PyBytes_FromStringAndSize(NULL, <Py_ssize_t>(4 * max(rows, 0)))
    put_at = <int32_t*>PyBytes_AS_STRING(found)
    for row in range(rows):
        key_rows.find(row, &key)
        put_at[row] = without_key if key.size < 0 else <int32_t>((hash_of(key.at, key.size) & 0x7FFFFFFF) % partitions)
    return found
