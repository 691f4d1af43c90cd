"""The future of a record that was sent. A `Delivery` knows its batch and its index there. The state of a future is made
when it is first used, since most callers never look at it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from threading import Lock
from typing import Any, NamedTuple

from coterie.client.network.runtime import background
from coterie.client.producer.partition_queue import Batch
from coterie.errors import ErrorCode, IllegalStateError, KafkaError
from coterie.protocol.records import SentRecord


class RecordMetadata(NamedTuple):
    """The position of a record in the log.

    Args:
        topic: The name of the topic.
        partition: The number of the partition.
        offset: Its offset; -1 if the broker does not say: with acks=0, or if it was sent twice and the first answer is
            long forgotten.
        timestamp: Its own time, or the broker's where the topic is set to append time.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


OnDelivery = Callable[[RecordMetadata | None, KafkaError | None], object]


def outcome_of(batch: Batch, index: int, timestamp: int) -> RecordMetadata | KafkaError:
    """Return the outcome of a record of a settled batch."""
    error = batch.error
    if error is None:
        offset = batch.base_offset + index if batch.base_offset >= 0 else -1
        return RecordMetadata(*batch.where, offset, batch.append_time_ms if batch.append_time_ms >= 0 else timestamp)
    if batch.record_errors:
        error = batch.record_errors.get(index) or KafkaError(
            f"the record is in order, but shared a batch for {batch.where} with one that is not: "
            f"{next(iter(batch.record_errors.values()))}",
            ErrorCode.INVALID_RECORD,
        )
    return type(error)(str(error), error.code)  # one for each, since an exception that is raised carries its own trace


def delivery_callback(on_delivery: OnDelivery, timestamp: int) -> Callable[[Batch, int], None]:
    def callback(batch: Batch, index: int) -> None:
        outcome = outcome_of(batch, index, timestamp)
        if isinstance(outcome, KafkaError):
            on_delivery(None, outcome)
        else:
            on_delivery(outcome, None)

    return callback


class Delivery(SentRecord, Future[RecordMetadata]):
    """The result of `Producer.send`: a `concurrent.futures.Future` that cannot be cancelled."""

    # The state of a Future is made by its own __init__, which is called when the first of its attributes is missed.

    _batch: Batch
    _lock: Lock

    def __getattr__(self, name: str) -> Any:
        with self._lock:
            if "_condition" not in self.__dict__:
                Future.__init__(self)
                batch, index = self._batch.locate(self._index)
                if batch.is_settled:
                    self._settle(batch, index)
                else:
                    batch.callbacks.append((index, self._settle))
        return object.__getattribute__(self, name)

    def _settle(self, batch: Batch, index: int) -> None:
        outcome = outcome_of(batch, index, self._timestamp)
        if isinstance(outcome, KafkaError):
            self.set_exception(outcome)
        else:
            self.set_result(outcome)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait until the record is delivered.

        Args:
            timeout: The longest time to wait, in seconds.

        Returns:
            Where the record is in the log.

        Raises:
            KafkaError: The record was not delivered.
            TimeoutError: Its fate is not known in time.
            IllegalStateError: It was called in `on_delivery`, where it would wait for itself.
        """
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the record is delivered or has failed.

        Args:
            timeout: The longest time to wait, in seconds.

        Returns:
            The error, or None if the record was delivered.

        Raises:
            TimeoutError: Its fate is not known in time.
            IllegalStateError: It was called in `on_delivery`, where it would wait for itself.
        """
        self._check_may_wait()
        return super().exception(timeout)

    def _check_may_wait(self) -> None:
        if background().is_here and not self.done():
            raise IllegalStateError(
                "a record's delivery was waited for in on_delivery, in the thread that delivers: it would wait for "
                "itself. Give that record an on_delivery of its own, or wait elsewhere"
            )

    def cancel(self) -> bool:
        """Return False: what was handed over cannot be taken back."""
        return False


class AsyncDelivery(SentRecord):
    """The result of `AsyncProducer.send`: await it for the `RecordMetadata`, as often as you like, or not at all."""

    __slots__ = ()

    _batch: Batch

    def done(self) -> bool:
        """Return whether the record is delivered or has failed."""
        return self._batch.locate(self._index)[0].is_settled

    def result(self) -> RecordMetadata:
        """Return where the record is in the log, without waiting.

        Returns:
            Where the record is in the log.

        Raises:
            KafkaError: The record was not delivered.
            asyncio.InvalidStateError: Its fate is not known yet.
        """
        batch, index = self._batch.locate(self._index)
        if not batch.is_settled:
            raise asyncio.InvalidStateError("the record is still on its way: await the delivery")
        outcome = outcome_of(batch, index, self._timestamp)
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        if not self.done():
            batch, index = self._batch.locate(self._index)
            settled = asyncio.Event()
            batch.callbacks.append((index, lambda _batch, _index: settled.set()))
            yield from settled.wait().__await__()
        return self.result()
