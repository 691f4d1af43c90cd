"""Asks the coordinator of a transaction whether partitions are part of it, before they are written to (KIP-890).

Newer requests add partitions that are not; older ones are refused. While the transaction before is being ended, the
coordinator answers CONCURRENT_TRANSACTIONS. A produce is then tried again for a while, so that hardly any client sees
this (TP4).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from coterie.broker.broker_effects import Effects
from coterie.broker.placement import Partition
from coterie.broker.transaction_service import TransactionService
from coterie.coordinator.runtime import Timers
from coterie.coordinator.transactions import NEW_TRANSACTIONS
from coterie.coordinator.transactions.events import AddPartitions, VerifyPartitions
from coterie.errors import ErrorCode
from coterie.settings.broker_settings import BrokerSettings
from coterie.structs import DataStruct

__all__ = ["AddPartitionsDue", "Admitted", "TransactionalProducer", "TransactionalWrites"]

Admitted = Callable[[Mapping[Partition, ErrorCode], int], Effects]
"""Called once, with the time: the coordinator's error for each partition that may not be written to."""


class AddPartitionsDue(DataStruct, eq=False):
    """Partitions are to be added again: the transaction before was being ended."""

    producer: TransactionalProducer
    partitions: frozenset[Partition]
    done: Admitted
    until_ms: int
    """From then on the coordinator's error is the answer."""


class TransactionalProducer(NamedTuple):
    """The producer as a request names it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, eq=False)
class TransactionalWrites:
    service_of: Callable[[str], TransactionService | None]
    """Returns the coordinator of a transactional id, on whichever node; None if there is none now."""
    timers: Timers[Any]
    settings: BrokerSettings

    def add(
        self,
        producer: TransactionalProducer,
        partitions: frozenset[Partition],
        done: Admitted,
        now_ms: int,
        *,
        tries_again: bool = False,
    ) -> Effects:
        """Add partitions to the transaction, which begins it if there is none."""
        until_ms = now_ms + self.settings.add_partitions_to_txn_retry_backoff_max_ms if tries_again else now_ms
        return self.add_due(AddPartitionsDue(producer, partitions, done, until_ms), now_ms)

    def add_due(self, due: AddPartitionsDue, now_ms: int) -> Effects:
        """Ask the coordinator, and ask it again later if the transaction before has not ended."""
        producer, partitions = due.producer, due.partitions

        def answered(error: ErrorCode, at_ms: int) -> Effects:
            if error is ErrorCode.CONCURRENT_TRANSACTIONS and at_ms < due.until_ms:
                again_ms = min(at_ms + self.settings.add_partitions_to_txn_retry_backoff_ms, due.until_ms)
                self.timers.arm(due, again_ms, due)
                return []
            return due.done(dict.fromkeys(partitions, error) if error else {}, at_ms)

        request = AddPartitions(
            token=answered,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=partitions,
            client_version=NEW_TRANSACTIONS,
        )
        return self._ask(request, now_ms)

    def verify(
        self, producer: TransactionalProducer, partitions: frozenset[Partition], done: Admitted, now_ms: int
    ) -> Effects:
        """Have partitions that are not in the transaction refused."""

        def answered(found: ErrorCode | Mapping[Partition, ErrorCode], at_ms: int) -> Effects:
            errors = dict.fromkeys(partitions, found) if isinstance(found, ErrorCode) else found
            return done({partition: error for partition, error in errors.items() if error}, at_ms)

        request = VerifyPartitions(
            token=answered,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            partitions=partitions,
        )
        return self._ask(request, now_ms)

    def _ask(self, request: AddPartitions | VerifyPartitions, now_ms: int) -> Effects:
        service = self.service_of(request.transactional_id)
        if service is not None:
            return service.ask(request, now_ms)
        answer: Callable[[Any, int], Effects] = request.token  # type: ignore[assignment]
        return answer(ErrorCode.NOT_COORDINATOR, now_ms)
