"""Consumer: the same as AsyncConsumer, for programs without an event loop.

with Consumer(bootstrap_servers="localhost:9092", group_id="billing", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["orders"])
    for record in consumer:
        print(record.key, record.value)

The work is done on the event loop of a thread that all clients of the process share, so heartbeats continue however
long the user's code takes. Listeners run in the thread that polls. That thread also takes records that are fetched
already, without the event loop.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from re import Pattern
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, Unpack

from coterie.client.arguments import ByPartition, Offsets, PartitionLike, Topics, limit_of, seconds_of, subscription_of
from coterie.client.consumer.async_consumer import AN_HOUR_S, CLOSE_TIMEOUT_S, AsyncConsumer
from coterie.client.consumer.engine import WakeupError
from coterie.client.consumer.rebalance_listener import RebalanceCallback, listener_of
from coterie.client.member import effects
from coterie.client.metrics import Metrics
from coterie.client.network.runtime import background, clock_ms, documented_by
from coterie.client.settings_kwargs import ConsumerKwargs
from coterie.client.types import (
    CommitCallback,
    GroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    Records,
    SubscriptionPattern,
    TopicPartition,
)
from coterie.errors import ClientClosedError, ConcurrentUseError
from coterie.protocol.records import Record, RecordIterator
from coterie.settings.consumer_settings import ConsumerSettings

log = logging.getLogger("coterie.consumer")

T = TypeVar("T")
P = ParamSpec("P")


class _OneThread:
    """The lock of a consumer. The thread that has it may take it again, in a listener."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            if not self._lock.acquire(blocking=False):
                raise ConcurrentUseError(
                    "another thread is using this consumer: a consumer is for one thread at a time. Give each thread "
                    "its own, or hand the records over; wakeup() and close() alone may be called from elsewhere"
                )
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            self._lock.release()

    def wait(self, timeout_s: float) -> bool:
        """Take it when the other thread has come out."""
        if self._owner != threading.get_ident() and not self._lock.acquire(timeout=max(timeout_s, 0)):
            return False
        self._owner = threading.get_ident()
        self._depth += 1
        return True


