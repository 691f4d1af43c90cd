"""AsyncConsumer: a member of a group, or a reader of partitions of one's choice, for asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from inspect import isawaitable
from re import Pattern
from types import TracebackType
from typing import Any, Self, Unpack

from coterie.client.arguments import (
    ByPartition,
    Offsets,
    PartitionLike,
    Topics,
    by_partition,
    consumer_settings_of,
    limit_of,
    offsets_of,
    partition_of,
    partitions_of,
    seconds_of,
    subscription_of,
    time_of,
    topic_of,
)
from coterie.client.consumer.engine import Engine
from coterie.client.consumer.fetcher import Fetcher
from coterie.client.consumer.rebalance_listener import RebalanceCallback, RebalanceCallbacks, listener_of
from coterie.client.consumer.subscription_state import EARLIEST, LATEST, Reset
from coterie.client.member import effects, events
from coterie.client.metrics import CONSUMER_ROWS, ConsumerMetrics, Metrics, snapshot
from coterie.client.network.runtime import REAL, Runtime
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
from coterie.errors import (
    ClientClosedError,
    ConcurrentUseError,
    CoterieError,
    IllegalStateError,
    RequestTimedOutError,
)
from coterie.protocol.apis import list_offsets
from coterie.protocol.records import AsyncRecordIterator, Record
from coterie.settings.consumer_settings import ConsumerSettings

log = logging.getLogger("coterie.consumer")

CLOSE_TIMEOUT_S = 30.0
CLOSE_GRACE_S = 2.0
"""Time to close the sockets, after the member has left the group."""
CALM_MS = 100
"""For this time after a full poll, polls only take the records that are there. The member learns of them this much
later."""
AN_HOUR_S = 3600.0


class AsyncConsumer:
    """Read topics as a member of a group, or partitions of your choice, with asyncio.

    Example::

        async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            consumer.subscribe("orders")
            async for record in consumer:
                print(record.key, record.value)

    It belongs to the event loop in which it is first used, and to one task at a time. After `close` the methods that
    need the consumer raise `ClientClosedError`. Where partitions are taken, `TopicPartition("orders", 0)` and
    `("orders", 0)` mean the same. An argument that cannot be right raises `IllegalArgumentError` before anything is
    sent.

    Args:
        settings: Settings under Kafka's names, in a mapping or as `ConsumerSettings`.
        **more: Settings as keywords, with underscores for dots. They count more than `settings`.

    Raises:
        SettingsError: A setting is unknown, its value is not allowed, or `bootstrap.servers` is missing.
    """

    _runtime: Runtime = REAL

    def __init__(
        self, settings: Mapping[str, object] | ConsumerSettings | None = None, /, **more: Unpack[ConsumerKwargs]
    ) -> None:
        self.settings, self._assignors = consumer_settings_of(settings, more)
        self._clock_ms = self._runtime.clock_ms
        _ = self.settings.addresses  # none is a mistake, and should show here
        self._made: Engine | None = None
        self._topics: tuple[frozenset[str], Pattern[str] | SubscriptionPattern | None] | None = None
        self._is_manual = False
        self._is_polling = False
        self._is_closed = False
        self._calm_until_ms = 0
        self._commits_ended: deque[tuple[CommitCallback, Mapping[TopicPartition, OffsetAndMetadata], Exception | None]]
        self._commits_ended = deque()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._described()})"

    def _described(self) -> str:
        """Return group, state and number of partitions, for a repr."""
        group = f'group "{self.settings.group_id}"' if self.settings.group_id is not None else "no group"
        made = self._made
        if self._is_closed or made is None:
            return f"{group}, {'closed' if self._is_closed else 'not started'}"
        member, number = made.member, len(made.reading.fetcher.assignment)
        partitions = f"{number} partition{'' if number == 1 else 's'}"
        if member is None or self._is_manual:
            return f"{group}, {partitions} assigned by hand"
        counts = "member epoch" if self.settings.group_protocol == "consumer" else "generation"
        generation = f" in {counts} {member.generation_id}" if member.has_generation else ""
        return f"{group}, {member.state}{generation}, {partitions}"

    @property
    def _engine(self) -> Engine:
        """The engine; it is created on first use, on the event loop that runs then."""
        if self._is_closed:
            raise ClientClosedError
        if self._made is None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:
                raise IllegalStateError(
                    "an AsyncConsumer needs a running event loop; without one, use Consumer"
                ) from None
            self._made = Engine(self.settings, self._assignors, self._runtime)
        return self._made

    @property
    def _fetcher(self) -> Fetcher:
        return self._engine.reading.fetcher

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
        """Join the group for these topics, or for all that match a pattern; the next poll begins with it.

        A second call replaces the topics and the listener. A topic that does not exist yet is read when it does.

        Args:
            topics: The name of a topic, several names, a pattern made by `re.compile`, or a `SubscriptionPattern`,
                which the broker matches.
            listener: An object that is called in rebalances: a `ConsumerRebalanceListener`, or one with some of its
                methods.
            on_assigned: Instead of a listener, a function that is called with the partitions that came.
            on_revoked: A function that is called with the partitions to give up, while commits are still possible.
            on_lost: A function that is called with lost partitions; without it `on_revoked` is.

        Raises:
            IllegalStateError: There is no `group.id`, partitions were assigned by hand, or a `SubscriptionPattern` is
                given without `group.protocol=consumer`.
            InvalidTopicError: No topic can have such a name.
        """
        names, pattern = subscription_of(topics)
        self._subscribe_as(names, pattern, listener_of(listener, on_assigned, on_revoked, on_lost))

    def _subscribe_as(
        self, names: list[str], pattern: Pattern[str] | SubscriptionPattern | None, listener: RebalanceCallbacks
    ) -> None:
        if self.settings.group_id is None:
            raise IllegalStateError("subscribe() joins a group and needs a group.id; without a group use assign()")
        if self._is_manual:
            raise IllegalStateError("partitions were assigned by hand; unsubscribe() first, then subscribe")
        if isinstance(pattern, SubscriptionPattern) and self.settings.group_protocol != "consumer":
            raise IllegalStateError(
                "the broker matches a SubscriptionPattern, which needs group.protocol=consumer; use re.compile()"
            )
        self._engine.listener = listener
        self._topics = frozenset(names), pattern
        self._calm_until_ms = 0
        self._fetcher.buffer.stop()
        self._engine.subscribe(names, pattern)

    async def unsubscribe(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Give up all topics and partitions, and leave the group if the consumer is in one.

        Args:
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Raises:
            ListenerError: The rebalance listener raised.
        """
        ending = self._begin_unsubscribe()
        if ending is not None:
            await self._serve(ending, self._until(timeout))
        self._end_unsubscribe()

    def _begin_unsubscribe(self) -> asyncio.Future[Any] | None:
        if self._topics is None:
            return None
        with self._engine.reading.lock:
            self._fetcher.begin_poll()
        return self._engine.ask_to_end(events.UnsubscribeAsked())

    def _end_unsubscribe(self) -> None:
        self._topics, self._is_manual = None, False
        self._engine.assign(())
        self._engine.watch.watch(())

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Read these partitions, without a group that assigns them.

        Another call replaces the partitions. With a `group.id`, offsets can be committed nevertheless.

        Args:
            partitions: The partitions to read; none ends it.

        Raises:
            IllegalStateError: Topics are subscribed.
        """
        if self._topics is not None:
            raise IllegalStateError("topics are subscribed; unsubscribe() first, then assign partitions by hand")
        wanted = partitions_of(partitions)
        self._is_manual = bool(wanted)
        self._engine.assign(wanted)
        self._engine.watch.watch(sorted({one.topic for one in wanted}))

    def subscription(self) -> frozenset[str] | Pattern[str] | SubscriptionPattern:
        """Return the topics that are subscribed, or the pattern.

        Returns:
            The names, empty if there are none; or the pattern.
        """
        names, pattern = self._topics or (frozenset(), None)
        return pattern or names

    def assignment(self) -> list[TopicPartition]:
        """Return the partitions that are assigned now, by the group or by hand.

        Returns:
            The partitions in order; none before the first rebalance of the group has ended.
        """
        return self._fetcher.assignment

    # --- records ------------------------------------------------------------------------------------------------------

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> Records:  # noqa: ASYNC109
        """Return records as soon as there are any, or none after `timeout` seconds.

        Polling also joins the group, takes part in rebalances and calls the rebalance listener. To poll again says that
        all records returned before are processed, so that auto-commit may commit them. A member that does not poll for
        `max.poll.interval.ms` leaves its group.

        Args:
            timeout: The longest time to wait for records, in seconds.
            max_records: The most records to return; `max.poll.records` if it is not given.

        Returns:
            The records, those of a partition in order; `by_partition()` sorts them by partition.

        Raises:
            WakeupError: `wakeup` was called.
            NoOffsetForPartitionError: The group has no offset for a partition, and `auto.offset.reset` is none.
            OffsetOutOfRangeError: A position is not in the log, and `auto.offset.reset` is none; `LogTruncationError`
                if the log was truncated.
            CorruptRecordError: Records cannot be read; seek behind them to go on.
            AuthorizationError: The cluster's ACLs do not allow it.
            FencedInstanceError: Another consumer has the same `group.instance.id`.
            AssignorError: The assignor raised, or its answer makes no sense.
            ListenerError: The rebalance listener raised.
            ConcurrentUseError: Another thread or task is using the consumer.
        """
        limit = limit_of(max_records, self.settings)
        now_ms = self._clock_ms()
        calm = self._calm_engine(now_ms)
        if calm is not None:
            records = self._take(limit)
            if records:
                calm.measured.quick_polls += 1
                calm.measured.last_poll_ms = now_ms
                self._engine.reading.ask_more()
                return records
        if self._is_polling:
            raise ConcurrentUseError(
                "another task is polling this consumer: a consumer is for one task at a time. Give each task its own, "
                "or hand the records over"
            )
        until_ms = now_ms + seconds_of(timeout) * 1000
        begins = True
        self._begin_poll(now_ms)
        self._is_polling = True
        try:
            while True:
                call = await self._engine.poll(until_ms, begins=begins)
                begins = call is None
                if call is not None:
                    await self._call(call)
                    continue
                now_ms = self._calm()
                records = self._take(limit)
                if records or now_ms >= until_ms:
                    self._end_poll(now_ms)
                    self._engine.reading.ask_more()
                    return records
        except asyncio.CancelledError:
            self._engine.end_poll()
            raise
        finally:
            self._is_polling = False

    @property
    def _is_calm(self) -> bool:
        made = self._made
        return made is not None and not made.needs_attention and self._clock_ms() < self._calm_until_ms

    def _calm_engine(self, now_ms: int) -> Engine | None:
        """Return the engine if it is calm, for a poll: it takes what is there, and the next full poll records it."""
        made = self._made
        return None if made is None or made.needs_attention or now_ms >= self._calm_until_ms else made

    def _calm(self) -> int:
        """A poll has just ended. Return the time."""
        now_ms = self._clock_ms()
        self._calm_until_ms = now_ms + CALM_MS
        return now_ms

    def _begin_poll(self, now_ms: int) -> None:
        self._engine.measured.poll_began(now_ms)
        self._call_back()

    def _end_poll(self, now_ms: int) -> None:
        self._engine.measured.poll_ended(now_ms)

    def _take(self, limit: int) -> Records:
        """Return the records that are buffered."""
        reading = self._engine.reading
        with reading.lock:
            return Records(reading.fetcher.take(limit))

    def _take_one(self) -> Record | None:
        """Return the next record, and let the iteration take those that follow while the consumer is calm."""
        engine = self._engine
        reading = engine.reading
        with reading.lock:
            record = reading.fetcher.take_one(
                self._calm_until_ms - self._clock_ms(), self._clock_ms, is_system=self._runtime is REAL
            )
        if engine.needs_attention:  # since then: it has stopped the buffer before that was filled
            reading.fetcher.buffer.stop()
        if reading.fetcher.needs_data:
            reading.ask_more_soon()
        return record

    def __aiter__(self) -> AsyncIterator[Record]:
        return AsyncRecordIterator(self._fetcher.buffer, self.__anext__)

    async def __anext__(self) -> Record:
        """Return the next record. The one before counts as processed then."""
        while True:
            if self._is_calm:
                record = self._take_one()
                if record is not None:
                    return record
            records = await self.poll(AN_HOUR_S, max_records=1)
            if records:
                return records[0]

    async def _call(self, call: effects.CallListener) -> None:
        error: Exception | None = None
        try:
            answer = self._engine.listener.call(call.kind, call.partitions)
            if isawaitable(answer):
                await answer
        except Exception as raised:  # noqa: BLE001  the member hears of it, and then the caller of poll (M14)
            error = raised
        finally:
            self._engine.listener_done(call, error)

    async def _serve(self, ending: asyncio.Future[Any], until_ms: float) -> None:
        """Make the listener's calls until `ending` is done."""
        while not ending.done():
            call = await self._engine.until_something(until_ms, ending)
            if call is not None:
                await self._call(call)
            elif self._clock_ms() >= until_ms:
                break
        if ending.done():
            ending.result()

    def wakeup(self) -> None:
        """Make the poll under way, or the next one, raise `WakeupError`; can be called from any thread.

        Nothing is lost by it. A consumer that is closed has no poll to wake.
        """
        if not self._is_closed:
            self._engine.wake_up()

    # --- where --------------------------------------------------------------------------------------------------------

    def seek(self, partition: PartitionLike, offset: int | OffsetAndMetadata) -> None:
        """Set the position of a partition: the next poll begins there.

        Args:
            partition: A partition that is assigned.
            offset: The offset of the next record to read, as a number or as it was committed.

        Raises:
            NotAssignedError: The partition is not assigned.
        """
        ((one, found),) = offsets_of({partition_of(partition): offset}).items()
        with self._engine.reading.lock:
            self._fetcher.seek(one, found.offset, found.leader_epoch)
        self._engine.reading.ask_more()

    def seek_to_beginning(self, *partitions: PartitionLike) -> None:
        """Set the positions to the first records of the log, at the next poll.

        Args:
            *partitions: The partitions; all that are assigned if none is given.

        Raises:
            NotAssignedError: A partition is not assigned.
        """
        self._reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: PartitionLike) -> None:
        """Set the positions behind the last records of the log, at the next poll.

        Args:
            *partitions: The partitions; all that are assigned if none is given.

        Raises:
            NotAssignedError: A partition is not assigned.
        """
        self._reset(partitions, LATEST)

    def seek_to_committed(self, *partitions: PartitionLike) -> None:
        """Set the positions to the committed offsets, at the next poll; where there is none, to `auto.offset.reset`.

        After a transaction was aborted, this reads its records again.

        Args:
            *partitions: The partitions; all that are assigned if none is given.

        Raises:
            NotAssignedError: A partition is not assigned.
            IllegalStateError: There is no `group.id`.
        """
        self._check_group("seek to committed offsets")
        with self._engine.reading.lock:
            for one in partitions_of(partitions) or self._fetcher.assignment:
                self._fetcher.restore(one)
        self._engine.reading.ask_more()

    def _reset(self, partitions: Iterable[PartitionLike], reset: Reset) -> None:
        with self._engine.reading.lock:
            for one in partitions_of(partitions) or self._fetcher.assignment:
                self._fetcher.reset(one, reset)
        self._engine.reading.ask_more()

    def pause(self, *partitions: PartitionLike) -> None:
        """Return no records of these partitions until `resume`; the consumer stays in its group.

        Args:
            *partitions: Partitions that are assigned.

        Raises:
            NotAssignedError: A partition is not assigned.
        """
        with self._engine.reading.lock:
            for one in partitions_of(partitions):
                self._fetcher.pause(one)

    def resume(self, *partitions: PartitionLike) -> None:
        """Return records of paused partitions again.

        Args:
            *partitions: Partitions that are assigned.

        Raises:
            NotAssignedError: A partition is not assigned.
        """
        with self._engine.reading.lock:
            for one in partitions_of(partitions):
                self._fetcher.resume(one)
        self._engine.reading.ask_more()

    def paused(self) -> list[TopicPartition]:
        """Return the partitions that are paused.

        Returns:
            The partitions.
        """
        return self._fetcher.paused

    async def position(self, partition: PartitionLike, timeout: float | None = None) -> int:  # noqa: ASYNC109
        """Return the offset of the next record that poll will return, and look it up if it is not known yet.

        Args:
            partition: A partition that is assigned.
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Returns:
            The offset.

        Raises:
            NotAssignedError: The partition is not assigned.
            RequestTimedOutError: The position did not become known in time.
            NoOffsetForPartitionError: The group has no offset for it, and `auto.offset.reset` is none.
        """
        one, until_ms = partition_of(partition), self._until(timeout)
        while True:
            with self._engine.reading.lock:
                state = self._fetcher.state(one)
                if state.position is not None and state.is_valid:
                    return state.position
                if state.failure is not None:
                    raise state.failure
            if not await self._engine.until_news(until_ms) and self._clock_ms() >= until_ms:
                raise RequestTimedOutError(f"the position of {one} did not become known in time; is a broker there?")

    def lag(self) -> dict[TopicPartition, int | None]:
        """Return how many records each assigned partition has beyond the position.

        Returns:
            A number for each partition; None as long as no fetch was answered.
        """
        with self._engine.reading.lock:
            return {one: self._fetcher.lag(one) for one in self._fetcher.assignment}

    async def beginning_offsets(
        self,
        partitions: Iterable[PartitionLike],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each partition.

        Args:
            partitions: The partitions; they need not be assigned.
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Returns:
            An offset for each partition.

        Raises:
            KafkaError: A broker refused it, or could not be reached in time.
        """
        return await self._ends(partitions, list_offsets.EARLIEST, timeout)

    async def end_offsets(
        self,
        partitions: Iterable[PartitionLike],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will have.

        With `isolation.level` read_committed it is where the first open transaction begins.

        Args:
            partitions: The partitions; they need not be assigned.
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Returns:
            An offset for each partition.

        Raises:
            KafkaError: A broker refused it, or could not be reached in time.
        """
        return await self._ends(partitions, list_offsets.LATEST, timeout)

    async def _ends(
        self, partitions: Iterable[PartitionLike], timestamp: int, timeout_s: float | None
    ) -> dict[TopicPartition, int]:
        wanted = dict.fromkeys(partitions_of(partitions), timestamp)
        found = await self._engine.reading.list_offsets(wanted, self._timeout_ms(timeout_s))
        return {one: found[one].offset for one in wanted}

    async def offsets_for_times(
        self,
        times: ByPartition[int],
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after a time, for each partition.

        Args:
            times: For each partition a time in milliseconds since 1970.
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Returns:
            Offset and time of that record for each partition; None where there is none.

        Raises:
            KafkaError: A broker refused it, or could not be reached in time.
        """
        wanted = {one: time_of(timestamp, one) for one, timestamp in by_partition(times, "time").items()}
        found = await self._engine.reading.list_offsets(wanted, self._timeout_ms(timeout))
        return {
            one: None
            if found[one].offset < 0
            else OffsetAndTimestamp(found[one].offset, found[one].timestamp, found[one].leader_epoch)
            for one in wanted
        }

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[TopicPartition]:  # noqa: ASYNC109
        """Return all partitions of a topic.

        Args:
            topic: The name of the topic.
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Returns:
            The partitions; none if the topic does not exist.

        Raises:
            InvalidTopicError: No topic can have such a name.
            KafkaError: No broker could be reached in time.
        """
        known = await self._engine.reading.refresh([topic_of(topic)], self._timeout_ms(timeout))
        found = known.topics.get(topic)
        return [TopicPartition(topic, one) for one in found.partitions] if found is not None else []

    # --- commits ------------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Offsets | None = None, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Commit offsets for the group, and return when they are committed.

        Args:
            offsets: For each partition the offset of the next record to read, as a number or as `OffsetAndMetadata`;
                without it all positions, which is everything that poll has returned.
            timeout: The longest time to try, in seconds; `default.api.timeout.ms` if it is not given.

        Raises:
            IllegalStateError: There is no `group.id`.
            CommitFailedError: The partitions belong to another member by now.
            RebalanceInProgressError: The group is rebalancing: poll, then commit again.
            FencedInstanceError: Another consumer has the same `group.instance.id`.
            KafkaError: A broker refused it, or could not be reached in time.
        """
        self._check_group("commit")
        until_ms = self._clock_ms() + round(self._timeout_ms(timeout))
        await self._engine.commit(self._to_commit(offsets), until_ms, are_positions=offsets is None)

    def commit_async(self, offsets: Offsets | None = None, callback: CommitCallback | None = None) -> None:
        """Send offsets to commit, once, and do not wait for the answer.

        Args:
            offsets: For each partition the offset of the next record to read, as a number or as `OffsetAndMetadata`;
                without it all positions, which is everything that poll has returned.
            callback: A function that a later poll or close calls with the offsets, and with the error or None.

        Raises:
            IllegalStateError: There is no `group.id`.
        """
        self._check_group("commit")
        wanted = self._to_commit(offsets)
        self._engine.tasks.start(self._commit_once(wanted, callback))

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None
    ) -> None:
        error: Exception | None = None
        try:
            await self._engine.commit(offsets, None)
        except CoterieError as raised:
            error = raised
        if callback is not None:
            self._commits_ended.append((callback, offsets, error))
            self._engine.needs_attention = True

    def _call_back(self) -> None:
        """Call the callbacks of commits that have ended."""
        while self._commits_ended:
            callback, offsets, error = self._commits_ended.popleft()
            callback(offsets, error)

    def _to_commit(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is not None:
            return offsets_of(offsets)
        with self._engine.reading.lock:
            return self._fetcher.positions()

    async def committed(
        self,
        *partitions: PartitionLike,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed.

        Args:
            *partitions: The partitions; all that are assigned if none is given.
            timeout: The longest time to wait, in seconds; `default.api.timeout.ms` if it is not given.

        Returns:
            The offset and metadata of each partition; None where nothing is committed.

        Raises:
            IllegalStateError: There is no `group.id`.
            KafkaError: A broker refused it, or could not be reached in time.
        """
        self._check_group("ask for committed offsets")
        wanted = partitions_of(partitions) or self.assignment()
        found = await self._engine.committed(wanted, self._timeout_ms(timeout))
        return {one: found.get(one) for one in wanted}

    def _check_group(self, what: str) -> None:
        if self.settings.group_id is None:
            raise IllegalStateError(f"{what} needs a group: set group.id")

    # --- the group ----------------------------------------------------------------------------------------------------

    def group_metadata(self) -> GroupMetadata:
        """Return who this consumer is in its group: group, generation, member id and instance id.

        Returns:
            What is known now; the member id is empty before the first join. A consumer that has lost its generation
            is still who it was in it, until it has joined again: the group refuses offsets of it.

        Raises:
            IllegalStateError: There is no `group.id`.
        """
        self._check_group("know one's state in a group")
        member = self._engine.member
        assert member is not None and self.settings.group_id is not None
        member_id, generation_id = member.identity
        return GroupMetadata(self.settings.group_id, generation_id, member_id, self.settings.group_instance_id)

    def enforce_rebalance(self, reason: str = "rebalance enforced by user") -> None:
        """Start a rebalance at the next poll (KIP-568). With `group.protocol=consumer` it does nothing but warn.

        Args:
            reason: What the group's history will give as the reason (KIP-800).

        Raises:
            IllegalStateError: There is no `group.id`.
        """
        self._check_group("rebalance")
        self._engine.handle(events.RejoinAsked(reason))

    def explain(self) -> str:
        """Return what this consumer is doing and waiting for, as a sentence; can be called from any thread.

        Returns:
            A sentence for people, not for programs.
        """
        if self._is_closed:
            return "closed"
        member = self._engine.member
        if member is not None and not self._is_manual:
            return member.explain(self._clock_ms())
        read = ", ".join(map(str, self.assignment()))
        return f"reads {read}, assigned by hand" if read else "reads nothing: subscribe to topics or assign partitions"

    def metrics(self) -> Metrics:
        """Return the metrics under Kafka's names; can be called from any thread.

        Returns:
            For each group of metrics a mapping of names to values; None is what was not measured yet.
        """
        if self._made is None:
            return snapshot(CONSUMER_ROWS, ConsumerMetrics(), self._clock_ms())
        return self._made.metrics()

    # --- the end ------------------------------------------------------------------------------------------------------

    async def close(self, timeout: float = CLOSE_TIMEOUT_S, *, leave: bool | None = None) -> None:  # noqa: ASYNC109
        """Commit if auto-commit is on, leave the group and close the connections. A second close does nothing.

        It calls the rebalance listener and the callbacks of commits, and ends within `timeout` in any case. From
        another thread it ends the poll under way first.

        Args:
            timeout: The longest time to take, in seconds.
            leave: True leaves the group and False stays in it until the session ends; None, as usual, leaves unless the
                member is static (KIP-1092). With `group.protocol=consumer` a static member that stays says that it
                will be back.

        Raises:
            ListenerError: The rebalance listener raised.
        """
        if self._is_closed:
            return
        seconds_of(timeout)
        try:
            ending = self._begin_close(timeout, leave=leave)
            if ending is not None:
                async with asyncio.timeout(timeout + CLOSE_GRACE_S / 2):
                    await self._serve(ending, self._clock_ms() + timeout * 1000)
        except TimeoutError:
            log.warning("a listener did not return while the consumer was closed, and was interrupted")
        finally:
            await self._end_close()
        self._call_back()

    def _begin_close(self, timeout_s: float, *, leave: bool | None) -> asyncio.Future[Any] | None:
        if self._made is None or self._made.member is None:
            return None
        with self._engine.reading.lock:
            self._fetcher.begin_poll()
        return self._engine.ask_to_end(events.CloseAsked(self._clock_ms() + round(timeout_s * 1000), leave))

    async def _end_close(self) -> None:
        self._is_closed = True
        if self._made is not None:
            self._made.reading.fetcher.buffer.stop()
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_GRACE_S):
                    await self._made.close()

    async def __aenter__(self) -> Self:
        _ = self._engine
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the consumer. After an error, records of the last poll count as unprocessed and are not committed."""
        if kind is None:
            await self.close()
            return
        if not self._is_closed:
            with self._engine.reading.lock:
                self._fetcher.rewind()
            try:
                await self.close()
            except Exception:
                log.exception("the consumer's listener raised while it was closed after another error")

    # --- small things -------------------------------------------------------------------------------------------------

    def _timeout_ms(self, timeout_s: float | None) -> float:
        return self.settings.default_api_timeout_ms if timeout_s is None else seconds_of(timeout_s) * 1000

    def _until(self, timeout_s: float | None) -> float:
        return self._clock_ms() + self._timeout_ms(timeout_s)
