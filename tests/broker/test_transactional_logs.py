"""Transactions in the logs of partitions: markers, the last stable offset, what read_committed sees."""

from __future__ import annotations

from typing import Any

from broker.speaker import fetch_request
from broker.transactional import TransactionalClient, world_with_topics
from coterie.errors import ErrorCode
from coterie.protocol.apis import delete_records, fetch, list_offsets
from coterie.protocol.batch import batches

NONE, EPOCH = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH
T0, T1 = ("t", 0), ("t", 1)
MARKER = "20 00 00 00 08 00 00 00 01 0c 00 00"


def raw(client: TransactionalClient, partition: int = 0) -> bytes:
    return bytes(client.read_log(0, partition=partition, committed=False).records or b"")


def test_a_marker_to_the_byte() -> None:
    """TL1, TL2: every partition that was added gets one, also without data; it takes an offset."""
    _, client = world_with_topics()
    producer_id, epoch = client.ids
    client.add(T1)
    client.write(b"a")
    client.end(commit=True)
    assert raw(client, 2) == b""
    for partition in (0, 1):
        data = raw(client, partition)
        at, header = list(batches(data))[-1]
        assert (header.size, header.attributes, header.base_sequence, header.record_count) == (78, 0x30, -1, 1)
        assert (header.producer_id, header.producer_epoch) == (producer_id, epoch + 1)
        assert header.base_offset == 1 - partition
        assert data[at + 61 :].hex(" ").startswith(MARKER)
    client.write(b"b")
    client.end(commit=False)
    at, _ = list(batches(raw(client)))[-1]
    assert raw(client)[at + 61 :].hex(" ").startswith(MARKER.replace("00 01 0c", "00 00 0c"))


def test_the_last_stable_offset_is_that_of_the_oldest_open_transaction() -> None:
    """TL3, TL4, TL6."""
    world, client = world_with_topics()
    other = TransactionalClient(world, "other")
    other.init()
    client.produce("t", b"plain")
    client.write(b"a")
    other.write(b"b")
    client.produce("t", b"plain")
    answer = client.read_log(committed=False)
    assert (answer.high_watermark, answer.last_stable_offset, answer.aborted_transactions) == (4, 1, None)
    answer = client.read_log()
    assert [header.base_offset for _, header in batches(bytes(answer.records or b""))] == [0]
    assert answer.aborted_transactions == []
    beyond = client.read_log(2)
    assert (beyond.error, beyond.records, beyond.aborted_transactions) == (NONE, b"", [])
    assert client.last_stable_offset() == 1
    client.end(commit=True)
    assert client.last_stable_offset() == 2
    other.end(commit=False)
    assert client.last_stable_offset() == 6
    assert client.committed_values() == [b"plain", b"a", b"plain"]
    assert client.read_log(committed=False).aborted_transactions is None


def test_timestamps_beyond_the_last_stable_offset_are_not_found() -> None:
    """TL6."""
    _, client = world_with_topics()
    client.write(b"a")

    def listed(timestamp: int, isolation: int, version: int = 7) -> int:
        asked = list_offsets.Partition(partition=0, timestamp=timestamp)
        topics = [list_offsets.Topic(name="t", partitions=[asked])]
        request = list_offsets.Request(isolation_level=isolation, topics=topics)
        offset: int = client.ask(list_offsets, request, version).topics[0].partitions[0].offset
        return offset

    for timestamp in (0, -3):
        assert (listed(timestamp, 0), listed(timestamp, 1)) == (0, -1)
    assert (listed(-1, 0), listed(-1, 1), listed(-2, 1)) == (1, 0, 0)
    assert listed(-1, 1, version=1) == 1, "version 1 has no isolation level"
    client.end(commit=True)
    assert (listed(0, 1), listed(-1, 1)) == (0, 2)


def test_a_waiting_fetch_is_answered_when_the_last_stable_offset_moves() -> None:
    """TL4."""
    world, client = world_with_topics()
    client.write(b"a")
    reader = world.client()
    reader.send(fetch, fetch_request({"t": {0: 0}}, isolation_level=1, max_wait_ms=60_000), 12)
    client.write(b"b")
    assert reader.answers == 0
    client.end(commit=True)
    assert [item.base_offset for _, item in batches(bytes(reader.fetched().records or b""))] == [0, 1, 2]


def test_aborted_transactions_are_listed_in_the_order_of_their_markers() -> None:
    """TL5: with their own first offset, even below the fetch offset; only those that concern what is returned."""
    world, first = world_with_topics()
    second = TransactionalClient(world, "second")
    second.init()
    first.write(b"a")  # 0
    second.write(b"b")  # 1
    first.write(b"c")  # 2
    second.end(commit=False)  # 3
    first.end(commit=False)  # 4

    def listed(offset: int, **options: Any) -> list[tuple[int, int]]:
        found = first.read_log(offset, **options).aborted_transactions
        assert found is not None
        return [(one.producer_id, one.first_offset) for one in found]

    both = [(second.ids[0], 1), (first.ids[0], 0)]
    assert listed(0) == both
    assert listed(2) == both
    assert listed(4) == [(first.ids[0], 0)]
    assert listed(0, partition_max_bytes=1) == [(first.ids[0], 0)], "the first batch alone"
    assert listed(5) == []
    assert first.committed_values() == []


