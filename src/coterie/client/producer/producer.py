"""The public API of producers: `AsyncProducer` for asyncio, `Producer` for synchronous code.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        delivery = producer.send("orders", "one coffee", key="table 7")
        print(delivery.result())                   # where it is in the log

`send` collects; batches go out in the background, in order, each record once (idempotence is on unless acks says
otherwise). Leaving the `with`, also by Ctrl-C, delivers what is left.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Condition
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from weakref import WeakSet

from coterie.client.arguments import partition_of, seconds_of, time_of, topic_of
from coterie.client.metrics import Metrics
from coterie.client.network.runtime import FORKED, REAL, Runtime, background, documented_by
from coterie.client.producer.delivery import AsyncDelivery, Delivery, OnDelivery, RecordMetadata, delivery_callback
from coterie.client.producer.partition_queue import Batch
from coterie.client.producer.record_accumulator import RecordAccumulator
from coterie.client.producer.record_appender import RECORD_OVERHEAD, EncodedRecord
from coterie.client.producer.sender import Sender
from coterie.client.producer.transactional import AsyncTransactional, Transactional
from coterie.client.settings_kwargs import ProducerKwargs
from coterie.errors import (
    ClientClosedError,
    ErrorCode,
    IllegalArgumentError,
    IllegalStateError,
    KafkaError,
)
from coterie.protocol.records import Header, QuickAppend, SentRecord
from coterie.settings.producer_settings import ProducerSettings

Content = str | bytes | bytearray | memoryview | None
"""Text goes as UTF-8; None is a tombstone as a value, and no key as a key."""
Headers = Mapping[str, Content] | Iterable[tuple[str, Content]]

_Placed = tuple[Batch, int]
_Appended = TypeVar("_Appended")
NO_TIMESTAMP = -1
CLOSED = "closed"


def as_bytes(content: Content, what: str) -> bytes | None:
    if content is None or type(content) is bytes:
        return content
    if isinstance(content, str):
        return content.encode()
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content)
    raise IllegalArgumentError(
        f"the {what} of a record is text, bytes or None, not {type(content).__name__}: encode it first, for example "
        "with json.dumps"
    )


def as_headers(headers: Headers) -> Sequence[Header]:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    found = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise IllegalArgumentError(
                f'headers are a mapping or pairs, as in [("name", "content")]; {pair!r} is not a pair'
            )
        name, content = pair
        if not isinstance(name, str):
            raise IllegalArgumentError(f"the name of a header is text, not {type(name).__name__}")
        found.append((name, as_bytes(content, f"header {name!r}")))
    return found


def check_options(topic: str, partition: int | None, timestamp: int | None, on_delivery: object) -> None:
    """Check what few records have; whether the topic and the partition exist is checked elsewhere."""
    if partition is not None:
        partition_of((topic, partition))
    if timestamp is not None and timestamp != NO_TIMESTAMP:
        time_of(timestamp, f"a record of {topic}")
    if on_delivery is not None and not callable(on_delivery):
        raise IllegalArgumentError(
            f"on_delivery is called with (metadata, error), and {on_delivery!r} cannot be called"
        )


class _Face:
    """The common parts of both producers: settings, append, and the error after close."""

    _runtime: Runtime = REAL
    _delivery: type[SentRecord] = Delivery

    def __init__(
        self, settings: ProducerSettings | Mapping[str, object] | None = None, /, **more: Unpack[ProducerKwargs]
    ) -> None:
        """Kafka's names, with dots in a mapping or with underscores as keywords; docs/client-settings.md has them."""
        self.settings = ProducerSettings.of_arguments(settings, more)
        self._sender = Sender(self.settings, self._room_made, self._runtime)
        self._clock_ms, self._wall_ms = self._runtime.clock_ms, self._runtime.wall_ms
        self._unusable = ""
        quick = QuickAppend(self._delivery, self._sender.lock, RECORD_OVERHEAD)
        if self._sender.transactions is None and self._runtime is REAL:  # it takes the time by itself
            self._sender.accumulator.quick = quick
        self._append_quickly = quick.append

    def __repr__(self) -> str:
        state = "closed" if self._unusable else f"{self._sender.accumulator.unsettled} records under way"
        return f"{type(self).__name__}({','.join(map(str, self.settings.addresses))}, {state})"

    def metrics(self) -> Metrics:
        """Return the metrics under Kafka's names; can be called from any thread.

        Returns:
            For each group of metrics a mapping of names to values; None is what was not measured yet.
        """
        return self._sender.metrics()

    def _room_made(self) -> None:
        raise NotImplementedError

    def _append(self, topic: str, partition: int | None, record: EncodedRecord) -> _Placed | None:
        """Append a record; None if there is no room. The caller has the lock."""
        return self._usable().append(topic, partition, record, self._clock_ms())

    def _usable(self) -> RecordAccumulator:
        """Return the accumulator; raise if the producer cannot send."""
        if self._unusable:
            raise self._refusal()
        if self._sender.transactions is not None:
            self._sender.transactions.manager.check_send()
        accumulator = self._sender.accumulator
        if accumulator.failure is not None:
            raise KafkaError(f"this producer cannot send any more: {accumulator.failure}", accumulator.failure.code)
        return accumulator

    def _refusal(self) -> IllegalStateError:
        return ClientClosedError() if self._unusable == CLOSED else IllegalStateError(self._unusable)

    def _knows(self, topic: str, partition: int | None) -> bool:
        known = self._sender.accumulator.topics.get(topic) if isinstance(topic, str) else None
        return known is not None and (partition is None or 0 <= partition < known.partitions)

    def _no_room(self) -> KafkaError:
        settings = self.settings
        return KafkaError(
            f"no room for the record within max.block.ms={settings.max_block_ms}: "
            f"{self._sender.accumulator.used} bytes wait to be delivered and buffer.memory is "
            f"{settings.buffer_memory}. Is the cluster there?",
            ErrorCode.REQUEST_TIMED_OUT,
        )

    def _given_up(self, left: int, timeout: float | None) -> KafkaError:
        return KafkaError(
            f"{left} records were not delivered within the {timeout} s that close() was given; each delivery says why",
            ErrorCode.REQUEST_TIMED_OUT,
        )


