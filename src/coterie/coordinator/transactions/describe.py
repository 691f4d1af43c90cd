"""DescribeTransactions and ListTransactions (TM1, TM2)."""

from __future__ import annotations

from collections.abc import Callable, Collection

from coterie.coordinator.transactions.events import DescribedTransaction
from coterie.coordinator.transactions.states import COMPLETED, DEAD, ONGOING
from coterie.coordinator.transactions.transaction import Transaction
from coterie.errors import ErrorCode


def described(transaction: Transaction) -> DescribedTransaction:
    """Describe a transaction; of one that is being ended, the partitions without a marker."""
    if transaction.state is DEAD:
        return DescribedTransaction(
            transactional_id=transaction.transactional_id, error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        )
    partitions: Collection[tuple[str, int]] = ()
    if transaction.state is ONGOING:
        partitions = transaction.partitions
    elif transaction.state in COMPLETED:
        partitions = transaction.unmarked
    return DescribedTransaction(
        transactional_id=transaction.transactional_id,
        state=transaction.state,
        timeout_ms=transaction.timeout_ms,
        start_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        partitions=sorted(partitions),
    )


def is_listed(
    transaction: Transaction,
    now_ms: int,
    *,
    states: Collection[str],
    producer_ids: Collection[int],
    duration_ms: int,
    matches: Callable[[str], bool],
) -> bool:
    """Return whether a transaction passes all filters; a filter that is empty or negative lets all pass.

    The start of a transaction in Empty is -1, so it has lasted longer than any duration.
    """
    return (
        transaction.state is not DEAD
        and (not states or transaction.state in states)
        and (not producer_ids or transaction.producer_id in producer_ids)
        and (duration_ms < 0 or transaction.wall.at(now_ms) - transaction.start_ms > duration_ms)
        and matches(transaction.transactional_id)
    )
