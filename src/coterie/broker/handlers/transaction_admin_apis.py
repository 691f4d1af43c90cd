"""Transactions for admins: DescribeProducers, DescribeTransactions, ListTransactions and WriteTxnMarkers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Gather, Handler, Responses
from coterie.broker.handlers.refusals import illegal_name
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.transaction_markers import Marker, MarkerWriter
from coterie.broker.transaction_service import TransactionService
from coterie.coordinator.consumer.regex import matcher, why_invalid
from coterie.coordinator.transactions import NEW_TRANSACTIONS
from coterie.coordinator.transactions.describe import is_listed
from coterie.coordinator.transactions.events import DescribedTransaction, DescribeTransaction
from coterie.coordinator.transactions.states import LISTED_STATES
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import describe_producers, describe_transactions, list_transactions, write_txn_markers
from coterie.storage.metadata_files import is_legal_name

LONGEST_PATTERN = 10_000
NOT_HERE = "This server does not host this topic-partition."


@dataclass(frozen=True, slots=True, eq=False)
class TransactionAdminApis:
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    metadata: MetadataCache
    transactions: TransactionService
    markers: MarkerWriter

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_producers.API.key: self._describe_producers,
            describe_transactions.API.key: self._describe_transactions,
            list_transactions.API.key: self._list_transactions,
            write_txn_markers.API.key: self._write_txn_markers,
        }

    # --- DescribeProducers --------------------------------------------------------------------------------------------

    def _describe_producers(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_producers.read_request(frame, at, call.version)
        names = (topic.name for topic in request.topics)
        denied = self.auth.denied(call, AclOperation.READ, AclResourceType.TOPIC, names)
        # Asked for twice is answered once: the answer is much larger than the question.
        asked: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            asked.setdefault(topic.name, {}).update(dict.fromkeys(topic.partitions))
        topics = [
            describe_producers.DescribedTopic(
                name=name,
                partitions=[_denied(number) if name in denied else self._producers(name, number) for number in numbers],
            )
            for name, numbers in asked.items()
        ]
        return self.responses.answer(call, describe_producers.Response(topics=topics), now_ms)

    def _producers(self, topic: str, number: int) -> describe_producers.DescribedPartition:
        log = self.replicas.led.get((topic, number))
        described = describe_producers.DescribedPartition(partition=number)
        if not is_legal_name(topic):
            described.error, described.message = illegal_name(topic)
        elif topic not in self.metadata.topics:
            described.error, described.message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HERE
        elif (topic, number) not in self.metadata.partition_states:
            described.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif log is None:
            described.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            described.active_producers = [
                describe_producers.Producer(
                    producer_id=producer_id,
                    producer_epoch=producer.epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp=producer.last_timestamp,
                    coordinator_epoch=producer.coordinator_epoch,
                    current_txn_start_offset=-1 if open_since is None else open_since,
                )
                for producer_id, producer, open_since in log.producers()
            ]
        return described

    # --- DescribeTransactions, ListTransactions -----------------------------------------------------------------------

    def _describe_transactions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_transactions.read_request(frame, at, call.version)
        ids = request.transactional_ids
        denied = self.auth.denied(call, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, ids)

        def finish(found: list[DescribedTransaction], at_ms: int) -> Effects:
            states = [self._described(call, one) for one in found]
            return self.responses.answer(call, describe_transactions.Response(transaction_states=states), at_ms)

        if not ids:
            return finish([], now_ms)
        gather = Gather(call, len(ids), finish)
        effects: Effects = []
        for index, one in enumerate(ids):
            if one in denied:
                code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                effects += gather.put(index, DescribedTransaction(transactional_id=one, error=code), now_ms)
            else:
                event = DescribeTransaction(token=partial(gather.put, index), transactional_id=one)
                effects += self.transactions.ask(event, now_ms)
        return effects

    def _described(self, call: Call, one: DescribedTransaction) -> describe_transactions.Transaction:
        """Leave out topics that the client may not describe."""
        topics: dict[str, list[int]] = {}
        for name, number in one.partitions:
            topics.setdefault(name, []).append(number)
        denied = self.auth.denied(call, AclOperation.DESCRIBE, AclResourceType.TOPIC, topics)
        return describe_transactions.Transaction(
            transactional_id=one.transactional_id,
            error=one.error,
            transaction_state=one.state,
            transaction_timeout_ms=one.timeout_ms,
            transaction_start_time_ms=one.start_ms,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            topics=[
                describe_transactions.Topic(topic=name, partitions=numbers)
                for name, numbers in topics.items()
                if name not in denied
            ],
        )

    def _list_transactions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = list_transactions.read_request(frame, at, call.version)
        coordinator = self.transactions.coordinator
        pattern = request.transactional_id_pattern
        if pattern and not _is_pattern(pattern):
            response = list_transactions.Response(error=ErrorCode.INVALID_REGULAR_EXPRESSION)
        elif coordinator.is_loading_any:  # half a list would be a lie
            response = list_transactions.Response(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            matches = matcher(pattern) if pattern else _any
            listed = [
                list_transactions.ListedTransaction(
                    transactional_id=one.transactional_id, producer_id=one.producer_id, transaction_state=one.state
                )
                for one in coordinator.transactions()
                if is_listed(
                    one,
                    now_ms,
                    states=frozenset(request.state_filters),
                    producer_ids=frozenset(request.producer_id_filters),
                    duration_ms=request.duration_filter,
                    matches=matches,
                )
                and self.auth.authorize(
                    call, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, one.transactional_id, logs=False
                )
            ]
            unknown = dict.fromkeys(state for state in request.state_filters if state not in LISTED_STATES)
            response = list_transactions.Response(unknown_state_filters=list(unknown), transaction_states=listed)
        return self.responses.answer(call, response, now_ms)

    # --- WriteTxnMarkers ----------------------------------------------------------------------------------------------

    def _write_txn_markers(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """End transactions in single partitions: the coordinator of the transaction hears nothing of it (TL7)."""
        request = write_txn_markers.read_request(frame, at, call.version)
        asked = [
            (marker, (topic.name, number))
            for marker in request.markers
            for topic in marker.topics
            for number in topic.partitions
        ]

        def finish(errors: list[ErrorCode], at_ms: int) -> Effects:
            left = iter(errors)
            results = [
                write_txn_markers.MarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        write_txn_markers.TopicResult(
                            name=topic.name,
                            partitions=[
                                write_txn_markers.PartitionResult(partition=number, error=next(left))
                                for number in topic.partitions
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
            return self.responses.answer(call, write_txn_markers.Response(markers=results), at_ms)

        may = self.auth.authorize
        if not (
            may(call, AclOperation.ALTER, AclResourceType.CLUSTER, logs=False)
            or may(call, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER)
        ):
            return finish([ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * len(asked), now_ms)
        if not asked:
            return finish([], now_ms)
        gather = Gather(call, len(asked), finish)
        effects: Effects = []
        for index, (marker, partition) in enumerate(asked):
            effects += self._write_marker(marker, partition, partial(gather.put, index), now_ms)
        return effects

    def _write_marker(
        self,
        asked: write_txn_markers.Marker,
        partition: tuple[str, int],
        done: Callable[[ErrorCode, int], Effects],
        now_ms: int,
    ) -> Effects:
        if self.replicas.log(*partition) is None:
            return done(self.replicas.error_for(*partition), now_ms)
        if asked.producer_epoch < 0 or asked.producer_id < 0:
            return done(ErrorCode.UNKNOWN_SERVER_ERROR, now_ms)  # as Kafka, which trips over it
        marker = Marker(
            asked.producer_id,
            asked.producer_epoch,
            asked.transaction_result,
            asked.coordinator_epoch,
            is_strict=asked.transaction_version >= NEW_TRANSACTIONS,
        )
        return self.markers.write(partition, marker, done, now_ms)


def _any(_transactional_id: str) -> bool:
    return True


def _is_pattern(text: str) -> bool:
    """Return whether this is an expression for RE2 and for others: RE2 takes too high a repetition for plain text."""
    if len(text) > LONGEST_PATTERN or why_invalid(text) is not None:
        return False
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True


def _denied(number: int) -> describe_producers.DescribedPartition:
    return describe_producers.DescribedPartition(
        partition=number, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message="Topic authorization failed."
    )
