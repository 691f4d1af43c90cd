"""Transactions at their coordinator, as requests see them."""

from __future__ import annotations

import pytest

from broker.driver import World
from broker.transactional import TX, TransactionalClient, world_with_topics
from coterie.coordinator.transactions import partition_of
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    add_partitions_to_txn,
    api_versions,
    create_topics,
    describe_configs,
    find_coordinator,
    init_producer_id,
    list_transactions,
)
from coterie.protocol.batch import batches
from coterie.protocol.records import records
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC, TransactionStatus, read_transaction_record
from logs import batch

NONE, FENCED = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED
CONCURRENT, MAPPING = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.INVALID_PRODUCER_ID_MAPPING
T0, T1 = ("t", 0), ("t", 1)


def records_of(world: World, tx: str = TX) -> list[TransactionStatus | None]:
    """The states that were written for an id, in order."""
    partition = world.node.transactions.coordinator.partition_of(tx)
    log = world.cluster.directory.logs[TRANSACTION_STATE_TOPIC, partition]
    found = []
    for record in records_in(log.read(0, 1 << 20, log.log_end_offset)):
        read = read_transaction_record(*record)
        if read is not None and read.transactional_id == tx:
            found.append(None if read.value is None else read.value.status)
    return found


def records_in(data: bytes) -> list[tuple[bytes, bytes | None]]:

    return [(record.key or b"", record.value) for at, header in batches(data) for record in records(data, header, at)]


def test_clients_see_the_version_of_transactions_and_the_apis() -> None:
    """TX1, TX3."""
    client = World().client()
    answer = client.ask(api_versions, api_versions.Request(client_software_name="a", client_software_version="1"))
    levels = {one.name: (one.min_version_level, one.max_version_level) for one in answer.finalized_features}
    assert levels["transaction.version"] == (2, 2)
    versions = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
    assert {key: versions[key] for key in (22, 24, 25, 26, 27, 28, 61, 65, 66)} == {
        22: (0, 5),
        24: (0, 5),
        25: (0, 4),
        26: (0, 5),
        27: (1, 2),
        28: (0, 5),
        61: (0, 0),
        65: (0, 0),
        66: (0, 2),
    }


@pytest.mark.parametrize("new", [True, False], ids=["newer requests", "older requests"])
def test_the_version_of_a_request_decides_whether_its_end_bumps_the_epoch(new: bool) -> None:
    """TX2, TE1: adds and ends of both versions may be mixed."""
    _, client = world_with_topics()
    producer_id, epoch = client.ids
    if new:
        assert not client.add(T0, version=3)[T0]
        answer = client.end(commit=True, version=5)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (NONE, producer_id, epoch + 1)
    else:
        assert not client.write(b"a", version=12).error
        answer = client.end(commit=True, version=4)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (NONE, -1, -1)
        assert not client.write(b"b", version=12).error, "epoch and sequence go on"


def test_the_topic_is_made_when_its_coordinator_is_looked_for() -> None:
    """TF1, TF2."""
    world = World(settings={"transaction.state.log.num.partitions": 7})
    client = TransactionalClient(world)
    found = client.find()
    assert (found.error, found.node_id) == (NONE, 1)
    topic = world.cluster.directory.topics[TRANSACTION_STATE_TOPIC]
    assert topic.partitions == 7
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert not client.find("").error, "the empty key is served"
    assert partition_of("polygenelubricants", 50) == 0, "the absolute value of -2^31 is 0"
    request = find_coordinator.Request(keys=["a", "b"], key_type=find_coordinator.TRANSACTION)
    assert [one.error for one in client.ask(find_coordinator, request, 4).coordinators] == [NONE, NONE]
    assert client.produce(TRANSACTION_STATE_TOPIC, b"a").error is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert not client.fetch(TRANSACTION_STATE_TOPIC, 0, max_wait_ms=0).error
    asked = describe_configs.Resource(resource_type=2, resource_name=TRANSACTION_STATE_TOPIC)
    described = client.ask(describe_configs, describe_configs.Request(resources=[asked]))
    assert not described.results[0].error


