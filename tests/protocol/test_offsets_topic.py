"""The records of `__consumer_offsets`, held to what Apache Kafka 4.3.1 wrote and what it says of it (semantics 10)."""

from __future__ import annotations

import tracemalloc
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, Record, StoredGroup, StoredMember
from coterie.protocol.offsets_topic import (
    GROUP_VALUE_VERSIONS,
    OFFSET_VALUE_VERSIONS,
    Skipped,
    read_group_value,
    read_key,
    read_offset_value,
    read_record,
    read_record_plainly,
    write_group_value,
    write_key,
    write_offset_value,
    write_record,
)
from protocol.recorded import group_of, lines, offset_of, versions_of

RECORDED = [
    (bytes.fromhex(line["key"]), None if line["value"] is None else bytes.fromhex(line["value"]), line["kafka"])
    for line in lines("consumer_offsets.jsonl")
]
OURS = [each for each in RECORDED if each[2]["key"]["type"] in {"1", "2"}]
THEIRS = [each for each in RECORDED if each not in OURS]


# --- held to Kafka --------------------------------------------------------------------------------------------------


def test_the_recorded_log_holds_every_kind_of_record_that_matters() -> None:
    """Should the recording lose a case, the tests that walk over it would pass in silence."""
    seen = {(words["key"]["type"], words["value"] and words["value"]["version"]) for _, _, words in RECORDED}
    assert {("1", "1"), ("1", "4"), ("1", None), ("2", "3"), ("2", None)} <= seen
    assert {"3", "5", "6", "7", "8", "10", "16", "17"} <= {kind for kind, _ in seen}
    groups = [words["value"]["data"] for _, _, words in OURS if words["key"]["type"] == "2" and words["value"]]
    assert {group["protocol"] for group in groups} >= {None, "range", "roundrobin", "sticky", "cooperative-sticky"}
    assert any(member["groupInstanceId"] for group in groups for member in group["members"])
    assert any(group["generation"] == 0 for group in groups)
    assert any(group["generation"] > 0 and not group["members"] for group in groups)


@pytest.mark.parametrize(("key", "value", "words"), OURS)
def test_we_read_what_kafka_says_it_wrote(key: bytes, value: bytes | None, words: dict[str, Any]) -> None:
    record = read_record(key, value)
    about = words["key"]["data"]
    said = words["value"] and words["value"]["data"]
    if isinstance(record, OffsetRecord):
        assert words["key"]["type"] == "1"
        assert about == {"group": record.group_id, "topic": record.topic, "partition": record.partition}
        assert record.value == (said and offset_of(said))
    else:
        assert isinstance(record, GroupRecord)
        assert words["key"]["type"] == "2"
        assert about == {"group": record.group_id}
        assert record.value == (said and group_of(said))


@pytest.mark.parametrize(("key", "value", "words"), OURS)
def test_we_write_kafkas_bytes(key: bytes, value: bytes | None, words: dict[str, Any]) -> None:
    record = read_record(key, value)
    assert not isinstance(record, Skipped)
    assert write_record(record) == (key, value)


@pytest.mark.parametrize(("key", "value", "words"), THEIRS)
def test_records_of_newer_kinds_of_groups_are_passed_over_by_type(
    key: bytes, value: bytes | None, words: dict[str, Any]
) -> None:
    """KIP-848, share and streams groups share the topic with ours."""
    assert read_record(key, value) == Skipped(int(words["key"]["type"]))


@pytest.mark.parametrize(("version", "fields", "data"), versions_of("OffsetCommitValue"))
def test_an_offset_is_read_and_written_in_every_version_as_kafkas_own_class_does(
    version: int, fields: dict[str, Any], data: bytes
) -> None:
    value = offset_of(fields)
    assert write_offset_value(value, version) == data
    assert read_offset_value(data) == offset_in(version, value)


@pytest.mark.parametrize(("version", "fields", "data"), versions_of("GroupMetadataValue"))
def test_a_group_is_read_and_written_in_every_version_as_kafkas_own_class_does(
    version: int, fields: dict[str, Any], data: bytes
) -> None:
    value = group_of(fields)
    assert write_group_value(value, version) == data
    assert read_group_value(data) == group_in(version, value)


# --- what a version can say -----------------------------------------------------------------------------------------


def offset_in(version: int, value: CommittedOffset) -> CommittedOffset:
    """What is left of a value that was written in an old version."""
    return CommittedOffset(
        value.offset,
        value.leader_epoch if version >= 3 else -1,
        value.metadata,
        value.commit_timestamp_ms,
        value.expire_timestamp_ms if version == 1 else None,
        value.topic_id if version >= 4 else None,
    )


