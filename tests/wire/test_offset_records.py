"""Many offsets written at once are the very records that are written one by one."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.messages import CommittedOffset, OffsetRecord
from coterie.wire.offset_records import write_offset_records
from coterie.wire.offsets_topic import write_record

names = st.sampled_from(["g", "t", "a longer name", "ü", "x" * 200])
ids = st.sampled_from([None, UUID(int=0), UUID(int=1), UUID(int=(1 << 128) - 1)])
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
int64 = st.integers(-(1 << 63), (1 << 63) - 1)
values = st.builds(
    CommittedOffset,
    offset=int64,
    leader_epoch=int32,
    metadata=st.sampled_from(["", "", "", "m", "ü" * 70]),
    commit_timestamp_ms=st.sampled_from([-1, 0, 1_700_000_000_000]),
    expire_timestamp_ms=st.sampled_from([None, None, None, 5]),
    topic_id=ids,
)
records = st.builds(OffsetRecord, names, names, int32, st.one_of(values, values, values, st.none()))


@given(st.lists(records, max_size=20))
def test_all_at_once_is_the_same_as_one_by_one(many: list[OffsetRecord]) -> None:
    assert write_offset_records(many) == [write_record(record) for record in many]


@pytest.mark.parametrize(
    "bad",
    [
        OffsetRecord("g", "t", 1 << 31, CommittedOffset(1)),
        OffsetRecord("g", "t", 0, CommittedOffset(1 << 63)),
        OffsetRecord("g", "t", 0, CommittedOffset(1, commit_timestamp_ms=1 << 63)),
        OffsetRecord("g" * 40_000, "t", 0, CommittedOffset(1)),
        OffsetRecord("g", "t" * 40_000, 0, CommittedOffset(1)),
    ],
)
def test_what_cannot_be_written_is_refused_as_it_is_alone(bad: OffsetRecord) -> None:
    good = OffsetRecord("g", "t", 0, CommittedOffset(1))
    with pytest.raises(MalformedError) as alone:
        write_record(bad)
    with pytest.raises(MalformedError) as among_others:
        write_offset_records([good, bad])
    assert str(among_others.value) == str(alone.value)
