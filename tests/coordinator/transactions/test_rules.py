"""The rules of transactional ids, one by one: epochs, fencing, the end of epochs, timeouts, recovery."""

from __future__ import annotations

import pytest

from coordinator.transactions.world import ORDERS, TX, TransactionWorld, ok, refused
from coterie.coordinator.transactions.events import (
    InitProducerId,
    MarkersDelayed,
    TimeoutCheckDue,
    TransactionalIdExpiryDue,
)
from coterie.coordinator.transactions.states import COMPLETE_COMMIT
from coterie.coordinator.transactions.transaction import LAST_EPOCH
from coterie.errors import ErrorCode, IllegalTransitionError
from coterie.protocol.transaction_state import TransactionStatus, TransactionValue

CONCURRENT, FENCED = ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED
MAPPING, INVALID = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_TXN_STATE
TWO = frozenset({("orders", 0), ("orders", 1)})


def last(world: TransactionWorld) -> TransactionValue:
    value = world.log[-1].value
    assert value is not None
    return value


def test_a_new_id_and_its_next_epochs() -> None:
    """TI3, TR2: the current epoch is bumped, the last one is answered again, others are fenced."""
    world = TransactionWorld()
    assert world.init() == ok(1000, 0)
    assert (last(world).previous_producer_id, last(world).start_ms) == (1000, -1)
    assert world.init() == ok(1000, 1)
    assert world.init(1000, 0) == refused(FENCED), "a plain Init forgets the last epoch"
    assert world.init(1000, 1) == ok(1000, 2)
    assert world.init(1000, 1) == ok(1000, 2), "its answer was lost"
    assert world.init(1000, 1) == ok(1000, 2)
    assert world.init(1000, 0) == refused(FENCED)
    assert world.init(1000, 3) == refused(FENCED)
    assert world.init(999, 2) == refused(FENCED)
    assert len(world.log) == 5


def test_the_timeout_given_is_the_new_one() -> None:
    """TI2: the order of checks."""
    world = TransactionWorld()
    world.init(timeout_ms=5)
    assert world.describe().timeout_ms == 5
    assert world.init(5, -1, timeout_ms=0) == refused(ErrorCode.INVALID_REQUEST)
    assert world.init(timeout_ms=0) == refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    assert world.init(timeout_ms=900_000) == ok(1000, 1)
    world.add()
    assert world.init(7, 0) == refused(FENCED)
    assert world.state == "Ongoing", "a wrong producer id aborts nothing"


def test_an_end_sets_the_last_epoch() -> None:
    """TI3: an Init with the epoch of the transaction that has ended answers the present one."""
    world = TransactionWorld()
    world.init()
    world.add()
    assert world.end(commit=True) == ok(1000, 1)
    assert world.init(1000, 0) == ok(1000, 1)


def test_an_init_over_an_open_transaction() -> None:
    """TI5, TI6: any epoch aborts; with its own epoch the producer goes on, a new one is another epoch ahead."""
    world = TransactionWorld()
    world.init()
    world.add()
    assert world.init(1000, 77) == refused(CONCURRENT)
    assert world.markers == [(1000, 1, False, 0, ("orders", 0))]
    assert world.init(1000, 0) == ok(1000, 1), "the fence counts as the retry's bump"
    world.add()
    assert world.init() == refused(CONCURRENT)
    assert world.init() == ok(1000, 3)


def test_the_epochs_of_a_producer_id_end_at_init() -> None:
    """TI7: 32766 is the last one that is given out."""
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_EPOCH - 1)
    assert world.init() == ok(1000, LAST_EPOCH)
    assert world.init(1000, LAST_EPOCH) == ok(1001, 0)
    assert world.init(1000, LAST_EPOCH) == ok(1001, 0), "its answer was lost"
    assert world.init(1000, LAST_EPOCH) == ok(1001, 0)
    assert world.init(1000, 5) == refused(FENCED)
    world.set_epoch(LAST_EPOCH)
    assert world.init() == ok(1002, 0)
    assert world.init(1001, LAST_EPOCH) == refused(FENCED), "a plain Init forgets"


def test_the_epochs_of_a_producer_id_end_at_an_end() -> None:
    """TI7, TE1: the marker has the last epoch but one of all, the answer a new producer id."""
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_EPOCH)
    world.add()
    assert world.end(commit=True, new=False) == ok(1000, LAST_EPOCH), "older ends keep the epoch"
    world.add()
    assert world.end(commit=True) == ok(1001, 0)
    assert world.markers[-1][:2] == (1000, LAST_EPOCH + 1)
    assert [record.value.next_producer_id for record in world.log[-2:] if record.value] == [1001, -1]
    assert world.end(commit=True, at=(1000, LAST_EPOCH)) == ok(1001, 0)
    assert world.end(commit=False, at=(1000, LAST_EPOCH)) == refused(INVALID)
    assert world.add(at=(1000, LAST_EPOCH)) == MAPPING
    world.start()
    assert world.end(commit=True, at=(1000, LAST_EPOCH)) == ok(1001, 0), "TE2: after a restart as well"


