"""Produce in a transaction: when partitions are added or verified, and what is refused."""

from __future__ import annotations

import pytest

from broker.speaker import produce_request
from broker.transactional import TX, TransactionalClient, transactional_batch, world_with_topics
from coterie.errors import ErrorCode
from coterie.protocol.apis import produce
from coterie.protocol.records import EndMarker
from logs import build_marker

NONE, MAPPING = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_ID_MAPPING
EPOCH, OUT_OF_ORDER = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
ABORTABLE, INVALID = ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE
T0, T1 = ("t", 0), ("t", 1)


def test_what_a_transactional_batch_needs() -> None:
    """TP1: a transactional id, and one producer in a request; plain batches may share it. TP9: the log knows no ids."""
    _, client = world_with_topics()
    denied = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.write(b"a", tx=None).error is denied

    def ask(*batches: bytes, tx: str = TX) -> list[ErrorCode]:
        partitions = [produce.Partition(partition=number, records=data) for number, data in enumerate(batches)]
        topics = [produce.Topic(name="t", partitions=partitions)]
        request = produce.Request(transactional_id=tx, acks=-1, timeout_ms=1_000, topics=topics)
        return [one.error for one in client.ask(produce, request, 12).responses[0].partitions]

    ours = transactional_batch(b"a", producer=client.ids)
    others = transactional_batch(b"a", producer=(client.ids[0] + 1, 0))
    plain = bytes(transactional_batch(b"p", producer=(77, 0), is_transactional=False))
    assert ask(ours, others) == [MAPPING, MAPPING]
    assert ask(ours, plain) == [NONE, NONE]
    assert client.partitions == [T0]
    later = transactional_batch(b"b", producer=client.ids, sequence=1)
    assert ask(later, tx="any") == [NONE], "the transaction is open here"
    nobody = transactional_batch(b"a", producer=(-1, -1), sequence=-1)
    assert ask(later, nobody) == [MAPPING, MAPPING]
    assert ask(bytes(nobody)) == [MAPPING]


def test_newer_requests_add_their_partitions() -> None:
    """Section 4, Produce 12: it begins a transaction in every state in which there is none."""
    _, client = world_with_topics()
    assert client.write(b"a", ids=(client.ids[0] + 1, 0)).error is MAPPING
    assert client.state == "Empty"
    assert not client.write(b"a").error and client.partitions == [T0]
    assert not client.write(b"a", partition=1).error and client.partitions == [T0, T1]
    for commit in (True, False):
        assert not client.end(commit=commit).error
        assert not client.write(b"b").error
        assert client.state == "Ongoing"
    client.tx = "absent"
    assert client.write(b"a", partition=2).error is MAPPING


@pytest.mark.parametrize(("version", "error"), [(11, ABORTABLE), (10, INVALID), (3, INVALID)])
def test_older_requests_are_verified(version: int, error: ErrorCode) -> None:
    """Section 4, Produce 3 to 11, and TP3."""
    _, client = world_with_topics()
    assert client.write(b"a", version=version).error is error
    client.add(T0)
    assert not client.write(b"a", version=version).error
    assert client.write(b"a", partition=1, version=version).error is error
    assert client.write(b"a", partition=1, version=version, ids=(client.ids[0], 9)).error is EPOCH
    assert not client.end(commit=True, version=3).error
    assert client.write(b"b", version=version).error is error
    client.tx = "absent"
    assert client.write(b"a", partition=2, version=version).error is MAPPING


def test_verification_can_be_switched_off_for_older_requests() -> None:
    """TP10."""
    _, client = world_with_topics(settings={"transaction.partition.verification.enable": False})
    assert not client.write(b"a", version=11).error
    assert client.state == "Empty"
    assert not client.write(b"a", partition=1, version=12).error
    assert client.partitions == [T1]


def test_what_is_looked_at_first() -> None:
    """TP2: the topic, then the batch, then the epoch in the log; then the coordinator; then the log once more."""
    world, client = world_with_topics()
    assert client.write(b"a", partition=9).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    torn = transactional_batch(b"a", producer=client.ids)[:-1]
    request = produce_request("t", records=torn, transactional_id=TX)
    assert client.ask(produce, request, 12).responses[0].partitions[0].error is ErrorCode.CORRUPT_MESSAGE
    assert client.state == "Empty"
    assert not client.write(b"a").error
    assert client.write(b"a", ids=(client.ids[0], client.ids[1] - 1), version=11).error is EPOCH
    # An open transaction with this epoch: the coordinator is not asked, whatever it would say.
    partition = world.node.transactions.coordinator.partition_of(TX)
    world.node.transactions.lose(partition, world.now_ms)
    assert not client.write(b"b").error
    assert client.write(b"b", partition=1).error is ErrorCode.NOT_ENOUGH_REPLICAS
    plain = transactional_batch(b"x", producer=client.ids, sequence=2, is_transactional=False)
    request = produce_request("t", records=plain)
    assert client.ask(produce, request, 12).responses[0].partitions[0].error is INVALID


