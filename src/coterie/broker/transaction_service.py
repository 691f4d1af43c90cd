"""The transaction coordinator of one node, at work: its records go to the log, its markers to all partitions.

A token of its requests is a function that takes the answer and the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from coterie.broker.broker_effects import Effects
from coterie.broker.coordinator_service import CoordinatorService, read_piece
from coterie.broker.maintenance.producer_id_manager import ProducerIdManager
from coterie.broker.placement import Partition
from coterie.broker.transaction_markers import Marker, MarkerWriter
from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.transactions import TransactionCoordinator, TransactionReplay
from coterie.coordinator.transactions.events import (
    CompletionDue,
    MarkersDelayed,
    MarkerWritten,
    NeedProducerId,
    PersistTransaction,
    ProducerIdAnswer,
    RecordWritten,
    TimeoutCheckDue,
    TransactionalIdExpiryDue,
    TransactionTimedOut,
    TryLater,
    WriteMarkers,
)
from coterie.errors import ErrorCode
from coterie.protocol.batch import batches
from coterie.protocol.records import raw_records
from coterie.protocol.transaction_state import TRANSACTION_STATE_TOPIC, write_transaction_record
from coterie.storage import LogError, PartitionLog
from coterie.structs import DataStruct

__all__ = ["CompletionRetryDue", "MarkerRetryDue", "TransactionCheckDue", "TransactionService"]

RETRY_MS = 100
"""The time until a marker or a record that could not be written is written again."""
_GONE = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


class MarkerRetryDue(DataStruct):
    """A marker that could not be written is to be written again."""

    service: TransactionService
    effect: WriteMarkers
    partition: Partition


class CompletionRetryDue(DataStruct):
    """The record of an end that could not be written is to be written again."""

    service: TransactionService
    event: CompletionDue


class TransactionCheckDue(DataStruct):
    """A regular check of the coordinator is due."""

    service: TransactionService
    every_ms: int
    event: TimeoutCheckDue | TransactionalIdExpiryDue


@dataclass(frozen=True, slots=True, eq=False)
class TransactionService(CoordinatorService):
    coordinator: TransactionCoordinator
    producer_ids: ProducerIdManager
    markers: MarkerWriter

    topic: ClassVar[str] = TRANSACTION_STATE_TOPIC

    def read_some(self, log: PartitionLog, offset: int, replay: TransactionReplay) -> int:
        data = read_piece(log, offset)
        for at, header in batches(data):
            offset = header.next_offset
            if not header.is_control:
                for record in raw_records(data, header, at):
                    replay.record(record.key or b"", record.value)
        return offset

    # --- events and effects of the coordinator ------------------------------------------------------------------------

    def ask(self, event: Any, now_ms: int) -> Effects:
        """Hand an event to the coordinator: a request, whose token takes the answer, or what has come back."""
        return self.perform(self.coordinator.handle(event, now_ms), now_ms)

    def perform(self, effects: Sequence[Any], now_ms: int) -> Effects:
        out: Effects = []
        for effect in effects:
            kind = type(effect)
            if kind is PersistTransaction:
                out += self._append(effect, now_ms)
            elif kind is Reply:
                answer: Callable[[Any, int], Effects] = effect.token
                out += answer(effect.answer, now_ms)
            elif kind is WriteMarkers:
                for partition in effect.partitions:
                    out += self._mark(effect, partition, now_ms)
            elif kind is NeedProducerId:
                out += self.producer_ids.generate(None, partial(self._give, effect), now_ms)
            else:
                assert kind is TryLater
                key = self, "completion", effect.event.transaction.transactional_id
                self.timers.arm(key, now_ms + RETRY_MS, CompletionRetryDue(self, effect.event))
        return out

    def _give(self, effect: NeedProducerId, producer_id: int | None, now_ms: int) -> Effects:
        event = effect.then
        if producer_id is None:
            if isinstance(event, TransactionTimedOut):
                return []  # the next check finds it again
            return self.perform([Reply(event.token, ProducerIdAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE))], now_ms)
        event.fresh_producer_id = producer_id
        return self.ask(event, now_ms)

    # --- records ------------------------------------------------------------------------------------------------------

    def _append(self, effect: PersistTransaction, now_ms: int) -> Effects:
        """Write a record: a batch of its own, as Kafka writes them; it is durable with the next flush."""
        log = self.replicas.log(self.topic, effect.then.transaction.partition)
        if log is None:
            return self._appended(effect.then, ErrorCode.NOT_LEADER_OR_FOLLOWER, now_ms)
        try:
            log.append_own([write_transaction_record(effect.record)], self.wall.at(now_ms))
        except LogError as error:
            trouble = self.reporter.trouble(str(error), now_ms)
            return [trouble, *self._appended(effect.then, error.code, now_ms)]
        self.flusher.written(log, partial(self._appended, effect.then))
        self._arm_checks(now_ms)
        return []

    def _appended(self, then: RecordWritten, error: ErrorCode, now_ms: int) -> Effects:
        then.error = error
        return self.ask(then, now_ms)

    # --- markers ------------------------------------------------------------------------------------------------------

    def _mark(self, effect: WriteMarkers, partition: Partition, now_ms: int) -> Effects:
        if not self.coordinator.has(effect.transaction):
            return []  # another node writes them now
        marker = Marker(effect.producer_id, effect.producer_epoch, effect.committed, effect.coordinator_epoch)
        return self.markers.write(partition, marker, partial(self._marked, effect, partition), now_ms)

    def _marked(self, effect: WriteMarkers, partition: Partition, error: ErrorCode, now_ms: int) -> Effects:
        """A marker is written, or its topic is gone. If a newer epoch has been there, this one has nothing to end."""
        out: Effects = []
        if error in _FENCED:
            what = f"the end of a transaction of {effect.transaction.transactional_id!r} was refused by "
            out.append(self.reporter.trouble(f"{what}{partition[0]}-{partition[1]}: {error.name}", now_ms))
        elif error not in _GONE:
            key = self, "marker", effect.transaction.transactional_id, partition
            self.timers.arm(key, now_ms + RETRY_MS, MarkerRetryDue(self, effect, partition))
            return self.ask(MarkersDelayed(effect.transaction), now_ms)
        return [*out, *self.ask(MarkerWritten(effect.transaction, effect.producer_epoch, partition), now_ms)]

    # --- loading ------------------------------------------------------------------------------------------------------

    def loaded(self, partition: int, log: PartitionLog, now_ms: int) -> Effects:
        skipped = self.coordinator.skipped_in(partition)
        effects = self.perform(self.coordinator.loaded(partition, max(log.leader_epoch, 0), now_ms), now_ms)
        self._arm_checks(now_ms)
        if skipped:
            what = f"{log.path}: {skipped} records cannot be read, and the transactional ids in them are not known"
            effects.append(self.reporter.trouble(what, now_ms))
        return effects

    # --- timers -------------------------------------------------------------------------------------------------------

    def _arm_checks(self, now_ms: int) -> None:
        """Look for transactions that took too long, and for ids that expire, while there are any."""
        if (self, TimeoutCheckDue) in self.timers or not any(self.coordinator.transactions()):
            return
        settings = self.coordinator.settings
        timeouts_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._arm(TransactionCheckDue(self, timeouts_ms, TimeoutCheckDue()), now_ms)
        if (self, TransactionalIdExpiryDue) not in self.timers:
            self._arm(TransactionCheckDue(self, expiry_ms, TransactionalIdExpiryDue()), now_ms)

    def _arm(self, due: TransactionCheckDue, now_ms: int) -> None:
        self.timers.arm((self, type(due.event)), now_ms + due.every_ms, due)

    def check_due(self, due: TransactionCheckDue, now_ms: int) -> Effects:
        effects = self.ask(due.event, now_ms)
        if any(self.coordinator.transactions()):
            self._arm(due, now_ms)
        return effects

    def marker_due(self, due: MarkerRetryDue, now_ms: int) -> Effects:
        return self._mark(due.effect, due.partition, now_ms)
