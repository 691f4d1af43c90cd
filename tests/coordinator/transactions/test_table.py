"""Each cell of the table of states and requests (section 4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from coordinator.transactions.world import ORDERS, TX, TransactionWorld, ok, refused
from coterie.coordinator.transactions.events import ProducerIdAnswer
from coterie.coordinator.transactions.states import (
    NEXT,
    TABLES,
    TransactionAction,
    TransactionState,
    produce_error,
    txn_offset_commit_error,
)
from coterie.errors import ErrorCode

OTHER = frozenset({("orders", 1)})
MAPPING, CONCURRENT = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.CONCURRENT_TRANSACTIONS
INVALID, FENCED = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
OK = ErrorCode.NONE
COLUMNS = ("absent", "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")


def world_in(state: str) -> TransactionWorld:
    """A world whose id is in this state, at epoch 5."""
    world = TransactionWorld()
    if state == "absent":
        return world
    world.init()
    world.set_epoch(4)
    world.init()
    if state == "Empty":
        return world
    if state == "Ongoing":
        world.add()
        return world
    world.set_epoch(4)  # the end bumps it
    world.add()
    world.holds_markers = state.startswith("Prepare")
    world.end(commit=state.endswith("Commit"))
    return world


REQUESTS: dict[str, Callable[[TransactionWorld], Any]] = {
    "init": lambda world: world.init(),
    "init, given": lambda world: world.init(*world.ids_of()),
    "add": lambda world: world.add(OTHER),
    "verify, in it": lambda world: world.verify(ORDERS),
    "verify, not in it": lambda world: world.verify(OTHER),
    "old commit": lambda world: world.end(commit=True, new=False),
    "old abort": lambda world: world.end(commit=False, new=False),
    "commit": lambda world: world.end(commit=True),
    "abort": lambda world: world.end(commit=False),
    "commit again": lambda world: world.end(commit=True, at=before(world)),
    "abort again": lambda world: world.end(commit=False, at=before(world)),
}


def before(world: TransactionWorld) -> tuple[int, int]:
    producer_id, epoch = world.ids_of()
    return producer_id, epoch - 1


FRESH = ok(1000, 0)
BUMPED = ok(1000, 6)
PREPARED = {"PrepareCommit": CONCURRENT, "PrepareAbort": CONCURRENT}
BEGUN: dict[str, Any] = {"absent": MAPPING, **PREPARED}
EXPECTED: dict[str, dict[str, tuple[Any, str]]] = {
    # answer, state after
    "init": {
        "absent": (FRESH, "Empty"),
        "Empty": (BUMPED, "Empty"),
        "Ongoing": (refused(CONCURRENT), "CompleteAbort"),
        "CompleteCommit": (BUMPED, "Empty"),
        "CompleteAbort": (BUMPED, "Empty"),
    },
    "init, given": {
        "absent": (FRESH, "Empty"),
        "Empty": (BUMPED, "Empty"),
        "Ongoing": (refused(CONCURRENT), "CompleteAbort"),
        "CompleteCommit": (BUMPED, "Empty"),
        "CompleteAbort": (BUMPED, "Empty"),
    },
    "add": {
        "absent": (MAPPING, "absent"),
        "Empty": (OK, "Ongoing"),
        "Ongoing": (OK, "Ongoing"),
        "CompleteCommit": (OK, "Ongoing"),
        "CompleteAbort": (OK, "Ongoing"),
    },
    "verify, in it": {
        "absent": (MAPPING, "absent"),
        "Empty": (ABORTABLE, "Empty"),
        "Ongoing": ({("orders", 0): OK}, "Ongoing"),
        "CompleteCommit": (ABORTABLE, "CompleteCommit"),
        "CompleteAbort": (ABORTABLE, "CompleteAbort"),
    },
    "verify, not in it": {
        "absent": (MAPPING, "absent"),
        "Empty": (ABORTABLE, "Empty"),
        "Ongoing": ({("orders", 1): ABORTABLE}, "Ongoing"),
        "CompleteCommit": (ABORTABLE, "CompleteCommit"),
        "CompleteAbort": (ABORTABLE, "CompleteAbort"),
    },
    "old commit": {
        "absent": (refused(MAPPING), "absent"),
        "Empty": (refused(INVALID), "Empty"),
        "Ongoing": (ok(1000, 5), "CompleteCommit"),
        "CompleteCommit": (ok(1000, 5), "CompleteCommit"),
        "CompleteAbort": (refused(INVALID), "CompleteAbort"),
    },
    "old abort": {
        "absent": (refused(MAPPING), "absent"),
        "Empty": (refused(INVALID), "Empty"),
        "Ongoing": (ok(1000, 5), "CompleteAbort"),
        "CompleteCommit": (refused(INVALID), "CompleteCommit"),
        "CompleteAbort": (ok(1000, 5), "CompleteAbort"),
    },
    "commit": {
        "absent": (refused(MAPPING), "absent"),
        "Empty": (refused(INVALID), "Empty"),
        "Ongoing": (BUMPED, "CompleteCommit"),
        "CompleteCommit": (refused(INVALID), "CompleteCommit"),
        "CompleteAbort": (refused(INVALID), "CompleteAbort"),
    },
    "abort": {
        "absent": (refused(MAPPING), "absent"),
        "Empty": (BUMPED, "CompleteAbort"),
        "Ongoing": (BUMPED, "CompleteAbort"),
        "CompleteCommit": (BUMPED, "CompleteAbort"),
        "CompleteAbort": (BUMPED, "CompleteAbort"),
    },
    "commit again": {
        "absent": (refused(MAPPING), "absent"),
        "Empty": (refused(FENCED), "Empty"),
        "Ongoing": (refused(FENCED), "Ongoing"),
        "CompleteCommit": (ok(1000, 5), "CompleteCommit"),
        "CompleteAbort": (refused(INVALID), "CompleteAbort"),
    },
    "abort again": {
        "absent": (refused(MAPPING), "absent"),
        "Empty": (refused(FENCED), "Empty"),
        "Ongoing": (refused(FENCED), "Ongoing"),
        "CompleteCommit": (refused(INVALID), "CompleteCommit"),
        "CompleteAbort": (ok(1000, 5), "CompleteAbort"),
    },
}


@pytest.mark.parametrize("state", COLUMNS)
@pytest.mark.parametrize("request_", REQUESTS)
def test_each_cell(request_: str, state: str) -> None:
    """TS1, TS3, TE2: what each state answers, and which state follows."""
    world = world_in(state)
    assert world.state == state
    answer = REQUESTS[request_](world)
    if state.startswith("Prepare"):
        expected: Any = CONCURRENT
        if request_.startswith(("init", "old", "commit", "abort")):
            expected = refused(CONCURRENT)
        assert (answer, world.state) == (expected, state)
        return
    assert (answer, world.state) == EXPECTED[request_][state]


@pytest.mark.parametrize("state", COLUMNS[1:])
@pytest.mark.parametrize("epoch", [4, 6, 3], ids=["lower", "higher", "two lower"])
def test_a_wrong_epoch_is_fenced_and_a_wrong_producer_id_is_no_mapping(state: str, epoch: int) -> None:
    """TI4: below section 4's table. While a record is on its way, nothing else is looked at, but by older ends."""
    world = world_in(state)
    busy = state.startswith("Prepare")
    assert world.add(at=(1000, epoch)) == (CONCURRENT if busy else FENCED)
    assert world.add(at=(1, 5)) == (CONCURRENT if busy else MAPPING)
    assert world.verify(at=(1000, epoch)) == FENCED
    assert world.verify(at=(1, 5)) == MAPPING
    for commit in (True, False):
        assert world.end(commit=commit, new=False, at=(1000, epoch)) == refused(FENCED)
        assert world.end(commit=commit, new=False, at=(1, 5)) == refused(MAPPING)
        assert world.end(commit=commit, at=(1, 5)) == refused(CONCURRENT if busy else MAPPING)
        if epoch != 4:
            assert world.end(commit=commit, at=(1000, epoch)) == refused(CONCURRENT if busy else FENCED)
    assert world.state == state