def group_in(version: int, value: StoredGroup) -> StoredGroup:
    """Version 0 has no rebalance timeout; a member without one waits for its session timeout (rule 4)."""
    members = tuple(
        StoredMember(
            member.member_id,
            member.instance_id if version >= 3 else None,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms if version >= 1 else member.session_timeout_ms,
            member.session_timeout_ms,
            member.subscription,
            member.assignment,
        )
        for member in value.members
    )
    return StoredGroup(
        value.protocol_type,
        value.generation_id,
        value.protocol_name,
        value.leader_id,
        value.state_timestamp_ms if version >= 2 else -1,
        members,
    )


int32, int64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
timeouts = st.integers(0, 2**31 - 1)
names = st.text(max_size=40)
offset_values = st.builds(
    CommittedOffset,
    offset=int64,
    leader_epoch=int32,
    metadata=st.text(),
    commit_timestamp_ms=int64,
    expire_timestamp_ms=st.none() | st.integers(0, 2**63 - 1),
    topic_id=st.none() | st.uuids(),
)
members = st.builds(
    StoredMember,
    names,
    st.none() | names,
    names,
    names,
    timeouts,
    timeouts,
    st.binary(max_size=40),
    st.binary(max_size=200),
)
group_values = st.builds(
    StoredGroup,
    protocol_type=names,
    generation_id=int32,
    protocol_name=st.none() | names,
    leader_id=st.none() | names,
    state_timestamp_ms=int64,
    members=st.lists(members, max_size=4).map(tuple),
)
records: st.SearchStrategy[Record] = st.builds(
    OffsetRecord, names, names, int32, st.none() | offset_values
) | st.builds(GroupRecord, names, st.none() | group_values)


@pytest.mark.parametrize("version", OFFSET_VALUE_VERSIONS)
@given(value=offset_values)
def test_an_offset_comes_back_from_every_version_with_all_that_version_can_say(
    version: int, value: CommittedOffset
) -> None:
    assert read_offset_value(write_offset_value(value, version)) == offset_in(version, value)


@pytest.mark.parametrize("version", GROUP_VALUE_VERSIONS)
@given(value=group_values)
def test_a_group_comes_back_from_every_version_with_all_that_version_can_say(version: int, value: StoredGroup) -> None:
    assert read_group_value(write_group_value(value, version)) == group_in(version, value)


@pytest.mark.parametrize("version", GROUP_VALUE_VERSIONS)
def test_the_smallest_members_there_can_be_are_read(version: int) -> None:
    """The check against absurd counts must not refuse a count that is true."""
    smallest = StoredMember("", None, "", "", 0, 0, b"", b"")
    group = StoredGroup("", 0, None, None, 0, (smallest,) * 40)
    assert read_group_value(write_group_value(group, version)) == group_in(version, group)


def test_a_topic_id_of_zero_is_none_and_not_written() -> None:
    """Kafka leaves a tagged field out that has its default value."""
    zero, none = CommittedOffset(1, topic_id=UUID(int=0)), CommittedOffset(1)
    assert write_offset_value(zero, 4) == write_offset_value(none, 4)
    assert read_offset_value(write_offset_value(none, 4)[:-1] + b"\1\0\x10" + bytes(16)) == none


@given(record=records)
def test_a_record_is_read_as_it_was_written_and_its_key_alone_is_its_tombstone(record: Record) -> None:
    key, value = write_record(record)
    read = read_record(memoryview(key), None if value is None else memoryview(value))
    if isinstance(record, OffsetRecord) and record.value:
        version = 4 if record.value.expire_timestamp_ms is None else 1
        record = OffsetRecord(record.group_id, record.topic, record.partition, offset_in(version, record.value))
    assert read == record
    tombstone = read_key(key)
    assert not isinstance(tombstone, Skipped)
    assert (write_key(tombstone), tombstone.value) == (key, None)


usual_offsets = st.builds(
    CommittedOffset, int64, int32, st.sampled_from(["", "", "m"]), int64, st.none(), st.none() | st.uuids()
)


@given(
    record=st.builds(OffsetRecord, names | st.just("n" * 600), names, int32, usual_offsets),
    at=st.integers(-1, 200),
    byte=st.integers(0, 255),
    more=st.sampled_from([b"", b"", b"x"]),
)
def test_an_offset_read_at_once_is_what_is_read_plainly(record: OffsetRecord, at: int, byte: int, more: bytes) -> None:
    """Whatever has happened to a byte of it."""
    key, value = write_record(record)
    both = bytearray(key + (value or b""))
    if 0 <= at < len(both):
        both[at] = byte
    key, value = bytes(both[: len(key)]), bytes(both[len(key) :]) + more
    told: list[Any] = []
    for read in (read_record, read_record_plainly):
        try:
            told.append(read(key, value))
        except MalformedError as error:
            told.append(str(error))
    assert told[0] == told[1]


def test_the_oldest_key_is_read_as_todays() -> None:
    today = write_key(OffsetRecord("g", "t", 1, None))
    assert read_key(b"\0\0" + today[2:]) == read_key(today)


