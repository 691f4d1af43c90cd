"""The requests of transactional producers to their coordinator.

InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn. The rules are in `coterie.coordinator.transactions`;
what only a broker knows is said here: which partitions there are, and what a client may do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from coterie.broker.broker_effects import Effects
from coterie.broker.calls import Call, Gather, Handler, Responses
from coterie.broker.group_service import GroupService
from coterie.broker.maintenance.producer_id_manager import ProducerIdManager
from coterie.broker.metadata_cache import MetadataCache, is_internal
from coterie.broker.placement import Partition
from coterie.broker.security.auth_helper import AuthHelper
from coterie.broker.transaction_service import TransactionService
from coterie.coordinator.transactions import NEW_TRANSACTIONS
from coterie.coordinator.transactions.events import (
    AddPartitions,
    EndTxn,
    InitProducerId,
    ProducerIdAnswer,
    VerifyPartitions,
)
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.apis import add_offsets_to_txn, add_partitions_to_txn, end_txn, init_producer_id
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.protocol.transaction_state import NONE
from coterie.structs import DataStruct

__all__ = ["TransactionApis"]

KNOWS_FENCED: Mapping[str, int] = {
    "InitProducerId": 4,
    "AddPartitionsToTxn": 2,
    "AddOffsetsToTxn": 2,
    "EndTxn": 2,
}
"""The first version of each API with the error PRODUCER_FENCED; older ones have INVALID_PRODUCER_EPOCH (TX4)."""
BUMPS_EPOCH = 5
"""The first version of EndTxn that bumps the epoch."""
DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

Errors = Mapping[Partition, ErrorCode]


class TransactionApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    transactions: TransactionService
    groups: GroupService
    metadata: MetadataCache
    producer_ids: ProducerIdManager

    def handlers(self) -> Mapping[int, Handler]:
        return {
            init_producer_id.API.key: self._init_producer_id,
            add_partitions_to_txn.API.key: self._add_partitions,
            add_offsets_to_txn.API.key: self._add_offsets,
            end_txn.API.key: self._end_txn,
        }

    def _may_write(self, call: Call, transactional_id: str) -> bool:
        return self.auth.authorize(call, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, transactional_id)

    # --- InitProducerId -----------------------------------------------------------------------------------------------

    def _init_producer_id(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = init_producer_id.read_request(frame, at, call.version)
        answer = partial(self._answer_init, call)
        if request.transactional_id is None:
            return self._init_idempotent(call, request, answer, now_ms)
        if not self._may_write(call, request.transactional_id):
            return answer(ProducerIdAnswer(DENIED), now_ms)
        event = InitProducerId(
            token=answer,
            transactional_id=request.transactional_id,
            timeout_ms=request.transaction_timeout_ms,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
        )
        return self.transactions.ask(event, now_ms)

    def _init_idempotent(
        self,
        call: Call,
        request: init_producer_id.Request,
        answer: Callable[[ProducerIdAnswer, int], Effects],
        now_ms: int,
    ) -> Effects:
        """Give an id to a producer without transactions; what else the request says is ignored (TI1)."""
        if not self._may_write_some(call):
            return answer(ProducerIdAnswer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), now_ms)
        if (request.producer_id == NONE) is not (request.producer_epoch == NONE):
            return answer(ProducerIdAnswer(ErrorCode.INVALID_REQUEST), now_ms)

        def given(producer_id: int | None, at_ms: int) -> Effects:
            if producer_id is None:
                return answer(ProducerIdAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE), at_ms)
            return answer(ProducerIdAnswer(ErrorCode.NONE, producer_id, 0), at_ms)

        return self.producer_ids.generate(call, given, now_ms)

    def _may_write_some(self, call: Call) -> bool:
        """InitProducerId needs WRITE on any topic, or IDEMPOTENT_WRITE on the cluster (KIP-679)."""
        authorize = self.auth.authorize
        return (
            authorize(call, AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER, logs=False)
            or self.auth.authorize_by_resource_type(call, AclOperation.WRITE, AclResourceType.TOPIC)
            or authorize(call, AclOperation.IDEMPOTENT_WRITE, AclResourceType.CLUSTER)  # denied, and logged as such
        )

    def _answer_init(self, call: Call, answer: ProducerIdAnswer, now_ms: int) -> Effects:
        response = init_producer_id.Response(
            error=_known(call, answer.error), producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
        )
        return self.responses.answer(call, response, now_ms)

    # --- AddPartitionsToTxn, AddOffsetsToTxn --------------------------------------------------------------------------

    def _add_partitions(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = add_partitions_to_txn.read_request(frame, at, call.version)
        is_from_broker = call.version >= add_partitions_to_txn.MANY
        if is_from_broker and not self.auth.authorize(call, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER):
            refused = add_partitions_to_txn.Response(transactions=(), error=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            return self.responses.answer(call, refused, now_ms)
        asked = request.transactions

        def finish(errors: list[Errors], at_ms: int) -> Effects:
            results = [_result(call, one, found) for one, found in zip(asked, errors, strict=True)]
            return self.responses.answer(call, add_partitions_to_txn.Response(transactions=results), at_ms)

        if not asked:
            return finish([], now_ms)
        gather = Gather(call, len(asked), finish)
        effects: Effects = []
        for index, one in enumerate(asked):
            effects += self._add(call, one, partial(gather.put, index), now_ms)
        return effects

    def _add(
        self, call: Call, one: add_partitions_to_txn.Transaction, put: Callable[[Errors, int], Effects], now_ms: int
    ) -> Effects:
        """Add the partitions of one transaction: all of them, or none if one cannot be added (TA1)."""
        partitions = frozenset((topic.name, number) for topic in one.topics for number in topic.partitions)
        is_from_broker = call.version >= add_partitions_to_txn.MANY
        if not is_from_broker and not self._may_write(call, one.transactional_id):
            return put(dict.fromkeys(partitions, DENIED), now_ms)
        wrong = self._wrong(call, partitions, checks_rights=not is_from_broker)
        if wrong:
            others = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
            return put({**others, **wrong}, now_ms)

        def answered(found: ErrorCode | Errors, at_ms: int) -> Effects:
            return put(dict.fromkeys(partitions, found) if isinstance(found, ErrorCode) else found, at_ms)

        if one.verify_only:
            verification = VerifyPartitions(
                token=answered,
                transactional_id=one.transactional_id,
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                partitions=partitions,
            )
            return self.transactions.ask(verification, now_ms)
        event = AddPartitions(
            token=answered,
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            partitions=partitions,
            client_version=NEW_TRANSACTIONS if is_from_broker else 0,
        )
        return self.transactions.ask(event, now_ms)

    def _wrong(
        self, call: Call, partitions: frozenset[Partition], *, checks_rights: bool
    ) -> dict[Partition, ErrorCode]:
        """Return the partitions that do not exist, or that the client may not write to."""
        denied: frozenset[str] = frozenset()
        if checks_rights:
            names = {topic for topic, _ in partitions}
            denied = self.auth.denied(call, AclOperation.WRITE, AclResourceType.TOPIC, names)
            denied |= {name for name in names if is_internal(name)}
        states = self.metadata.partition_states
        wrong = {}
        for partition in partitions:
            if partition[0] in denied:
                wrong[partition] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif partition not in states:
                wrong[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return wrong

    def _add_offsets(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """Add the partition of `__consumer_offsets` that has the group; the group is not looked at (TA4)."""
        request = add_offsets_to_txn.read_request(frame, at, call.version)

        def answered(error: ErrorCode, at_ms: int) -> Effects:
            return self.responses.answer(call, add_offsets_to_txn.Response(error=_known(call, error)), at_ms)

        if not self._may_write(call, request.transactional_id):
            return answered(DENIED, now_ms)
        if not self.auth.authorize(call, AclOperation.READ, AclResourceType.GROUP, request.group_id):
            return answered(ErrorCode.GROUP_AUTHORIZATION_FAILED, now_ms)
        event = AddPartitions(
            token=answered,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=frozenset({(OFFSETS_TOPIC, self.groups.coordinator.partition_of(request.group_id))}),
        )
        return self.transactions.ask(event, now_ms)

    # --- EndTxn -------------------------------------------------------------------------------------------------------

    def _end_txn(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = end_txn.read_request(frame, at, call.version)

        def answered(answer: ProducerIdAnswer, at_ms: int) -> Effects:
            response = end_txn.Response(
                error=_known(call, answer.error), producer_id=answer.producer_id, producer_epoch=answer.producer_epoch
            )
            return self.responses.answer(call, response, at_ms)

        if not self._may_write(call, request.transactional_id):
            return answered(ProducerIdAnswer(DENIED), now_ms)
        event = EndTxn(
            token=answered,
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            committed=request.committed,
            client_version=NEW_TRANSACTIONS if call.version >= BUMPS_EPOCH else 0,
        )
        return self.transactions.ask(event, now_ms)


def _known(call: Call, error: ErrorCode) -> ErrorCode:
    """Return an error by a name that the version of the request knows."""
    if error is ErrorCode.PRODUCER_FENCED and call.version < KNOWS_FENCED[call.route.api.name]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error


def _result(
    call: Call, asked: add_partitions_to_txn.Transaction, errors: Errors
) -> add_partitions_to_txn.TransactionResult:
    """Return the error of each partition, each once and in the order asked."""
    topics: dict[str, dict[int, ErrorCode]] = {}
    for topic in asked.topics:
        found = topics.setdefault(topic.name, {})
        for number in topic.partitions:
            found[number] = _known(call, errors[topic.name, number])
    return add_partitions_to_txn.TransactionResult(
        transactional_id=asked.transactional_id,
        topics=[
            add_partitions_to_txn.TopicResult(
                name=name,
                partitions=[
                    add_partitions_to_txn.PartitionResult(partition=number, error=error)
                    for number, error in found.items()
                ],
            )
            for name, found in topics.items()
        ],
    )
