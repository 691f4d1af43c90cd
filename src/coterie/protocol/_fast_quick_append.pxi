# A record appended to the open batch, without a lock: a part of _fast_records.pyx.

from time import time_ns


cdef class SentRecord:
    cdef readonly object _batch
    cdef readonly int64_t _index
    cdef readonly int64_t _timestamp
    cdef readonly object _lock

    def __init__(self, batch, int64_t index, int64_t timestamp, lock):
        self._batch, self._index, self._timestamp, self._lock = batch, index, timestamp, lock


@cython.final
cdef class QuickAppend:
    cdef object kind, lock, topic, batch, wall_ms
    cdef RecordWriter writer
    cdef bint is_open
    cdef int64_t overhead, room
    cdef readonly int64_t weight

    def __init__(self, kind, lock, int64_t overhead, wall_ms=None):
        self.kind, self.lock, self.overhead, self.wall_ms = kind, lock, overhead, wall_ms
        self.is_open = False
        self.weight = self.room = 0

    def start(self, topic, batch, RecordWriter writer, int64_t room):
        self.topic, self.batch, self.writer = topic, batch, writer
        self.weight, self.room = 0, room
        self.is_open = True

    def stop(self):
        self.is_open = False

    def append(self, topic, value):
        cdef Span key_span, value_span
        cdef int64_t size, timestamp
        cdef SentRecord sent
        if not self.is_open or type(topic) is not str:
            return None
        if topic is not self.topic and topic != self.topic:
            return None
        if type(value) is str:
            try:
                value = (<str>value).encode()
            except UnicodeEncodeError:  # the caller says what is wrong
                return None
        elif type(value) is not bytes and value is not None:
            return None
        take_span(None, &key_span)
        take_span(value, &value_span)
        size = self.overhead + max(value_span.size, 0)
        timestamp = <int64_t>time_ns() // 1000000 if self.wall_ms is None else <int64_t>self.wall_ms()
        sent = SentRecord.__new__(self.kind)
        # From here on nothing runs but this: other threads see all of the record, or nothing.
        if not self.is_open or self.weight + size >= self.room:
            return None
        if not self.writer.put_record(&key_span, &value_span, timestamp, None):
            return None
        self.weight += size
        sent._batch, sent._index, sent._timestamp = self.batch, self.writer.count - 1, timestamp
        sent._lock = self.lock
        return sent