def test_a_field_of_the_future_is_left_alone() -> None:
    """KIP-915: later Kafkas add tagged fields, and older ones go on reading."""
    known = CommittedOffset(1, 2, "m", 3, None, UUID(int=9))
    data = write_offset_value(known, 4)
    assert data[-19:-17] == b"\1\0"
    assert read_offset_value(data[:-19] + b"\2" + data[-18:] + b"\7\3new") == known
    assert read_offset_value(data + b"more") == known
    group = write_group_value(StoredGroup("consumer", 1), 4)
    assert read_group_value(group[:-1] + b"\1\7\3new") == StoredGroup("consumer", 1)


# --- bytes that are not records -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "value", "words"), OURS)
def test_a_record_cut_short_is_malformed_wherever_it_is_cut(
    key: bytes, value: bytes | None, words: dict[str, Any]
) -> None:
    for end in range(len(key)):
        with pytest.raises(MalformedError, match=r"^key in __consumer_offsets: expected"):
            read_record(key[:end], value)
    for end in range(len(value or b"")):
        with pytest.raises(MalformedError, match=r"in __consumer_offsets: expected"):
            read_record(key, (value or b"")[:end])


@given(kind=st.sampled_from([0, 1, 2]), key=st.binary(max_size=30), value=st.none() | st.binary(max_size=80))
def test_any_bytes_are_a_record_or_malformed(kind: int, key: bytes, value: bytes | None) -> None:
    try:
        record = read_record(kind.to_bytes(2, "big") + key, value)
    except MalformedError:
        return
    assert isinstance(record, (OffsetRecord, GroupRecord))
    if isinstance(record.value, StoredGroup):
        assert len(record.value.members) <= len(value or b"")


@given(version=st.integers(0, 4), body=st.binary(max_size=120), at=st.integers(0, 200), byte=st.integers(0, 255))
def test_any_change_to_a_group_is_a_group_or_malformed(version: int, body: bytes, at: int, byte: int) -> None:
    member = StoredMember("m", None, "c", "/h", 1, 2, body, body)
    data = bytearray(write_group_value(StoredGroup("consumer", 1, "range", "m", 3, (member, member)), version))
    data[at % len(data)] = byte
    try:
        group = read_group_value(data)
    except MalformedError:
        return
    assert len(group.members) <= len(data)


@pytest.mark.parametrize("version", [-1, 5, 0x7FFF])
def test_a_value_of_an_unknown_version_is_malformed(version: int) -> None:
    data = version.to_bytes(2, "big", signed=True) + bytes(100)
    for read in (read_offset_value, read_group_value):
        with pytest.raises(MalformedError, match=rf"a version from 0 to 4 \(found {version}\) at byte 0"):
            read(data)


@pytest.mark.parametrize("version", [-1, 5])
def test_there_is_no_writing_in_an_unknown_version(version: int) -> None:
    with pytest.raises(MalformedError, match="known are 0 to 4"):
        write_offset_value(CommittedOffset(0), version)
    with pytest.raises(MalformedError, match="known are 0 to 4"):
        write_group_value(StoredGroup("", 0), version)


@pytest.mark.parametrize("kind", [-1, 3, 9, 24, 0x7FFF])
def test_an_unknown_type_is_never_an_error_whatever_follows(kind: int) -> None:
    assert read_record(kind.to_bytes(2, "big", signed=True), b"\xff") == Skipped(kind)


@pytest.mark.parametrize("version", GROUP_VALUE_VERSIONS)
def test_an_absurd_number_of_members_costs_no_memory(version: int) -> None:
    data = write_group_value(StoredGroup("consumer", 1), version)
    count = b"\xff\xff\xff\xff\x07\0" if version == 4 else b"\x7f\xff\xff\xff"
    hostile = data[: -2 if version == 4 else -4] + count + bytes(1000)
    tracemalloc.start()
    try:
        with pytest.raises(MalformedError, match="an array of 2147483"):
            read_group_value(hostile)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    "record",
    [
        OffsetRecord("g" * 32_768, "t", 0, None),
        OffsetRecord("g", "t" * 32_768, 0, None),
        OffsetRecord("g", "t", 2**31, None),
        GroupRecord("ä" * 16_384, None),
        OffsetRecord("g", "t", 0, CommittedOffset(2**63)),
        OffsetRecord("g", "t", 0, CommittedOffset(0, metadata="m" * 32_768, expire_timestamp_ms=0)),
    ],
)
def test_what_a_record_cannot_hold_is_refused_with_the_rule(record: Record) -> None:
    with pytest.raises(MalformedError, match="at most 32767 bytes"):
        write_record(record)


def test_metadata_of_any_length_fits_into_todays_version() -> None:
    """Kafka counts `offset.metadata.max.bytes` in UTF-16 units, so that 4 096 of them may be 12 288 bytes."""
    record = OffsetRecord("g", "t", 0, CommittedOffset(0, metadata="大" * 20_000))
    assert read_record(*write_record(record)) == record