@documented_by(AsyncConsumer)
class Consumer:
    """Read topics as a member of a group, or partitions of your choice.

    Example::

        with Consumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            consumer.subscribe("orders")
            for record in consumer:
                print(record.key, record.value)

    It is for one thread at a time; `wakeup`, `close`, `explain` and `metrics` can be called from others. Its work is
    done in a background thread that all clients of the process share, so that heartbeats go on while your code runs.
    After `close` the methods that need the consumer raise `ClientClosedError`. Where partitions are taken,
    `TopicPartition("orders", 0)` and `("orders", 0)` mean the same. An argument that cannot be right raises
    `IllegalArgumentError` before anything is sent.

    Args:
        settings: Settings under Kafka's names, in a mapping or as `ConsumerSettings`.
        **more: Settings as keywords, with underscores for dots. They count more than `settings`.

    Raises:
        SettingsError: A setting is unknown, its value is not allowed, or `bootstrap.servers` is missing.
    """

    def __init__(
        self, settings: Mapping[str, object] | ConsumerSettings | None = None, /, **more: Unpack[ConsumerKwargs]
    ) -> None:
        self._inner = AsyncConsumer(settings, **more)
        self._background = background()
        self._alone = _OneThread()
        self._is_closing = False
        self._background.run(self._made())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._inner._described()})"

    async def _made(self) -> None:
        _ = self._inner._engine

    @property
    def settings(self) -> ConsumerSettings:
        """The settings that the consumer was made with, and the defaults of the others."""
        return self._inner.settings

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._alone.__enter__()
        except ConcurrentUseError:
            work.close()
            raise
        try:
            return self._background.run(work)
        finally:
            self._alone.__exit__()

    def _do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a short function on the event loop."""

        async def call() -> T:
            return function(*args, **kwargs)

        return self._run(call())

    # --- what to read -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Topics,
        listener: object | None = None,
        *,
        on_assigned: RebalanceCallback | None = None,
        on_revoked: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics, or for all that match a pattern; the next poll begins with it."""
        names, pattern = subscription_of(topics)
        callbacks = listener_of(listener, on_assigned, on_revoked, on_lost)
        callbacks.refuse_coroutines()
        self._do(self._inner._subscribe_as, names, pattern, callbacks)

    def unsubscribe(self, timeout: float | None = None) -> None:
        """Give up all topics and partitions, and leave the group if the consumer is in one."""
        with self._alone:
            ending = self._do(self._inner._begin_unsubscribe)
            if ending is not None:
                self._serve(ending, self._inner._until(timeout))
            self._do(self._inner._end_unsubscribe)

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Read these partitions, without a group that assigns them."""
        self._do(self._inner.assign, partitions)

    def subscription(self) -> frozenset[str] | Pattern[str] | SubscriptionPattern:
        """Return the topics that are subscribed, or the pattern."""
        return self._inner.subscription()

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are assigned now, by the group or by hand."""
        return self._inner.assignment()

    # --- records ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> Records:
        """Return records as soon as there are any, or none after `timeout` seconds."""
        inner = self._inner
        limit = limit_of(max_records, inner.settings)
        with self._alone:
            now_ms = clock_ms()
            calm = inner._calm_engine(now_ms)
            if calm is not None:
                records = self._take(limit)
                if records:
                    calm.measured.quick_polls += 1
                    calm.measured.last_poll_ms = now_ms
                    return records
            until_ms = now_ms + seconds_of(timeout) * 1000
            begins = True
            inner._begin_poll(now_ms)
            while True:
                call = self._wait(until_ms, begins=begins)
                begins = call is None
                if call is not None:
                    self._call(call)
                    continue
                now_ms = inner._calm()
                records = self._take(limit)
                if records or now_ms >= until_ms:
                    inner._end_poll(now_ms)
                    return records

    def _wait(self, until_ms: float, *, begins: bool) -> effects.CallListener | None:
        try:
            return self._background.run(self._inner._engine.poll(until_ms, begins=begins))
        except WakeupError:
            if self._is_closing:
                raise ClientClosedError("this client was closed by another thread: make a new one") from None
            raise

    def _take(self, limit: int) -> Records:
        """An interrupt (Ctrl-C) between the taking and the handing over must not lose what was taken."""
        reading = self._inner._engine.reading
        turns = reading.fetcher.turns
        try:
            with reading.lock:
                records = Records(reading.fetcher.take(limit))
            if reading.fetcher.needs_data:
                reading.ask_more_soon()
        except KeyboardInterrupt:
            self._take_back(turns)
            raise
        return records

    def _take_back(self, turns: int = -1) -> None:
        """Take back the records of the last poll, which did not reach its caller.

        An interrupted poll gives `turns`, the fetcher's when it began. If they are the same, it has taken nothing.
        """
        reading = self._inner._engine.reading
        with reading.lock:
            if reading.fetcher.turns != turns:
                reading.fetcher.rewind()

    def __iter__(self) -> Iterator[Record]:
        return RecordIterator(self._inner._fetcher.buffer, self.__next__)

    def __next__(self) -> Record:
        """Return the next record. The one before counts as processed then."""
        while True:
            turns = self._inner._fetcher.turns
            try:
                with self._alone:
                    record = self._inner._take_one() if self._inner._is_calm else None
            except KeyboardInterrupt:
                self._take_back(turns)
                raise
            if record is not None:
                return record
            records = self.poll(AN_HOUR_S, max_records=1)
            if records:
                return records[0]

    def _call(self, call: effects.CallListener) -> None:
        """Call the listener in this thread; it may use the consumer. An interrupt is not an error of the listener."""
        engine = self._inner._engine
        error: Exception | None = None
        try:
            engine.listener.call(call.kind, call.partitions)
        except Exception as raised:  # noqa: BLE001  the member hears of it, and then the caller of poll (M14)
            error = raised
        except BaseException:
            self._do(engine.listener_done, call, None)
            self._do(engine.end_poll)
            raise
        self._do(engine.listener_done, call, error)

    def _serve(self, ending: Any, until_ms: float) -> None:
        while True:
            call = self._background.run(self._inner._engine.until_something(until_ms, ending))
            if call is not None:
                self._call(call)
            elif ending.done() or clock_ms() >= until_ms:
                break
        if ending.done():
            ending.result()

    def wakeup(self) -> None:
        """Make the poll under way, or the next one, raise `WakeupError`; can be called from any thread."""
        self._inner.wakeup()

    # --- where --------------------------------------------------------------------------------------------------------

    def seek(self, partition: PartitionLike, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition: the next poll begins there."""
        self._do(self._inner.seek, partition, offset)

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Set the positions to the first records of the log, at the next poll."""
        self._do(self._inner.seek_to_beginning, *partitions)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Set the positions behind the last records of the log, at the next poll."""
        self._do(self._inner.seek_to_end, *partitions)

    def seek_to_committed(self, *partitions: PartitionLike) -> None:
        """Set the positions to the committed offsets, at the next poll; where there is none, to `auto.offset.reset`."""
        self._do(self._inner.seek_to_committed, *partitions)

    def pause(self, *partitions: PartitionLike) -> None:
        """Return no records of these partitions until `resume`; the consumer stays in its group."""
        self._do(self._inner.pause, *partitions)

    def resume(self, *partitions: PartitionLike) -> None:
        """Return records of paused partitions again."""
        self._do(self._inner.resume, *partitions)

    def paused(self) -> list[TopicPartition]:
        """Return the partitions that are paused."""
        return self._inner.paused()

    def position(self, partition: PartitionLike, timeout: float | None = None) -> int:
        """Return the offset of the next record that poll will return, and look it up if it is not known yet."""
        return self._run(self._inner.position(partition, timeout))

    def lag(self) -> dict[TopicPartition, int | None]:
        """Return how many records each assigned partition has beyond the position."""
        return self._inner.lag()

    def beginning_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition."""
        return self._run(self._inner.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[PartitionLike], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will have."""
        return self._run(self._inner.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, times: ByPartition[int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, for each partition."""
        return self._run(self._inner.offsets_for_times(times, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:
        """Return all partitions of a topic."""
        return self._run(self._inner.partitions_for(topic, timeout))

    # --- commits ------------------------------------------------------------------------------------------------------

    def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:
        """Commit offsets for the group, and return when they are committed."""
        self._run(self._inner.commit(offsets, timeout))

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Send offsets to commit, once, and do not wait for the answer."""
        self._do(self._inner.commit_async, offsets, callback)

    def committed(
        self, *partitions: PartitionLike, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed."""
        return self._run(self._inner.committed(*partitions, timeout=timeout))

    # --- the group ----------------------------------------------------------------------------------------------------

    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group: group, generation, member id and instance id."""
        return self._inner.group_metadata()

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Start a rebalance at the next poll (KIP-568)."""
        self._do(self._inner.enforce_rebalance, reason)

    def metrics(self) -> Metrics:
        """Return the metrics under Kafka's names; can be called from any thread."""
        return self._inner.metrics()

    def explain(self) -> str:
        """Return what this consumer is doing and waiting for, as a sentence; can be called from any thread."""
        return self._inner.explain()

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = CLOSE_TIMEOUT_S, *, leave: bool | None = None) -> None:
        """Commit if auto-commit is on, leave the group and close the connections. A second close does nothing."""
        if self._is_closing:
            return
        until_ms = clock_ms() + seconds_of(timeout) * 1000
        self._is_closing = True
        self._inner.wakeup()
        if not self._alone.wait(timeout):
            log.warning("another thread did not come back from this consumer in time; it is closed without leaving")
            self._background.run(self._inner._end_close())
            return
        try:
            self._close(until_ms, leave)
        finally:
            self._alone.__exit__()

    def _close(self, until_ms: float, leave: bool | None) -> None:
        left_s = max((until_ms - clock_ms()) / 1000, 0)
        try:
            ending = self._do(self._inner._begin_close, left_s, leave=leave)
            if ending is not None:
                self._serve(ending, until_ms)
        finally:
            self._background.run(self._inner._end_close())
        self._inner._call_back()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the consumer. After an error, records of the last poll count as unprocessed and are not committed."""
        if kind is None:
            self.close()
            return
        if not self._is_closing:
            self._take_back()
            try:
                self.close()
            except Exception:
                log.exception("the consumer's listener raised while it was closed after another error")
