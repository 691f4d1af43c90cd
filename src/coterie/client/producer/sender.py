"""The driver of `RecordAccumulator`: it performs the effects with asyncio and passes their ends back as events.

Records come in from any thread under `lock`; everything else happens in the event loop that `start` was called in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from itertools import count
from threading import Lock
from typing import Any

from coterie.client.event_log import (
    ClosedWithRecords,
    DeliveryFailed,
    EventLog,
    ProduceResumed,
    ProduceRetried,
    ProducerIdObtained,
)
from coterie.client.metrics import PRODUCER_ROWS, Metrics, ProducerMetrics, snapshot
from coterie.client.network.metadata import Metadata
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import Runtime
from coterie.client.producer.accumulator_events import (
    Answered,
    AskLeaders,
    AskPartitions,
    AskProducerId,
    Closing,
    Effect,
    Event,
    FlushAsked,
    FlushDone,
    GaveUp,
    LeadersFailed,
    LeadersFound,
    PartitionAnswer,
    ProducerIdFailed,
    ProducerIdGiven,
    RoomMade,
    SendBatches,
    Settled,
    TransactionAborting,
    Unanswered,
    WakeAt,
    Woke,
)
from coterie.client.producer.partition_queue import Batch, ProducerIdAndEpoch
from coterie.client.producer.record_accumulator import RecordAccumulator
from coterie.client.producer.record_appender import AccumulatorSettings
from coterie.client.producer.transaction_driver import TransactionDriver
from coterie.client.producer.transaction_events import PartitionsWanted, ProduceFailed
from coterie.client.producer.transaction_manager import TransactionBackoff, TransactionManager
from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError, TransactionAbortedError
from coterie.protocol.apis import init_producer_id, produce
from coterie.protocol.batch import NO_SEQUENCE, Compression
from coterie.settings.producer_settings import ProducerSettings

_GZIP_DEFAULT = -1
LAST_EXPLICIT = 11
"""The last version of Produce whose partitions are not added to the transaction (KIP-890)."""


def rules_of(settings: ProducerSettings) -> AccumulatorSettings:
    compression = Compression[settings.compression_type.upper()]
    levels = {Compression.ZSTD: settings.compression_zstd_level}
    if settings.compression_gzip_level != _GZIP_DEFAULT:
        levels[Compression.GZIP] = settings.compression_gzip_level
    return AccumulatorSettings(
        batch_size=settings.batch_size,
        linger_ms=settings.linger_ms,
        buffer_memory=settings.buffer_memory,
        max_request_size=settings.max_request_size,
        max_in_flight=settings.max_in_flight_requests_per_connection,
        delivery_timeout_ms=settings.delivers_within_ms,
        retries=settings.retries,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        compression=compression,
        level=levels.get(compression),
        is_idempotent=settings.is_idempotent,
        is_transactional=settings.transactional_id is not None,
        ignores_keys=settings.partitioner_ignore_keys,
        is_adaptive=settings.partitioner_adaptive_partitioning_enable,
    )


class Sender:
    def __init__(self, settings: ProducerSettings, on_room: Callable[[], None], runtime: Runtime) -> None:
        """`on_room` is called in the loop when those who wait for `buffer.memory` may try again."""
        self.settings = settings
        self.accumulator = RecordAccumulator(rules_of(settings), partial(runtime.rng.getrandbits, 31))
        self.clock_ms = runtime.clock_ms
        self.lock = Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.log = EventLog("producer", settings)
        self._measured = ProducerMetrics(settings)
        self._cluster = NetworkClient(settings, self.log, self._measured, runtime)
        self._on_room = on_room
        self._acks = settings.required_acks
        self._timer: asyncio.TimerHandle | None = None
        self._maintenance: asyncio.TimerHandle | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._flushes: dict[int, asyncio.Future[None]] = {}
        self._tokens = count()
        self._retried: set[TopicPartition] = set()
        """Partitions whose records are sent again, which was logged."""
        self.transactions: TransactionDriver | None = None
        if settings.transactional_id is not None:
            waits = TransactionBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms)
            manager = TransactionManager(settings.transactional_id, waits, runtime.rng.random)
            self.transactions = TransactionDriver(manager, self, self._cluster)

    def start(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._maintenance = self.loop.call_later(self.settings.metadata_max_age_ms / 1000, self._refresh_sometimes)

    # --- what the clients ask for -------------------------------------------------------------------------------------

    def look(self) -> None:
        """Handle appended records: a batch may be full, or a topic unknown."""
        self.handle(Woke())

    async def know(self, topic: str, partition: int | None = None) -> None:
        """Ask about a topic until it is there, `max.block.ms` at most; it may be created by that."""
        what = f"sending to topic {topic!r}"

        async def attempt() -> Metadata:
            found = await self._cluster.refresh([topic], allow_auto_create=True)
            known = found.topics.get(topic)
            error = known.error if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error or known is None or not known.partitions:
                raise KafkaError.of(error or ErrorCode.LEADER_NOT_AVAILABLE, what)
            return found

        found = await self._cluster.retry(attempt, what=what, timeout_ms=self.settings.max_block_ms)
        self.handle(LeadersFound(_leaders(found, [topic])))
        partitions = self.accumulator.topics[topic].partitions
        if partition is not None and not 0 <= partition < partitions:
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"sending to partition {partition} of topic {topic!r}",
                f"it has {partitions} partitions, numbered from 0",
            )

    async def flush(self) -> None:
        await self._until_done(FlushAsked)

    async def drop(self, error: KafkaError) -> None:
        """Fail the batches that are not in flight, and wait for the others."""
        await self._until_done(lambda token: TransactionAborting(token, error))

    async def _until_done(self, asked: Callable[[int], Event]) -> None:
        token = next(self._tokens)
        ended = self._flushes[token] = asyncio.get_running_loop().create_future()
        self.handle(asked(token))
        await ended

    def fail_for_good(self, error: KafkaError) -> None:
        self.accumulator.failure = error
        self.handle(GaveUp(error))

    def send_failed(self, error: KafkaError) -> None:
        """A record could not be taken: as in Java, its transaction can only be aborted."""
        if self.transactions is not None:
            self.transactions.handle(ProduceFailed(error, was_sent=False))

    async def close(self, timeout_s: float | None) -> int:
        """Deliver the records within the time, then fail the rest; return how many that were."""
        self.handle(Closing())
        left = 0
        try:
            async with asyncio.timeout(timeout_s):
                if self.transactions is not None:
                    await self.transactions.abort_what_is_open()
                await self.flush()
        except TimeoutError:
            left = self.accumulator.unsettled
            self.log.write(ClosedWithRecords(left, timeout_s))
        finally:
            why = "the producer was closed before the record could be delivered"
            self.handle(GaveUp(KafkaError(why, ErrorCode.REQUEST_TIMED_OUT)))
            for timer in (self._timer, self._maintenance):
                if timer is not None:
                    timer.cancel()
            if self.transactions is not None:
                self.transactions.close()
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._cluster.close()
        return left

    def metrics(self) -> Metrics:
        """Can be called from any thread."""
        measured, accumulator = self._measured, self.accumulator
        measured.connection_count = len(self._cluster.addresses)
        measured.buffer_total_bytes = self.settings.buffer_memory
        with self.lock:
            accumulator.settle()
            measured.buffer_available_bytes = self.settings.buffer_memory - accumulator.used
        measured.requests_in_flight = accumulator.requests_in_flight
        return snapshot(PRODUCER_ROWS, measured, self.clock_ms())

    # --- driving ------------------------------------------------------------------------------------------------------

    def handle(self, event: Event) -> None:
        with self.lock:
            effects = self.accumulator.handle(event, self.clock_ms())
        for effect in effects:
            self._perform(effect)
        failed = [effect.batch for effect in effects if type(effect) is Settled and effect.batch.error is not None]
        if failed and not isinstance(failed[0].error, TransactionAbortedError):
            partitions, records = sorted({batch.where for batch in failed}), sum(map(len, failed))
            self._measured.failed.record(records, self.clock_ms())
            self.log.write(DeliveryFailed(records, partitions, str(failed[0].error)))

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Settled(batch):
                if self.transactions is not None and batch.error is not None:
                    self.transactions.handle(ProduceFailed(batch.error, was_sent=batch.sequence != NO_SEQUENCE))
                self._call_back(batch)
            case SendBatches():
                self.begin(self._send(effect))
            case WakeAt(at_ms):
                self._arm(at_ms)
            case RoomMade():
                self._on_room()
            case FlushDone(token):
                ended = self._flushes.pop(token)
                if not ended.done():
                    ended.set_result(None)
            case AskLeaders(topics):
                self.begin(self._ask_leaders(topics))
            case AskProducerId():
                self.begin(self._ask_producer_id())
            case AskPartitions(partitions):
                assert self.transactions is not None, "only a transaction has partitions"
                self.transactions.handle(PartitionsWanted(partitions))

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        assert self.loop is not None, "start() comes first"
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _arm(self, at_ms: int | None) -> None:
        assert self.loop is not None, "start() comes first"
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms is not None:
            self._timer = self.loop.call_later((at_ms - self.clock_ms()) / 1000, self.look)

    def _call_back(self, batch: Batch) -> None:
        assert self.loop is not None, "start() comes first"
        for index, callback in batch.callbacks:
            try:
                callback(batch, index)
            except Exception as error:  # noqa: BLE001  a callback of the user's; the other records are not to blame
                self.loop.call_exception_handler({"message": "a delivery callback failed", "exception": error})

    # --- asking the cluster -------------------------------------------------------------------------------------------

    async def _send(self, sent: SendBatches) -> None:
        try:
            answers = await self._produce(sent)
        except KafkaError as error:
            self.handle(Unanswered(sent, error))
            self._log_retries(sent)
        except CoterieError as error:  # the cluster was closed under it
            self.handle(Unanswered(sent, KafkaError(str(error), ErrorCode.NETWORK_EXCEPTION)))
        except Exception as error:
            self.handle(Unanswered(sent, KafkaError(f"a request could not be made or understood: {error!r}")))
            raise
        else:
            self.handle(Answered(sent, answers))
            self._log_retries(sent)

    def _log_retries(self, sent: SendBatches) -> None:
        again = sum(len(batch) for batch in sent.batches if not batch.is_settled and batch.error is not None)
        if again:
            self._measured.retried.record(again, self.clock_ms())
        for batch in sent.batches:
            if batch.error is not None and batch.error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
                continue  # usual after the end of a transaction
            if not batch.is_settled and batch.error is not None and batch.where not in self._retried:
                self._retried.add(batch.where)
                self.log.write(ProduceRetried(batch.where, str(batch.error)))
            elif batch.is_settled and batch.error is None and batch.where in self._retried:
                self._retried.remove(batch.where)
                self.log.write(ProduceResumed(batch.where))

    async def _produce(self, sent: SendBatches) -> dict[TopicPartition, PartitionAnswer]:
        by_topic: dict[str, list[produce.Partition]] = {}
        measured, began_ms, records = self._measured, self.clock_ms(), 0
        for batch in sent.batches:
            data = self.accumulator.encode(batch)
            content = produce.Partition(partition=batch.where.partition, records=memoryview(data))
            by_topic.setdefault(batch.where.topic, []).append(content)
            records += len(batch)
            measured.batch_sizes.record(len(data), began_ms)
            if not batch.attempts:
                measured.queue_times.record(began_ms - batch.created_ms, began_ms)
        measured.sent.record(records, began_ms)
        measured.per_request.record(records, began_ms)
        known = self._cluster.metadata.topics
        ids = {name: known[name].id if name in known else None for name in by_topic}
        request = produce.Request(
            transactional_id=self.settings.transactional_id,
            acks=self._acks,
            timeout_ms=self.settings.request_timeout_ms,
            topics=[
                produce.Topic(name=name, topic_id=ids[name], partitions=partitions)
                for name, partitions in by_topic.items()
            ],
        )
        at_most = produce.API.last_by_name if None in ids.values() else None
        at_least = 0
        if self.transactions is not None:
            if self.transactions.manager.adds_implicitly:
                at_least = LAST_EXPLICIT + 1
            else:
                at_most = LAST_EXPLICIT
        response: produce.Response | None = await self._cluster.send(
            sent.node_id,
            produce,
            request,
            at_most=at_most,
            at_least=at_least,
            expects_answer=self._acks != 0,
        )
        now_ms = self.clock_ms()
        measured.request_latency.record(now_ms - began_ms, now_ms)
        if response is None:
            return dict.fromkeys((batch.where for batch in sent.batches), PartitionAnswer())
        names = {topic_id: name for name, topic_id in ids.items()}
        return {
            TopicPartition(names.get(topic.topic_id, topic.name) if topic.topic_id else topic.name, each.partition): (
                _answer(each)
            )
            for topic in response.responses
            for each in topic.partitions
        }

    async def _ask_leaders(self, topics: tuple[str, ...]) -> None:
        try:
            found = await self._cluster.refresh(
                topics, allow_auto_create=True, timeout_ms=self.settings.request_timeout_ms
            )
        except KafkaError as error:
            self.handle(LeadersFailed(error))
        else:
            self.handle(LeadersFound(_leaders(found, topics)))

    async def _ask_producer_id(self) -> None:
        request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=2**31 - 1)
        try:
            given: init_producer_id.Response = await self._cluster.send(None, init_producer_id, request)
            if given.error:
                raise KafkaError.of(given.error, "asking for a producer id, which idempotence needs")
        except KafkaError as error:
            self.handle(ProducerIdFailed(error))
        else:
            self.log.write(ProducerIdObtained(given.producer_id, given.producer_epoch))
            self.handle(ProducerIdGiven(ProducerIdAndEpoch(given.producer_id, given.producer_epoch)))

    def _refresh_sometimes(self) -> None:
        """Refresh the metadata of topics in use after metadata.max.age.ms: they may have new partitions."""
        assert self.loop is not None, "start() comes first"
        since_ms = self.clock_ms() - self.settings.metadata_max_idle_ms
        used = [name for name, topic in self.accumulator.topics.items() if topic.used_ms >= since_ms]
        if used:
            self.begin(self._ask_leaders(tuple(used)))
        self._maintenance = self.loop.call_later(self.settings.metadata_max_age_ms / 1000, self._refresh_sometimes)


def _leaders(metadata: Metadata, topics: Iterable[str]) -> dict[str, dict[int, int]]:
    return {
        name: {number: partition.leader for number, partition in metadata.topics[name].partitions.items()}
        if name in metadata.topics
        else {}
        for name in topics
    }


def _answer(one: produce.ProducedPartition) -> PartitionAnswer:
    errors = {each.batch_index: each.message for each in one.record_errors}
    return PartitionAnswer(one.error, one.base_offset, one.log_append_time_ms, one.message, errors)
