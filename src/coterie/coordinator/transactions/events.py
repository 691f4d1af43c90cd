"""The requests of transactions without versions, the effects of the coordinator, and the events that come back.

An effect that takes time carries the event that it comes back as. `Reply` is that of groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from coterie.coordinator.classic.effects import Reply
from coterie.errors import ErrorCode
from coterie.protocol.messages import Token
from coterie.protocol.transaction_state import NONE, Partition, TransactionRecord, TransactionValue
from coterie.structs import DataStruct

if TYPE_CHECKING:
    from coterie.coordinator.transactions.transaction import Transaction

NEW_TRANSACTIONS = 2
"""The version of transactions with KIP-890's second part: `transaction.version`, and that of newer requests."""


# --- requests ---------------------------------------------------------------------------------------------------------


class InitProducerId(DataStruct, kw_only=True):
    token: Token
    transactional_id: str
    timeout_ms: int
    producer_id: int = NONE
    producer_epoch: int = NONE
    fresh_producer_id: int = NONE
    """A producer id that was never used, when the request comes back with one (`NeedProducerId`)."""


class AddPartitions(DataStruct, kw_only=True):
    token: Token
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition]
    client_version: int = 0


class VerifyPartitions(DataStruct, kw_only=True):
    token: Token
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[Partition]


class EndTxn(DataStruct, kw_only=True):
    token: Token
    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    client_version: int = 0
    """2 from version 5 of the request on: then the end bumps the epoch."""
    fresh_producer_id: int = NONE


class DescribeTransaction(DataStruct, kw_only=True):
    token: Token
    transactional_id: str


# --- answers ----------------------------------------------------------------------------------------------------------


class ProducerIdAnswer(DataStruct):
    """The answer to InitProducerId and EndTxn: the producer id and the epoch to use next; -1 with an error."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NONE
    producer_epoch: int = NONE


class DescribedTransaction(DataStruct, kw_only=True):
    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Sequence[Partition] = ()


TransactionAnswer = ErrorCode | ProducerIdAnswer | DescribedTransaction | Mapping[Partition, ErrorCode]
"""An add is answered with an error; a verification with an error, or with the error of each partition."""


# --- effects ----------------------------------------------------------------------------------------------------------


class PersistTransaction(DataStruct):
    """Write this record; `then` comes back when it is durable, or with an error."""

    record: TransactionRecord
    then: RecordWritten


class WriteMarkers(DataStruct):
    """Write the end of a transaction to its partitions. A `MarkerWritten` comes back for each, in any order."""

    transaction: Transaction
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: Sequence[Partition]


class NeedProducerId(DataStruct):
    """`then` comes back with its `fresh_producer_id`, or is answered with an error if there can be none."""

    then: InitProducerId | EndTxn | TransactionTimedOut


class TryLater(DataStruct):
    """The event comes back after a while: what it is about has failed, and must be done."""

    event: CompletionDue


Effect = Reply | PersistTransaction | WriteMarkers | NeedProducerId | TryLater
Effects = list[Effect]


# --- events that come back --------------------------------------------------------------------------------------------


class RecordWritten(DataStruct):
    """The write of a record has ended."""

    transaction: Transaction
    value: TransactionValue | None
    """The value of the record; None is a tombstone."""
    last_epoch: int
    """The last epoch from then on, which is not in the record (TI3)."""
    error: ErrorCode = ErrorCode.NONE


class MarkerWritten(DataStruct):
    """The marker of a partition is durable, or no longer needed."""

    transaction: Transaction
    producer_epoch: int
    partition: Partition


class MarkersDelayed(DataStruct):
    """A marker cannot be written now: who ended the transaction need not wait for it."""

    transaction: Transaction


class CompletionDue(DataStruct):
    """The record of the end could not be written: it is to be written again."""

    transaction: Transaction


class TransactionTimedOut(DataStruct):
    """A transaction of this epoch is to be aborted, since it took too long."""

    transaction: Transaction
    producer_epoch: int
    fresh_producer_id: int = NONE


class TimeoutCheckDue(DataStruct):
    """The check for transactions that took too long is due (TT1)."""


class TransactionalIdExpiryDue(DataStruct):
    """The check for transactional ids that were not used for long is due (TT4)."""
