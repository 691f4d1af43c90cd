"""A transaction coordinator in memory: records become durable and markers are written when a test says so."""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.transactions import NEW_TRANSACTIONS, TransactionCoordinator
from coterie.coordinator.transactions.events import (
    AddPartitions,
    CompletionDue,
    DescribedTransaction,
    DescribeTransaction,
    EndTxn,
    InitProducerId,
    MarkerWritten,
    NeedProducerId,
    PersistTransaction,
    ProducerIdAnswer,
    TryLater,
    VerifyPartitions,
    WriteMarkers,
)
from coterie.coordinator.transactions.transaction import Transaction
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.transaction_state import TransactionRecord, write_transaction_record
from coterie.settings.transaction_settings import TransactionSettings

TX = "orders-tx"
TIMEOUT_MS = 60_000
ORDERS = frozenset({("orders", 0)})


class TransactionWorld:
    """One coordinator that leads all partitions. Ids from 1000 on are given out."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.wall = WallClock(1_000_000)
        self.log: list[TransactionRecord] = []
        self.ids = count(1000)
        self.now_ms = 0
        self.answers: dict[int, Any] = {}
        self.holds_writes = self.holds_markers = False
        self.unwritten: list[PersistTransaction] = []
        self.unmarked: list[WriteMarkers] = []
        self.markers: list[tuple[int, int, bool, int, tuple[str, int]]] = []
        self.later: list[CompletionDue] = []
        self._tokens = count(1)
        self.start(epoch=0)

    def start(self, epoch: int = 1) -> None:
        """Start the coordinator, as after a crash: it knows what is in the log."""
        self.unwritten, self.unmarked, self.later = [], [], []
        self.coordinator = TransactionCoordinator(self.settings, self.wall)
        partitions = range(self.settings.transaction_state_log_num_partitions)
        replays = [self.coordinator.gain(partition) for partition in partitions]
        for record in self.log:
            replays[self.coordinator.partition_of(record.transactional_id)].record(*write_transaction_record(record))
        for partition in partitions:
            self.perform(self.coordinator.loaded(partition, epoch, self.now_ms))

    # --- driving ------------------------------------------------------------------------------------------------------

    def handle(self, event: Any) -> None:
        self.perform(self.coordinator.handle(event, self.now_ms))

    def perform(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert effect.token not in self.answers, "answered twice"
                assert isinstance(effect.token, int)
                self.answers[effect.token] = effect.answer
            elif isinstance(effect, PersistTransaction):
                self.unwritten.append(effect)
                if not self.holds_writes:
                    self.write()
            elif isinstance(effect, WriteMarkers):
                self.unmarked.append(effect)
                if not self.holds_markers:
                    self.mark()
            elif isinstance(effect, NeedProducerId):
                effect.then.fresh_producer_id = next(self.ids)
                self.handle(effect.then)
            else:
                assert isinstance(effect, TryLater)
                self.later.append(effect.event)

    def write(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Make what waits durable, or fail it."""
        waiting, self.unwritten = self.unwritten, []
        for one in waiting:
            if not error:
                self.log.append(one.record)
            one.then.error = error
            self.handle(one.then)

    def mark(self, only: Collection[tuple[str, int]] | None = None) -> None:
        """Write the markers that wait: all, or those of some partitions."""
        waiting, self.unmarked = self.unmarked, []
        for one in waiting:
            for partition in list(one.partitions):
                if only is None or partition in only:
                    self.markers.append(
                        (one.producer_id, one.producer_epoch, one.committed, one.coordinator_epoch, partition)
                    )
                    self.handle(MarkerWritten(one.transaction, one.producer_epoch, partition))

    def ask(self, event: Any) -> Any:
        """Return the answer, or None if there is none yet."""
        self.handle(event)
        return self.answers.get(event.token)

    def token(self) -> int:
        return next(self._tokens)

    # --- requests -----------------------------------------------------------------------------------------------------

    def init(self, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = TIMEOUT_MS, tx: str = TX) -> Any:
        return self.ask(
            InitProducerId(
                token=self.token(),
                transactional_id=tx,
                timeout_ms=timeout_ms,
                producer_id=producer_id,
                producer_epoch=epoch,
            )
        )

    def add(
        self, partitions: Collection[tuple[str, int]] = ORDERS, *, at: tuple[int, int] | None = None, new: bool = False
    ) -> Any:
        producer_id, epoch = at or self.ids_of()
        return self.ask(
            AddPartitions(
                token=self.token(),
                transactional_id=TX,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=frozenset(partitions),
                client_version=NEW_TRANSACTIONS if new else 0,
            )
        )

    def verify(self, partitions: Collection[tuple[str, int]] = ORDERS, *, at: tuple[int, int] | None = None) -> Any:
        producer_id, epoch = at or self.ids_of()
        return self.ask(
            VerifyPartitions(
                token=self.token(),
                transactional_id=TX,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=frozenset(partitions),
            )
        )

    def end(self, *, commit: bool, new: bool = True, at: tuple[int, int] | None = None) -> Any:
        producer_id, epoch = at or self.ids_of()
        return self.ask(
            EndTxn(
                token=self.token(),
                transactional_id=TX,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=commit,
                client_version=NEW_TRANSACTIONS if new else 0,
            )
        )

    def describe(self, tx: str = TX) -> DescribedTransaction:
        found = self.ask(DescribeTransaction(token=self.token(), transactional_id=tx))
        assert isinstance(found, DescribedTransaction)
        return found

    # --- looking ------------------------------------------------------------------------------------------------------

    def transaction(self) -> Transaction | None:
        return self.coordinator.shards[self.coordinator.partition_of(TX)].get(TX)

    def ids_of(self) -> tuple[int, int]:
        """Return the producer id and epoch of the id; some others if it is not there."""
        transaction = self.transaction()
        return (7, 0) if transaction is None else (transaction.producer_id, transaction.producer_epoch)

    @property
    def state(self) -> str:
        transaction = self.transaction()
        return "absent" if transaction is None else transaction.state

    def set_epoch(self, epoch: int) -> None:
        """Let the id have used up its epochs up to this one."""
        transaction = self.transaction()
        assert transaction is not None
        transaction.producer_epoch = epoch


def ok(producer_id: int, epoch: int) -> ProducerIdAnswer:
    return ProducerIdAnswer(ErrorCode.NONE, producer_id, epoch)


def refused(error: ErrorCode) -> ProducerIdAnswer:
    return ProducerIdAnswer(error)
