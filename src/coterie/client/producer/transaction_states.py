"""The states of a transactional producer, the calls that each allows, and its reaction to every error (KIP-1050).

`transaction_manager.py` looks up here what may follow and what an error means. Only this file assigns `manager.state`.
The tables of docs/transactions.md are printed from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import TYPE_CHECKING

from coterie.errors import (
    RETRIABLE,
    ApplicationRecoverableError,
    AuthenticationError,
    ErrorCode,
    IllegalTransitionError,
    InvalidConfigurationError,
    KafkaError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
)

if TYPE_CHECKING:
    from coterie.client.producer.transaction_manager import TransactionManager


class TransactionState(StrEnum):
    """The states of a transactional producer."""

    UNINITIALIZED = "Uninitialized"
    INITIALIZING = "Initializing"
    READY = "Ready"
    IN_TRANSACTION = "InTransaction"
    COMMITTING = "Committing"
    ABORTING = "Aborting"
    ABORTABLE_ERROR = "AbortableError"
    FATAL_ERROR = "FatalError"


UNINITIALIZED, INITIALIZING, READY, IN_TRANSACTION, COMMITTING, ABORTING, ABORTABLE_ERROR, FATAL_ERROR = (
    TransactionState
)

DOING: Mapping[TransactionState, str] = {
    UNINITIALIZED: "has no producer id yet",
    INITIALIZING: "asks for a producer id, which fences older producers and aborts what they left open",
    READY: "has no open transaction",
    IN_TRANSACTION: "has an open transaction",
    COMMITTING: "delivers what was sent, then commits",
    ABORTING: "drops what was not sent, then aborts",
    ABORTABLE_ERROR: "has an open transaction that can only be aborted",
    FATAL_ERROR: "cannot do anything any more",
}

NEXT: Mapping[TransactionState, frozenset[TransactionState]] = {
    UNINITIALIZED: frozenset({INITIALIZING, FATAL_ERROR}),
    INITIALIZING: frozenset({READY, UNINITIALIZED, ABORTABLE_ERROR, FATAL_ERROR}),
    READY: frozenset({IN_TRANSACTION, FATAL_ERROR}),
    IN_TRANSACTION: frozenset({COMMITTING, ABORTING, ABORTABLE_ERROR, FATAL_ERROR}),
    COMMITTING: frozenset({READY, INITIALIZING, ABORTABLE_ERROR, FATAL_ERROR}),
    ABORTING: frozenset({READY, INITIALIZING, FATAL_ERROR}),
    ABORTABLE_ERROR: frozenset({ABORTING, FATAL_ERROR}),
    FATAL_ERROR: frozenset(),
}


def enter(manager: TransactionManager, state: TransactionState) -> None:
    """Change the state of a producer, if the table allows that."""
    if state not in NEXT[manager.state]:
        raise IllegalTransitionError(f"a transactional producer cannot go from {manager.state} to {state}")
    manager.state = state


# --- calls ------------------------------------------------------------------------------------------------------------


class TransactionCall(StrEnum):
    """The methods of a transactional producer."""

    INIT = "init_transactions()"
    BEGIN = "begin_transaction()"
    SEND = "send()"
    SEND_OFFSETS = "send_offsets()"
    COMMIT = "commit_transaction()"
    ABORT = "abort_transaction()"


ALLOWED: Mapping[TransactionCall, frozenset[TransactionState]] = {
    TransactionCall.INIT: frozenset({UNINITIALIZED}),
    TransactionCall.BEGIN: frozenset({READY}),
    TransactionCall.SEND: frozenset({IN_TRANSACTION}),
    TransactionCall.SEND_OFFSETS: frozenset({IN_TRANSACTION}),
    TransactionCall.COMMIT: frozenset({IN_TRANSACTION}),
    TransactionCall.ABORT: frozenset({IN_TRANSACTION, ABORTABLE_ERROR}),
}
"""The states in which a call is possible. In AbortableError and FatalError all others raise that error."""

WHAT_TO_DO: Mapping[TransactionState, str] = {
    UNINITIALIZED: "call init_transactions() first",
    INITIALIZING: "init_transactions() has not ended: call it again to wait for it",
    READY: "no transaction is open: call begin_transaction() first",
    IN_TRANSACTION: "a transaction is open: commit or abort it first",
    COMMITTING: "the transaction is being committed: call commit_transaction() again to wait for it",
    ABORTING: "the transaction is being aborted: call abort_transaction() again to wait for it",
}
"""The rest of the error of a call that is not possible; the first half names the call."""


# --- errors -----------------------------------------------------------------------------------------------------------


class TransactionApi(StrEnum):
    """The requests of a transactional producer."""

    FIND_COORDINATOR = "FindCoordinator"
    INIT_PRODUCER_ID = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    TXN_OFFSET_COMMIT = "TxnOffsetCommit"
    END_TXN = "EndTxn"
    PRODUCE = "Produce"


class ErrorClass(Enum):
    """The classes of errors of KIP-1050, and what the producer does."""

    RETRIABLE = "the same request is sent again"
    REFRESH = "the coordinator is looked up, then the same request is sent again"
    ABORTABLE = "the transaction can only be aborted; the producer can begin another"
    RECOVERABLE = "this producer is done; a new one with the same transactional.id can go on"
    FATAL = "this producer is done, and a new one may fail in the same way"
    CONFIGURATION = "this producer is done; settings, rights or versions have to change"


IS_FATAL = frozenset({ErrorClass.RECOVERABLE, ErrorClass.FATAL, ErrorClass.CONFIGURATION})

_EVERYWHERE: Mapping[ErrorCode, ErrorClass] = {
    **dict.fromkeys(RETRIABLE, ErrorClass.RETRIABLE),
    ErrorCode.NOT_COORDINATOR: ErrorClass.REFRESH,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorClass.REFRESH,
    # No broker says these two: the connection was lost, or no answer came in time.
    ErrorCode.NETWORK_EXCEPTION: ErrorClass.REFRESH,
    ErrorCode.REQUEST_TIMED_OUT: ErrorClass.REFRESH,
    ErrorCode.TRANSACTION_ABORTABLE: ErrorClass.ABORTABLE,
    ErrorCode.PRODUCER_FENCED: ErrorClass.RECOVERABLE,
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorClass.RECOVERABLE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorClass.RECOVERABLE,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorClass.CONFIGURATION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorClass.CONFIGURATION,
    ErrorCode.SASL_AUTHENTICATION_FAILED: ErrorClass.CONFIGURATION,
    ErrorCode.UNSUPPORTED_VERSION: ErrorClass.CONFIGURATION,
    ErrorCode.INVALID_REQUIRED_ACKS: ErrorClass.CONFIGURATION,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: ErrorClass.CONFIGURATION,
}

_GROUP = dict.fromkeys(
    (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ),
    ErrorClass.ABORTABLE,
)

ON_ERROR: Mapping[TransactionApi, Mapping[ErrorCode, ErrorClass]] = {
    TransactionApi.FIND_COORDINATOR: {
        **_EVERYWHERE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorClass.ABORTABLE,
    },
    TransactionApi.INIT_PRODUCER_ID: {
        **_EVERYWHERE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorClass.ABORTABLE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorClass.ABORTABLE,
    },
    TransactionApi.ADD_PARTITIONS: {
        **_EVERYWHERE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorClass.ABORTABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorClass.ABORTABLE,
    },
    TransactionApi.ADD_OFFSETS: {**_EVERYWHERE, ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorClass.ABORTABLE},
    TransactionApi.TXN_OFFSET_COMMIT: {**_EVERYWHERE, **_GROUP},
    TransactionApi.END_TXN: _EVERYWHERE,
    # A batch that has failed: retries have ended. A newer epoch may be the broker's own, after a timeout: the abort
    # tells whether it is another producer's.
    TransactionApi.PRODUCE: dict.fromkeys(
        (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ),
        ErrorClass.RECOVERABLE,
    )
    | dict.fromkeys(
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            ErrorCode.UNSUPPORTED_VERSION,
            ErrorCode.INVALID_REQUIRED_ACKS,
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ),
        ErrorClass.CONFIGURATION,
    ),
}
UNLISTED: Mapping[TransactionApi, ErrorClass] = {
    **dict.fromkeys(TransactionApi, ErrorClass.FATAL),
    TransactionApi.PRODUCE: ErrorClass.ABORTABLE,
}
"""The class of an error that the table does not have."""


def error_class(api: TransactionApi, error: KafkaError) -> ErrorClass:
    """Return what an error of a request means for the producer."""
    if isinstance(error, AuthenticationError):
        return ErrorClass.CONFIGURATION
    return ON_ERROR[api].get(error.code, UNLISTED[api])


_ADVICE = {
    ErrorClass.ABORTABLE: "Abort the transaction; this producer can begin another",
    ErrorClass.RECOVERABLE: "Close this producer. A new one can go on from the committed offsets",
    ErrorClass.FATAL: "Close this producer: it cannot do transactions any more",
    ErrorClass.CONFIGURATION: "Correct the settings or the rights, then make a new producer",
}
_EXCEPTIONS: Mapping[ErrorClass, type[KafkaError]] = {
    ErrorClass.ABORTABLE: TransactionAbortableError,
    ErrorClass.RECOVERABLE: ApplicationRecoverableError,
    ErrorClass.FATAL: TransactionFatalError,
    ErrorClass.CONFIGURATION: InvalidConfigurationError,
}
_DECIDED = (*_EXCEPTIONS.values(), TransactionAbortedError)
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


def exception_of(kind: ErrorClass, error: KafkaError) -> KafkaError:
    """Return what the user gets for an error of this class, with what to do."""
    made = _EXCEPTIONS[kind]
    if isinstance(error, made):
        made = type(error)
    elif kind is ErrorClass.RECOVERABLE and error.code in _FENCED:
        made = ProducerFencedError
    said = str(error)
    advice = _ADVICE[kind]
    return made(said if advice in said else f"{said}. {advice}", error.code)


def undelivered(error: KafkaError) -> KafkaError:
    """Return the error of a record of a transaction that was not delivered."""
    return error if isinstance(error, _DECIDED) else exception_of(error_class(TransactionApi.PRODUCE, error), error)