@pytest.mark.parametrize("state", ["Empty", "Ongoing", "CompleteCommit", "CompleteAbort"])
def test_while_a_record_is_on_its_way_changes_are_concurrent(state: str) -> None:
    """TS3: whatever else is wrong with them; ends of older versions look at producer id and epoch first."""
    world = world_in(state)
    world.holds_writes = True
    assert (world.end(commit=False) if state == "Ongoing" else world.add(OTHER)) is None
    assert world.init(1, 9) == refused(CONCURRENT)
    assert world.add(at=(1, 9)) == CONCURRENT
    assert world.end(commit=True, at=(1, 9)) == refused(CONCURRENT)
    assert world.end(commit=True, new=False, at=(1, 9)) == refused(MAPPING)
    assert world.end(commit=True, new=False) == refused(CONCURRENT)
    assert world.state == state


def test_every_table_has_every_state_and_only_possible_transitions() -> None:
    """TS2."""
    for table in TABLES.values():
        assert set(table) == set(TransactionState)
    for state, following in NEXT.items():
        assert following, state
    assert {what for table in TABLES.values() for what in table.values() if isinstance(what, TransactionAction)} == set(
        TransactionAction
    )


@pytest.mark.parametrize(
    ("version", "fenced", "abortable", "concurrent"),
    [
        (3, ErrorCode.INVALID_PRODUCER_EPOCH, INVALID, ErrorCode.NOT_ENOUGH_REPLICAS),
        (10, ErrorCode.INVALID_PRODUCER_EPOCH, INVALID, ErrorCode.NOT_ENOUGH_REPLICAS),
        (11, ErrorCode.INVALID_PRODUCER_EPOCH, ABORTABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (12, ErrorCode.INVALID_PRODUCER_EPOCH, ABORTABLE, CONCURRENT),
    ],
)
def test_what_produce_makes_of_the_coordinators_errors(
    version: int, fenced: ErrorCode, abortable: ErrorCode, concurrent: ErrorCode
) -> None:
    """TP3."""
    assert produce_error(FENCED, version) is fenced
    assert produce_error(ABORTABLE, version) is abortable
    assert produce_error(CONCURRENT, version) is concurrent
    assert produce_error(MAPPING, version) is MAPPING
    for unreachable in (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ):
        assert produce_error(unreachable, version) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_what_txn_offset_commit_makes_of_the_coordinators_errors() -> None:
    """TO1."""
    assert txn_offset_commit_error(FENCED, 5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert txn_offset_commit_error(ABORTABLE, 3) is INVALID
    assert txn_offset_commit_error(ABORTABLE, 4) is ABORTABLE
    assert txn_offset_commit_error(CONCURRENT, 3) is CONCURRENT
    assert txn_offset_commit_error(ErrorCode.NOT_COORDINATOR, 3) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_the_answers_are_of_one_kind() -> None:
    world = TransactionWorld()
    assert isinstance(world.init(), ProducerIdAnswer)
    assert world.describe(TX).state == "Empty"
