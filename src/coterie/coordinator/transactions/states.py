"""The states of a transaction, and what each state answers to each request.

These tables are section 4 of `docs/semantics-transactions.md`. The rules look their answers up here, tests walk every
cell, and `docs/states.md` is printed from them. `Dead` stands for a transactional id that does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum

from coterie.errors import ErrorCode
from coterie.protocol.transaction_state import TransactionStatus


class TransactionState(StrEnum):
    """The names every Kafka tool prints."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD = TransactionState

LISTED_STATES = frozenset({*TransactionState, "PrepareEpochFence"})
"""The states that a filter of ListTransactions may name. No client ever sees the last two."""

STATUS: Mapping[TransactionState, TransactionStatus] = {
    EMPTY: TransactionStatus.EMPTY,
    ONGOING: TransactionStatus.ONGOING,
    PREPARE_COMMIT: TransactionStatus.PREPARE_COMMIT,
    PREPARE_ABORT: TransactionStatus.PREPARE_ABORT,
    COMPLETE_COMMIT: TransactionStatus.COMPLETE_COMMIT,
    COMPLETE_ABORT: TransactionStatus.COMPLETE_ABORT,
}
"""The number of each state in its record."""
STATE_OF = {status: state for state, status in STATUS.items()}

COMPLETED: Mapping[TransactionState, TransactionState] = {
    PREPARE_COMMIT: COMPLETE_COMMIT,
    PREPARE_ABORT: COMPLETE_ABORT,
}
"""The state that follows when all markers are written."""
MAY_EXPIRE = frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT})


class TransactionAction(Enum):
    """The reaction of a state to a request, other than an error."""

    CREATE = "create the id with a new producer id, epoch 0"
    BUMP = "answer with the next epoch; the state is Empty"
    FENCE = "abort the transaction with the next epoch, and answer CONCURRENT_TRANSACTIONS"
    BEGIN = "begin a transaction with these partitions"
    ADD = "add the partitions that are not in the transaction"
    LOOK = "NONE for a partition that is in the transaction, else TRANSACTION_ABORTABLE"
    END = "end the transaction"
    ABORT_NOTHING = "abort a transaction without partitions, which bumps the epoch"
    REPEAT = "repeat the answer"


Answer = ErrorCode | TransactionAction

NEXT: Mapping[TransactionState, frozenset[TransactionState]] = {
    DEAD: frozenset({EMPTY}),
    EMPTY: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    ONGOING: frozenset({ONGOING, PREPARE_COMMIT, PREPARE_ABORT}),
    PREPARE_COMMIT: frozenset({COMPLETE_COMMIT}),
    PREPARE_ABORT: frozenset({COMPLETE_ABORT}),
    COMPLETE_COMMIT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
    COMPLETE_ABORT: frozenset({EMPTY, ONGOING, PREPARE_ABORT, DEAD}),
}
"""TS2: the states that may follow each state."""

_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID = ErrorCode.INVALID_TXN_STATE
_ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
_FENCED = ErrorCode.PRODUCER_FENCED

# In Prepare* the next record is always on its way, so that everything is CONCURRENT_TRANSACTIONS (TS3).
_PREPARED: Mapping[TransactionState, Answer] = {PREPARE_COMMIT: _CONCURRENT, PREPARE_ABORT: _CONCURRENT}

