"""The other APIs where a version has another shape than the value: one key or many, a name or an id, null or empty."""

from __future__ import annotations

from uuid import UUID

import pytest

from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_topics, fetch, find_coordinator, metadata, produce

ID = UUID(int=1)


@pytest.mark.parametrize("version", metadata.API.versions)
def test_all_topics_is_null_and_in_version_0_the_empty_list(version: int) -> None:
    """There is no null in version 0."""
    every = metadata.Request(topics=None)
    assert metadata.read_request(metadata.write_request(every, version), 0, version).topics is None
    none = metadata.Request(topics=[])
    read = metadata.read_request(metadata.write_request(none, version), 0, version)
    assert read.topics == (None if version == 0 else [])
    assert read.allow_auto_topic_creation


@pytest.mark.parametrize("version", find_coordinator.API.versions)
def test_one_key_is_asked_and_answered_in_every_version(version: int) -> None:
    """KIP-699."""
    request = find_coordinator.Request(keys=["orders"])
    assert find_coordinator.read_request(find_coordinator.write_request(request, version), 0, version) == request
    coordinator = find_coordinator.Coordinator(key="orders", node_id=1, host="localhost", port=9092)
    response = find_coordinator.Response(coordinators=[coordinator])
    read = find_coordinator.read_response(find_coordinator.write_response(response, version), 0, version)
    (found,) = read.coordinators
    assert (found.node_id, found.host, found.port, found.error) == (1, "localhost", 9092, ErrorCode.NONE)
    assert found.key == ("orders" if version >= 4 else "")


def test_an_unknown_coordinator_is_no_node() -> None:
    """Rule C7."""
    unknown = find_coordinator.Coordinator(key="orders", error=ErrorCode.INVALID_REQUEST)
    assert (unknown.node_id, unknown.host, unknown.port) == (-1, "", -1)


@pytest.mark.parametrize("version", range(4, 7))
def test_many_keys_are_asked_at_once(version: int) -> None:
    request = find_coordinator.Request(keys=["a", "b"], key_type=find_coordinator.TRANSACTION)
    assert find_coordinator.read_request(find_coordinator.write_request(request, version), 0, version) == request


@pytest.mark.parametrize("version", delete_topics.API.versions)
def test_topics_are_deleted_by_name_and_since_6_by_id(version: int) -> None:
    by_name = delete_topics.Request(topics=[delete_topics.Topic(name="a"), delete_topics.Topic(name="b")])
    assert delete_topics.read_request(delete_topics.write_request(by_name, version), 0, version) == by_name
    by_id = delete_topics.Request(topics=[delete_topics.Topic(topic_id=ID)])
    if version >= 6:
        assert delete_topics.read_request(delete_topics.write_request(by_id, version), 0, version) == by_id
    else:
        with pytest.raises(ValueError, match="by name only; ids need version 6"):
            delete_topics.write_request(by_id, version)


@pytest.mark.parametrize("version", range(3, 14))
def test_records_to_produce_are_a_view_of_the_frame(version: int) -> None:
    """Nothing is copied on the way to the log."""
    records = bytes(range(256)) * 4
    partition = produce.Partition(partition=2, records=records)
    topic = produce.Topic(name="orders", topic_id=ID, partitions=[partition])
    frame = produce.write_request(produce.Request(acks=-1, timeout_ms=1000, topics=[topic]), version)
    read = produce.read_request(frame, 0, version)
    (told,) = read.topics
    assert (told.name, told.topic_id) == (("", ID) if version >= 13 else ("orders", None))
    (view,) = [entry.records for entry in told.partitions]
    assert isinstance(view, memoryview) and view == records and view.obj is frame


@pytest.mark.parametrize("version", fetch.API.versions)
def test_fetched_records_are_sent_in_the_pieces_they_are_in(version: int) -> None:
    records = memoryview(bytes(1000))
    partition = fetch.FetchedPartition(partition=2, records=records)
    response = fetch.Response(responses=[fetch.FetchedTopic(topic="orders", topic_id=ID, partitions=[partition])])
    parts = fetch.write_response_parts(response, version)
    assert any(part is records for part in parts)
    assert b"".join(parts) == fetch.write_response(response, version)


@pytest.mark.parametrize("version", fetch.API.versions)
def test_a_follower_is_told_from_a_consumer(version: int) -> None:
    """By the id of its broker, which moved to a tagged field in version 15."""
    ids = {"replica_id": 3} if version <= 14 else {"replica_state": fetch.ReplicaState(replica_id=3)}
    for request in (
        fetch.Request(max_wait_ms=1, min_bytes=1, topics=[], **ids),
        fetch.Request(max_wait_ms=1, min_bytes=1, topics=[]),
    ):
        read = fetch.read_request(fetch.write_request(request, version), 0, version)
        assert (read.replica_id, read.replica_state) == (request.replica_id, request.replica_state)


def test_what_a_version_cannot_say_is_our_mistake_not_the_clients() -> None:
    topic = metadata.DescribedTopic(name=None, error=ErrorCode.UNKNOWN_TOPIC_ID)
    response = metadata.Response(brokers=[], topics=[topic])
    with pytest.raises(ValueError, match="name is None, which version 11 cannot say"):
        metadata.write_response(response, 11)


def test_a_code_of_a_newer_broker_is_an_unknown_error() -> None:
    from coterie.protocol.apis import heartbeat

    assert heartbeat.read_response(b"\x7f\xff", 0, 0) is ErrorCode.UNKNOWN_SERVER_ERROR
