"""The rules of AddPartitionsToTxn and AddOffsetsToTxn, and of partitions that Produce adds or verifies (TA1, TA2)."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.transactions.events import AddPartitions, Effects, VerifyPartitions
from coterie.coordinator.transactions.states import DEAD, ON_ADD, ON_VERIFY, ONGOING, TransactionAction
from coterie.coordinator.transactions.transaction import Transaction
from coterie.errors import ErrorCode


def add_partitions(transaction: Transaction, request: AddPartitions, now_ms: int) -> Effects:
    """Add partitions to a transaction, which begins with the first of them."""
    error = ErrorCode.CONCURRENT_TRANSACTIONS if transaction.pending is not None else _judge(transaction, request)
    what = error or ON_ADD[transaction.state]
    if isinstance(what, ErrorCode):
        return [Reply(request.token, what)]
    if what is TransactionAction.ADD and request.partitions <= transaction.partitions:
        return [Reply(request.token, ErrorCode.NONE)]
    begins = what is TransactionAction.BEGIN
    value = transaction.value(
        ONGOING,
        now_ms,
        partitions=request.partitions if begins else transaction.partitions | request.partitions,
        start_ms=transaction.wall.at(now_ms) if begins else transaction.start_ms,
        client_version=request.client_version,
    )
    if begins:
        transaction.deadline_ms = now_ms + transaction.timeout_ms
    return transaction.change(value, transaction.last_epoch, (request.token, ErrorCode.NONE))


def verify_partitions(transaction: Transaction, request: VerifyPartitions, _now_ms: int) -> Effects:
    """Answer whether partitions are in the transaction. A record that is on its way does not count (TS3)."""
    what = _judge(transaction, request) or ON_VERIFY[transaction.state]
    if isinstance(what, ErrorCode):
        return [Reply(request.token, what)]
    found = {
        partition: ErrorCode.NONE if partition in transaction.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in request.partitions
    }
    return [Reply(request.token, found)]


def _judge(transaction: Transaction, request: AddPartitions | VerifyPartitions) -> ErrorCode:
    if transaction.state is DEAD or request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE
