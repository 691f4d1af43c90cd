"""The transactions of a producer, without I/O: calls and answers come in, requests go out (KIP-98, KIP-890).

    manager = TransactionManager("payments", TransactionBackoff(), rng)
    for effect in manager.handle(InitAsked(token), now_ms): ...

`transaction_states.py` has the states, the calls that each allows, and what every error means. One request at a time is
under way, and the state says which is due (`_due`). A request that failed for a while is sent again, until the call
that wants it is given up.

There are two ways, by the finalized level of the feature transaction.version:

- 2: the first Produce adds its partition, and TxnOffsetCommit adds the group. EndTxn answers the epoch of the next
  transaction, and its sequences begin at 0. So a request that is late is recognised by its epoch.
- below 2: AddPartitionsToTxn and AddOffsetsToTxn come first, and the epoch stays. After a failed Produce, the producer
  asks for the next epoch by InitProducerId, since the sequences of the failed batches are missing (KIP-360).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from coterie.client.network.backoff import CONCURRENT_BACKOFF_MS, backoff_ms
from coterie.client.producer.partition_queue import NO_PRODUCER, ProducerIdAndEpoch
from coterie.client.producer.transaction_events import (
    AbortAsked,
    AddOffsets,
    AddPartitions,
    Answered,
    Ask,
    BeginAsked,
    BeginBatches,
    CallEnded,
    CommitAsked,
    CommitOffsets,
    DropBatches,
    Effect,
    EndTxn,
    Event,
    FailProducer,
    FindCoordinator,
    FlushBatches,
    Flushed,
    InitAsked,
    InitProducerId,
    PartitionsWanted,
    ProduceFailed,
    Refused,
    Request,
    SendOffsetsAsked,
    TakePartitions,
    UseIdentity,
    WakeAt,
    Woke,
)
from coterie.client.producer.transaction_states import (
    ABORTABLE_ERROR,
    ABORTING,
    ALLOWED,
    COMMITTING,
    FATAL_ERROR,
    IN_TRANSACTION,
    INITIALIZING,
    IS_FATAL,
    READY,
    UNINITIALIZED,
    WHAT_TO_DO,
    ErrorClass,
    TransactionApi,
    TransactionCall,
    TransactionState,
    enter,
    error_class,
    exception_of,
)
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, ErrorCode, IllegalStateError, KafkaError, TransactionAbortedError
from coterie.settings.producer_settings import ProducerSettings

_DEFAULTS = ProducerSettings()
ADDS_IMPLICITLY = 2
"""The level of transaction.version from which on Produce adds its partitions, and EndTxn bumps the epoch."""
_UNKNOWN_FATE = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


@dataclass(frozen=True, slots=True)
class TransactionBackoff:
    """The pauses of a transactional producer before it repeats a request."""

    retry_backoff_ms: int = _DEFAULTS.retry_backoff_ms
    retry_backoff_max_ms: int = _DEFAULTS.retry_backoff_max_ms


class TransactionManager:
    """Decides which request of a transaction is due, and what an error means for the transaction."""

    def __init__(self, transactional_id: str, settings: TransactionBackoff, chance: Callable[[], float]) -> None:
        """`chance` returns a random number from 0 to 1."""
        self.transactional_id = transactional_id
        self.state: TransactionState = UNINITIALIZED
        self.identity: ProducerIdAndEpoch = NO_PRODUCER
        self.error: KafkaError | None = None
        """The error of AbortableError and FatalError."""
        self.adds_implicitly = False
        """Whether the way of transaction.version 2 is taken; it changes between transactions only."""
        self._settings = settings
        self._chance = chance
        self._call: int | None = None
        """The token of init, commit or abort, while it is under way."""
        self._is_begun = False
        """Whether the coordinator may know of a transaction, so that EndTxn is needed."""
        self._needs_epoch = False
        """Whether the next epoch is to be asked for when the transaction has ended (KIP-360)."""
        self._coordinators: dict[str | None, int] = {}
        """The node of each group's coordinator, and under None that of the transactional id."""
        self._wanted: dict[TopicPartition, None] = {}
        self._groups: set[str] = set()
        self._offsets: deque[CommitOffsets] = deque()
        self._flush_number = 0
        self._is_flushed = True
        self._doing: Request | None = None
        """The request that is under way, or that is sent again later."""
        self._is_under_way = False
        self._fate_is_unknown = False
        """Whether `_doing` was sent and not answered."""
        self._failures = 0
        self._not_before_ms = 0.0

    def __repr__(self) -> str:
        return f"TransactionManager({self.transactional_id!r}, {self.state})"

    # --- calls --------------------------------------------------------------------------------------------------------

    def check(self, call: TransactionCall) -> None:
        """Raise if the call is not possible in this state."""
        if self.state not in ALLOWED[call]:
            raise self._refusal(call)

    def check_send(self) -> None:
        """Raise if there is no transaction for a record. It is called for each record, by any thread."""
        if self.state is not IN_TRANSACTION:
            raise self._refusal(TransactionCall.SEND)

    def note_sent_elsewhere(self) -> None:
        """Another process may write to the transaction from now on, so that EndTxn is needed."""
        self._is_begun = True

    def _refusal(self, call: TransactionCall) -> CoterieError:
        if self.error is not None:
            return type(self.error)(str(self.error), self.error.code)
        return IllegalStateError(f"{call} is not possible now: {WHAT_TO_DO[self.state]}")

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Handle an event, and return the effects that the driver has to perform."""
        effects: list[Effect] = []
        match event:
            case InitAsked(token):
                self.check(TransactionCall.INIT)
                enter(self, INITIALIZING)
                self._call = token
            case BeginAsked():
                self.check(TransactionCall.BEGIN)
                self._begin(effects)
            case SendOffsetsAsked(token, offsets, group):
                self.check(TransactionCall.SEND_OFFSETS)
                self._is_begun = self._is_begun or self.adds_implicitly
                self._offsets.append(CommitOffsets(token, offsets, group))
            case CommitAsked(token):
                self.check(TransactionCall.COMMIT)
                enter(self, COMMITTING)
                self._call = token
                effects.append(FlushBatches(self._next_flush()))
            case AbortAsked(token):
                self.check(TransactionCall.ABORT)
                self._abort(token, effects)
            case PartitionsWanted(partitions):
                if self.state in {IN_TRANSACTION, COMMITTING}:
                    self._wanted |= dict.fromkeys(partitions)
            case Answered():
                self._answered(event, now_ms, effects)
            case Refused(request, error):
                self._refused(request, error, now_ms, effects)
            case ProduceFailed(error, was_sent):
                self._needs_epoch = self._needs_epoch or was_sent
                if self.state in {IN_TRANSACTION, COMMITTING}:
                    self._fail(error_class(TransactionApi.PRODUCE, error), error, effects)
            case Flushed(number, has_sent):
                if number == self._flush_number:
                    self._is_flushed = True
                    self._is_begun = self._is_begun or (has_sent and self.adds_implicitly)
            case Woke():
                pass
        self._advance(now_ms, effects)
        return effects

    def _begin(self, effects: list[Effect]) -> None:
        enter(self, IN_TRANSACTION)
        self._is_begun = False
        self._needs_epoch = False
        self._groups.clear()
        effects.append(BeginBatches(adds_partitions=not self.adds_implicitly))

    def _abort(self, token: int, effects: list[Effect]) -> None:
        enter(self, ABORTING)
        self.error = None
        self._call = token
        aborted = TransactionAbortedError("the record was not sent, because its transaction was aborted")
        self._give_up_requests(aborted, effects)
        effects.append(DropBatches(self._next_flush(), aborted))

    def _next_flush(self) -> int:
        self._is_flushed = False
        self._flush_number += 1
        return self._flush_number

    def _give_up_requests(self, error: KafkaError, effects: list[Effect]) -> None:
        """Forget what the transaction was to add. A request whose fate is unknown is asked again before EndTxn."""
        self._wanted.clear()
        effects += [CallEnded(each.token, error) for each in self._offsets]
        self._offsets.clear()
        self._give_up_doing()

    def _give_up_doing(self) -> None:
        may_be_added = self._fate_is_unknown and isinstance(self._doing, AddPartitions | AddOffsets)
        if not self._is_under_way and not may_be_added:
            self._doing = None

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, answer: Answered, now_ms: int, effects: list[Effect]) -> None:
        self._is_under_way = False
        request = answer.request
        if isinstance(request, FindCoordinator):
            self._coordinators[request.group_id] = answer.node_id
            if self.state in {ABORTING, ABORTABLE_ERROR}:
                self._give_up_doing()
            return
        self._doing = None
        self._failures = 0
        self._not_before_ms = now_ms
        match request:
            case InitProducerId():
                self.adds_implicitly = answer.transaction_version >= ADDS_IMPLICITLY
                self._use(answer.identity, effects)
                self._become_ready(effects)
            case AddPartitions(partitions):
                self._is_begun = True
                for partition in partitions:
                    self._wanted.pop(partition, None)
                effects.append(TakePartitions(partitions))
            case AddOffsets(group_id):
                self._is_begun = True
                self._groups.add(group_id)
            case CommitOffsets(token):
                if self._offsets and self._offsets[0] is request:  # otherwise it was given up
                    self._offsets.popleft()
                    effects.append(CallEnded(token))
            case EndTxn():
                self._end(answer, effects)

    def _end(self, answer: Answered, effects: list[Effect]) -> None:
        did_add, self.adds_implicitly = self.adds_implicitly, answer.transaction_version >= ADDS_IMPLICITLY
        self._is_begun = False
        if did_add:
            self._use(answer.identity, effects)
        elif self._needs_epoch or self.adds_implicitly:  # on the other way from now on, which begins with a new epoch
            enter(self, INITIALIZING)
            return
        self._become_ready(effects)

    def _use(self, identity: ProducerIdAndEpoch, effects: list[Effect]) -> None:
        self.identity = identity
        effects.append(UseIdentity(identity))

    def _become_ready(self, effects: list[Effect]) -> None:
        enter(self, READY)
        self._end_call(None, effects)

    def _end_call(self, error: KafkaError | None, effects: list[Effect]) -> None:
        if self._call is not None:
            effects.append(CallEnded(self._call, error))
            self._call = None

    # --- errors -------------------------------------------------------------------------------------------------------

    def _refused(self, request: Request, error: KafkaError, now_ms: int, effects: list[Effect]) -> None:
        self._is_under_way = False
        kind = error_class(request.api, error)
        if not isinstance(request, FindCoordinator):
            self._fate_is_unknown = self._fate_is_unknown or error.code in _UNKNOWN_FATE
        if kind in {ErrorClass.RETRIABLE, ErrorClass.REFRESH}:
            if kind is ErrorClass.REFRESH and not isinstance(request, FindCoordinator):
                self._coordinators.pop(_coordinator_of(request), None)
            self._retry_later(error, now_ms)
            if self.state in {ABORTING, ABORTABLE_ERROR}:
                self._give_up_requests(error, effects)
            return
        self._doing = None
        if kind is ErrorClass.ABORTABLE and self.state in {ABORTING, ABORTABLE_ERROR}:
            if not isinstance(request, EndTxn):
                return  # it was for the transaction that is aborted anyway
            kind = ErrorClass.FATAL
        self._fail(kind, error, effects)

    def _retry_later(self, error: KafkaError, now_ms: int) -> None:
        self._failures += 1
        if error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            self._not_before_ms = now_ms + CONCURRENT_BACKOFF_MS
            return
        settings = self._settings
        pause_ms = backoff_ms(self._failures, settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._chance())
        self._not_before_ms = now_ms + pause_ms

    def _fail(self, kind: ErrorClass, error: KafkaError, effects: list[Effect]) -> None:
        """Go to the state of the error, and end all calls that wait with it."""
        raised = exception_of(kind, error)
        if kind in IS_FATAL:
            enter(self, FATAL_ERROR)
            self.error = raised
            effects.append(FailProducer(raised))
        elif self.state is INITIALIZING and not self.identity.is_valid:
            enter(self, UNINITIALIZED)  # nothing is open, so there is nothing to abort: init can be called again
        else:
            if self.state is not ABORTABLE_ERROR:
                enter(self, ABORTABLE_ERROR)
            self.error = raised
            effects.append(DropBatches(self._next_flush(), raised))
        self._give_up_requests(raised, effects)
        self._end_call(raised, effects)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _advance(self, now_ms: int, effects: list[Effect]) -> None:
        """Send the request that is due, or look up its coordinator first."""
        if self.state is FATAL_ERROR or self._is_under_way:
            return
        if self._doing is None:
            self._doing = self._due()
            self._fate_is_unknown = False
        if self._doing is None:
            if self.state in {COMMITTING, ABORTING} and self._is_flushed:
                self._end_without_request(effects)
                self._advance(now_ms, effects)
            return
        if now_ms < self._not_before_ms:
            effects.append(WakeAt(int(self._not_before_ms) + 1))
            return
        self._is_under_way = True
        whose = _coordinator_of(self._doing)
        if whose in self._coordinators:
            effects.append(Ask(self._doing, self._coordinators[whose]))
        else:
            effects.append(Ask(FindCoordinator(whose), None))

    def _due(self) -> Request | None:
        """Return the request that the state needs next."""
        if self.state is INITIALIZING:
            return InitProducerId(self.identity)
        if self.state in {IN_TRANSACTION, COMMITTING}:
            if self._wanted:
                return AddPartitions(tuple(self._wanted))
            if self._offsets:
                first = self._offsets[0]
                if not self.adds_implicitly and first.group.group_id not in self._groups:
                    return AddOffsets(first.group.group_id)
                return first
        if self.state in {COMMITTING, ABORTING} and self._is_flushed and self._is_begun:
            return EndTxn(committed=self.state is COMMITTING)
        return None

    def _end_without_request(self, effects: list[Effect]) -> None:
        """The coordinator knows of no transaction: nothing was sent."""
        if self._needs_epoch and not self.adds_implicitly:
            enter(self, INITIALIZING)
        else:
            self._become_ready(effects)


def _coordinator_of(request: Request) -> str | None:
    """The group whose coordinator answers the request; None is the transactional id."""
    return request.group.group_id if isinstance(request, CommitOffsets) else None
