"""The asyncio of reading: sends what the fetcher (`fetcher.py`) wants to ask, and brings the answers back.

`lock` guards the reader, which the synchronous Consumer also uses from the user's thread: records that are there are
taken without a word to the event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from typing import Any

from coterie.client.consumer.fetch_requests import (
    AskCommitted,
    AskEpochEnds,
    AskOffsets,
    Fetch,
    FetchEffect,
    Found,
    LogTruncated,
    RefreshLeaders,
    list_offsets_answers,
    list_offsets_requests,
)
from coterie.client.consumer.fetcher import Fetcher
from coterie.client.consumer.subscription_state import PartitionLeader
from coterie.client.event_log import EventLog
from coterie.client.metrics import ConsumerMetrics
from coterie.client.network.metadata import NO_LEADER, Metadata
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import BackgroundTasks, within
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, KafkaError, RequestTimedOutError
from coterie.protocol.apis import fetch
from coterie.protocol.apis import list_offsets as list_offsets_api
from coterie.protocol.apis import offset_for_leader_epoch as epoch_api
from coterie.settings.consumer_settings import ConsumerSettings

FETCH_LANE = "fetch"

Committed = Callable[[Collection[TopicPartition], float], Awaitable[Mapping[TopicPartition, OffsetAndMetadata]]]


class FetchDriver:
    def __init__(
        self,
        settings: ConsumerSettings,
        cluster: NetworkClient,
        tasks: BackgroundTasks,
        log: EventLog,
        measured: ConsumerMetrics,
        *,
        committed: Committed,
        on_news: Callable[[], None],
    ) -> None:
        """`committed` asks the group; `on_news` is called when there may be records, or other leaders."""
        self.lock = threading.Lock()
        self.fetcher = Fetcher(settings)
        self._settings = settings
        self._cluster = cluster
        self._tasks = tasks
        self._log = log
        self._measured = measured
        self._committed = committed
        self._on_news = on_news
        self._clock_ms = cluster.clock_ms
        self._is_called = False
        """True from `ask_more_soon` until the event loop has come to it."""
        self._trouble: Exception | None = None
        """The last error, for the message of a timeout."""
        self._granting: Mapping[type, Callable[[Any], Coroutine[Any, Any, None]]] = {
            Fetch: self._fetch,
            AskCommitted: self._ask_committed,
            AskOffsets: self._ask_offsets,
            AskEpochEnds: self._ask_epoch_ends,
            LogTruncated: self._log_truncation,
            RefreshLeaders: self._refresh_leaders,
        }

    def ask_more(self) -> None:
        """Ask for all that is wanted now, if anything has changed."""
        if not self.fetcher.needs_data:
            return
        with self.lock:
            effects = self.fetcher.effects(self._leader_of, self._clock_ms())
            due_ms = self.fetcher.due_ms
        for effect in effects:
            self._tasks.start(self._grant(effect))
        if due_ms is not None:
            self._tasks.arm("look", due_ms, self._look)

    def ask_more_soon(self) -> None:
        """Let the event loop `ask_more`, once for all calls until it does. Can be called from any thread."""
        if self._is_called:
            return
        self._is_called = True
        with suppress(RuntimeError):  # the loop is gone, and so is everything else
            self._tasks.loop.call_soon_threadsafe(self._called)

    def _called(self) -> None:
        self._is_called = False  # first, so that what changes from here on calls again
        self.ask_more()

    def _look(self) -> None:
        self.fetcher.needs_data = True
        self.ask_more()

    async def _grant(self, effect: FetchEffect) -> None:
        await self._granting[type(effect)](effect)
        self.ask_more()
        self._on_news()

    def _leader_of(self, topic: str, partition: int) -> PartitionLeader | None:
        known = self._cluster.metadata.topics.get(topic)
        found = known.partitions.get(partition) if known is not None else None
        if known is None or found is None or found.leader == NO_LEADER:
            return None
        return PartitionLeader(found.leader, found.leader_epoch, known.id)

    # --- what is asked ------------------------------------------------------------------------------------------------

    async def _fetch(self, effect: Fetch) -> None:
        timeout_ms = self._settings.request_timeout_ms + effect.request.max_wait_ms
        began_ms = self._clock_ms()
        try:
            answer = await self._cluster.send_within(
                effect.node_id, fetch, effect.request, timeout_ms=timeout_ms, lane=FETCH_LANE
            )
        except Exception as error:  # noqa: BLE001  also a bug in Coterie: every poll must raise it
            self._log.debug(error)
            self._trouble = error
            with self.lock:
                self.fetcher.fetch_failed(effect, _as_kafka_error(error), self._clock_ms())
            return
        now_ms = self._clock_ms()
        self._measured.fetches.record(now_ms - began_ms, now_ms)
        size = sum(len(one.records) for topic in answer.responses for one in topic.partitions if one.records)
        self._measured.fetch_sizes.record(size, now_ms)
        with self.lock:
            self.fetcher.fetched(effect, answer, now_ms)
            self.measure(now_ms)

    def measure(self, now_ms: int) -> None:
        """Record what was handed over since the last time, and how far behind the reader is. Under the lock."""
        fetcher = self.fetcher
        fetcher.settle()
        self._measured.taken(fetcher.records_taken, fetcher.bytes_taken, fetcher.largest_lag(), now_ms)

    async def _ask_committed(self, effect: AskCommitted) -> None:
        found: Mapping[TopicPartition, OffsetAndMetadata] | KafkaError
        partitions = [state.partition for state in effect.states]
        try:
            found = await self._committed(partitions, self._settings.default_api_timeout_ms)
        except CoterieError as error:
            found = _as_kafka_error(error)
        with self.lock:
            self.fetcher.committed(effect, found, self._clock_ms())

    async def _ask_offsets(self, effect: AskOffsets) -> None:
        wanted = {state.partition: timestamp for state, timestamp in effect.states.items()}
        found = await self._list_once(wanted, self._settings.request_timeout_ms)
        with self.lock:
            self.fetcher.offsets_found(effect, found, self._clock_ms())

    async def _ask_epoch_ends(self, effect: AskEpochEnds) -> None:
        timeout_ms = self._settings.request_timeout_ms
        try:
            answer = await within(timeout_ms, self._cluster.send(effect.node_id, epoch_api, effect.request))
        except CoterieError as error:
            self._log.debug(error)
            with self.lock:
                self.fetcher.epoch_ends_failed(effect, _as_kafka_error(error), self._clock_ms())
            return
        with self.lock:
            self.fetcher.epoch_ends_found(effect, answer, self._clock_ms())

    async def _log_truncation(self, effect: LogTruncated) -> None:
        self._log.write(effect)

    async def _refresh_leaders(self, effect: RefreshLeaders) -> None:
        try:
            await self._cluster.refresh(effect.topics, timeout_ms=self._settings.request_timeout_ms)
        except KafkaError as error:
            self._log.warn(error)
        with self.lock:
            self.fetcher.refreshed(self._clock_ms())

    async def refresh(self, topics: Collection[str], timeout_ms: float) -> Metadata:
        """Ask who leads these topics. Others may be asking the same with more patience: that is no reason to wait."""
        try:
            found: Metadata = await within(timeout_ms, self._cluster.refresh(topics, timeout_ms=0.9 * timeout_ms))
        except RequestTimedOutError as error:
            raise RequestTimedOutError(f"{error}; {self._trouble}" if self._trouble else str(error)) from None
        self._trouble = None
        return found

    # --- offsets by time ----------------------------------------------------------------------------------------------

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int], timeout_ms: float
    ) -> dict[TopicPartition, Found]:
        """Look up all of them, with retries."""
        until_ms = self._clock_ms() + timeout_ms
        done: dict[TopicPartition, Found] = {}
        why: KafkaError | None = None
        while True:
            rest = {one: timestamp for one, timestamp in wanted.items() if one not in done}
            found = await self._list_once(rest, until_ms - self._clock_ms()) if rest else {}
            done |= {one: answer for one, answer in found.items() if answer.error is None}
            errors = [answer.error for answer in found.values() if answer.error is not None]
            if not errors:
                return done
            for error in errors:
                if not error.retriable:
                    raise error
                if why is None or not isinstance(error, RequestTimedOutError):  # which says less than what was before
                    why = error
            if self._clock_ms() + self._settings.retry_backoff_ms >= until_ms:
                raise RequestTimedOutError(f"offsets were not found within {timeout_ms:.0f} ms: {why}")
            await asyncio.sleep(self._settings.retry_backoff_ms / 1000)

    async def _list_once(self, wanted: Mapping[TopicPartition, int], left_ms: float) -> dict[TopicPartition, Found]:
        """Ask each leader once; a partition without an answer is missing in the result, or has an error."""
        if any(self._leader_of(*one) is None for one in wanted) or self._cluster.is_metadata_old:
            try:
                await self.refresh({one.topic for one in wanted}, left_ms)
            except KafkaError as error:
                return dict.fromkeys(wanted, Found(error=error))
        asked, unknown = list_offsets_requests(
            wanted,
            self._leader_of,
            read_committed=self._settings.reads_committed,
            timeout_ms=self._settings.request_timeout_ms,
        )
        why = self._cluster.metadata.why_no_leader
        found = {one: Found(error=why(*one, f"looking for an offset of {one}")) for one in unknown}
        questioned = [self._list_from(node_id, request, left_ms) for node_id, request in asked.items()]
        for part in await asyncio.gather(*questioned):
            found |= part
        if any(one.error is not None and one.error.retriable for one in found.values()):
            self._cluster.expire()
        return found

    async def _list_from(
        self, node_id: int, request: list_offsets_api.Request, left_ms: float
    ) -> dict[TopicPartition, Found]:
        timeout_ms = min(left_ms, self._settings.request_timeout_ms)
        try:
            response = await within(timeout_ms, self._cluster.send(node_id, list_offsets_api, request))
        except CoterieError as error:
            failed = Found(error=_as_kafka_error(error))
            partitions = [(topic.name, one.partition) for topic in request.topics for one in topic.partitions]
            return {TopicPartition(*one): failed for one in partitions}
        return dict(list_offsets_answers(response))


def _as_kafka_error(error: Exception) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    said = KafkaError(str(error) if isinstance(error, CoterieError) else f"a fetch failed: {error!r}")
    said.__cause__ = error
    return said