def test_elsewhere_than_at_the_coordinator() -> None:
    """TF3: nothing is answered before the topic is there, or by another node."""
    client = TransactionalClient(World())
    client.create("t")
    client.ids = 1, 0
    assert client.init().error is ErrorCode.NOT_COORDINATOR
    assert client.add(T0)[T0] is ErrorCode.NOT_COORDINATOR
    assert client.add_offsets() is ErrorCode.NOT_COORDINATOR
    assert client.end(commit=True).error is ErrorCode.NOT_COORDINATOR
    assert client.state == "NOT_COORDINATOR"
    assert client.commit_offsets({T0: 1}) == [ErrorCode.NOT_COORDINATOR]
    assert client.listing().transaction_states == []
    assert client.write(b"a").error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert not client.init(tx=None).error, "a producer without a transactional id needs no coordinator"


def test_what_is_wrong_with_a_request_comes_first() -> None:
    """TX4, TI2."""
    _, client = world_with_topics()
    for given in ((5, -1), (-1, 5)):
        assert client.init(given).error is ErrorCode.INVALID_REQUEST
        assert client.init(given, tx=None).error is ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        answer = client.init(timeout_ms=timeout_ms)
        assert answer.error is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (answer.producer_id, answer.producer_epoch) == (-1, -1)
    for timeout_ms in (1, 900_000):
        assert not client.init(timeout_ms=timeout_ms).error
    client.tx = ""
    request = init_producer_id.Request(transactional_id="", transaction_timeout_ms=1)
    assert client.ask(init_producer_id, request).error is ErrorCode.INVALID_REQUEST
    assert client.add(T0)[T0] is ErrorCode.INVALID_REQUEST
    assert client.add_offsets() is ErrorCode.INVALID_REQUEST
    assert client.end(commit=True).error is ErrorCode.INVALID_REQUEST
    assert client.describe("")[0].error is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(("version", "error"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, FENCED)])
def test_older_versions_of_init_do_not_know_fenced(version: int, error: ErrorCode) -> None:
    """TX4."""
    _, client = world_with_topics()
    assert client.init((client.ids[0] + 1, 0), version=version).error is error


@pytest.mark.parametrize(("version", "error"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, FENCED)])
def test_older_versions_of_the_others_do_not_know_fenced(version: int, error: ErrorCode) -> None:
    """TX4."""
    _, client = world_with_topics()
    old = client.ids
    client.init()
    assert client.add(T0, version=version, ids=old) == {T0: error}
    assert client.add_offsets(version=version, ids=old) is error
    assert client.end(commit=True, version=version, ids=old).error is error


def test_an_id_without_a_transactional_id() -> None:
    """TI1: everything else in the request is ignored."""
    _, client = world_with_topics()
    first = client.init((7, 3), timeout_ms=-5, tx=None)
    second = client.init(tx=None, version=0)
    assert (first.error, first.producer_epoch, second.producer_epoch) == (NONE, 0, 0)
    assert second.producer_id == first.producer_id + 1


def test_a_newer_producer_fences_the_older_one_everywhere() -> None:
    """TI4, TI5: over an open transaction CONCURRENT, which is aborted, and then the next epoch but one."""
    world, old = world_with_topics()
    assert not old.write(b"lost").error
    new = TransactionalClient(world)
    answer = new.init()
    assert (answer.error, answer.producer_id, answer.producer_epoch) == (CONCURRENT, -1, -1)
    assert new.state == "CompleteAbort"
    answer = new.init()
    assert (answer.error, answer.producer_epoch) == (NONE, old.ids[1] + 2)
    assert old.write(b"late").error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.write(b"late", partition=1).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.write(b"late", partition=1, version=11).error is ErrorCode.INVALID_PRODUCER_EPOCH
    assert old.add(T0)[T0] is FENCED
    assert old.add_offsets() is FENCED
    old.find_coordinator()
    assert old.commit_offsets({T0: 1}) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert old.end(commit=True).error is FENCED
    assert old.end(commit=True, version=4).error is FENCED
    assert new.committed_values() == []


