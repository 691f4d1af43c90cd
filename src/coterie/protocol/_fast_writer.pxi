# Records written, and where keys belong: a part of _fast_records.pyx.

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


cdef int64_t milliseconds_of(timestamp) except -2:
    cdef int64_t when
    try:
        when = timestamp
    except OverflowError:
        when = INT64_MAX
    if when < -1 or when == INT64_MAX:
        twin.check_timestamp(timestamp)
    return when


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
        if type(key) is not bytes:
            key = twin.as_bytes(key, "key")
        if type(value) is not bytes:
            value = twin.as_bytes(value, "value")
        take_span(key, &key_span)
        take_span(value, &value_span)
        return self.put_record(&key_span, &value_span, milliseconds_of(timestamp), raw)

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

    def extend(self, pairs, timestamp):
        cdef Span key_span, value_span
        cdef int64_t when = milliseconds_of(timestamp)
        for key, value in pairs:
            if type(key) is not bytes:
                key = twin.as_bytes(key, "key")
            if type(value) is not bytes:
                value = twin.as_bytes(value, "value")
            take_span(key, &key_span)
            take_span(value, &value_span)
            if not self.put_record(&key_span, &value_span, when, None):
                return False
        return True

    def extend_offsets(self, bytes rows, bytes key, bytes tail, timestamp):
        cdef const uint8_t* row = <const uint8_t*>PyBytes_AS_STRING(rows)
        cdef const uint8_t* end = row + PyBytes_GET_SIZE(rows)
        cdef int64_t when = milliseconds_of(timestamp)
        cdef Memory key_memory, value_memory
        cdef Span key_span, value_span
        key_memory.data = value_memory.data = NULL
        key_memory.used = key_memory.room = value_memory.used = value_memory.room = 0
        try:
            key_span.size = PyBytes_GET_SIZE(key) + 4
            value_span.size = PyBytes_GET_SIZE(tail) + 14
            reserve(&key_memory, key_span.size)
            reserve(&value_memory, value_span.size)
            key_span.at, value_span.at = key_memory.data, value_memory.data
            memcpy(key_memory.data, PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))
            value_memory.data[0], value_memory.data[1] = 0, 4
            memcpy(value_memory.data + 14, PyBytes_AS_STRING(tail), PyBytes_GET_SIZE(tail))
            while end - row >= 18:
                memcpy(key_memory.data + key_span.size - 4, row, 4)
                memcpy(value_memory.data + 2, row + 4, 12)
                if not self.put_record(&key_span, &value_span, when, None):
                    return False
                row += 18
            return True
        finally:
            free(key_memory.data)
            free(value_memory.data)

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


def append_rows(
    writers, partitions, keys, values, timestamps, int64_t first, int64_t end, *, int32_t anywhere=0, headers=None
):
    cdef Rows key_rows = Rows(keys)
    cdef Rows value_rows = Rows(values)
    cdef list all_writers = list(writers)
    cdef Py_ssize_t count = len(all_writers)
    cdef Py_buffer where, when
    cdef const int32_t* partition
    cdef const int64_t* timestamp
    cdef Span key, value
    cdef int64_t row, rows
    cdef int32_t to
    cdef list raw = None
    cdef RecordWriter writer
    PyObject_GetBuffer(partitions, &where, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(timestamps, &when, PyBUF_SIMPLE)
        try:
            rows = min(where.len // 4, when.len // 8)
            if headers is not None:
                rows = min(rows, len(headers))
            if not 0 <= first <= end <= rows:
                raise ValueError(f"rows {first} to {end} of {where.len // 4} partitions and {when.len // 8} timestamps")
            partition = <const int32_t*>where.buf
            timestamp = <const int64_t*>when.buf
            for row in range(first, end):
                to = anywhere if partition[row] == INT32_MIN else partition[row]
                if not 0 <= to < count:
                    raise ValueError(f"row {row} goes to partition {to}; there are {count}")
                key_rows.find(row, &key)
                value_rows.find(row, &value)
                if timestamp[row] < -1 or timestamp[row] == INT64_MAX:
                    twin.check_timestamp(timestamp[row])
                writer = all_writers[to]
                if headers is not None:
                    raw = twin.raw_headers(headers[row]) or None
                if not writer.put_record(&key, &value, timestamp[row], raw):
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