class AsyncProducer(_Face, AsyncTransactional):
    """Send records, with asyncio.

    Example::

        async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
            delivery = await producer.send("orders", "one coffee", key="table 7")
            print(await delivery)

    It is for one event loop. `async with` closes it, which delivers what is left. An argument that cannot be right
    raises `IllegalArgumentError` before anything is sent.

    Args:
        settings: Settings under Kafka's names, in a mapping or as `ProducerSettings`.
        **more: Settings as keywords, with underscores for dots. They count more than `settings`.

    Raises:
        SettingsError: A setting is unknown, its value is not allowed, or `bootstrap.servers` is missing.
    """

    _delivery = AsyncDelivery

    def __init__(
        self, settings: ProducerSettings | Mapping[str, object] | None = None, /, **more: Unpack[ProducerKwargs]
    ) -> None:
        super().__init__(settings, **more)
        self._waiting: list[asyncio.Future[None]] = []

    async def send(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> AsyncDelivery:
        """Hand over a record, and return before it is delivered.

        It waits for room in the buffer and for the topic to be known, `max.block.ms` at most. Records of a partition
        keep their order. Without `partition` the key decides where a record goes; without a key it is any partition.

        Args:
            topic: The name of the topic.
            value: Text, which goes as UTF-8, bytes, or None, which is a tombstone.
            key: Text, bytes or None.
            headers: A mapping, or pairs of a name and a content.
            partition: The number of the partition.
            timestamp: Milliseconds since 1970; now if it is not given.
            on_delivery: A function that is called with `(metadata, error)` when the record's fate is known; one of the
                two is None. It is called in the event loop.

        Returns:
            A delivery. Await it for the `RecordMetadata`, or do not; it raises `KafkaError` if the record was not
            delivered.

        Raises:
            InvalidTopicError: No topic can have such a name.
            KafkaError: The topic or the partition does not exist, there was no room in time, or the producer has
                failed.
            ClientClosedError: The producer is closed.
        """
        if key is None and partition is None and timestamp is None and on_delivery is None and not headers:
            delivery: AsyncDelivery | None = self._append_quickly(topic, value)
            if delivery is not None:
                return delivery
        if self._unusable:
            raise self._refusal()
        if self._sender.loop is None:
            self._sender.start()
        if partition is not None or timestamp is not None or on_delivery is not None:
            check_options(topic, partition, timestamp, on_delivery)
        when = timestamp if timestamp is not None else self._wall_ms()
        record = as_bytes(key, "key"), as_bytes(value, "value"), when, as_headers(headers) if headers else ()
        sender = self._sender
        try:
            if not self._knows(topic, partition):
                await sender.know(topic_of(topic), partition)
            with sender.lock:
                placed = self._append(topic, partition, record)
            if placed is None:
                placed = await self._append_when_there_is_room(topic, partition, record)
        except KafkaError as error:
            sender.send_failed(error)
            raise
        batch, index = placed
        if on_delivery is not None:
            batch.callbacks.append((index, delivery_callback(on_delivery, when)))
        if sender.accumulator.wants_attention:
            sender.look()
            await asyncio.sleep(0)  # or a loop of sends would keep the batches it fills from going out
        return AsyncDelivery(batch, index, when, None)

    async def send_and_wait(self, topic: str, value: Content = None, **how: Any) -> RecordMetadata:
        """Send one record and wait until it is delivered.

        Many records are faster by `send`, with `flush` at the end.

        Args:
            topic: The name of the topic.
            value: Text, bytes or None.
            **how: `key`, `headers`, `partition`, `timestamp` and `on_delivery`, as for `send`.

        Returns:
            Where the record is in the log.

        Raises:
            KafkaError: The record was not delivered.
        """
        return await (await self.send(topic, value, **how))

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  as Producer has it
        """Wait until everything sent so far is delivered or has failed.

        Args:
            timeout: The longest time to wait, in seconds; without it `delivery.timeout.ms` is the limit.

        Raises:
            TimeoutError: Some records were still under way after `timeout`.
        """
        if timeout is not None:
            seconds_of(timeout)
        if self._sender.loop is not None:
            await _within(timeout, self._sender)

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  it ends waiting, not the call
        """Deliver what is left, and close the connections. A second close does nothing.

        Args:
            timeout: The longest time to deliver, in seconds; without it `delivery.timeout.ms` is the limit.

        Raises:
            KafkaError: Some records were not delivered in time; each delivery says why.
        """
        if self._unusable:
            return
        if timeout is not None:
            seconds_of(timeout)
        self._unusable = CLOSED
        self._sender.accumulator.stop_quick()
        left = await self._sender.close(timeout)
        self._room_made()
        if left:
            raise self._given_up(left, timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        _warn_if_left(self)

    def _room_made(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def _append_when_there_is_room(self, topic: str, partition: int | None, record: EncodedRecord) -> _Placed:
        loop = asyncio.get_running_loop()
        placed = None
        try:
            async with asyncio.timeout(self.settings.max_block_ms / 1000):
                while placed is None:
                    room = loop.create_future()
                    self._waiting.append(room)
                    self._sender.look()
                    await room
                    with self._sender.lock:
                        placed = self._append(topic, partition, record)
        except TimeoutError:
            raise self._no_room() from None
        return placed


@documented_by(AsyncProducer)
class Producer(_Face, Transactional):
    """Send records; any number of threads may.

    Example::

        with Producer(bootstrap_servers="localhost:9092") as producer:
            delivery = producer.send("orders", "one coffee", key="table 7")
            print(delivery.result())

    Batches go out in a background thread that all clients of the process share. `with` closes it, which delivers what
    is left. An argument that cannot be right raises `IllegalArgumentError` before anything is sent.

    Args:
        settings: Settings under Kafka's names, in a mapping or as `ProducerSettings`.
        **more: Settings as keywords, with underscores for dots. They count more than `settings`.

    Raises:
        SettingsError: A setting is unknown, its value is not allowed, or `bootstrap.servers` is missing.
    """

    def __init__(
        self, settings: ProducerSettings | Mapping[str, object] | None = None, /, **more: Unpack[ProducerKwargs]
    ) -> None:
        super().__init__(settings, **more)
        self._room = Condition(self._sender.lock)
        self._is_woken = False
        self._background = background()
        self._background.run(self._start())
        self._loop = self._background.loop
        _open.add(self)

    async def _start(self) -> None:
        self._sender.start()

    def send(
        self,
        topic: str,
        value: Content = None,
        *,
        key: Content = None,
        headers: Headers = (),
        partition: int | None = None,
        timestamp: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Hand over a record, and return before it is delivered.

        It waits for room in the buffer and for the topic to be known, `max.block.ms` at most. Records of a partition
        keep their order. Without `partition` the key decides where a record goes; without a key it is any partition.

        Args:
            topic: The name of the topic.
            value: Text, which goes as UTF-8, bytes, or None, which is a tombstone.
            key: Text, bytes or None.
            headers: A mapping, or pairs of a name and a content.
            partition: The number of the partition.
            timestamp: Milliseconds since 1970; now if it is not given.
            on_delivery: A function that is called with `(metadata, error)` when the record's fate is known; one of the
                two is None. It is called in the background thread.

        Returns:
            A delivery. Its `result()` waits for the `RecordMetadata`, or raises `KafkaError` if the record was not
            delivered.

        Raises:
            InvalidTopicError: No topic can have such a name.
            KafkaError: The topic or the partition does not exist, there was no room in time, or the producer has
                failed.
            ClientClosedError: The producer is closed.
        """
        if key is None and partition is None and timestamp is None and on_delivery is None and not headers:
            delivery: Delivery | None = self._append_quickly(topic, value)
            if delivery is not None:
                return delivery
        if type(value) is not bytes:
            value = as_bytes(value, "value")
        if key is not None:
            key = as_bytes(key, "key")
        if partition is not None or timestamp is not None or on_delivery is not None:
            check_options(topic, partition, timestamp, on_delivery)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        record = key, value, timestamp, as_headers(headers) if headers else ()
        sender = self._sender
        accumulator = sender.accumulator
        try:
            is_known = partition is None and type(topic) is str and topic in accumulator.topics
            if not is_known and not self._knows(topic, partition):
                if self._unusable:
                    raise self._refusal()
                self._background.run(sender.know(topic_of(topic), partition))
            with sender.lock:
                if self._unusable or sender.transactions is not None or accumulator.failure is not None:
                    self._usable()
                placed = accumulator.append(topic, partition, record, self._clock_ms())
                if placed is None:
                    placed = self._when_there_is_room(partial(self._append, topic, partition, record))
                batch, index = placed
                if on_delivery is not None:
                    batch.callbacks.append((index, delivery_callback(on_delivery, timestamp)))
                if accumulator.wants_attention:
                    self._wake()
        except KafkaError as error:
            self._loop.call_soon_threadsafe(sender.send_failed, error)
            raise
        return Delivery(batch, index, timestamp, sender.lock)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered or has failed."""
        if timeout is not None:
            seconds_of(timeout)
        self._background.run(_within(timeout, self._sender))

    def close(self, timeout: float | None = None) -> None:
        """Deliver what is left, and close the connections. A second close does nothing."""
        if self._unusable:
            return
        if timeout is not None:
            seconds_of(timeout)
        with self._sender.lock:
            self._unusable = CLOSED
            self._sender.accumulator.settle()
            self._room.notify_all()
        _open.discard(self)
        left = self._background.run(self._sender.close(timeout))
        if left:
            raise self._given_up(left, timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def _wake(self) -> None:
        """Wake the loop, unless it is woken already. The caller has the lock."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._is_woken = False
        self._sender.look()

    def _room_made(self) -> None:
        with self._room:
            self._room.notify_all()

    def _when_there_is_room(self, append: Callable[[], _Appended | None]) -> _Appended:
        """Append when there is room. The caller has the lock, which is released while this waits."""
        deadline_ms = self._clock_ms() + self.settings.max_block_ms
        placed = None
        while placed is None:
            self._wake()
            left_ms = 0 if self._background.is_here else deadline_ms - self._clock_ms()  # room is made in that thread
            if left_ms <= 0 or not self._room.wait(left_ms / 1000):
                raise self._no_room()
            placed = append()
        return placed


async def _within(timeout: float | None, sender: Sender) -> None:  # noqa: ASYNC109  the caller's, in seconds
    async with asyncio.timeout(timeout):
        await sender.flush()


# --- those who forget to close ----------------------------------------------------------------------------------------

_open: WeakSet[Producer] = WeakSet()


def _warn_if_left(producer: Producer | AsyncProducer) -> None:
    if getattr(producer, "_unusable", True):
        return
    left = producer._sender.accumulator.unsettled  # noqa: SLF001  its own
    if left:
        warnings.warn(
            f"a producer was never closed, and {left} records may not have been delivered: call close(), or use `with`",
            RuntimeWarning,
            stacklevel=2,
        )


def _warn_at_exit() -> None:
    for producer in list(_open):
        _warn_if_left(producer)
        producer._unusable = "the process is ending"  # noqa: SLF001  so that it warns once
        producer._sender.accumulator.stop_quick()  # noqa: SLF001


def _disown_in_child() -> None:
    for producer in list(_open):
        producer._unusable = FORKED  # noqa: SLF001  its own
        producer._sender.accumulator.stop_quick()  # noqa: SLF001


atexit.register(_warn_at_exit)
os.register_at_fork(after_in_child=_disown_in_child)
