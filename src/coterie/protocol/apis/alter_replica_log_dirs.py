"""AlterReplicaLogDirs: which log directory of a broker is to have a replica (KIP-113)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int32

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


@dataclass(slots=True, kw_only=True)
class Topic:
    name: str
    partitions: Sequence[Int32]


@dataclass(slots=True, kw_only=True)
class LogDir:
    path: str
    topics: Sequence[Topic]


@dataclass(slots=True, kw_only=True)
class Request:
    dirs: Sequence[LogDir]


@dataclass(slots=True, kw_only=True)
class AlteredPartition:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE


@dataclass(slots=True, kw_only=True)
class AlteredTopic:
    topic: str
    partitions: Sequence[AlteredPartition]


@dataclass(slots=True, kw_only=True)
class Response:
    throttle_time_ms: Int32 = 0
    results: Sequence[AlteredTopic] = ()


read_request, write_request = codec(API, Request)
read_response, write_response = codec(API, Response)
