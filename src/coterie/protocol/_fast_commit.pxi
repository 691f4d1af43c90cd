# A commit as most are, read: a part of _fast_records.pyx. Its twin is in commit_rows.py.

cdef inline uint32_t number_at(const uint8_t* at) noexcept nogil:
    return <uint32_t>at[0] << 24 | <uint32_t>at[1] << 16 | <uint32_t>at[2] << 8 | at[3]


cdef inline const uint8_t* short_text(const uint8_t* at, const uint8_t* end, Span* found) noexcept nogil:
    """Where it ends; NULL if it does not end before `end`, or is not short. Null is a size of -1."""
    if at >= end or at[0] >= 0x80 or at[0] > end - at:
        return NULL
    found.at, found.size = at + 1, <int64_t>at[0] - 1
    return at + max(at[0], 1)


def read_usual_commit(bytes frame, Py_ssize_t at):
    cdef const uint8_t* here = <const uint8_t*>PyBytes_AS_STRING(frame)
    cdef const uint8_t* end = here + PyBytes_GET_SIZE(frame)
    cdef const uint8_t* row
    cdef Span group, member, instance, topic
    cdef int32_t generation_id, lowest = INT32_MAX, highest = INT32_MIN, number
    cdef int64_t count, index
    cdef tuple numbers
    if at > end - here:
        return None
    here = short_text(here + at, end, &group)
    if here == NULL or group.size < 0 or end - here < 4:
        return None
    generation_id = <int32_t>number_at(here)
    here = short_text(here + 4, end, &member)
    if here == NULL or member.size < 0:
        return None
    here = short_text(here, end, &instance)
    if here == NULL or here >= end or here[0] != 2:  # one topic
        return None
    here = short_text(here + 1, end, &topic)
    if here == NULL or topic.size < 0 or end - here < 2:
        return None
    count = here[0] & 0x7F
    if here[0] >= 0x80:
        if here[1] >= 0x80:
            return None
        count |= <int64_t>here[1] << 7
        here += 1
    here += 1
    count -= 1
    if not 0 < count <= MOST_ROWS or end - here != count * 18 + 2 or end[-1] or end[-2]:
        return None
    row = here
    for index in range(count):
        if row[16] != 1 or row[17]:  # it has metadata, or tagged fields
            return None
        row += 18
    try:
        group_id, member_id, topic_name = text_of(&group), text_of(&member), text_of(&topic)
        instance_id = None if instance.size < 0 else text_of(&instance)
    except UnicodeDecodeError:
        return None
    numbers = PyTuple_New(count)
    row = here
    for index in range(count):
        number = <int32_t>number_at(row)
        lowest, highest = min(lowest, number), max(highest, number)
        boxed = <object>number
        Py_INCREF(boxed)
        PyTuple_SET_ITEM(numbers, index, boxed)
        row += 18
    rows = PyBytes_FromStringAndSize(<const char*>here, <Py_ssize_t>(count * 18))
    return group_id, generation_id, member_id, instance_id, topic_name, rows, numbers, lowest, highest
