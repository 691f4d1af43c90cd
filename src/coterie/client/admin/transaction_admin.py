"""Transactions of any producer: list, describe, fence, and abort those that hang (KIP-664)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from coterie.client.admin.admin_types import ProducerState, TransactionDescription, TransactionListing
from coterie.client.admin.results import FOR_GROUPS, FOR_PARTITIONS, by_node, by_topic, each
from coterie.client.arguments import PartitionLike, name_of, names_of, partition_of, partitions_of
from coterie.client.network.metadata import Node
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, IllegalArgumentError, KafkaError
from coterie.protocol.apis import (
    describe_producers,
    describe_transactions,
    find_coordinator,
    init_producer_id,
    list_transactions,
    write_txn_markers,
)

_FOR_TRANSACTIONS = FOR_GROUPS | {ErrorCode.CONCURRENT_TRANSACTIONS}
_WITH_DURATION, _WITH_PATTERN = 1, 2
"""The versions of ListTransactions that have these filters."""


class TransactionsAdmin:
    _cluster: NetworkClient

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids of all brokers.

        Args:
            states: Only those in one of these states: Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
                CompleteAbort.
            producer_ids: Only those of one of these producer ids.
            running_longer_than_ms: Only transactions that began longer ago. Kafka also lists those in Empty.
            transactional_id_pattern: Only ids that match this pattern as a whole; the broker matches it.

        Returns:
            The transactional ids, with their producer id, state and coordinator.

        Raises:
            KafkaError: A broker refused it, does not know a state or a filter, or could not be reached in time.
        """
        request = list_transactions.Request(
            state_filters=sorted(names_of(states, "state")),
            producer_id_filters=sorted(producer_ids),
            duration_filter=-1 if running_longer_than_ms is None else running_longer_than_ms,
            transactional_id_pattern=transactional_id_pattern,
        )
        at_least = _WITH_DURATION if running_longer_than_ms is not None else 0
        at_least = _WITH_PATTERN if transactional_id_pattern is not None else at_least

        async def ask(node: Node) -> list[TransactionListing]:
            answer: list_transactions.Response = await self._cluster.send(
                node.id, list_transactions, request, at_least=at_least
            )
            if answer.error:
                raise KafkaError.of(answer.error, f"listing the transactions of node {node.id}")
            if answer.unknown_state_filters:
                unknown = ", ".join(answer.unknown_state_filters)
                raise KafkaError(f"node {node.id} knows no such state: {unknown}", ErrorCode.INVALID_REQUEST)
            return [
                TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, node)
                for one in answer.transaction_states
            ]

        found: dict[str, TransactionListing] = {}
        for node in list((await self._cluster.refresh()).nodes.values()):
            what = f"listing the transactions of node {node.id}"
            found |= {one.transactional_id: one for one in await self._cluster.retry(partial(ask, node), what=what)}
        return [one for _, one in sorted(found.items())]

    async def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Describe transactional ids: state, producer, timeout, and the partitions of an open transaction.

        Args:
            transactional_ids: The transactional ids.

        Returns:
            A description of each, or the error it met.
        """
        coordinators: dict[str, Node] = {}

        async def coordinator_of(transactional_id: str) -> int:
            coordinators[transactional_id] = await self._transaction_coordinator(transactional_id)
            return coordinators[transactional_id].id

        async def ask(node_id: int, left: Sequence[str]) -> dict[str, TransactionDescription | KafkaError]:
            request = describe_transactions.Request(transactional_ids=left)
            answer: describe_transactions.Response = await self._cluster.send(node_id, describe_transactions, request)
            return {
                one.transactional_id: KafkaError.of(one.error, _id(one.transactional_id))
                if one.error
                else _described(one, coordinators[one.transactional_id])
                for one in answer.transaction_states
                if one.transactional_id in coordinators
            }

        return await each(
            self._cluster,
            names_of(transactional_ids, "transactional id"),
            lambda left: by_node(left, coordinator_of, ask),
            what=_id,
            again=_FOR_TRANSACTIONS,
        )

    async def describe_producers(
        self, partitions: Collection[PartitionLike]
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Describe the idempotent and transactional producers that partitions remember.

        Args:
            partitions: The partitions.

        Returns:
            The producers of each partition, or the error it met.
        """

        async def ask(
            node_id: int, left: Sequence[TopicPartition]
        ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            topics = [
                describe_producers.Topic(name=name, partitions=[one.partition for one in its])
                for name, its in by_topic(left)
            ]
            request = describe_producers.Request(topics=topics)
            answer: describe_producers.Response = await self._cluster.send(node_id, describe_producers, request)
            return {
                TopicPartition(topic.name, one.partition): KafkaError.of(
                    one.error, f"producers of {topic.name}-{one.partition}", one.message
                )
                if one.error
                else [_state(producer) for producer in one.active_producers]
                for topic in answer.topics
                for one in topic.partitions
            }

        async def at_leaders(left: Sequence[TopicPartition]) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
            unknown = {one.topic for one in left if not self._cluster.knows(one.topic)}
            if unknown:
                await self._cluster.refresh(unknown)
            return await by_node(left, lambda one: self._cluster.leader(*one), ask)

        return await each(
            self._cluster,
            partitions_of(partitions),
            at_leaders,
            what=lambda one: f"producers of {one}",
            again=FOR_PARTITIONS,
        )

    async def fence_producers(self, transactional_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Fence the producers of transactional ids, as a new producer would: an open transaction is aborted.

        An id that does not exist is created by this, as in Kafka.

        Args:
            transactional_ids: The transactional ids.

        Returns:
            None for each that is fenced, or the error it met.
        """

        async def ask(node_id: int, left: Sequence[str]) -> dict[str, KafkaError | None]:
            found: dict[str, KafkaError | None] = {}
            for transactional_id in left:
                request = init_producer_id.Request(
                    transactional_id=transactional_id, transaction_timeout_ms=self._cluster.settings.request_timeout_ms
                )
                answer: init_producer_id.Response = await self._cluster.send(node_id, init_producer_id, request)
                found[transactional_id] = KafkaError.of(answer.error, _id(transactional_id)) if answer.error else None
            return found

        async def coordinator_of(transactional_id: str) -> int:
            return (await self._transaction_coordinator(transactional_id)).id

        return await each(
            self._cluster,
            names_of(transactional_ids, "transactional id"),
            lambda left: by_node(left, coordinator_of, ask),
            what=_id,
            again=_FOR_TRANSACTIONS,
        )

    async def abort_transaction(
        self, partition: PartitionLike, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Write the marker of an abort into one partition, for a transaction whose coordinator has forgotten it.

        Such a transaction hangs: it keeps the last stable offset of the partition where it is. The coordinator is not
        told, so this must not be used for a transaction that it still has; `fence_producers` aborts that.

        Args:
            partition: The partition.
            producer_id: The id of the producer, as `describe_producers` has it.
            producer_epoch: Its epoch.
            coordinator_epoch: The coordinator epoch of its last marker; 0 if it has none.

        Raises:
            KafkaError: The leader of the partition refused it.
        """
        where = partition_of(partition)
        for value, what in ((producer_id, "producer_id"), (producer_epoch, "producer_epoch")):
            if not isinstance(value, int) or value < 0:
                raise IllegalArgumentError(f"{what} is {value!r}: give a number from 0 on")
        marker = write_txn_markers.Marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[write_txn_markers.Topic(name=where.topic, partitions=[where.partition])],
            coordinator_epoch=coordinator_epoch,
        )
        what = f"aborting a transaction of producer {producer_id} in {where}"

        async def attempt() -> None:
            node_id = await self._cluster.leader(*where)
            request = write_txn_markers.Request(markers=[marker])
            answer: write_txn_markers.Response = await self._cluster.send(node_id, write_txn_markers, request)
            for error in (
                one.error for result in answer.markers for topic in result.topics for one in topic.partitions
            ):
                if error:
                    raise KafkaError.of(error, what)

        await self._cluster.retry(attempt, what=what)

    async def _transaction_coordinator(self, transactional_id: str) -> Node:
        name = name_of(transactional_id, "transactional id")
        return await self._cluster.find_coordinator(name, find_coordinator.TRANSACTION)


def _id(transactional_id: str) -> str:
    return f'transactional id "{transactional_id}"'


def _described(one: describe_transactions.Transaction, coordinator: Node) -> TransactionDescription:
    started_ms = one.transaction_start_time_ms
    return TransactionDescription(
        one.transactional_id,
        coordinator,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        None if started_ms < 0 else started_ms,
        [TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions],
    )


def _state(one: describe_producers.Producer) -> ProducerState:
    return ProducerState(
        one.producer_id,
        one.producer_epoch,
        None if one.last_sequence < 0 else one.last_sequence,
        None if one.last_timestamp < 0 else one.last_timestamp,
        None if one.coordinator_epoch < 0 else one.coordinator_epoch,
        None if one.current_txn_start_offset < 0 else one.current_txn_start_offset,
    )
