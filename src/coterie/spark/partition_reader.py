"""The reader of a task: it fetches offsets of one partition, and returns Arrow batches while the next fetch runs.

A worker process keeps its connections from task to task. It knows nothing of groups.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NamedTuple

from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import background, clock_ms
from coterie.client.types import TopicPartition
from coterie.errors import NO_SUCH_TOPIC, STALE_METADATA, ErrorCode, KafkaError, MalformedError
from coterie.protocol.api import READ_COMMITTED, READ_UNCOMMITTED
from coterie.protocol.apis import fetch
from coterie.protocol.arrow import ArrowReader
from coterie.protocol.fetched import NO_PROGRESS, FetchedBatches, end_of
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.spark.batch_plan import DataLossError, OffsetRange
from coterie.spark.offsets import EARLIEST, LATEST, OffsetReader
from coterie.spark.options import SourceOptions

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["read_range"]

log = logging.getLogger("coterie.spark")

FETCH_BYTES = 4 * 1024 * 1024
"""The size of a fetch, unless kafka.max.partition.fetch.bytes is given. No other partition could starve."""
GONE_AFTER = 3
"""The number of answers without the topic before it is missing: a new topic takes time to reach all brokers."""


class _Fetched(NamedTuple):
    at: int
    data: Any
    aborted: list[tuple[int, int]] | None
    next_offset: int


class _LostError(Exception):
    """Records are gone; `goes_on_at` is the offset of the next that exists, None if there is none."""

    def __init__(self, message: str, goes_on_at: int | None) -> None:
        super().__init__(message)
        self.goes_on_at = goes_on_at


_clusters: dict[ConsumerSettings, NetworkClient] = {}
"""The connections of this process: connecting again for each task costs more than a small task."""


def read_range(options: SourceOptions, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records from `from_offset` on and before `until_offset`, some megabytes at a time."""
    fetcher = _Fetcher(options, piece)
    reader = ArrowReader(with_headers=options.include_headers)
    settings = options.client
    position = piece.from_offset
    ahead = fetcher.start(position)
    try:
        while position < piece.until_offset:
            try:
                fetched = ahead.result()
            except _LostError as lost:
                position = _go_on_after(lost, options, piece)
                ahead = fetcher.start(position)
                continue
            if fetched.next_offset < piece.until_offset:
                ahead = fetcher.start(fetched.next_offset)
            batches = FetchedBatches(
                piece.topic,
                piece.partition,
                fetched.data,
                next_offset=fetched.at,
                until_offset=piece.until_offset,
                aborted=fetched.aborted,
                check_crcs=settings.check_crcs,
            )
            yield from _arrow_batches(reader, batches)
            position = fetched.next_offset
    finally:
        ahead.cancel()


def _arrow_batches(reader: ArrowReader, batches: FetchedBatches) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            found = reader.take(batches)
        except MalformedError as error:
            raise MalformedError(
                f"the records of {batches.topic}-{batches.partition} from offset {batches.next_offset} on cannot be "
                f"read: {error}. To go on without them, start a new query with startingOffsets behind them"
            ) from None
        if not found.num_rows:
            return
        yield found


def _go_on_after(lost: _LostError, options: SourceOptions, piece: OffsetRange) -> int:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{lost} Records may have been deleted by retention before they were read, or with their topic. To go on "
            "with what is left, set failOnDataLoss to false"
        ) from None
    log.warning("%s failOnDataLoss is false: going on with what is left", lost)
    return piece.until_offset if lost.goes_on_at is None else min(lost.goes_on_at, piece.until_offset)


