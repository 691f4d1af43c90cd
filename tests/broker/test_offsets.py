"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import pytest

from broker.driver import Client, World
from broker.speaker import list_request
from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_records, list_offsets, offset_for_leader_epoch


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    client = world.client()
    client.create("t")
    client.produce("t", b"a", b"b", timestamps=[100, 300])
    client.produce("t", b"c", b"d", timestamps=[200, 300])
    return client


def listed(client: Client, timestamp: int, topic: str = "t", epoch: int = -1) -> list_offsets.ListedPartition:
    answer: list_offsets.ListedPartition = (
        client.ask(list_offsets, list_request(topic, timestamp, epoch=epoch)).topics[0].partitions[0]
    )
    return answer


@pytest.mark.parametrize(
    ("timestamp", "offset", "time"),
    [
        (-1, 4, -1),
        (-2, 0, -1),
        (-3, 1, 300),
        (-4, 0, -1),
        (0, 0, 100),
        (101, 1, 300),
        (300, 1, 300),
        (301, -1, -1),
        (-5, -1, -1),
    ],
)
def test_an_offset_is_found_by_time_or_by_name(client: Client, timestamp: int, offset: int, time: int) -> None:
    """-1 latest, -2 earliest, -3 largest time (KIP-734), -4 local, -5 tiered; else the first that is not older."""
    answer = listed(client, timestamp)
    assert (answer.error, answer.offset, answer.timestamp) == (ErrorCode.NONE, offset, time)
    assert answer.leader_epoch == (0 if offset >= 0 else -1)


def test_an_empty_log_has_its_ends_and_no_times(client: Client) -> None:
    client.create("empty")
    assert [listed(client, timestamp, "empty").offset for timestamp in (-1, -2, -3, 0)] == [0, 0, -1, -1]


def test_the_latest_offset_is_one_that_cannot_be_lost(world: World, client: Client) -> None:
    world.auto = False
    client.send_produce("t", b"e", acks=1, timestamps=[400])
    client.produced()
    assert listed(client, -1).offset == 4
    assert listed(client, 400).offset == -1
    world.flush()
    assert listed(client, -1).offset == 5
    assert listed(client, 400).offset == 4


def test_what_is_not_there_cannot_be_listed(client: Client) -> None:
    assert listed(client, -1, "nowhere").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert listed(client, -1, epoch=3).error is ErrorCode.UNKNOWN_LEADER_EPOCH


def epoch_end(client: Client, epoch: int, current: int = -1, topic: str = "t") -> offset_for_leader_epoch.EpochEnd:
    asked = offset_for_leader_epoch.Partition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = offset_for_leader_epoch.Request(topics=[offset_for_leader_epoch.Topic(topic=topic, partitions=[asked])])
    answer: offset_for_leader_epoch.EpochEnd = client.ask(offset_for_leader_epoch, request).topics[0].partitions[0]
    return answer


def test_the_one_epoch_there_is_ends_with_the_log(client: Client) -> None:
    """KIP-320."""
    end = epoch_end(client, 0)
    assert (end.error, end.leader_epoch, end.end_offset) == (ErrorCode.NONE, 0, 4)
    later = epoch_end(client, 5)
    assert (later.error, later.leader_epoch, later.end_offset) == (ErrorCode.NONE, -1, -1)
    assert epoch_end(client, 0, current=1).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert epoch_end(client, 0, topic="nowhere").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def deleted(client: Client, offset: int, topic: str = "t") -> delete_records.DeletedPartition:
    part = delete_records.Partition(partition=0, offset=offset)
    request = delete_records.Request(topics=[delete_records.Topic(name=topic, partitions=[part])])
    answer: delete_records.DeletedPartition = client.ask(delete_records, request).topics[0].partitions[0]
    return answer


def test_deleted_records_are_gone_also_after_a_restart(world: World, client: Client) -> None:
    assert deleted(client, 1).low_watermark == 1
    assert client.fetch("t", 0).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert listed(client, -2).offset == 1
    assert [offset for offset, _ in client.read_all("t")] == [1, 2, 3]
    assert client.fetch("t", 1).log_start_offset == 1
    world.cluster.directory.release()
    assert [offset for offset, _ in World(world.files, now_ms=2_000_000).client().read_all("t")] == [1, 2, 3]


def test_minus_one_deletes_all_there_is(client: Client) -> None:
    assert deleted(client, -1).low_watermark == 4
    assert client.read_all("t") == []
    assert client.produce("t", b"e").base_offset == 4


def test_records_that_are_not_there_or_not_ours_to_delete_are_not_deleted(client: Client) -> None:
    client.find_coordinator()
    assert deleted(client, 5).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert deleted(client, -2).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert deleted(client, 0, "nowhere").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted(client, 0, "__consumer_offsets").error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert deleted(client, 0).low_watermark == 0
