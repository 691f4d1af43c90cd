"""The rules of EndTxn, and how a transaction ends: its decision, then its markers, then its completion (TE1, TE2, TR5).

The decision is a record, Prepare*. When it is durable, the markers are written to all partitions, and when all of them
are durable, the record Complete* follows. After a crash the markers of a decided transaction are written again. So the
three are never visible in another order.
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.transactions.events import (
    NEW_TRANSACTIONS,
    CompletionDue,
    Effects,
    EndTxn,
    MarkersDelayed,
    MarkerWritten,
    NeedProducerId,
    ProducerIdAnswer,
    TransactionAnswer,
    TransactionTimedOut,
    TryLater,
    WriteMarkers,
)
from coterie.coordinator.transactions.states import (
    COMPLETED,
    ON_ABORT,
    ON_COMMIT,
    ON_OLD_ABORT,
    ON_OLD_COMMIT,
    ON_REPEATED_ABORT,
    ON_REPEATED_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Answer,
    TransactionAction,
    TransactionState,
)
from coterie.coordinator.transactions.transaction import LAST_EPOCH, Transaction
from coterie.errors import ErrorCode
from coterie.protocol.messages import Token
from coterie.protocol.transaction_state import NONE

Waiting = tuple[Token, TransactionAnswer]


def end_txn(transaction: Transaction, request: EndTxn, now_ms: int) -> Effects:
    bumps = request.client_version >= NEW_TRANSACTIONS
    what = _judge(transaction, request) if bumps else _judge_old(transaction, request)
    if isinstance(what, ErrorCode):
        return [Reply(request.token, ProducerIdAnswer(what))]
    if what is TransactionAction.REPEAT:
        return [Reply(request.token, _next_ids(transaction))]
    if bumps and transaction.is_exhausted and request.fresh_producer_id == NONE:
        return [NeedProducerId(request)]
    state = PREPARE_COMMIT if request.committed else PREPARE_ABORT
    waiting = request.token, ProducerIdAnswer()  # the ids are filled in at the end
    return _decide(transaction, state, now_ms, waiting, request.fresh_producer_id, bumps=bumps)


def _judge(transaction: Transaction, request: EndTxn) -> Answer:
    """Judge a request of version 5: a repeated one is known by the epoch before (TE2)."""
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    repeats_last = (
        transaction.previous_producer_id == request.producer_id != transaction.producer_id
        and request.producer_epoch == LAST_EPOCH
        and transaction.producer_epoch == 0
    )
    if request.producer_id != transaction.producer_id and not repeats_last:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if repeats_last or request.producer_epoch == transaction.producer_epoch - 1:
        return (ON_REPEATED_COMMIT if request.committed else ON_REPEATED_ABORT)[transaction.state]
    if request.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return (ON_COMMIT if request.committed else ON_ABORT)[transaction.state]


def _judge_old(transaction: Transaction, request: EndTxn) -> Answer:
    """Judge a request of version 4 or older: producer id and epoch come first."""
    if request.producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if request.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if transaction.pending is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return (ON_OLD_COMMIT if request.committed else ON_OLD_ABORT)[transaction.state]


def _next_ids(transaction: Transaction) -> ProducerIdAnswer:
    return ProducerIdAnswer(ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)


# --- the decision -----------------------------------------------------------------------------------------------------


def abort(transaction: Transaction, fresh_producer_id: int, now_ms: int, waiting: Waiting | None = None) -> Effects:
    """Abort a transaction that its producer does not end; the next epoch fences the producer (TI5, TT2)."""
    return _decide(transaction, PREPARE_ABORT, now_ms, waiting, fresh_producer_id, bumps=True)


def timed_out(transaction: Transaction, event: TransactionTimedOut, now_ms: int) -> Effects:
    """Abort a transaction that took too long, if it is still the same (TT1)."""
    is_same = transaction.state is ONGOING and transaction.producer_epoch == event.producer_epoch
    if not is_same or transaction.pending is not None or not _is_late(transaction, now_ms):
        return []
    if transaction.is_exhausted and event.fresh_producer_id == NONE:
        return [NeedProducerId(event)]
    return abort(transaction, event.fresh_producer_id, now_ms)


def _is_late(transaction: Transaction, now_ms: int) -> bool:
    return transaction.deadline_ms is not None and transaction.deadline_ms <= now_ms


def _decide(
    transaction: Transaction,
    state: TransactionState,
    now_ms: int,
    waiting: Waiting | None,
    fresh_producer_id: int,
    *,
    bumps: bool,
) -> Effects:
    """Write the decision. With `bumps` it has the next epoch, which the markers have as well (TE1)."""
    epoch = transaction.producer_epoch
    begins = transaction.state is not ONGOING  # an abort of nothing
    value = transaction.value(
        state,
        now_ms,
        producer_epoch=epoch + 1 if bumps else epoch,
        partitions=frozenset() if begins else transaction.partitions,
        start_ms=transaction.wall.at(now_ms) if begins else transaction.start_ms,
        next_producer_id=fresh_producer_id if bumps and transaction.is_exhausted else NONE,
        client_version=NEW_TRANSACTIONS if bumps else 0,
    )
    return transaction.change(value, epoch if bumps else transaction.last_epoch, waiting)


# --- markers and completion -------------------------------------------------------------------------------------------


def write_markers(transaction: Transaction, now_ms: int) -> Effects:
    """The decision is durable: write the markers. From now on the completion is pending (TS3)."""
    transaction.pending = COMPLETED[transaction.state]
    transaction.unmarked = dict.fromkeys(sorted(transaction.partitions))
    if not transaction.unmarked:
        return _complete(transaction, now_ms)
    return [
        WriteMarkers(
            transaction,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.state is PREPARE_COMMIT,
            transaction.coordinator_epoch,
            list(transaction.unmarked),
        )
    ]


def marker_written(transaction: Transaction, event: MarkerWritten, now_ms: int) -> Effects:
    if transaction.state not in COMPLETED or event.producer_epoch != transaction.producer_epoch:
        return []
    if event.partition not in transaction.unmarked:
        return []
    del transaction.unmarked[event.partition]
    return [] if transaction.unmarked else _complete(transaction, now_ms)


def markers_delayed(transaction: Transaction, _event: MarkersDelayed, _now_ms: int) -> Effects:
    """Answer who ended the transaction: it is decided, and the markers follow when they can be written (TS5)."""
    return answer_end(transaction) if transaction.state in COMPLETED else []


def _complete(transaction: Transaction, now_ms: int) -> Effects:
    rotates = transaction.next_producer_id != NONE
    value = transaction.value(
        COMPLETED[transaction.state],
        now_ms,
        producer_id=transaction.next_producer_id if rotates else transaction.producer_id,
        producer_epoch=0 if rotates else transaction.producer_epoch,
        start_ms=transaction.start_ms,
    )
    return transaction.change(value, transaction.last_epoch)


def completion_due(transaction: Transaction, _event: CompletionDue, now_ms: int) -> Effects:
    if transaction.state not in COMPLETED or transaction.unmarked:
        return []
    return _complete(transaction, now_ms)


def completion_failed(transaction: Transaction) -> Effects:
    """The decision stands: the completion is written again later, and who ended the transaction is answered."""
    return [*answer_end(transaction), TryLater(CompletionDue(transaction))]


def answer_end(transaction: Transaction) -> Effects:
    """Answer the request that ended the transaction, with the ids to use next."""
    if transaction.waiting is not None:
        token, answer = transaction.waiting
        if isinstance(answer, ProducerIdAnswer) and not answer.error:
            rotates = transaction.next_producer_id != NONE  # not complete yet, so the old id is still there
            ids = ProducerIdAnswer(ErrorCode.NONE, transaction.next_producer_id, 0)
            transaction.waiting = token, ids if rotates else _next_ids(transaction)
    return transaction.answer()