def test_a_produce_waits_while_the_transaction_before_is_ended() -> None:
    """TP4: for 100 ms, in steps of 20 ms; then CONCURRENT_TRANSACTIONS. Older requests do not wait."""
    world, client = world_with_topics()
    other = TransactionalClient(world)
    client.write(b"a")
    world.auto = False
    client.send_end(commit=True)
    other.ids = client.ids[0], client.ids[1] + 1
    world.flush()  # the decision is durable, the marker is not
    other.send_write(b"b", partition=1)
    assert other.answers == 0
    world.advance(99)
    assert other.answers == 0
    world.advance(1)
    assert other.produced().error is ErrorCode.CONCURRENT_TRANSACTIONS
    assert other.write(b"b", partition=1, version=11).error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert other.commit_offsets({T0: 1}, version=5) == [ErrorCode.NOT_COORDINATOR], "there are no groups yet"
    other.send_write(b"b", partition=1)
    while world.flushes:
        world.flush()
    world.advance(20)
    while world.flushes:
        world.flush()
    assert other.produced().error is NONE
    assert client.ended().error is NONE


def test_several_connections_may_add_partitions_at_once() -> None:
    """TP5: Kafka refuses all but one of them."""
    world, client = world_with_topics()
    others = [TransactionalClient(world) for _ in range(3)]
    world.auto = False
    for number, other in enumerate(others):
        other.ids = client.ids
        other.send_write(b"%d" % number, partition=number)
    for _ in range(10):
        while world.flushes:
            world.flush()
        world.advance(20)
    assert [other.produced().error for other in others] == [NONE] * 3
    assert client.partitions == [T0, T1, ("t", 2)]


def test_the_first_sequence_of_a_newer_request_is_0() -> None:
    """TP6: the partition is added all the same. Older and plain ones may start anywhere."""
    _, client = world_with_topics()
    assert client.write(b"a", sequence=5).error is OUT_OF_ORDER
    assert client.partitions == [T0]
    client.add(T1)
    assert not client.write(b"a", partition=1, version=11, sequence=5).error
    assert not client.write(b"b", partition=1, version=11, sequence=6).error
    client.end(commit=True, version=4)
    client.add(T1)
    assert not client.write(b"c", partition=1, version=11, sequence=7).error, "the sequence goes on"
    client.end(commit=True)
    assert client.write(b"d", partition=1, sequence=8).error is OUT_OF_ORDER, "a new epoch starts at 0"
    assert not client.write(b"d", partition=1, sequence=0).error
    plain = transactional_batch(b"x", producer=(4711, 0), sequence=9, is_transactional=False)
    request = produce_request("t", records=plain, partition=2)
    assert not client.ask(produce, request, 12).responses[0].partitions[0].error


def test_a_batch_sent_twice_is_stored_once() -> None:
    """TP7: after an end of an older version, an older request is verified first, a newer one begins a transaction."""
    _, client = world_with_topics()
    first = client.write(b"a", sequence=0).base_offset
    assert client.write(b"a", sequence=0).base_offset == first
    client.end(commit=True, version=4)
    assert client.write(b"a", sequence=0, version=11).error is ABORTABLE
    assert client.state == "CompleteCommit"
    assert client.write(b"a", sequence=0, version=12).base_offset == first
    assert client.state == "Ongoing"
    assert client.committed_values() == [b"a"]


def test_control_batches_are_not_for_clients_and_all_acks_add_the_partition() -> None:
    """TP8."""
    _, client = world_with_topics()
    producer_id, epoch = client.ids
    marker = build_marker(EndMarker(committed=True), producer_id=producer_id, producer_epoch=epoch, timestamp=1)
    request = produce_request("t", records=bytes(marker), transactional_id=TX)
    assert client.ask(produce, request, 12).responses[0].partitions[0].error is ErrorCode.INVALID_RECORD
    assert not client.write(b"a", acks=1, partition=1).error
    client.send_write(b"a", acks=0, partition=2)
    client.forget()
    assert {T1, ("t", 2)} <= {*client.partitions}


def test_idempotent_batches() -> None:
    """TN1, TN2, TN3: duplicates have the same first and last sequence, any id is taken, a forgotten one is new."""
    _, client = world_with_topics()

    def send(*values: bytes, sequence: int, epoch: int = 0, producer_id: int = 900) -> produce.ProducedPartition:
        data = transactional_batch(*values, producer=(producer_id, epoch), sequence=sequence, is_transactional=False)
        answer: produce.Response = client.ask(produce, produce_request("t", records=data), 12)
        return answer.responses[0].partitions[0]

    first = send(b"a", b"b", sequence=7)
    assert not first.error
    assert send(b"x", b"y", sequence=7).base_offset == first.base_offset, "the content is not compared"
    assert send(b"a", sequence=7).error is OUT_OF_ORDER
    assert send(b"b", b"c", sequence=8).error is OUT_OF_ORDER
    assert not send(b"c", sequence=0, epoch=5).error, "a jump of epochs"
    assert send(b"a", b"b", sequence=7).error is EPOCH, "the window is that of the epoch"
    last = 2**31 - 1
    assert not send(b"a", b"b", sequence=last, producer_id=901).error
    assert not send(b"c", sequence=1, producer_id=901).error
    assert send(b"a", sequence=-1, producer_id=902).error is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("sync", [True, False], ids=["synced", "left to the system"])
def test_a_log_without_readers_does_not_remember_ended_transactions(*, sync: bool) -> None:
    """TL3: a marker below the high watermark decides; nobody need read the log for that."""
    world, client = world_with_topics(sync=sync)
    client.find_coordinator()
    for number in range(3):
        assert not client.write(b"a").error
        assert client.commit_offsets({T0: number}) == [NONE]
        assert not client.end(commit=number > 0).error
    logs = world.cluster.directory.logs
    written = [log for log in logs.values() if log.log_end_offset and log.producer_count]
    assert len(written) == 2
    assert not any(log._producers._ended for log in written)