ON_INIT: Mapping[TransactionState, Answer] = {
    **_PREPARED,
    DEAD: TransactionAction.CREATE,
    EMPTY: TransactionAction.BUMP,
    ONGOING: TransactionAction.FENCE,
    COMPLETE_COMMIT: TransactionAction.BUMP,
    COMPLETE_ABORT: TransactionAction.BUMP,
}
ON_ADD: Mapping[TransactionState, Answer] = {
    **_PREPARED,
    DEAD: _MAPPING,
    EMPTY: TransactionAction.BEGIN,
    ONGOING: TransactionAction.ADD,
    COMPLETE_COMMIT: TransactionAction.BEGIN,
    COMPLETE_ABORT: TransactionAction.BEGIN,
}
ON_VERIFY: Mapping[TransactionState, Answer] = {
    **_PREPARED,
    DEAD: _MAPPING,
    EMPTY: _ABORTABLE,
    ONGOING: TransactionAction.LOOK,
    COMPLETE_COMMIT: _ABORTABLE,
    COMPLETE_ABORT: _ABORTABLE,
}
# EndTxn up to version 4: the epoch stays, so a repeated request looks like the first.
ON_OLD_COMMIT: Mapping[TransactionState, Answer] = {
    **_PREPARED,
    DEAD: _MAPPING,
    EMPTY: _INVALID,
    ONGOING: TransactionAction.END,
    COMPLETE_COMMIT: TransactionAction.REPEAT,
    COMPLETE_ABORT: _INVALID,
}
ON_OLD_ABORT: Mapping[TransactionState, Answer] = {
    **ON_OLD_COMMIT,
    COMPLETE_COMMIT: _INVALID,
    COMPLETE_ABORT: TransactionAction.REPEAT,
}
# From version 5 on each end bumps the epoch (KIP-890). The epoch before it marks a repeated request.
ON_COMMIT: Mapping[TransactionState, Answer] = {**ON_OLD_COMMIT, COMPLETE_COMMIT: _INVALID}
ON_ABORT: Mapping[TransactionState, Answer] = {
    **_PREPARED,
    DEAD: _MAPPING,
    EMPTY: TransactionAction.ABORT_NOTHING,
    ONGOING: TransactionAction.END,
    COMPLETE_COMMIT: TransactionAction.ABORT_NOTHING,
    COMPLETE_ABORT: TransactionAction.ABORT_NOTHING,
}
ON_REPEATED_COMMIT: Mapping[TransactionState, Answer] = {
    **_PREPARED,
    DEAD: _MAPPING,
    EMPTY: _FENCED,
    ONGOING: _FENCED,
    COMPLETE_COMMIT: TransactionAction.REPEAT,
    COMPLETE_ABORT: _INVALID,
}
ON_REPEATED_ABORT: Mapping[TransactionState, Answer] = {
    **ON_REPEATED_COMMIT,
    COMPLETE_COMMIT: _INVALID,
    COMPLETE_ABORT: TransactionAction.REPEAT,
}

TABLES: Mapping[str, Mapping[TransactionState, Answer]] = {
    "InitProducerId": ON_INIT,
    "AddPartitionsToTxn, AddOffsetsToTxn, Produce 12+, TxnOffsetCommit 5": ON_ADD,
    "AddPartitionsToTxn 4+ with verify_only, Produce 3-11, TxnOffsetCommit 0-4": ON_VERIFY,
    "EndTxn 0-4, commit": ON_OLD_COMMIT,
    "EndTxn 0-4, abort": ON_OLD_ABORT,
    "EndTxn 5, commit": ON_COMMIT,
    "EndTxn 5, abort": ON_ABORT,
    "EndTxn 5, commit, the epoch before": ON_REPEATED_COMMIT,
    "EndTxn 5, abort, the epoch before": ON_REPEATED_ABORT,
}


# --- the same errors, as Produce and TxnOffsetCommit have them -------------------------------------------------------

ADDS_PARTITIONS = 12
"""The first version of Produce that adds its partitions to the transaction."""
ADDS_OFFSETS = 5
"""The first version of TxnOffsetCommit that adds the group's partition to the transaction."""
KNOWS_ABORTABLE_PRODUCE, KNOWS_ABORTABLE_COMMIT = 11, 4
"""The first versions of Produce and TxnOffsetCommit with the error TRANSACTION_ABORTABLE."""

_UNREACHABLE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


def produce_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error of a partition of Produce, if the coordinator answered `error` (TP3)."""
    if error is _FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is _ABORTABLE and version < KNOWS_ABORTABLE_PRODUCE:
        return _INVALID
    if error in _UNREACHABLE or (error is _CONCURRENT and version < ADDS_PARTITIONS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return error


def txn_offset_commit_error(error: ErrorCode, version: int) -> ErrorCode:
    """Return the error of TxnOffsetCommit, if the coordinator of the transaction answered `error`."""
    if error is _FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is _ABORTABLE and version < KNOWS_ABORTABLE_COMMIT:
        return _INVALID
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if error in _UNREACHABLE else error
