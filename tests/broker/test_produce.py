"""Produce: acks, duplicates, what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from broker.driver import Client, World
from broker.speaker import produce_request
from coterie.errors import ErrorCode
from coterie.protocol.apis import produce
from coterie.protocol.batch import TimestampType
from coterie.storage import LogConfig
from logs import batch, values_in


@pytest.fixture
def client() -> Client:
    client = World().client()
    client.create("t", 2)
    return client


def test_batches_get_their_offsets_one_after_the_other(client: Client) -> None:
    assert client.produce("t", b"a", b"b").base_offset == 0
    assert client.produce("t", b"c").base_offset == 2
    assert client.produce("t", b"d", partition=1).base_offset == 0
    assert client.read_all("t") == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_acks_0_is_written_and_not_answered(client: Client) -> None:
    client.send_produce("t", b"a", acks=0)
    client.forget()
    assert client.answers == 0 and client.closed is None
    assert client.read_all("t") == [(0, b"a")]


@pytest.mark.parametrize("acks", [1, -1])
def test_other_acks_are_answered_with_the_offset(client: Client, acks: int) -> None:
    answer = client.produce("t", b"a", acks=acks)
    assert (answer.error, answer.base_offset, answer.log_append_time_ms) == (ErrorCode.NONE, 0, -1)


@pytest.mark.parametrize("acks", [2, -2, 127])
def test_acks_that_mean_nothing_are_refused(client: Client, acks: int) -> None:
    assert client.produce("t", b"a", acks=acks).error is ErrorCode.INVALID_REQUIRED_ACKS
    assert client.read_all("t") == []


def test_a_topic_or_partition_that_is_not_there(client: Client) -> None:
    assert client.produce("nowhere", b"a").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", b"a", partition=2).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", b"a", partition=-1).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_version_13_names_topics_by_id(client: Client) -> None:
    """KIP-516."""
    topic_id = client.create("by-id")
    known = client.ask(produce, produce_request("", b"a", topic_id=topic_id), 13).responses[0]
    assert known.topic_id == topic_id and known.partitions[0].base_offset == 0
    stranger = client.ask(produce, produce_request("", b"a", topic_id=UUID(int=1)), 13).responses[0]
    assert stranger.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_ID
    gone = client.delete("by-id")
    assert gone is ErrorCode.NONE
    late = client.ask(produce, produce_request("", b"a", topic_id=topic_id), 13).responses[0]
    assert late.partitions[0].error is ErrorCode.UNKNOWN_TOPIC_ID


def test_the_topic_of_the_groups_is_not_for_producers(client: Client) -> None:
    """D2."""
    client.find_coordinator()
    assert client.produce("__consumer_offsets", b"a").error is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_transactional_id_with_plain_records_is_not_looked_at(client: Client) -> None:
    answer = client.produce("t", b"a", transactional_id="tx")
    assert answer.error is ErrorCode.NONE


@pytest.mark.parametrize(
    ("records", "error"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (bytes(batch(b"a") + batch(b"b")), ErrorCode.INVALID_RECORD),
        (bytes(batch(b"a"))[:-1], ErrorCode.CORRUPT_MESSAGE),
        (bytes(batch(b"a"))[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
        (bytes(batch(bytes(2_000_000))), ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_one_whole_batch_of_bearable_size_is_taken_and_nothing_else(
    client: Client, records: bytes, error: ErrorCode
) -> None:
    """D2."""
    answer = client.produce("t", records=records)
    assert answer.error is error and answer.base_offset == -1
    assert client.read_all("t") == []


def test_what_is_wrong_with_one_partition_is_no_matter_to_another(client: Client) -> None:
    good, bad = produce_request("t", b"a"), produce_request("t", records=b"junk", partition=1)
    good.topics[0].partitions = [*bad.topics[0].partitions, *good.topics[0].partitions]
    answers = client.ask(produce, good, 9).responses[0].partitions
    assert [(one.partition, one.error) for one in answers] == [(1, ErrorCode.CORRUPT_MESSAGE), (0, ErrorCode.NONE)]


def test_an_idempotent_producer_is_not_heard_twice(client: Client) -> None:
    """D1."""
    assert client.produce("t", b"a", b"b", producer=(9, 0, 0)).base_offset == 0
    assert client.produce("t", b"c", producer=(9, 0, 2)).base_offset == 2
    assert client.produce("t", b"a", b"b", producer=(9, 0, 0)).base_offset == 0
    assert client.produce("t", b"c", producer=(9, 0, 2)).base_offset == 2
    assert client.produce("t", b"e", producer=(9, 0, 4)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.produce("t", b"d", producer=(9, 1, 0)).base_offset == 3
    assert client.produce("t", b"x", producer=(9, 0, 3)).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert [value for _, value in client.read_all("t")] == [b"a", b"b", b"c", b"d"]


def test_duplicates_are_known_after_a_restart() -> None:
    """D1, by the log: also if the stop was not an orderly one."""
    world = World()
    client = world.client()
    client.create("t")
    for sequence in range(7):
        client.produce("t", b"%d" % sequence, producer=(9, 0, sequence))
    world.cluster.directory.release()
    again = World(world.files, now_ms=2_000_000).client()
    assert [again.produce("t", b"x", producer=(9, 0, sequence)).base_offset for sequence in range(2, 7)] == [
        2,
        3,
        4,
        5,
        6,
    ]
    assert again.produce("t", b"x", producer=(9, 0, 0)).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert again.produce("t", b"7", producer=(9, 0, 7)).base_offset == 7


def test_append_time_is_told() -> None:
    """KIP-32: with message.timestamp.type LogAppendTime the answer says which time the records have."""
    world = World()
    client = world.client()
    client.create("t")
    log = world.node.replicas.log("t", 0)
    assert log is not None
    log.config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert client.produce("t", b"a", timestamps=[5]).log_append_time_ms == world.now_ms


def test_what_was_sent_is_stored_as_it_was(client: Client) -> None:
    sent = batch(b"a" * 100, b"b", timestamps=[7, 9])
    client.produce("t", records=sent)
    got = client.fetch("t", 0).records
    assert got is not None and bytes(got)[21:] == bytes(sent)[21:]  # but for offset, size and epoch
    assert values_in(got) == [(0, b"a" * 100), (1, b"b")]
