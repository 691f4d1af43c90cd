"""The rules of InitProducerId with a transactional id: new ids, new epochs, fencing (TI2 to TI7)."""

from __future__ import annotations

from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.transactions.end_txn import abort
from coterie.coordinator.transactions.events import (
    Effects,
    InitProducerId,
    NeedProducerId,
    ProducerIdAnswer,
)
from coterie.coordinator.transactions.states import DEAD, EMPTY, ON_INIT, TransactionAction
from coterie.coordinator.transactions.transaction import LAST_EPOCH, Transaction
from coterie.errors import ErrorCode
from coterie.protocol.transaction_state import NONE


def init_refusal(request: InitProducerId, max_timeout_ms: int) -> ErrorCode:
    """Return what is wrong with a request, whatever the id's state is (TI2)."""
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE) or not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if not 1 <= request.timeout_ms <= max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def init_producer_id(transaction: Transaction, request: InitProducerId, now_ms: int) -> Effects:
    if transaction.pending is not None:
        return _refuse(request, ErrorCode.CONCURRENT_TRANSACTIONS)
    if not _knows(transaction, request):
        return _refuse(request, ErrorCode.PRODUCER_FENCED)
    what = ON_INIT[transaction.state]
    if isinstance(what, ErrorCode):
        return _refuse(request, what)
    if what is TransactionAction.CREATE:
        return _create(transaction, request, now_ms)
    if what is TransactionAction.FENCE:
        if transaction.is_exhausted and request.fresh_producer_id == NONE:
            return [NeedProducerId(request)]
        answer = ProducerIdAnswer(ErrorCode.CONCURRENT_TRANSACTIONS)
        return abort(transaction, request.fresh_producer_id, now_ms, (request.token, answer))
    return _bump_producer_epoch(transaction, request, now_ms)


def _knows(transaction: Transaction, request: InitProducerId) -> bool:
    """Return whether the producer id, if one is given, is that of the id, or was when its epochs ended (TI3)."""
    if request.producer_id == NONE or transaction.state is DEAD or request.producer_id == transaction.producer_id:
        return True
    return request.producer_id == transaction.previous_producer_id and request.producer_epoch >= LAST_EPOCH


def _create(transaction: Transaction, request: InitProducerId, now_ms: int) -> Effects:
    if request.fresh_producer_id == NONE:
        return [NeedProducerId(request)]
    return _become_empty(transaction, request, now_ms, request.fresh_producer_id, 0, NONE)


def _bump_producer_epoch(transaction: Transaction, request: InitProducerId, now_ms: int) -> Effects:
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    given = None if request.producer_id == NONE else request.producer_epoch
    if transaction.is_exhausted and given in (None, epoch):
        if request.fresh_producer_id == NONE:
            return [NeedProducerId(request)]
        last_epoch = NONE if given is None else epoch
        return _become_empty(transaction, request, now_ms, request.fresh_producer_id, 0, last_epoch)
    if given is None:
        return _become_empty(transaction, request, now_ms, producer_id, epoch + 1, NONE)
    if given == epoch:
        return _become_empty(transaction, request, now_ms, producer_id, epoch + 1, epoch)
    if given == transaction.last_epoch:  # the answer was lost
        return _become_empty(transaction, request, now_ms, producer_id, epoch, given)
    return _refuse(request, ErrorCode.PRODUCER_FENCED)


def _become_empty(
    transaction: Transaction, request: InitProducerId, now_ms: int, producer_id: int, epoch: int, last_epoch: int
) -> Effects:
    value = transaction.value(
        EMPTY, now_ms, producer_id=producer_id, producer_epoch=epoch, timeout_ms=request.timeout_ms
    )
    answer = ProducerIdAnswer(ErrorCode.NONE, producer_id, epoch)
    return transaction.change(value, last_epoch, (request.token, answer))


def _refuse(request: InitProducerId, error: ErrorCode) -> Effects:
    return [Reply(request.token, ProducerIdAnswer(error))]