def test_the_epochs_of_a_producer_id_end_while_it_is_fenced() -> None:
    """TI7: the one who comes next has a new producer id, at epoch 1."""
    world = TransactionWorld()
    world.init()
    world.set_epoch(LAST_EPOCH)
    world.add()
    assert world.init() == refused(CONCURRENT)
    assert world.init() == ok(1001, 1)


def test_only_the_last_end_can_be_repeated() -> None:
    """TE2."""
    world = TransactionWorld()
    world.init()
    for _ in range(2):
        world.add()
        world.end(commit=True)
    assert world.end(commit=True, at=(1000, 1)) == ok(1000, 2)
    assert world.end(commit=True, at=(1000, 0)) == refused(FENCED)
    world.start()
    assert world.end(commit=True, at=(1000, 1)) == ok(1000, 2)


def test_an_add_of_what_is_there_writes_nothing() -> None:
    """TR2, TA2."""
    world = TransactionWorld()
    world.init()
    world.add(TWO)
    written = len(world.log)
    world.add(ORDERS)
    world.verify(TWO)
    assert len(world.log) == written
    world.add([("orders", 2)], new=True)
    assert last(world).partitions == TWO | {("orders", 2)}
    assert last(world).client_version == 2


def test_what_fails_to_be_written_never_was() -> None:
    """TS4: the error of the write is that of the answer, by another name."""
    errors = {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    }
    for error, heard in errors.items():
        world = TransactionWorld()
        world.holds_writes = True
        world.init()
        world.write(error)
        assert (world.answers, world.state) == ({1: refused(heard)}, "absent")
        world.init()
        world.write()
        world.add()
        world.write(error)
        assert (world.answers[3], world.state) == (heard, "Empty")
        world.add()
        world.write()
        world.end(commit=True)
        world.write(error)
        assert (world.answers[5], world.state, world.markers) == (refused(heard), "Ongoing", [])


def test_a_completion_that_fails_is_written_again() -> None:
    """TS4, TS5: the decision stands, and is answered."""
    world = TransactionWorld()
    world.init()
    world.add()
    world.holds_writes = True
    world.end(commit=True)
    world.write()
    world.write(ErrorCode.KAFKA_STORAGE_ERROR)
    assert (world.answers[3], world.state) == (ok(1000, 1), "PrepareCommit")
    (again,) = world.later
    world.handle(again)
    world.write()
    assert world.state == "CompleteCommit"
    assert world.end(commit=True, at=(1000, 0)) == ok(1000, 1)


def test_an_end_waits_for_its_markers_unless_they_are_delayed() -> None:
    """TS5, TL2: the description has the partitions whose marker is missing."""
    world = TransactionWorld()
    world.init()
    world.add(TWO)
    world.holds_markers = True
    assert world.end(commit=True) is None
    (waiting,) = world.unmarked
    world.mark(ORDERS)
    world.unmarked = [waiting]
    assert world.describe().partitions == [("orders", 1)]
    assert 3 not in world.answers
    world.handle(MarkersDelayed(waiting.transaction))
    assert (world.answers[3], world.state) == (ok(1000, 1), "PrepareCommit")
    world.mark()
    assert world.state == "CompleteCommit"
    assert {marker[4] for marker in world.markers} == TWO


def test_a_timed_out_transaction_is_aborted_with_the_next_epoch() -> None:
    """TT1, TT2, TT3."""
    world = TransactionWorld()
    world.init(timeout_ms=1_000)
    world.now_ms = 5_000
    world.handle(TimeoutCheckDue())
    assert world.state == "Empty", "an id without a transaction never times out"
    world.add()
    world.now_ms += 999
    world.add(TWO)
    world.handle(TimeoutCheckDue())
    assert world.state == "Ongoing"
    world.now_ms += 1
    world.handle(TimeoutCheckDue())
    assert (world.state, world.ids_of()) == ("CompleteAbort", (1000, 1))
    assert world.end(commit=True, at=(1000, 0)) == refused(INVALID)
    assert world.end(commit=False, at=(1000, 0)) == ok(1000, 1)
    assert world.end(commit=False, new=False, at=(1000, 0)) == refused(FENCED)
    assert world.init(1000, 0) == ok(1000, 1)
    assert world.init() == ok(1000, 2)