def test_a_transaction_without_data_in_a_partition_is_not_listed() -> None:
    """TL3."""
    _, client = world_with_topics()
    client.add(T1)
    assert client.last_stable_offset(1) == 0
    client.end(commit=False)
    answer = client.read_log(partition=1)
    assert (answer.last_stable_offset, answer.aborted_transactions) == (1, [])


def test_an_end_is_answered_when_its_markers_are_durable() -> None:
    """TS5, TR5: the decision is durable first, then all markers, then the completion. Nothing is seen before."""
    world, client = world_with_topics()
    client.write(b"a")
    client.write(b"b", partition=1)
    world.auto = False
    client.send_end(commit=True)
    states = []
    while world.flushes:
        looking = TransactionalClient(world)
        states.append((looking.state, looking.last_stable_offset(), looking.last_stable_offset(1), client.answers))
        world.flush()
    assert states == [("Ongoing", 0, 0, 0), ("PrepareCommit", 0, 0, 0), ("PrepareCommit", 2, 2, 0)]
    assert client.ended().error is NONE
    assert client.state == "CompleteCommit"


def test_a_marker_that_is_refused_does_not_hold_up_the_transaction() -> None:
    """TL8: another client has written with this producer id and a newer epoch."""
    world, client = world_with_topics()
    client.write(b"a", partition=1)
    client.write(b"a")
    client.write_markers((client.ids[0], client.ids[1] + 7))
    assert not client.end(commit=True).error
    assert client.state == "CompleteCommit"
    assert any("INVALID_PRODUCER_EPOCH" in one for one in world.troubles)
    assert client.committed_values(1) == [b"a"]


def test_an_admin_ends_a_transaction_in_a_partition() -> None:
    """TL7: the coordinator learns nothing of it, and the producer may go on."""
    _, client = world_with_topics()
    client.init()
    producer_id, epoch = client.ids
    client.write(b"a")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.write_markers((producer_id, epoch), partition=9) is unknown
    assert client.write_markers((producer_id, epoch - 1)) is EPOCH
    assert client.write_markers((producer_id, -1)) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.write_markers((producer_id, epoch), transaction_version=2) is EPOCH
    assert client.write_markers((producer_id, epoch), coordinator_epoch=5) is NONE
    assert client.last_stable_offset() == 2
    assert client.write_markers((producer_id, epoch), transaction_version=2, coordinator_epoch=5) is NONE, "a repeat"
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert client.write_markers((producer_id, epoch), coordinator_epoch=4) is fenced
    assert client.write_markers((4711, 3), version=1) is NONE, "an unknown producer id"
    assert client.state == "Ongoing"
    assert not client.write(b"b").error
    assert client.committed_values() == []


def test_what_the_log_knows_of_a_producer() -> None:
    """TL9, TM3: a marker with a new epoch forgets the sequences."""
    _, client = world_with_topics()
    client.write(b"a", b"b")
    (one,) = client.producers()
    assert (one.producer_id, one.producer_epoch, one.last_sequence) == (*client.ids, 1)
    assert (one.coordinator_epoch, one.current_txn_start_offset) == (-1, 0)
    client.end(commit=True, version=4)
    (one,) = client.producers()
    assert (one.last_sequence, one.coordinator_epoch, one.current_txn_start_offset) == (1, 0, -1)
    client.write(b"c")
    client.end(commit=True)
    (one,) = client.producers()
    assert (one.producer_epoch, one.last_sequence, one.current_txn_start_offset) == (client.ids[1], -1, -1)


def test_a_topic_is_deleted_under_an_open_transaction() -> None:
    """TD1: the partition is skipped; a topic of the same name gets a marker, and knows the producer no more."""
    _, client = world_with_topics()
    client.create("doomed")
    client.write(b"a")
    client.write(b"b", topic="doomed")
    assert client.delete("doomed") is NONE
    assert client.state == "Ongoing" and ("doomed", 0) in client.partitions
    assert client.write(b"c", topic="doomed").error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    client.create("again")
    client.write(b"d", topic="again")
    client.delete("again")
    client.create("again")
    assert client.write(b"e", topic="again", sequence=1).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not client.end(commit=True).error
    assert client.committed_values() == [b"a"]
    assert [header.is_control for _, header in batches(bytes(client.read_log(topic="again").records or b""))] == [True]


def test_records_are_deleted_under_an_open_transaction() -> None:
    """TD2, TN2: the log start and the last stable offset move up; the transaction goes on, with its sequences."""
    _, client = world_with_topics()
    client.write(b"a")
    client.write(b"b")
    asked = delete_records.Topic(name="t", partitions=[delete_records.Partition(partition=0, offset=1)])
    answer = client.ask(delete_records, delete_records.Request(topics=[asked], timeout_ms=1_000))
    assert answer.topics[0].partitions[0].low_watermark == 1
    assert client.last_stable_offset() == 1
    assert not client.write(b"c").error
    client.end(commit=True)
    assert client.last_stable_offset() == 4
