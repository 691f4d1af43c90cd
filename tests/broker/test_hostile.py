"""Requests that are small and ask for much; what would be found by nobody but who means harm."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from broker.speaker import list_request
from coterie.broker.handlers import group_apis as groups
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    create_topics,
    describe_configs,
    describe_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from coterie.protocol.batch import Compression, pack_header, parse_header
from coterie.protocol.buffer import MAX_TAGS
from coterie.protocol.codec.reader_source import MAX_ENTRIES
from coterie.protocol.frames import request_frame
from coterie.protocol.messages import CommitPartition, DescribeGroup, OffsetCommit, OffsetFetch
from coterie.protocol.records import BatchRecord, build_batch
from logs import batch
from soak.batches import bomb


def ready() -> tuple[World, Client]:
    world = World()
    client = world.client()
    client.find_coordinator()
    client.create("t")
    return world, client


def refused(world: World, client: Client) -> str:
    """It was sent away, unanswered, and nobody else."""
    assert client.answers == 0 and client.closed is not None
    assert world.client().find_coordinator().error is ErrorCode.NONE
    return client.closed


# --- many entries -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 6, 8])
def test_a_request_that_lists_too_much_is_not_read(version: int) -> None:
    """Lists within lists are counted together: else a hundred megabytes are ten million entries."""
    world, client = ready()
    half = list(range(MAX_ENTRIES // 2 + 1))
    word = OffsetFetch(None, "g", [("t", half), ("u", half)])
    client.send(offset_fetch, [word], version)
    assert f"more than {MAX_ENTRIES} entries" in refused(world, client)


def test_groups_topics_and_partitions_are_counted_together() -> None:
    world, client = ready()
    quarter = list(range(MAX_ENTRIES // 4 - 2))
    asked = [OffsetFetch(None, f"g{one}", [("t", quarter)]) for one in range(5)]
    assert len(client.ask(offset_fetch, asked[:4], 8)) == 4
    client.send(offset_fetch, asked, 8)
    assert f"more than {MAX_ENTRIES} entries" in refused(world, client)


def test_a_commit_that_lists_too_much_is_not_read() -> None:
    """Its reader is written out by hand."""
    world, client = ready()
    many = [CommitPartition(f"t{one % 2}", one, 0) for one in sorted(range(MAX_ENTRIES + 2), key=lambda one: one % 2)]
    client.send(offset_commit, OffsetCommit(None, "g", "", None, -1, many), 8)
    assert f"more than {MAX_ENTRIES} entries" in refused(world, client)


def test_a_produce_for_too_many_partitions_is_not_read() -> None:
    world, client = ready()
    parts = [produce.Partition(partition=0, records=None)] * (MAX_ENTRIES // 2)
    topics = [produce.Topic(name=name, partitions=parts) for name in "ab"]  # and the topics count as well
    client.send(produce, produce.Request(acks=1, timeout_ms=1, topics=topics), 9)
    assert f"more than {MAX_ENTRIES} entries" in refused(world, client)


def test_what_a_broker_answers_may_be_longer() -> None:
    """A client has chosen its broker; a large cluster has many partitions."""
    part = metadata.DescribedPartition(partition=0, leader_id=1, replicas=range(MAX_ENTRIES + 1), isr=())
    answer = metadata.Response(brokers=(), topics=[metadata.DescribedTopic(name="t", partitions=[part])])
    read = metadata.read_response(metadata.write_response(answer, 9), 0, 9)
    assert len(read.topics[0].partitions[0].replicas) == MAX_ENTRIES + 1


def test_tagged_fields_are_bounded_too() -> None:
    world, client = ready()
    tags = bytes([MAX_TAGS + 1]) + b"\x50\0" * (MAX_TAGS + 1)
    client.send_frame(request_frame(12, 4, 1, None, b"\2g\0\0\0\1\2m\0" + tags, flexible=True)[4:])
    assert f"{MAX_TAGS} are allowed" in refused(world, client)


# --- small questions with large answers -------------------------------------------------------------------------------


def test_metadata_of_a_topic_asked_for_a_thousand_times_is_told_once() -> None:
    """As Kafka, which takes them as a set; twelve kilobytes would be answered with a hundred megabytes."""
    _, client = ready()
    client.create("wide", 1_000)
    asked = [metadata.Topic(name=name) for name in ("wide", "t") * 1_000]
    answer = client.ask(metadata, metadata.Request(topics=asked), 9)
    assert [topic.name for topic in answer.topics] == ["wide", "t"]


def test_configs_asked_for_a_thousand_times_are_told_once() -> None:
    _, client = ready()
    asked = [describe_configs.Resource(resource_type=2, resource_name="t")] * 1_000
    assert len(client.ask(describe_configs, describe_configs.Request(resources=asked)).results) == 1


def test_who_asks_for_a_large_group_again_and_again_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LARGEST_ANSWER", 1_000_000)
    world, client = ready()
    client.enter("g", bytes(300_000))
    assert len(client.ask(describe_groups, [DescribeGroup(None, "g")] * 3, 5)) == 3
    client.send(describe_groups, [DescribeGroup(None, "g")] * 1_000, 5)
    assert "more than 1000000 bytes of groups at once" in refused(world, client)


def test_who_asks_for_many_offsets_again_and_again_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LARGEST_ANSWER", 10_000)
    world, client = ready()
    client.create("wide", 50)
    client.commit("g", {("wide", one): 1 for one in range(50)})
    client.send(offset_fetch, [OffsetFetch(None, "g", None)] * 100, 8)
    assert "more than 10000 bytes of groups at once" in refused(world, client)


def test_offsets_of_a_partition_that_is_named_twice_are_not_listed() -> None:
    """Kafka's INVALID_REQUEST; each may have to unpack a batch."""
    _, client = ready()
    asked = list_offsets.Partition(partition=0, timestamp=-1)
    request = list_offsets.Request(topics=[list_offsets.Topic(name="t", partitions=[asked, asked])])
    assert {one.error for one in client.ask(list_offsets, request).topics[0].partitions} == {ErrorCode.INVALID_REQUEST}