class _Fetcher:
    def __init__(self, options: SourceOptions, piece: OffsetRange) -> None:
        self._options = options
        self._settings = options.client
        self._piece = piece
        self._partition = TopicPartition(piece.topic, piece.partition)
        is_given = "max.partition.fetch.bytes" in options.client.given
        self._bytes = options.client.max_partition_fetch_bytes if is_given else FETCH_BYTES

    def start(self, position: int) -> Future[_Fetched]:
        return asyncio.run_coroutine_threadsafe(self._fetch(position), background().loop)

    async def _fetch(self, position: int) -> _Fetched:
        """Fetch until there are records, for at most `kafkaConsumer.pollTimeoutMs`."""
        cluster = _clusters.get(self._settings)
        if cluster is None:
            cluster = _clusters[self._settings] = NetworkClient(self._settings)
        until_ms = clock_ms() + self._options.poll_timeout_ms
        failures = times_gone = 0
        while True:
            error: KafkaError | None = None
            try:
                found = await self._ask(cluster, position, until_ms)
                if found.next_offset > position:
                    return found
            except KafkaError as raised:
                error = raised
            if error is not None and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                raise await self._out_of_range(cluster, position)
            if error is not None and error.code in NO_SUCH_TOPIC:
                times_gone += 1
                if times_gone >= GONE_AFTER:
                    raise _LostError(f"{self._partition} is gone, and with it {self._span(position)}.", None)
            elif error is not None and not error.retriable:
                raise error
            if clock_ms() >= until_ms:
                raise await self._too_late(cluster, position, error)
            if error is not None:
                failures += 1
                if error.code in STALE_METADATA:
                    cluster.expire()
                await cluster.pause(failures)

    async def _ask(self, cluster: NetworkClient, position: int, until_ms: int) -> _Fetched:
        piece, settings = self._piece, self._settings
        left_ms = max(until_ms - clock_ms(), 1)
        leader = await cluster.leader(piece.topic, piece.partition, timeout_ms=left_ms)
        asked = fetch.Partition(partition=piece.partition, fetch_offset=position, max_bytes=self._bytes)
        request = fetch.Request(
            max_wait_ms=settings.fetch_max_wait_ms,
            min_bytes=1,
            max_bytes=max(settings.fetch_max_bytes, self._bytes),
            isolation_level=READ_COMMITTED if settings.reads_committed else READ_UNCOMMITTED,
            topics=[fetch.Topic(topic=piece.topic, partitions=[asked])],
        )
        timeout_ms = settings.request_timeout_ms + settings.fetch_max_wait_ms
        response: fetch.Response = await cluster.send(
            leader, fetch, request, lane="fetch", at_most=fetch.API.last_by_name, timeout_ms=timeout_ms
        )
        what = f"reading {self._partition} at offset {position}"
        if response.error:
            raise KafkaError.of(response.error, what)
        answers = [each for topic in response.responses for each in topic.partitions]
        if len(answers) != 1:
            raise KafkaError(f"{what}: the broker answered for {len(answers)} partitions")
        (answer,) = answers
        if answer.error:
            raise KafkaError.of(answer.error, what)
        data = answer.records or b""
        aborted = None
        if settings.reads_committed:
            aborted = [(each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()]
        end = end_of(memoryview(data), position)
        if data and end == NO_PROGRESS:
            _raise_malformed(FetchedBatches(piece.topic, piece.partition, data, next_offset=position))
        return _Fetched(position, data, aborted, max(end, position))

    async def _out_of_range(self, cluster: NetworkClient, position: int) -> _LostError:
        first, last = await self._bounds(cluster)
        message = f"{self._span(position)} of {self._partition} were to be read, and it has {first} to {last}."
        return _LostError(message, first if position < first else None)

    async def _bounds(self, cluster: NetworkClient) -> tuple[int, int]:
        """Return where the partition begins and ends now."""
        reader = OffsetReader(self._options, cluster)
        first = (await reader.offsets({self._partition: EARLIEST}))[self._partition]
        return first, (await reader.offsets({self._partition: LATEST}))[self._partition]

    def _span(self, position: int) -> str:
        return f"offsets {position} to {self._piece.until_offset}"

    async def _too_late(self, cluster: NetworkClient, position: int, error: KafkaError | None) -> Exception:
        """Return what to raise when no records came in time. A log that ends here has lost those that were to follow.

        A leader that was just elected may report an end that is too low, so this is not decided before.
        """
        if error is not None:
            why = f"the last error: {error}"
        else:
            first, last = await self._bounds(cluster)
            if position >= last and not self._options.fail_on_data_loss:
                return await self._out_of_range(cluster, position)
            why = f"the broker sent none. {self._partition} has offsets {first} to {last}"
        return KafkaError(
            f"reading {self._partition} at offset {position}: no records within {self._options.poll_timeout_ms} ms "
            f"(kafkaConsumer.pollTimeoutMs), and {self._span(position)} were to be read; {why}",
            ErrorCode.REQUEST_TIMED_OUT,
        )


def _raise_malformed(batches: FetchedBatches) -> None:
    """Go through batches of which not even the first could be passed: reading it raises what is wrong with it."""
    while (found := batches.next_batch()) is not None:
        batches.passed(found[0])
