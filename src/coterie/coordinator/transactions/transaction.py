"""One transactional id: its producer id and epoch, the state of its transaction, and the change that is on its way.

Its state changes by records alone: when a record has become durable, and when the log is read back (`apply`). While a
record is on its way, the id has a pending state, and all requests that would change it are refused (TS3).
"""

from __future__ import annotations

from coterie.coordinator.classic.effects import Reply, error_for_client
from coterie.coordinator.transactions.events import (
    Effects,
    PersistTransaction,
    ProducerIdAnswer,
    RecordWritten,
    TransactionAnswer,
)
from coterie.coordinator.transactions.states import DEAD, NEXT, STATE_OF, STATUS, TransactionState
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode, IllegalTransitionError
from coterie.protocol.messages import Token
from coterie.protocol.transaction_state import NONE, Partition, TransactionRecord, TransactionStatus, TransactionValue

LAST_EPOCH = 32_766
"""The last epoch that a client is given. The one after it appears only in markers (TI7)."""


class Transaction:
    __slots__ = (
        "client_version",
        "coordinator_epoch",
        "deadline_ms",
        "last_epoch",
        "last_update_ms",
        "next_producer_id",
        "partition",
        "partitions",
        "pending",
        "previous_producer_id",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "unmarked",
        "waiting",
        "wall",
    )

    def __init__(self, transactional_id: str, wall: WallClock, coordinator_epoch: int = 0, partition: int = 0) -> None:
        self.transactional_id = transactional_id
        self.partition = partition  # the partition of __transaction_state that has it
        self.wall = wall
        self.coordinator_epoch = coordinator_epoch  # the leader epoch of its partition of __transaction_state
        self.state: TransactionState = DEAD
        self.producer_id = self.previous_producer_id = self.next_producer_id = NONE
        self.producer_epoch = NONE
        self.last_epoch = NONE  # the epoch before, which a repeated request may have; it is not in the log
        self.timeout_ms = 0
        self.partitions: frozenset[Partition] = frozenset()
        self.start_ms = self.last_update_ms = NONE
        self.client_version = 0
        self.pending: TransactionState | None = None  # the state of the record that is on its way
        self.unmarked: dict[Partition, None] = {}  # the partitions whose marker is not written yet, in Prepare*
        self.deadline_ms: int | None = None  # in the broker's own time, while it is Ongoing
        self.waiting: tuple[Token, TransactionAnswer] | None = None  # answered when the change has ended

    @property
    def is_exhausted(self) -> bool:
        """Return whether the producer id has no more epochs to give."""
        return self.producer_epoch >= LAST_EPOCH

    def value(
        self,
        state: TransactionState,
        now_ms: int,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: frozenset[Partition] = frozenset(),
        start_ms: int = NONE,
        next_producer_id: int = NONE,
        client_version: int | None = None,
    ) -> TransactionValue:
        """Return the record of a change; what is not given stays as it is."""
        new_id = self.producer_id if producer_id is None else producer_id
        previous = self.producer_id if new_id != self.producer_id else self.previous_producer_id
        return TransactionValue(
            producer_id=new_id,
            producer_epoch=self.producer_epoch if producer_epoch is None else producer_epoch,
            timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            status=STATUS[state],
            partitions=partitions,
            last_update_ms=self.wall.at(now_ms),
            start_ms=start_ms,
            previous_producer_id=new_id if previous == NONE else previous,
            next_producer_id=next_producer_id,
            client_version=self.client_version if client_version is None else client_version,
        )

    def change(
        self,
        value: TransactionValue | None,
        last_epoch: int,
        waiting: tuple[Token, TransactionAnswer] | None = None,
    ) -> Effects:
        """Write a record; until it is durable, its state is pending."""
        state = DEAD if value is None else STATE_OF[value.status]
        if state not in NEXT[self.state]:
            raise IllegalTransitionError(
                f"transactional id {self.transactional_id!r} cannot go from {self.state} to {state}: "
                f"from {self.state} only {', '.join(sorted(NEXT[self.state]))} can be reached"
            )
        self.pending = state
        if waiting is not None:
            self.waiting = waiting
        return [
            PersistTransaction(TransactionRecord(self.transactional_id, value), RecordWritten(self, value, last_epoch))
        ]

    def apply(self, value: TransactionValue | None) -> None:
        """Take the state of a record, when it is durable and when it is read back."""
        if value is None:
            self.state = DEAD
            return
        self.state = STATE_OF[value.status]
        self.producer_id = value.producer_id
        self.previous_producer_id = value.previous_producer_id
        self.next_producer_id = value.next_producer_id
        self.producer_epoch = value.producer_epoch
        self.timeout_ms = value.timeout_ms
        self.partitions = value.partitions
        self.start_ms = value.start_ms
        self.last_update_ms = value.last_update_ms
        self.client_version = value.client_version
        if value.status is not TransactionStatus.ONGOING:
            self.deadline_ms = None

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> Effects:
        """Answer the request that waits for the change, if there is one: as promised, or with an error."""
        if self.waiting is None:
            return []
        token, answer = self.waiting
        self.waiting = None
        if error:
            code = error_for_client(error)
            answer = ProducerIdAnswer(code) if isinstance(answer, ProducerIdAnswer) else code
        return [Reply(token, answer)]