def test_versions_of_metadata_that_know_no_ids_refuse_them() -> None:
    """As Kafka: versions 10 and 11 have the field, and no way to answer without a name."""
    _, client = ready()
    topics = [metadata.Topic(name=None), metadata.Topic(name="t")]
    for version in (10, 11):
        answer = client.ask(metadata, metadata.Request(topics=topics), version)
        assert [(topic.name, topic.error) for topic in answer.topics] == [
            ("", ErrorCode.INVALID_REQUEST),
            ("t", ErrorCode.INVALID_REQUEST),
        ]
        assert answer.brokers == []


# --- batches ----------------------------------------------------------------------------------------------------------

CODECS = [one for one in Compression if one is not Compression.NONE]


@pytest.mark.parametrize("compression", list(Compression))
def test_a_batch_cannot_count_more_records_than_it_can_hold(compression: Compression) -> None:
    """Else every such batch takes two thousand million offsets, and a segment of its own."""
    _, client = ready()
    sound = build_batch([BatchRecord(b"k", b"v", 1_000)], compression=compression)
    header = parse_header(sound)._replace(record_count=2**31 - 1, last_offset_delta=2**31 - 2)
    answer = client.produce("t", records=pack_header(header, bytes(sound[61:])))
    assert answer.error is ErrorCode.INVALID_RECORD and "2147483647 records" in (answer.message or "")
    assert client.produce("t", b"next").base_offset == 0


@pytest.mark.parametrize("compression", CODECS)
def test_a_bomb_is_refused_where_records_must_be_opened(compression: Compression) -> None:
    world = World(settings={"coterie.max.decompressed.bytes": 4 << 20})
    client = world.client()
    config = create_topics.Config(name="cleanup.policy", value="compact")
    topic = create_topics.NewTopic(name="c", num_partitions=1, replication_factor=1, configs=[config])
    assert not client.ask(create_topics, create_topics.Request(topics=[topic])).topics[0].error
    answer = client.produce("c", records=bomb(compression))
    assert answer.error is ErrorCode.INVALID_RECORD
    assert "more than 4194304 bytes when decompressed" in (answer.message or "")
    assert client.produce("c", b"next").base_offset == 0


@pytest.mark.parametrize("compression", CODECS)
def test_who_looks_for_a_time_in_a_bomb_hears_that_it_is_corrupt(compression: Compression) -> None:
    """Records are opened only then; whoever asks is not to blame, and keeps the connection."""
    world = World(settings={"coterie.max.decompressed.bytes": 4 << 20})
    client = world.client()
    client.create("t")
    assert client.produce("t", records=bomb(compression)).error is ErrorCode.NONE
    (found,) = client.ask(list_offsets, list_request("t", 1_000)).topics[0].partitions
    assert found.error is ErrorCode.CORRUPT_MESSAGE and client.closed is None
    (found,) = client.ask(list_offsets, list_request("t", -1)).topics[0].partitions
    assert (found.error, found.offset) == (ErrorCode.NONE, 1)


def test_who_looks_for_a_time_among_records_without_sense_hears_that_they_are_corrupt() -> None:
    _, client = ready()
    sound = batch(b"v" * 20)
    client.produce("t", records=pack_header(parse_header(sound), b"\xff" * (len(sound) - 61)))
    (found,) = client.ask(list_offsets, list_request("t", 1_000)).topics[0].partitions
    assert found.error is ErrorCode.CORRUPT_MESSAGE and client.closed is None
