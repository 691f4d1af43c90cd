"""DescribeProducers, DescribeTransactions and ListTransactions. There are no transactions yet."""

from __future__ import annotations

import re
from collections.abc import Mapping

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.handlers.refusals import illegal_name
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.replica_manager import ReplicaManager
from coterie.broker.security.auth_helper import AuthHelper
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import describe_producers, describe_transactions, list_transactions
from coterie.storage.metadata_files import is_legal_name
from coterie.structs import DataStruct

STATES = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)
LONGEST_PATTERN = 10_000
NOT_HERE = "This server does not host this topic-partition."


class TransactionApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    replicas: ReplicaManager
    metadata: MetadataCache

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_producers.API.key: self._describe_producers,
            describe_transactions.API.key: self._describe_transactions,
            list_transactions.API.key: self._list_transactions,
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
        denied = self.auth.denied(
            call, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, request.transactional_ids
        )
        found = [
            describe_transactions.Transaction(
                transactional_id=one,
                error=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                if one in denied
                else ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                if one
                else ErrorCode.INVALID_REQUEST,
            )
            for one in request.transactional_ids
        ]
        return self.responses.answer(call, describe_transactions.Response(transaction_states=found), now_ms)

    def _list_transactions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = list_transactions.read_request(frame, at, call.version)
        if not _is_pattern(request.transactional_id_pattern):
            response = list_transactions.Response(error=ErrorCode.INVALID_REGULAR_EXPRESSION)
        else:
            unknown = dict.fromkeys(state for state in request.state_filters if state not in STATES)
            response = list_transactions.Response(unknown_state_filters=list(unknown))
        return self.responses.answer(call, response, now_ms)


def _denied(number: int) -> describe_producers.DescribedPartition:
    return describe_producers.DescribedPartition(
        partition=number, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, message="Topic authorization failed."
    )


def _is_pattern(text: str | None) -> bool:
    if not text:
        return True
    if len(text) > LONGEST_PATTERN:
        return False
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError):
        return False
    return True
