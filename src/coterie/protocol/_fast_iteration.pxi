# Records handed out one by one, to an iteration: a part of _fast_records.pyx.


from time import monotonic_ns


cdef inline int64_t now_of(clock_ms) except? -1:
    return <int64_t>monotonic_ns() // 1000000 if clock_ms is None else <int64_t>clock_ms()


@cython.final
cdef class RecordBuffer:
    cdef list records
    cdef Py_ssize_t first, at, end
    cdef object clock_ms
    cdef int64_t until_ms

    def __init__(self):
        self.records = []
        self.first = self.at = self.end = 0

    def start(self, list records, Py_ssize_t first, int64_t for_ms, clock_ms, bint is_system=False):
        if is_system:
            clock_ms = None
        self.until_ms = now_of(clock_ms) + for_ms
        self.records, self.clock_ms = records, clock_ms
        self.first = self.at = first
        self.end = len(records)

    @property
    def count(self):
        return self.at - self.first

    def stop(self):
        self.end = 0

    cpdef object take(self):
        cdef object record
        if self.at >= self.end or now_of(self.clock_ms) >= self.until_ms:
            return None
        if self.at >= self.end:  # the clock may be Python's, and another thread may have had its turn meanwhile
            return None
        record = self.records[self.at]
        self.at += 1
        return record


@cython.final
cdef class RecordIterator:
    cdef RecordBuffer buffer
    cdef object otherwise

    def __init__(self, RecordBuffer buffer, otherwise):
        self.buffer, self.otherwise = buffer, otherwise

    def __iter__(self):
        return self

    def __next__(self):
        cdef object record = self.buffer.take()
        return self.otherwise() if record is None else record


@cython.final
@cython.freelist(8)
cdef class Ready:
    cdef object record

    def __await__(self):
        return self

    def __iter__(self):
        return self

    def __next__(self):
        raise StopIteration(self.record)


@cython.final
cdef class AsyncRecordIterator:
    cdef RecordBuffer buffer
    cdef object otherwise

    def __init__(self, RecordBuffer buffer, otherwise):
        self.buffer, self.otherwise = buffer, otherwise

    def __aiter__(self):
        return self

    def __anext__(self):
        cdef object record = self.buffer.take()
        cdef Ready ready
        if record is None:
            return self.otherwise()
        ready = Ready.__new__(Ready)
        ready.record = record
        return ready
