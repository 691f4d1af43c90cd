"""Kafka's error codes under their names in the protocol, and Coterie's exceptions.

A client's mistake is an `ErrorCode` in a reply. Our own mistake is an exception and never becomes a code. In our own
clients the code of a reply becomes a `KafkaError`, which says what happened in words.
"""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The error codes of Kafka 4.3 that Coterie's broker sends or its clients understand."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133


class CoterieError(Exception):
    """Base of every exception this package raises on purpose."""


class IllegalTransitionError(CoterieError):
    """A group changed its state in a way that `coordinator/classic/states.py` does not allow: a bug in Coterie."""


class MalformedError(CoterieError, ValueError):
    """Bytes are malformed. The message says where reading stopped and what was expected."""


class IllegalArgumentError(CoterieError, TypeError, ValueError):
    """An argument is invalid. The message says what was given and what is allowed."""


class IllegalStateError(CoterieError, RuntimeError):
    """A call is not possible now, for example without a group.id or an event loop."""


class ClientClosedError(IllegalStateError):
    """A client was used after it was closed."""

    def __init__(self, message: str = "this client is closed: make a new one") -> None:
        super().__init__(message)


class ConcurrentUseError(IllegalStateError):
    """Two threads, or two tasks, used one consumer at the same time."""


# --- errors of our clients ------------------------------------------------------------------------------------------

RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""The codes whose exception is a RetriableException in Java: the same request may succeed a little later."""

NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
"""The codes of an unknown topic. A broker may need a moment to learn of a new one."""

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""The retriable codes after which a client refreshes its metadata."""

MEANING = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the broker had an unexpected error; see its log",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "the topic or partition does not exist",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the broker that was asked does not lead the partition any more",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading the group",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "the group has no coordinator at the moment",
    ErrorCode.NOT_COORDINATOR: "the broker that was asked does not coordinate the group any more",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "a topic's name is 1 to 249 of a-z A-Z 0-9 . _ and -, and not . or ..",
    ErrorCode.ILLEGAL_GENERATION: "the group has a newer generation",
    ErrorCode.INVALID_GROUP_ID: "a group needs an id that is not empty",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group does not know that member",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the topic's ACLs do not allow it",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the group's ACLs do not allow it",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the cluster's ACLs do not allow it",
    ErrorCode.UNSUPPORTED_VERSION: "the broker does not support the requested version",
    ErrorCode.TOPIC_ALREADY_EXISTS: "a topic of that name already exists",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is not valid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are fewer brokers than replicas asked for, or none was asked for",
    ErrorCode.NOT_CONTROLLER: "the broker that was asked is not the controller any more",
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop them first",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic; its offsets stay while it is",
    ErrorCode.FENCED_INSTANCE_ID: "another member uses the same group.instance.id",
    ErrorCode.TOPIC_DELETION_DISABLED: "the cluster does not allow topics to be deleted (delete.topic.enable)",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the partition does not have that offset",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of the commit is longer than the broker allows",
    ErrorCode.REQUEST_TIMED_OUT: "the broker could not do it in time",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has its transactional id, or transaction.timeout.ms has passed",
    ErrorCode.PRODUCER_FENCED: "a newer producer has its transactional id, or transaction.timeout.ms has passed",
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: "the transactional id has expired, or has another producer id",
    ErrorCode.INVALID_TXN_STATE: "the transaction does not allow it now; transaction.timeout.ms may have passed",
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: "transaction.timeout.ms is below 1, or above transaction.max.timeout.ms",
    ErrorCode.CONCURRENT_TRANSACTIONS: "the last transaction of this transactional id is still being completed",
    ErrorCode.TRANSACTION_ABORTABLE: "the transaction can only be aborted",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "the transactional id's ACLs do not allow it",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "there is no such transactional id",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "it was not tried, because another part of the request failed",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "a transaction that has committed offsets there is still open",
}


class KafkaError(CoterieError):
    """A broker refused a request, or could not be reached. The message says what happened and what to do.

    `code` is the broker's error code, or the one that Kafka's clients use for such an error.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str, code: ErrorCode | None = None) -> None:
        Exception.__init__(self, message)
        if code is not None:
            self.code = code

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed a little later."""
        return self.code in RETRIABLE

    @classmethod
    def of(cls, code: ErrorCode, what: str, said: str | None = None) -> KafkaError:
        """Make the error of a code. `said` is the broker's own message, if the API has one."""
        why = said or MEANING.get(code, "")
        kind = _BY_CODE.get(code, KafkaError)
        return kind(f"{what}: {why} ({code.name})" if why else f"{what}: the broker answered {code.name}", code)


class ConnectionLostError(KafkaError):
    """A broker cannot be reached, disconnected or violated the protocol. Whether it did the request is unknown."""

    code = ErrorCode.NETWORK_EXCEPTION


class RequestTimedOutError(KafkaError):
    """No answer came in time. It is unknown whether the broker handled the request."""

    code = ErrorCode.REQUEST_TIMED_OUT


class InvalidConfigurationError(KafkaError):
    """Settings, rights or versions do not fit (KIP-1050). A retry does not help: something has to be changed."""


class UnsupportedVersionError(InvalidConfigurationError):
    """Client and broker have no version of an API in common."""

    code = ErrorCode.UNSUPPORTED_VERSION


class InvalidTopicError(KafkaError):
    """The name of a topic is not allowed."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class AuthenticationError(InvalidConfigurationError):
    """Broker and client do not accept each other. It is raised at once and not retried: settings have to change."""


class SaslAuthenticationError(AuthenticationError):
    """The broker refused the login, or there are no credentials to log in with."""

    code = ErrorCode.SASL_AUTHENTICATION_FAILED


class SslAuthenticationError(AuthenticationError):
    """TLS failed: a certificate does not verify, or one side does not speak TLS."""


class AuthorizationError(InvalidConfigurationError):
    """The cluster's ACLs do not allow it."""


class CommitFailedError(KafkaError):
    """The commit was refused, and a retry will be, too: the partitions belong to other members by now."""


class RebalanceInProgressError(KafkaError):
    """The group is rebalancing. Poll, so that the rebalance can end, then commit again."""


class FencedInstanceError(KafkaError):
    """Another consumer joined later with the same group.instance.id. This one cannot continue."""


class TransactionAbortableError(KafkaError):
    """The transaction cannot be committed (KIP-1050). Abort it; the same producer can begin the next one."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionAbortedError(KafkaError):
    """The record was not sent, because its transaction was aborted."""

    code = ErrorCode.OPERATION_NOT_ATTEMPTED


class ApplicationRecoverableError(KafkaError):
    """The producer cannot go on (KIP-1050). A new one can, with its transactional.id and from the committed offsets."""


class ProducerFencedError(ApplicationRecoverableError):
    """Another producer was started with the same transactional.id, or the broker ended the transaction."""

    code = ErrorCode.PRODUCER_FENCED


class TransactionFatalError(KafkaError):
    """The producer cannot do transactions any more, and a new one may fail in the same way."""


_BY_CODE: dict[ErrorCode, type[KafkaError]] = {
    ErrorCode.NETWORK_EXCEPTION: ConnectionLostError,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOutError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersionError,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopicError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: SaslAuthenticationError,
    ErrorCode.ILLEGAL_SASL_STATE: SaslAuthenticationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: SaslAuthenticationError,
}
