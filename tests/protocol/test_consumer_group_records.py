"""KIP-848's records, against what a real Kafka 4.3.1 wrote and what its own tool says of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.errors import MalformedError
from coterie.protocol.consumer_group_records import (
    TYPES,
    ClassicProtocol,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    PartitionMetadata,
    ResolvedPattern,
    TargetAssignment,
    TargetEpoch,
    TopicPartitions,
    read_consumer_group_record,
    write_consumer_group_record,
)
from coterie.structs import is_data
from protocol.recorded import lines, uuid_of

RECORDED = [line for line in lines("consumer_offsets.jsonl") if int(line["key"][:4], 16) in TYPES]


def read(line: dict[str, Any]) -> ConsumerGroupRecord | None:
    value = None if line["value"] is None else bytes.fromhex(line["value"])
    return read_consumer_group_record(bytes.fromhex(line["key"]), value)


def partitions_of(words: list[dict[str, Any]]) -> list[TopicPartitions]:
    found = []
    for topic in words:
        topic_id = uuid_of(topic["topicId"])
        assert topic_id is not None
        found.append(TopicPartitions(topic_id, topic["partitions"], topic.get("assignmentEpochs", [])))
    return found


def value_of(kind: int, words: dict[str, Any]) -> object:
    """Kafka's words as our value."""
    match kind:
        case 3:
            return ConsumerGroupEpoch(words["epoch"], words.get("metadataHash", 0))
        case 5:
            assert words["classicMemberMetadata"] is None
            return MemberMetadata(
                words["instanceId"],
                words["rackId"],
                words["clientId"],
                words["clientHost"],
                words["subscribedTopicNames"],
                words["subscribedTopicRegex"],
                words["rebalanceTimeoutMs"],
                words["serverAssignor"],
                None,
                [],
            )
        case 6:
            return TargetEpoch(words["assignmentEpoch"], words["assignmentTimestamp"])
        case 7:
            return TargetAssignment(
                {each.topic_id: tuple(each.partitions) for each in partitions_of(words["topicPartitions"])}
            )
        case 8:
            return CurrentAssignment(
                words["memberEpoch"],
                words["previousMemberEpoch"],
                words["state"],
                partitions_of(words["assignedPartitions"]),
                partitions_of(words["partitionsPendingRevocation"]),
            )
        case 16:
            return ResolvedPattern(words["topics"], words["version"], words["timestamp"])
    raise AssertionError(kind)


@pytest.mark.parametrize("line", RECORDED, ids=lambda line: line["key"][:40])
def test_kafkas_own_bytes_mean_what_kafka_says_they_mean(line: dict[str, Any]) -> None:
    record = read(line)
    assert record is not None
    words = line["kafka"]["key"]["data"]
    about = words.get("memberId", words.get("regularExpression", ""))
    assert (record.group_id, record.about) == (words["groupId"], about)
    assert record.type == int(line["kafka"]["key"]["type"])
    value = line["kafka"]["value"]
    assert record.value == (None if value is None else value_of(record.type, value["data"]))


def test_the_recording_has_every_type_that_is_still_written() -> None:
    assert {int(line["key"][:4], 16) for line in RECORDED} == set(TYPES) - {4}


def test_a_member_that_still_speaks_the_classic_protocol_brings_its_protocols() -> None:
    key = bytes.fromhex("0005") + b"\0\1g\0\1m"
    classic = b"\x01" + (10_000).to_bytes(4, "big") + b"\x02" + b"\x06range" + b"\x03ab" + b"\0" + b"\0"
    value = b"\0\0" + b"\0\0" + b"\x02c\x02h" + b"\x01" + b"\x01" + (5).to_bytes(4, "big") + b"\0"
    record = read_consumer_group_record(key, value + b"\x01\x00" + bytes([len(classic)]) + classic)
    assert record is not None and isinstance(record.value, MemberMetadata)
    assert record.value.classic_session_timeout_ms == 10_000
    assert record.value.classic_protocols == [ClassicProtocol("range", b"ab")]


def test_what_older_brokers_wrote_about_topics_is_understood() -> None:
    racks = b"\x02" + (0).to_bytes(4, "big") + b"\x02" + b"\x02r" + b"\0"
    topic = bytes(16) + b"\x07orders" + (4).to_bytes(4, "big") + racks + b"\0"
    record = read_consumer_group_record(b"\0\x04\0\1g", b"\0\0" + b"\x02" + topic + b"\0")
    assert record == ConsumerGroupRecord(4, "g", "", PartitionMetadata({"orders": 4}))


def test_other_types_are_not_read_here() -> None:
    assert read_consumer_group_record(b"\0\x02\0\1g", b"") is None


@pytest.mark.parametrize("line", [line for line in RECORDED if line["value"]], ids=lambda line: line["key"][:40])
def test_a_value_cut_short_or_of_a_future_version_is_refused(line: dict[str, Any]) -> None:
    key, value = bytes.fromhex(line["key"]), bytes.fromhex(line["value"])
    for length in range(len(value) - 1):  # the last byte may be that there are no tagged fields
        with pytest.raises(MalformedError):
            read_consumer_group_record(key, value[:length])
    with pytest.raises(MalformedError, match="version 0"):
        read_consumer_group_record(key, b"\0\x07" + value[2:])


@given(st.sampled_from(sorted(TYPES)), st.binary(max_size=60))
def test_garbage_is_a_record_or_an_error_and_nothing_else(kind: int, value: bytes) -> None:
    key = kind.to_bytes(2, "big") + b"\0\1g\0\1m"
    try:
        record = read_consumer_group_record(key, b"\0\0" + value)
    except MalformedError:
        return
    assert record is not None and is_data(record.value)


@pytest.mark.parametrize(
    "line", [one for one in RECORDED if int(one["key"][:4], 16) != 4], ids=lambda line: line["key"]
)
def test_we_write_the_bytes_that_kafka_wrote(line: dict[str, Any]) -> None:
    """K27."""
    record = read(line)
    assert record is not None
    key, value = write_consumer_group_record(record)
    assert (key.hex(), None if value is None else value.hex()) == (line["key"], line["value"])
