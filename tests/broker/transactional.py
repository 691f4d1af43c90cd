"""What a transactional producer says to a broker, in one line each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.driver import Client, World
from broker.peer import Peer
from broker.speaker import Speaker, fetch_request, produce_request
from coterie.errors import ErrorCode
from coterie.protocol.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from coterie.protocol.batch import batches
from coterie.protocol.messages import CommitPartition, JoinedGroup, OffsetCommit, OffsetFetch
from coterie.protocol.records import BatchRecord, build_batch, records

__all__ = [
    "QUICK",
    "TX",
    "TransactionalClient",
    "TransactionalPeer",
    "TransactionalSpeaker",
    "transactional_batch",
    "world_with_topics",
]

TX = "orders-tx"
TIMEOUT_MS = 60_000
QUICK: Mapping[str, Any] = {"transaction.state.log.num.partitions": 3}


def world_with_topics(**options: Any) -> tuple[World, TransactionalClient]:
    """A node with topic `t` of three partitions and a coordinator, and a producer with an id."""
    settings = {**QUICK, **options.pop("settings", {})}
    world = World(settings=settings, **options)
    client = TransactionalClient(world)
    client.create("t", 3)
    client.find()
    client.init()
    return world, client


def transactional_batch(
    *values: bytes, producer: tuple[int, int], sequence: int = 0, is_transactional: bool = True
) -> bytes:
    content = [BatchRecord(b"k", value, 1_000) for value in values]
    producer_id, epoch = producer
    made = build_batch(
        content,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    return bytes(made)


class TransactionalSpeaker(Speaker):
    """A client with a transactional id. `ids` are the producer id and the epoch that it was given last."""

    tx = TX
    ids = (-1, -1)
    sequences: dict[tuple[str, int], int]

    def find(self, key: str | None = None) -> find_coordinator.Coordinator:
        request = find_coordinator.Request(
            keys=[self.tx if key is None else key], key_type=find_coordinator.TRANSACTION
        )
        (found,) = self.ask(find_coordinator, request).coordinators
        assert isinstance(found, find_coordinator.Coordinator)
        return found

    def init(
        self,
        given: tuple[int, int] = (-1, -1),
        *,
        timeout_ms: int = TIMEOUT_MS,
        version: int = 5,
        tx: str | None = "",
    ) -> init_producer_id.Response:
        request = init_producer_id.Request(
            transactional_id=self.tx if tx == "" else tx,
            transaction_timeout_ms=timeout_ms,
            producer_id=given[0],
            producer_epoch=given[1],
        )
        answer: init_producer_id.Response = self.ask(init_producer_id, request, version)
        if not answer.error:
            self.ids = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return answer

    def add(
        self,
        *partitions: tuple[str, int],
        version: int = 3,
        ids: tuple[int, int] | None = None,
        verify_only: bool = False,
        tx: str | None = None,
    ) -> dict[tuple[str, int], ErrorCode]:
        producer_id, epoch = ids or self.ids
        topics: dict[str, list[int]] = {}
        for name, number in partitions:
            topics.setdefault(name, []).append(number)
        one = add_partitions_to_txn.Transaction(
            transactional_id=self.tx if tx is None else tx,
            producer_id=producer_id,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=[add_partitions_to_txn.Topic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        answer = self.ask(add_partitions_to_txn, add_partitions_to_txn.Request(transactions=[one]), version)
        (result,) = answer.transactions
        return {(topic.name, each.partition): each.error for topic in result.topics for each in topic.partitions}

    def add_offsets(self, group: str = "g", *, ids: tuple[int, int] | None = None, version: int = 4) -> ErrorCode:
        producer_id, epoch = ids or self.ids
        request = add_offsets_to_txn.Request(
            transactional_id=self.tx, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        error: ErrorCode = self.ask(add_offsets_to_txn, request, version).error
        return error

    def write(
        self,
        *values: bytes,
        partition: int = 0,
        topic: str = "t",
        version: int = 12,
        ids: tuple[int, int] | None = None,
        sequence: int | None = None,
        tx: str | None = "",
        acks: int = -1,
    ) -> produce.ProducedPartition:
        """Write a batch of the transaction; the sequence goes on."""
        self.send_write(
            *values,
            partition=partition,
            topic=topic,
            version=version,
            ids=ids,
            sequence=sequence,
            tx=tx,
            acks=acks,
        )
        answer = self.produced()
        if not answer.error:
            key = topic, partition
            at = self.sequences.get(key, 0) if sequence is None else sequence
            self.sequences[key] = at + len(values)
        return answer

    def send_write(
        self,
        *values: bytes,
        partition: int = 0,
        topic: str = "t",
        version: int = 12,
        ids: tuple[int, int] | None = None,
        sequence: int | None = None,
        tx: str | None = "",
        acks: int = -1,
    ) -> None:
        at = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        data = transactional_batch(*values, producer=ids or self.ids, sequence=at)
        name = self.tx if tx == "" else tx
        request = produce_request(topic, partition=partition, records=data, transactional_id=name, acks=acks)
        self.send(produce, request, version)

    def end(self, *, commit: bool, version: int = 5, ids: tuple[int, int] | None = None) -> end_txn.Response:
        self.send_end(commit=commit, version=version, ids=ids)
        return self.ended()

    def send_end(self, *, commit: bool, version: int = 5, ids: tuple[int, int] | None = None) -> None:
        producer_id, epoch = ids or self.ids
        request = end_txn.Request(
            transactional_id=self.tx, producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        self.send(end_txn, request, version)

    def ended(self) -> end_txn.Response:
        answer: end_txn.Response = self.answer()
        if not answer.error and answer.producer_id >= 0:
            self.ids = answer.producer_id, answer.producer_epoch
            self.sequences = {}
        return answer

    def commit_offsets(
        self,
        offsets: Mapping[tuple[str, int], int],
        group: str = "g",
        *,
        version: int = 5,
        ids: tuple[int, int] | None = None,
        member: JoinedGroup | None = None,
        metadata: str = "",
    ) -> list[ErrorCode]:
        producer_id, epoch = ids or self.ids
        request = OffsetCommit(
            None,
            group,
            member.member_id if member else "",
            None,
            member.generation_id if member else -1,
            [CommitPartition(topic, number, offset, -1, metadata) for (topic, number), offset in offsets.items()],
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        api: Any = _TxnOffsetCommit(self.tx)
        return list(self.ask(api, request, version).errors)

    # --- looking ------------------------------------------------------------------------------------------------------

    def describe(self, *ids: str) -> list[describe_transactions.Transaction]:
        request = describe_transactions.Request(transactional_ids=ids or [self.tx])
        return list(self.ask(describe_transactions, request).transaction_states)

    @property
    def state(self) -> str:
        (one,) = self.describe()
        return one.transaction_state or one.error.name

    @property
    def partitions(self) -> list[tuple[str, int]]:
        (one,) = self.describe()
        return [(topic.topic, number) for topic in one.topics for number in topic.partitions]

    def listing(self, **filters: Any) -> list_transactions.Response:
        answer: list_transactions.Response = self.ask(list_transactions, list_transactions.Request(**filters))
        return answer

    def producers(self, topic: str = "t", partition: int = 0) -> list[describe_producers.Producer]:
        request = describe_producers.Request(topics=[describe_producers.Topic(name=topic, partitions=[partition])])
        (found,) = self.ask(describe_producers, request).topics[0].partitions
        assert not found.error
        return list(found.active_producers)

    def read_log(
        self, offset: int = 0, *, partition: int = 0, topic: str = "t", committed: bool = True, **options: Any
    ) -> fetch.FetchedPartition:
        request = fetch_request({topic: {partition: offset}}, isolation_level=int(committed), max_wait_ms=0, **options)
        answer: fetch.FetchedPartition = self.ask(fetch, request, 12).responses[0].partitions[0]
        return answer

    def committed_values(self, partition: int = 0, topic: str = "t") -> list[bytes | None]:
        return self.committed_from(0, partition, topic)[0]

    def committed_from(self, at: int, partition: int = 0, topic: str = "t") -> tuple[list[bytes | None], int]:
        """What a read_committed consumer hands out, by the rule of Java's client, and where it goes on."""
        found: list[bytes | None] = []
        while True:
            answer = self.read_log(at, partition=partition, topic=topic)
            assert not answer.error
            data = bytes(answer.records or b"")
            if not data:
                return found, at
            waiting = sorted((one.first_offset, one.producer_id) for one in answer.aborted_transactions or ())
            aborted: set[int] = set()
            for position, header in batches(data):
                while waiting and waiting[0][0] <= header.last_offset:
                    aborted.add(waiting.pop(0)[1])
                at = header.next_offset
                if header.is_control:
                    (record,) = records(data, header, position)
                    if record.key is not None and record.key[3] == 0:
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    found += [record.value for record in records(data, header, position)]

    def last_stable_offset(self, partition: int = 0, topic: str = "t") -> int:
        asked = list_offsets.Partition(partition=partition, timestamp=-1)
        request = list_offsets.Request(isolation_level=1, topics=[list_offsets.Topic(name=topic, partitions=[asked])])
        offset: int = self.ask(list_offsets, request).topics[0].partitions[0].offset
        return offset

    def fetch_offsets(self, group: str = "g", *, stable: bool = False) -> dict[tuple[str, int], tuple[int, ErrorCode]]:
        topics: Sequence[tuple[str, Sequence[int]]] = [("t", [0, 1, 2])]
        (found,) = self.ask(offset_fetch, [OffsetFetch(None, group, topics, require_stable=stable)], 8)
        assert not found.error
        return {(one.topic, one.partition): (one.offset, one.error) for one in found.partitions}

    def write_markers(
        self,
        ids: tuple[int, int],
        *,
        commit: bool = False,
        partition: int = 0,
        topic: str = "t",
        coordinator_epoch: int = 0,
        version: int = 2,
        transaction_version: int = 0,
    ) -> ErrorCode:
        marker = write_txn_markers.Marker(
            producer_id=ids[0],
            producer_epoch=ids[1],
            transaction_result=commit,
            topics=[write_txn_markers.Topic(name=topic, partitions=[partition])],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )
        answer = self.ask(write_txn_markers, write_txn_markers.Request(markers=[marker]), version)
        error: ErrorCode = answer.markers[0].topics[0].partitions[0].error
        return error


class TransactionalClient(TransactionalSpeaker, Client):
    """The same, on a connection to a node without sockets."""

    def __init__(self, world: World, tx: str = TX, node: int | None = None) -> None:
        Client.__init__(self, world, world.node if node is None else world.cluster.nodes[node])
        world._clients[self.connection] = self
        self.tx, self.sequences = tx, {}


class TransactionalPeer(TransactionalSpeaker, Peer):
    """The same, on a real socket."""

    def __init__(self, bootstrap: str, tx: str = TX) -> None:
        Peer.__init__(self, bootstrap)
        self.tx, self.sequences = tx, {}


class _TxnOffsetCommit:
    """The API with its transactional id, which its `write_request` takes beside the commit."""

    API = txn_offset_commit.API
    read_response = staticmethod(txn_offset_commit.read_response)

    def __init__(self, tx: str) -> None:
        self._tx = tx

    def write_request(self, request: OffsetCommit, version: int) -> bytes:
        return txn_offset_commit.write_request((self._tx, request), version)
