"""AddPartitionsToTxn: partitions that a transaction will write to (KIP-98).

A producer sends versions 0 to 3, for one transaction. Brokers use versions 4 and 5 among themselves, for many
transactions; with `verify_only` nothing is added (KIP-890).
"""

from __future__ import annotations

from collections.abc import Sequence

from coterie.errors import ErrorCode
from coterie.protocol.api import api
from coterie.protocol.codec.codec import codec
from coterie.protocol.codec.fields import Int16, Int32, Int64, message, wire

__all__ = [
    "API",
    "MANY",
    "PartitionResult",
    "Request",
    "Response",
    "Topic",
    "TopicResult",
    "Transaction",
    "TransactionResult",
    "read_request",
    "read_response",
    "write_request",
    "write_response",
]

API = api("AddPartitionsToTxn")

MANY = 4
"""The first version with several transactions."""


@message
class Topic:
    name: str
    partitions: Sequence[Int32]


@message
class Transaction:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    verify_only: bool = False
    topics: Sequence[Topic]


@message
class _Request:
    transactions: Sequence[Transaction] = wire(since=MANY, default=())
    transactional_id: str = wire(until=MANY - 1, default="")
    producer_id: Int64 = wire(until=MANY - 1, default=-1)
    producer_epoch: Int16 = wire(until=MANY - 1, default=-1)
    topics: Sequence[Topic] = wire(until=MANY - 1, default=())


@message
class PartitionResult:
    partition: Int32
    error: ErrorCode = ErrorCode.NONE


@message
class TopicResult:
    name: str
    partitions: Sequence[PartitionResult]


@message
class TransactionResult:
    transactional_id: str
    topics: Sequence[TopicResult]


@message
class _Response:
    throttle_time_ms: Int32 = 0
    error: ErrorCode = wire(since=MANY, default=ErrorCode.NONE)
    transactions: Sequence[TransactionResult] = wire(since=MANY, default=())
    topics: Sequence[TopicResult] = wire(until=MANY - 1, default=())


@message
class Request:
    """One transaction in versions 0 to 3, any number from 4 on."""

    transactions: Sequence[Transaction]


@message
class Response:
    """One result for each transaction; versions 0 to 3 do not repeat the transactional id."""

    transactions: Sequence[TransactionResult]
    error: ErrorCode = ErrorCode.NONE
    throttle_time_ms: int = 0


_read_request, _write_request = codec(API, _Request)
_read_response, _write_response = codec(API, _Response)


def read_request(frame: bytes, at: int, version: int) -> Request:
    request = _read_request(frame, at, version)
    if version >= MANY:
        return Request(transactions=request.transactions)
    one = Transaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        topics=request.topics,
    )
    return Request(transactions=[one])


def write_request(request: Request, version: int) -> bytes:
    if version >= MANY:
        return _write_request(_Request(transactions=request.transactions), version)
    (one,) = request.transactions
    return _write_request(
        _Request(
            transactional_id=one.transactional_id,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            topics=one.topics,
        ),
        version,
    )


def read_response(frame: bytes, at: int, version: int) -> Response:
    response = _read_response(frame, at, version)
    transactions = response.transactions
    if version < MANY:
        transactions = [TransactionResult(transactional_id="", topics=response.topics)]
    return Response(transactions=transactions, error=response.error, throttle_time_ms=response.throttle_time_ms)


def write_response(response: Response, version: int) -> bytes:
    written = _Response(throttle_time_ms=response.throttle_time_ms, error=response.error)
    if version >= MANY:
        written.transactions = response.transactions
    else:
        written.topics = [topic for one in response.transactions for topic in one.topics]
    return _write_response(written, version)
