"""AlterReplicaLogDirs: which log directory of a broker is to have a replica (KIP-113)."""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32, message

__all__ = [
    "API",
    "AlteredPartition",
    "AlteredTopic",
    "LogDir",
    "Request",
    "Response",
    "Topic",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("AlterReplicaLogDirs")


@message
class Topic:
    name: str
    partitions: Sequence[Int32]


@message
class LogDir:
    path: str
    topics: Sequence[Topic]


@message
class Request:
    dirs: Sequence[LogDir]


@message
class AlteredPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE


@message
class AlteredTopic:
    topic: str
    partitions: Sequence[AlteredPartition]


@message
class Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[AlteredTopic] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