def test_a_timed_out_transaction_whose_epochs_end_gets_a_new_producer_id() -> None:
    """TT2, TI7."""
    world = TransactionWorld()
    world.init(timeout_ms=1_000)
    world.set_epoch(LAST_EPOCH)
    world.add()
    world.now_ms = 1_000
    world.handle(TimeoutCheckDue())
    assert (world.state, world.ids_of()) == ("CompleteAbort", (1001, 0))


def test_an_id_expires_unless_it_has_a_transaction() -> None:
    """TT4."""
    world = TransactionWorld()
    week = world.settings.transactional_id_expiration_ms
    world.init()
    world.now_ms = week - 1
    world.wall.read(1_000_000, world.now_ms)
    world.handle(TransactionalIdExpiryDue())
    assert world.state == "Empty"
    world.now_ms = week + 3_600_000
    world.handle(TransactionalIdExpiryDue())
    assert (world.state, world.log[-1].value) == ("absent", None)
    assert world.describe().error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert world.init(1000, 0) == ok(1001, 0), "whatever is given, it is new"
    world.add()
    world.now_ms += 2 * week
    world.handle(TransactionalIdExpiryDue())
    assert world.state == "Ongoing"


@pytest.mark.parametrize("commit", [True, False])
def test_decided_transactions_are_completed_when_they_are_loaded(commit: bool) -> None:
    """TR3, TR5: all markers are written again, with the new coordinator's epoch."""
    world = TransactionWorld()
    world.init()
    world.add(TWO)
    world.holds_markers = True
    world.end(commit=commit)
    world.mark(ORDERS)
    assert last(world).status is (TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT)
    world.holds_markers = False
    world.markers = []
    world.start(epoch=9)
    assert world.state == ("CompleteCommit" if commit else "CompleteAbort")
    assert world.markers == [(1000, 1, commit, 9, partition) for partition in sorted(TWO)]
    assert world.end(commit=commit, at=(1000, 0)) == ok(1000, 1)


def test_a_loaded_transaction_times_out_also_if_it_began_by_a_clock_that_was_ahead() -> None:
    """TR3, TT1: else it would hold the last stable offset for as long as the clock was ahead."""
    world = TransactionWorld()
    world.init(timeout_ms=1_000)
    world.wall.read(1_000_000 + 10_800_000, world.now_ms)
    world.add()
    world.wall.read(1_000_000, world.now_ms)
    world.start()
    world.now_ms += 999
    world.handle(TimeoutCheckDue())
    assert world.state == "Ongoing"
    world.now_ms += 1
    world.handle(TimeoutCheckDue())
    assert world.state == "CompleteAbort"


def test_what_comes_back_from_an_earlier_life_is_ignored() -> None:
    world = TransactionWorld()
    world.init()
    world.holds_writes = True
    world.add()
    (old,) = world.unwritten
    world.start()
    world.perform(world.coordinator.handle(old.then, 0))
    assert world.state == "Empty"


def test_a_lost_partition_answers_those_who_wait() -> None:
    """TF3, TR4."""
    world = TransactionWorld()
    world.init()
    world.holds_writes = True
    world.add()
    world.end(commit=True)
    partition = world.coordinator.partition_of(TX)
    world.perform(world.coordinator.lose(partition, 0))
    assert world.answers[2] is ErrorCode.NOT_COORDINATOR
    request = InitProducerId(token=50, transactional_id=TX, timeout_ms=1)
    assert world.ask(request) == refused(ErrorCode.NOT_COORDINATOR)
    world.coordinator.gain(partition)
    request = InitProducerId(token=51, transactional_id=TX, timeout_ms=1)
    assert world.ask(request) == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    request = InitProducerId(token=52, transactional_id=TX, timeout_ms=0)
    assert world.ask(request) == refused(ErrorCode.INVALID_TRANSACTION_TIMEOUT), "mistakes come first"


def test_records_that_cannot_be_read_are_counted() -> None:
    world = TransactionWorld()
    replay = world.coordinator.gain(0)
    replay.record(b"\0\x07", None)
    replay.record(b"", b"")
    assert (replay.skipped, replay.values) == (2, {})


def test_an_impossible_transition_is_a_mistake() -> None:
    """TS2."""
    world = TransactionWorld()
    world.init()
    transaction = world.transaction()
    assert transaction is not None

    with pytest.raises(IllegalTransitionError, match="from Empty"):
        transaction.change(transaction.value(COMPLETE_COMMIT, 0), -1)