def test_partitions_are_added_all_or_none() -> None:
    """TA1: this comes before producer id and epoch."""
    _, client = world_with_topics()
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert client.add(T0, ("t", 9), ids=(1, 1)) == {T0: not_attempted, ("t", 9): unknown}
    assert client.state == "Empty"
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    internal = (TRANSACTION_STATE_TOPIC, 0)
    assert client.add(T0, internal) == {T0: not_attempted, internal: denied}
    assert client.add(T0, internal, version=4) == {T0: NONE, internal: NONE}
    assert client.add(T0, T1, ids=(1, 1)) == {T0: MAPPING, T1: MAPPING}


def test_an_empty_list_of_partitions_begins_a_transaction() -> None:
    """TA2: and it can be committed. The first add sets the start time, later ones do not."""
    world, client = world_with_topics()
    assert client.add() == {}
    (begun,) = client.describe()
    assert (begun.transaction_state, begun.transaction_start_time_ms) == ("Ongoing", world.now_ms)
    world.advance(1_000)
    assert not client.add(T0)[T0]
    assert client.describe()[0].transaction_start_time_ms == begun.transaction_start_time_ms
    assert not client.end(commit=True).error
    client.init()
    client.add()
    assert not client.end(commit=True).error


def test_brokers_ask_for_many_transactions_at_once() -> None:
    """TA3: verify_only adds nothing, and an empty list is answered, which Kafka does not."""
    world, client = world_with_topics()
    other = TransactionalClient(world, "other")
    other.init()
    client.add(T0)
    producer_id, epoch = client.ids

    def one(tx: str, ids: tuple[int, int], *, verify_only: bool) -> add_partitions_to_txn.Transaction:
        topics = [add_partitions_to_txn.Topic(name="t", partitions=[0, 1])]
        return add_partitions_to_txn.Transaction(
            transactional_id=tx, producer_id=ids[0], producer_epoch=ids[1], verify_only=verify_only, topics=topics
        )

    request = add_partitions_to_txn.Request(
        transactions=[one(TX, (producer_id, epoch), verify_only=True), one("other", other.ids, verify_only=False)]
    )
    answer = client.ask(add_partitions_to_txn, request, 5)
    found = {
        each.transactional_id: [partition.error for topic in each.topics for partition in topic.partitions]
        for each in answer.transactions
    }
    assert answer.error is NONE
    assert found == {TX: [NONE, ErrorCode.TRANSACTION_ABORTABLE], "other": [NONE, NONE]}
    assert client.partitions == [T0]
    nothing = add_partitions_to_txn.Request(transactions=[])
    assert client.ask(add_partitions_to_txn, nothing, 5).transactions == []


def test_offsets_are_added_by_the_partition_of_their_group() -> None:
    """TA4: neither the group nor the topic need be there."""
    world, client = world_with_topics()
    assert client.add_offsets("any") is NONE
    assert client.add_offsets("") is NONE
    partition_for = world.node.coordinator.partition_of
    assert {*client.partitions} == {("__consumer_offsets", partition_for(group)) for group in ("any", "")}


def test_a_transaction_is_not_bound_to_a_connection() -> None:
    """TE3: of simultaneous ends one is NONE, the others are CONCURRENT."""
    world, client = world_with_topics()
    client.write(b"a")
    other, third = TransactionalClient(world), TransactionalClient(world)
    other.ids = third.ids = client.ids
    other.sequences = dict(client.sequences)
    assert not other.write(b"b").error
    world.auto = False
    other.send_end(commit=True)
    third.send_end(commit=True)
    assert third.ended().error is CONCURRENT
    world.auto = True
    world.perform([])
    assert other.ended().producer_epoch == client.ids[1] + 1
    assert client.committed_values() == [b"a", b"b"]


