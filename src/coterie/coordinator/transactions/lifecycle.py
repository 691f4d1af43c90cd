"""The life of a transactional id beside its requests: its records are written, it is loaded, times out and expires."""

from __future__ import annotations

from collections.abc import Iterable

from coterie.coordinator.transactions.end_txn import answer_end, completion_failed, write_markers
from coterie.coordinator.transactions.events import Effects, RecordWritten, TransactionTimedOut
from coterie.coordinator.transactions.states import COMPLETED, DEAD, MAY_EXPIRE, ONGOING
from coterie.coordinator.transactions.transaction import Transaction
from coterie.errors import ErrorCode


def record_written(transaction: Transaction, event: RecordWritten, now_ms: int) -> Effects:
    """Take the change that is durable, and answer; a change that could not be written never was (TS4)."""
    if event.error:
        if transaction.state in COMPLETED:
            return completion_failed(transaction)
        transaction.pending = None
        return transaction.answer(event.error)
    was_decided = transaction.state in COMPLETED
    transaction.apply(event.value)
    transaction.last_epoch = event.last_epoch
    transaction.pending = None
    if transaction.state in COMPLETED:
        return write_markers(transaction, now_ms)
    return answer_end(transaction) if was_decided else transaction.answer()


def loaded(transaction: Transaction, now_ms: int) -> Effects:
    """Continue with a transaction that was read from the log (TR3).

    If it began by a wall clock that was ahead, it has its whole timeout, and not all the time until its start.
    """
    if transaction.state in COMPLETED:
        return write_markers(transaction, now_ms)
    if transaction.state is ONGOING:
        left_ms = transaction.start_ms + transaction.timeout_ms - transaction.wall.at(now_ms)
        transaction.deadline_ms = now_ms + min(max(0, left_ms), transaction.timeout_ms)
    return []


def unloaded(transaction: Transaction) -> Effects:
    """Another node coordinates the id now: answer the request that waits."""
    return transaction.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def late_transactions(transactions: Iterable[Transaction], now_ms: int) -> list[TransactionTimedOut]:
    """Return the transactions that have been open for longer than their timeout (TT1)."""
    return [
        TransactionTimedOut(transaction, transaction.producer_epoch)
        for transaction in transactions
        if transaction.state is ONGOING and transaction.deadline_ms is not None and transaction.deadline_ms <= now_ms
    ]


def expire(transaction: Transaction, expiration_ms: int, now_ms: int) -> Effects:
    """Delete an id that was not used for `transactional.id.expiration.ms` (TT4)."""
    if transaction.state not in MAY_EXPIRE or transaction.pending is not None:
        return []
    if transaction.wall.surely(now_ms) - transaction.last_update_ms < expiration_ms:
        return []
    return transaction.change(None, transaction.last_epoch)


def is_gone(transaction: Transaction) -> bool:
    return transaction.state is DEAD and transaction.pending is None
