"""The transaction manager of a producer, without a cluster: calls and answers in, requests out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from coterie.client.producer import transaction_events as events
from coterie.client.producer.partition_queue import NO_PRODUCER, ProducerIdAndEpoch
from coterie.client.producer.transaction_events import (
    AbortAsked,
    AddOffsets,
    AddPartitions,
    BeginAsked,
    CommitAsked,
    CommitOffsets,
    EndTxn,
    FindCoordinator,
    InitAsked,
    InitProducerId,
    PartitionsWanted,
    ProduceFailed,
    SendOffsetsAsked,
)
from coterie.client.producer.transaction_manager import TransactionBackoff, TransactionManager
from coterie.client.producer.transaction_states import (
    ALLOWED,
    DOING,
    NEXT,
    ON_ERROR,
    UNLISTED,
    WHAT_TO_DO,
    ErrorClass,
    TransactionApi,
    TransactionCall,
    TransactionState,
    error_class,
)
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import (
    ApplicationRecoverableError,
    ConnectionLostError,
    ErrorCode,
    IllegalStateError,
    InvalidConfigurationError,
    KafkaError,
    ProducerFencedError,
    SaslAuthenticationError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
)

S = TransactionState
TXN_NODE, GROUP_NODE = 1, 2
FIRST = ProducerIdAndEpoch(7, 0)
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
OFFSETS = {TopicPartition("in", 0): OffsetAndMetadata(5)}
GROUP = GroupMetadata("g", 3, "m", None)
LOST = ConnectionLostError("cut")


class Driven:
    """A manager with a driver that answers what a test says; flushes end at once, unless they are held."""

    def __init__(self, level: int = 2) -> None:
        self.manager = TransactionManager("x", TransactionBackoff(100, 1000), lambda: 0.5)
        self.level = level
        self.now_ms = 1_000
        self.asked: list[events.Ask] = []
        self.sent: list[events.Request] = []
        self.ended: dict[int, KafkaError | None] = {}
        self.others: list[events.Effect] = []
        self.wake_at_ms: int | None = None
        self.held: list[int] | None = None
        self.has_sent = False
        self.tokens: Iterator[int] = itertools.count()

    def __call__(self, event: events.Event) -> None:
        for effect in self.manager.handle(event, self.now_ms):
            match effect:
                case events.Ask(request):
                    assert not self.asked, "one request at a time"
                    self.asked.append(effect)
                    self.sent.append(request)
                case events.CallEnded(token, error):
                    assert token not in self.ended
                    self.ended[token] = error
                case events.WakeAt(at_ms):
                    assert at_ms > self.now_ms
                    self.wake_at_ms = at_ms
                case events.FlushBatches(number) | events.DropBatches(number):
                    self.others.append(effect)
                    if self.held is None:
                        self(events.Flushed(number, self.has_sent))
                    else:
                        self.held.append(number)
                case _:
                    self.others.append(effect)

    @property
    def state(self) -> TransactionState:
        return self.manager.state

    def answer(self, identity: ProducerIdAndEpoch | None = None) -> events.Request:
        """Answer the request that is under way, and say which it was."""
        (asked,) = self.asked
        self.asked.clear()
        node = {None: TXN_NODE}.get(getattr(asked.request, "group_id", None), GROUP_NODE)
        self(events.Answered(asked.request, node, identity or self.manager.identity, self.level))
        return asked.request

    def refuse(self, code: ErrorCode | KafkaError) -> events.Request:
        (asked,) = self.asked
        self.asked.clear()
        error = code if isinstance(code, KafkaError) else KafkaError.of(code, "asked")
        self(events.Refused(asked.request, error))
        return asked.request

    def pause(self) -> int:
        """Let the pause before the next request pass; return how long it was."""
        assert self.wake_at_ms is not None and not self.asked
        waited, self.now_ms = self.wake_at_ms - self.now_ms, self.wake_at_ms
        self.wake_at_ms = None
        self(events.Woke())
        return waited

    def init(self) -> None:
        token = next(self.tokens)
        self(InitAsked(token))
        assert self.answer() == FindCoordinator()
        assert self.answer(FIRST) == InitProducerId(NO_PRODUCER)
        assert self.ended[token] is None and self.state is S.READY

    def begin(self) -> None:
        self(BeginAsked())
        self.has_sent = False
        self.others.clear()
        self.sent.clear()

    def commit(self) -> int:
        token = next(self.tokens)
        self(CommitAsked(token))
        return token

    def abort(self) -> int:
        token = next(self.tokens)
        self(AbortAsked(token))
        return token

    def send_offsets(self, group: GroupMetadata = GROUP) -> int:
        token = next(self.tokens)
        self(SendOffsetsAsked(token, OFFSETS, group))
        return token

    def fails_with(self, token: int, kind: type[KafkaError], says: str = "") -> None:
        error = self.ended[token]
        assert type(error) is kind and says in str(error)


@pytest.fixture(params=[2, 1, 0])
def level(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def ready(level: int) -> Driven:
    driven = Driven(level)
    driven.init()
    return driven


@pytest.fixture
def implicit() -> Driven:
    driven = Driven(2)
    driven.init()
    driven.begin()
    return driven


@pytest.fixture
def explicit() -> Driven:
    driven = Driven(1)
    driven.init()
    driven.begin()
    return driven


def begun(driven: Driven) -> Driven:
    """Let the coordinator know of the transaction."""
    driven.has_sent = True
    if not driven.manager.adds_implicitly:
        driven(PartitionsWanted((P0,)))
        assert driven.answer() == AddPartitions((P0,))
        driven.sent.clear()
    return driven


# --- the usual way ----------------------------------------------------------------------------------------------------


def test_version_2_sends_end_txn_alone_and_takes_its_epoch(implicit: Driven) -> None:
    """C1."""
    implicit.has_sent = True
    token = implicit.commit()
    assert implicit.others == [events.FlushBatches(1)] and token not in implicit.ended
    assert implicit.answer(ProducerIdAndEpoch(7, 1)) == EndTxn(committed=True)
    assert implicit.ended[token] is None and implicit.state is S.READY
    implicit(BeginAsked())
    assert implicit.others[-2:] == [
        events.UseIdentity(ProducerIdAndEpoch(7, 1)),
        events.BeginBatches(adds_partitions=False),
    ]


def test_version_1_adds_partitions_first_and_keeps_the_epoch(explicit: Driven) -> None:
    """C2."""
    explicit.has_sent = True
    explicit(PartitionsWanted((P0,)))
    explicit(PartitionsWanted((P1,)))
    assert explicit.answer() == AddPartitions((P0,))
    assert explicit.answer() == AddPartitions((P1,))
    assert explicit.others == [events.TakePartitions((P0,)), events.TakePartitions((P1,))]
    token = explicit.commit()
    assert explicit.answer(ProducerIdAndEpoch(-1, -1)) == EndTxn(committed=True)
    assert explicit.ended[token] is None and explicit.manager.identity == FIRST
    assert explicit.others[-1] == events.FlushBatches(1)


def test_offsets_go_to_the_groups_coordinator(ready: Driven, level: int) -> None:
    """C1, C2: AddOffsetsToTxn comes first, unless TxnOffsetCommit adds the group; a coordinator is looked up once."""
    ready.begin()
    for again in (False, True):
        token = ready.send_offsets()
        if level < 2 and not again:
            assert ready.asked[0].node_id == TXN_NODE
            assert ready.answer() == AddOffsets("g")
        if not again:
            assert ready.answer() == FindCoordinator("g")
        assert ready.asked[0].node_id == GROUP_NODE
        assert ready.answer() == CommitOffsets(token, OFFSETS, GROUP)
        assert ready.ended[token] is None
    token = ready.commit()
    assert ready.answer() == EndTxn(committed=True)
    assert ready.ended[token] is None


def test_nothing_sent_is_ended_without_a_request(ready: Driven) -> None:
    """C3."""
    for end in (ready.commit, ready.abort):
        ready.begin()
        token = end()
        assert ready.ended[token] is None and ready.state is S.READY and not ready.sent


def test_an_abort_drops_batches_before_it_ends_the_transaction(ready: Driven) -> None:
    ready.begin()
    begun(ready)
    ready.held = []
    token = ready.abort()
    (dropped,) = [each for each in ready.others if isinstance(each, events.DropBatches)]
    assert isinstance(dropped.error, TransactionAbortedError) and not ready.asked
    ready(events.Flushed(ready.held[0], ready.has_sent))
    assert ready.answer() == EndTxn(committed=False)
    assert ready.ended[token] is None


def test_a_commit_waits_for_the_flush_and_for_offsets(implicit: Driven) -> None:
    implicit.held = []
    offsets = implicit.send_offsets()
    token = implicit.commit()
    assert implicit.answer() == FindCoordinator("g")
    assert implicit.answer() == CommitOffsets(offsets, OFFSETS, GROUP)
    assert implicit.ended == {0: None, offsets: None} and not implicit.asked
    implicit(events.Flushed(implicit.held[0], implicit.has_sent))
    assert implicit.answer() == EndTxn(committed=True)
    assert implicit.ended[token] is None


def test_partitions_are_still_added_while_it_commits(explicit: Driven) -> None:
    """The flush sends batches to partitions that nothing was sent to before."""
    explicit.held = []
    explicit.has_sent = True
    explicit.commit()
    explicit(PartitionsWanted((P0,)))
    assert explicit.answer() == AddPartitions((P0,))
    explicit(events.Flushed(explicit.held[0], explicit.has_sent))
    assert explicit.answer() == EndTxn(committed=True)


# --- what the cluster cannot do at once -------------------------------------------------------------------------------


def test_a_request_is_sent_again_until_it_is_answered(ready: Driven) -> None:
    ready.begin()
    begun(ready)
    token = ready.commit()
    for _ in range(5):
        assert ready.refuse(ErrorCode.CONCURRENT_TRANSACTIONS) == EndTxn(committed=True)
        assert ready.pause() <= 21
    pauses = []
    for _ in range(6):
        ready.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        pauses.append(ready.pause())
    assert pauses == sorted(pauses) and pauses[-1] == 1001
    assert ready.answer() == EndTxn(committed=True)
    assert ready.ended[token] is None


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, LOST])
def test_a_coordinator_that_moved_is_looked_up(ready: Driven, code: ErrorCode | KafkaError) -> None:
    ready.begin()
    begun(ready)
    token = ready.commit()
    ready.refuse(code)
    ready.pause()
    assert ready.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE) == FindCoordinator()
    ready.pause()
    assert ready.answer() == FindCoordinator()
    assert ready.answer() == EndTxn(committed=True)
    assert ready.ended[token] is None


def test_an_add_without_an_answer_is_asked_again_before_the_abort(explicit: Driven) -> None:
    """EndTxn of a transaction that the coordinator does not know would be INVALID_TXN_STATE."""
    explicit.has_sent = True
    explicit(PartitionsWanted((P0,)))
    explicit.refuse(LOST)
    token = explicit.abort()
    explicit.pause()
    assert explicit.answer() == FindCoordinator()
    assert explicit.answer() == AddPartitions((P0,))
    assert explicit.answer() == EndTxn(committed=False)
    assert explicit.ended[token] is None


def test_an_add_that_was_refused_is_not_asked_again_when_it_aborts(explicit: Driven) -> None:
    explicit.has_sent = True
    explicit(PartitionsWanted((P0,)))
    explicit.refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    token = explicit.abort()
    assert explicit.ended[token] is None and explicit.state is S.READY and not explicit.asked


# --- errors -----------------------------------------------------------------------------------------------------------


def test_a_failed_delivery_can_only_be_aborted(ready: Driven, level: int) -> None:
    """C4: with version 1 the next epoch is asked for after the abort (KIP-360), with version 2 EndTxn answers it."""
    ready.begin()
    begun(ready)
    ready(ProduceFailed(KafkaError.of(ErrorCode.MESSAGE_TOO_LARGE, "too large"), was_sent=True))
    assert ready.state is S.ABORTABLE_ERROR
    for call in (
        TransactionCall.SEND,
        TransactionCall.SEND_OFFSETS,
        TransactionCall.COMMIT,
        TransactionCall.BEGIN,
        TransactionCall.INIT,
    ):
        with pytest.raises(TransactionAbortableError, match=r"too large.*Abort the transaction"):
            ready.manager.check(call)
    token = ready.abort()
    assert ready.answer(ProducerIdAndEpoch(7, 1)) == EndTxn(committed=False)
    if level < 2:
        assert ready.answer(ProducerIdAndEpoch(7, 1)) == InitProducerId(FIRST)
    assert ready.ended[token] is None and ready.manager.identity == ProducerIdAndEpoch(7, 1)
    assert ready.others[-1] == events.UseIdentity(ProducerIdAndEpoch(7, 1))
    ready.begin()


def test_a_delivery_that_fails_in_the_commit_ends_the_commit(ready: Driven) -> None:
    ready.begin()
    begun(ready)
    ready.held = []
    token = ready.commit()
    ready(ProduceFailed(KafkaError("lost", ErrorCode.REQUEST_TIMED_OUT), was_sent=True))
    ready.fails_with(token, TransactionAbortableError, "lost")
    assert ready.state is S.ABORTABLE_ERROR and not ready.sent
    ready.abort()
    for late in ready.held[:-1]:
        ready(events.Flushed(late, ready.has_sent))
    assert not ready.sent, "the end of the flush of the commit is not that of the abort"
    ready(events.Flushed(ready.held[-1], ready.has_sent))
    assert ready.answer() == EndTxn(committed=False)


@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)
def test_a_group_that_moved_on_makes_it_abort(ready: Driven, code: ErrorCode) -> None:
    """The fence of the group: §16."""
    ready.begin()
    token = ready.send_offsets()
    while not isinstance(ready.asked[0].request, CommitOffsets):
        ready.answer()
    ready.refuse(code)
    ready.fails_with(token, TransactionAbortableError, code.name)
    token = ready.abort()
    assert ready.answer() == EndTxn(committed=False)
    assert ready.ended[token] is None
    assert ready.state is S.READY and not ready.asked, "no epoch is asked for: no batch has failed (C4)"


def test_offsets_that_wait_end_with_the_transaction(implicit: Driven) -> None:
    first, second = implicit.send_offsets(), implicit.send_offsets()
    implicit(ProduceFailed(KafkaError("lost"), was_sent=True))
    implicit.fails_with(first, TransactionAbortableError)
    implicit.fails_with(second, TransactionAbortableError)
    implicit.answer()
    token = implicit.abort()
    assert implicit.answer() == EndTxn(committed=False)
    assert implicit.ended[token] is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFencedError),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ApplicationRecoverableError),
        (ErrorCode.INVALID_TXN_STATE, TransactionFatalError),
        (ErrorCode.UNKNOWN_SERVER_ERROR, TransactionFatalError),
        (ErrorCode.UNSUPPORTED_VERSION, InvalidConfigurationError),
    ],
)
def test_what_ends_the_producer_ends_every_call(ready: Driven, code: ErrorCode, kind: type[KafkaError]) -> None:
    ready.begin()
    begun(ready)
    token = ready.commit()
    ready.refuse(code)
    error = ready.ended[token]
    assert isinstance(error, kind) and code.name in str(error)
    assert isinstance(ready.others[-1], events.FailProducer) and ready.state is S.FATAL_ERROR
    for call in TransactionCall:
        with pytest.raises(kind):
            ready.manager.check(call)
    with pytest.raises(kind):
        ready.manager.check_send()


def test_an_abort_that_the_coordinator_refuses_to_abort_is_the_end(implicit: Driven) -> None:
    """Otherwise it would be asked for ever."""
    begun(implicit)
    token = implicit.abort()
    implicit.refuse(ErrorCode.TRANSACTION_ABORTABLE)
    implicit.fails_with(token, TransactionFatalError)


def test_a_login_that_fails_is_not_tried_again() -> None:
    driven = Driven()
    driven(InitAsked(0))
    driven.refuse(SaslAuthenticationError("who?"))
    assert type(driven.ended[0]) is SaslAuthenticationError and driven.state is S.FATAL_ERROR


def test_an_init_that_is_not_allowed_can_be_called_again() -> None:
    driven = Driven()
    driven(InitAsked(next(driven.tokens)))
    driven.answer()
    driven.refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    driven.fails_with(0, TransactionAbortableError)
    assert driven.state is S.UNINITIALIZED
    driven(InitAsked(1))
    driven.answer(FIRST)
    assert driven.ended[1] is None


# --- which way --------------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_upgraded_changes_the_way_between_transactions(explicit: Driven) -> None:
    """C6: from 1 to 2 a new epoch is asked for in between."""
    begun(explicit)
    explicit.level = 2
    token = explicit.commit()
    explicit.answer()
    assert token not in explicit.ended
    assert explicit.answer(ProducerIdAndEpoch(7, 1)) == InitProducerId(FIRST)
    assert explicit.ended[token] is None and explicit.manager.adds_implicitly
    explicit.level = 1
    explicit(BeginAsked())
    begun(explicit)
    explicit.commit()
    explicit.answer(ProducerIdAndEpoch(7, 2))
    assert explicit.state is S.READY and not explicit.manager.adds_implicitly


# --- the tables -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", TransactionCall)
@pytest.mark.parametrize("state", [state for state in S if state not in {S.ABORTABLE_ERROR, S.FATAL_ERROR}])
def test_a_call_that_is_not_possible_says_what_to_do(call: TransactionCall, state: TransactionState) -> None:
    manager = TransactionManager("x", TransactionBackoff(), lambda: 0.5)
    manager.state = state
    if state in ALLOWED[call]:
        manager.check(call)
        return
    with pytest.raises(IllegalStateError) as caught:
        manager.check(call)
    assert str(caught.value) == f"{call} is not possible now: {WHAT_TO_DO[state]}"


def test_the_tables_have_every_state_and_api() -> None:
    assert set(NEXT) == set(DOING) == set(S)
    assert set(ON_ERROR) == set(UNLISTED) == set(TransactionApi)
    assert set(WHAT_TO_DO) == set(S) - {S.ABORTABLE_ERROR, S.FATAL_ERROR}
    reached = {state for after in NEXT.values() for state in after}
    assert reached == set(S)


@pytest.mark.parametrize("api", TransactionApi)
def test_errors_have_the_classes_of_kip_1050(api: TransactionApi) -> None:
    """§16: a delivery that failed is not tried again, and a newer epoch of a Produce may be the broker's own."""
    kinds = {code: error_class(api, KafkaError.of(code, "asked")) for code in ErrorCode if code}
    is_produce = api is TransactionApi.PRODUCE
    assert is_produce != bool({ErrorClass.RETRIABLE, ErrorClass.REFRESH} & set(kinds.values()))
    assert kinds[ErrorCode.PRODUCER_FENCED] is kinds[ErrorCode.INVALID_PRODUCER_ID_MAPPING] is ErrorClass.RECOVERABLE
    own = ErrorClass.ABORTABLE if is_produce else ErrorClass.RECOVERABLE
    assert kinds[ErrorCode.INVALID_PRODUCER_EPOCH] is own
    assert kinds[ErrorCode.INVALID_TXN_STATE] is (ErrorClass.ABORTABLE if is_produce else ErrorClass.FATAL)
    assert kinds[ErrorCode.TRANSACTION_ABORTABLE] is ErrorClass.ABORTABLE
    assert kinds[ErrorCode.UNSUPPORTED_VERSION] is ErrorClass.CONFIGURATION
