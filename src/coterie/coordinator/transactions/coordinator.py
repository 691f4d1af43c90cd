"""The transaction coordinator of one node: the ids of the partitions of `__transaction_state` that it leads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.transactions import end_txn, lifecycle
from coterie.coordinator.transactions.add_partitions_to_txn import add_partitions, verify_partitions
from coterie.coordinator.transactions.describe import described
from coterie.coordinator.transactions.events import (
    AddPartitions,
    CompletionDue,
    DescribedTransaction,
    DescribeTransaction,
    Effects,
    EndTxn,
    InitProducerId,
    MarkersDelayed,
    MarkerWritten,
    ProducerIdAnswer,
    RecordWritten,
    TimeoutCheckDue,
    TransactionalIdExpiryDue,
    TransactionTimedOut,
    VerifyPartitions,
)
from coterie.coordinator.transactions.init_producer_id import init_producer_id, init_refusal
from coterie.coordinator.transactions.transaction import Transaction
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode, MalformedError
from coterie.protocol.java_hash import java_hash
from coterie.protocol.transaction_state import TransactionValue, read_transaction_record
from coterie.settings.transaction_settings import TransactionSettings

RULES: Mapping[type, Callable[[Transaction, Any, int], Effects]] = {
    InitProducerId: init_producer_id,
    AddPartitions: add_partitions,
    VerifyPartitions: verify_partitions,
    EndTxn: end_txn.end_txn,
    DescribeTransaction: lambda transaction, request, _now_ms: [Reply(request.token, described(transaction))],
    RecordWritten: lifecycle.record_written,
    MarkerWritten: end_txn.marker_written,
    MarkersDelayed: end_txn.markers_delayed,
    CompletionDue: end_txn.completion_due,
    TransactionTimedOut: end_txn.timed_out,
}
"""The rule of each request and of each event that comes back."""

REFUSALS: Mapping[type, Callable[[Any, ErrorCode], Any]] = {
    InitProducerId: lambda _request, error: ProducerIdAnswer(error),
    AddPartitions: lambda _request, error: error,
    VerifyPartitions: lambda _request, error: error,
    EndTxn: lambda _request, error: ProducerIdAnswer(error),
    DescribeTransaction: lambda request, error: DescribedTransaction(
        transactional_id=request.transactional_id, error=error
    ),
}
"""How each request is answered with an error that concerns the coordinator, not the transaction."""


def partition_of(transactional_id: str, num_partitions: int) -> int:
    """TF1: return the partition of `__transaction_state`. The absolute value of -2^31 is 0 here."""
    value = java_hash(transactional_id)
    return (0 if value == -(1 << 31) else abs(value)) % num_partitions


class TransactionReplay:
    """Loads the transactional ids of a partition from its records, in the order of the log; the last of each counts."""

    def __init__(self) -> None:
        self.values: dict[str, TransactionValue] = {}
        self.skipped = 0
        """The number of records that cannot be read, or are of a newer kind."""

    def record(self, key: bytes, value: bytes | None) -> None:
        """Take the next record of the log."""
        try:
            record = read_transaction_record(key, value)
        except MalformedError:
            record = None
        if record is None:
            self.skipped += 1
        elif record.value is None:
            self.values.pop(record.transactional_id, None)
        else:
            self.values[record.transactional_id] = record.value


class TransactionCoordinator:
    """The transactional ids whose partitions of `__transaction_state` a node leads, without I/O."""

    def __init__(self, settings: TransactionSettings, wall: WallClock) -> None:
        self.settings = settings
        self.wall = wall
        self.shards: dict[int, dict[str, Transaction]] = {}
        """The transactional ids by partition of `__transaction_state`."""
        self._epochs: dict[int, int] = {}
        self._loading: dict[int, TransactionReplay] = {}
        self._num_partitions = settings.transaction_state_log_num_partitions

    # --- partitions ---------------------------------------------------------------------------------------------------

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition of `__transaction_state` that has a transactional id."""
        return partition_of(transactional_id, self._num_partitions)

    def count_partitions(self, num_partitions: int) -> None:
        """Set the actual number of partitions of `__transaction_state`, whatever the setting is now."""
        self._num_partitions = num_partitions

    @property
    def is_loading_any(self) -> bool:
        """Return whether some partition is being loaded."""
        return bool(self._loading)

    def gain(self, partition: int) -> TransactionReplay:
        """Take over a partition. Its ids answer only when its log has been read into the returned replay."""
        return self._loading.setdefault(partition, TransactionReplay())

    def is_loading(self, partition: int, replay: TransactionReplay | None = None) -> bool:
        """Return whether a partition is being loaded; if a replay is given, by that one."""
        found = self._loading.get(partition)
        return found is not None and (replay is None or found is replay)

    def skipped_in(self, partition: int) -> int:
        """Return how many records of a partition that is being loaded cannot be read."""
        return self._loading[partition].skipped

    def loaded(self, partition: int, coordinator_epoch: int, now_ms: int) -> Effects:
        """Take the ids of a partition; transactions that were decided are completed (TR3)."""
        replay = self._loading.pop(partition)
        shard = self.shards[partition] = {}
        self._epochs[partition] = coordinator_epoch
        effects: Effects = []
        for transactional_id, value in replay.values.items():
            transaction = Transaction(transactional_id, self.wall, coordinator_epoch, partition)
            transaction.apply(value)
            shard[transactional_id] = transaction
            effects += lifecycle.loaded(transaction, now_ms)
        return effects

    def lose(self, partition: int, _now_ms: int) -> Effects:
        """Another node leads the partition now: answer all waiting requests, and forget its ids."""
        self._loading.pop(partition, None)
        shard = self.shards.pop(partition, {})
        return [effect for transaction in shard.values() for effect in lifecycle.unloaded(transaction)]

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Any, now_ms: int) -> Effects:
        """Handle an event, and return the effects that the driver has to perform."""
        kind = type(event)
        if kind in REFUSALS:
            return self._handle_request(event, now_ms)
        if kind is TimeoutCheckDue:
            late = lifecycle.late_transactions(self.transactions(), now_ms)
            return [effect for one in late for effect in self.handle(one, now_ms)]
        if kind is TransactionalIdExpiryDue:
            return self._expire(now_ms)
        transaction: Transaction = event.transaction
        if not self.has(transaction):
            return []  # of an earlier life of this partition
        return self._run(transaction, event, now_ms)

    def _handle_request(self, request: Any, now_ms: int) -> Effects:
        transactional_id = request.transactional_id
        partition = self.partition_of(transactional_id)
        shard = self.shards.get(partition)
        refusal = self._refusal(request, partition, shard)
        if refusal:
            return [Reply(request.token, REFUSALS[type(request)](request, refusal))]
        assert shard is not None, "else it is refused"
        transaction = shard.get(transactional_id)
        if transaction is None:  # Dead, unless the request gives it life
            transaction = Transaction(transactional_id, self.wall, self._epochs[partition], partition)
        return self._run(transaction, request, now_ms)

    def _run(self, transaction: Transaction, event: Any, now_ms: int) -> Effects:
        """Run the rule of an event; keep the transaction if it lives."""
        effects = RULES[type(event)](transaction, event, now_ms)
        shard = self.shards[transaction.partition]
        if lifecycle.is_gone(transaction):
            shard.pop(transaction.transactional_id, None)
        else:
            shard[transaction.transactional_id] = transaction
        return effects

    def _refusal(self, request: Any, partition: int, shard: Mapping[str, Transaction] | None) -> ErrorCode:
        """Return why a request does not reach its id; the request's own mistakes come first (TI2, TX4)."""
        if isinstance(request, InitProducerId):
            error = init_refusal(request, self.settings.transaction_max_timeout_ms)
        else:
            error = ErrorCode.NONE if request.transactional_id else ErrorCode.INVALID_REQUEST
        if error or shard is not None:
            return error
        loading = partition in self._loading
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR

    def _expire(self, now_ms: int) -> Effects:
        expiration_ms = self.settings.transactional_id_expiration_ms
        return [
            effect
            for transaction in list(self.transactions())
            for effect in lifecycle.expire(transaction, expiration_ms, now_ms)
        ]

    def has(self, transaction: Transaction) -> bool:
        """Return whether this is still the one object of its transactional id."""
        shard = self.shards.get(transaction.partition)
        return shard is not None and shard.get(transaction.transactional_id) is transaction

    def transactions(self) -> Iterator[Transaction]:
        for shard in self.shards.values():
            yield from shard.values()