def test_which_records_are_written() -> None:
    """TR2, TS3: one per change, none for what is repeated, verified or refused."""
    empty, ongoing = TransactionStatus.EMPTY, TransactionStatus.ONGOING
    prepare_commit, complete_commit = TransactionStatus.PREPARE_COMMIT, TransactionStatus.COMPLETE_COMMIT
    prepare_abort, complete_abort = TransactionStatus.PREPARE_ABORT, TransactionStatus.COMPLETE_ABORT
    world, client = world_with_topics()
    assert records_of(world) == [empty]
    first = client.ids
    client.init(first)
    client.init(first)  # its answer was lost
    assert records_of(world) == [empty] * 3
    client.add(T0)
    client.add(T0)
    client.add(T0, version=4, verify_only=True)
    client.add(T0, T1)
    client.add(("t", 7))
    client.end(commit=True)
    client.end(commit=True, ids=(client.ids[0], client.ids[1] - 1))
    assert records_of(world)[3:] == [ongoing, ongoing, prepare_commit, complete_commit]
    client.end(commit=False)
    assert records_of(world)[7:] == [prepare_abort, complete_abort]
    client.add(T0)
    client.init()
    client.init()
    assert records_of(world)[9:] == [ongoing, prepare_abort, complete_abort, empty]


def test_transactions_are_described() -> None:
    """TM1."""
    world, client = world_with_topics()
    found = client.describe(TX, "absent", TX)
    assert [one.error for one in found] == [NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, NONE]
    assert (found[0].transaction_state, found[0].transaction_start_time_ms, found[0].topics) == ("Empty", -1, [])
    assert (found[0].producer_id, found[0].producer_epoch, found[0].transaction_timeout_ms) == (*client.ids, 60_000)
    begun_ms = world.now_ms
    client.add(T1, T0)
    assert client.partitions == [T0, T1]
    world.advance(10)
    client.end(commit=True)
    (ended,) = client.describe()
    assert (ended.transaction_state, ended.topics) == ("CompleteCommit", [])
    assert ended.transaction_start_time_ms == begun_ms


def test_transactions_are_listed_by_all_filters_at_once() -> None:
    """TM2."""
    world, client = world_with_topics()
    other = TransactionalClient(world, "orders-too")
    other.init()
    other.add(T0)
    world.advance(1_000)

    def listed(**filters: object) -> list[str]:
        answer = client.listing(**filters)
        assert not answer.error
        return [one.transactional_id for one in answer.transaction_states]

    assert sorted(listed()) == ["orders-too", TX]
    assert listed(state_filters=["Ongoing"]) == ["orders-too"]
    assert listed(state_filters=["Ongoing"], producer_id_filters=[client.ids[0]]) == []
    assert listed(producer_id_filters=[client.ids[0]]) == [TX]
    unknown = client.listing(state_filters=["ongoing", "Dead", "PrepareEpochFence"])
    assert (unknown.unknown_state_filters, unknown.transaction_states) == (["ongoing"], [])
    assert listed(duration_filter=999, state_filters=["Ongoing"]) == ["orders-too"]
    assert listed(duration_filter=1_000) == [TX], "an Empty one has lasted for ever"
    assert listed(transactional_id_pattern="orders-t.o") == ["orders-too"]
    assert listed(transactional_id_pattern="orders") == [], "the whole id must match"
    assert len(listed(transactional_id_pattern="")) == 2
    assert client.listing(transactional_id_pattern="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION
    old = client.ask(list_transactions, list_transactions.Request(), 0)
    assert len(old.transaction_states) == 2


def test_a_topic_with_transactions_can_be_created_with_any_config() -> None:
    """The internal topic cannot be deleted or grown, as that of the groups."""
    _, client = world_with_topics()
    assert client.delete(TRANSACTION_STATE_TOPIC) is ErrorCode.INVALID_REQUEST
    asked = create_topics.NewTopic(name=TRANSACTION_STATE_TOPIC, num_partitions=1, replication_factor=1)
    (made,) = client.ask(create_topics, create_topics.Request(topics=[asked])).topics
    assert made.error is ErrorCode.TOPIC_ALREADY_EXISTS
    assert client.produce("t", records=batch(b"plain")).error is NONE
