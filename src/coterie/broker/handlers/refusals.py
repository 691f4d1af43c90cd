"""The reasons why a topic or its configs cannot be changed: Kafka's error code, and a message."""

from __future__ import annotations

from typing import NamedTuple

from coterie.errors import ErrorCode

__all__ = ["Refusal", "TopicError", "illegal_name", "no_such_topic", "unknown_type"]


class Refusal(NamedTuple):
    error: ErrorCode
    message: str


CLUSTER_DENIED = Refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
NAMELESS = Refusal(ErrorCode.INVALID_REQUEST, "a resource of this type needs a name")


class TopicError(Exception):
    """A refusal that is raised, or given to the one who waits for a topic."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def illegal_name(name: str) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        f"{name[:249]!r} is not a topic name: it must have 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-', but not "
        "'.' or '..'",
    )


def no_such_topic(name: str) -> Refusal:
    return Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name[:249]!r} does not exist")


def unknown_type(resource_type: int) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REQUEST,
        f"resources of type {resource_type} are not known: 2 is a topic, 4 a broker, 16 client metrics, 32 a group",
    )
