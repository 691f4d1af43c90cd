# Records as Arrow's columns: a part of _fast_records.pyx.

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
