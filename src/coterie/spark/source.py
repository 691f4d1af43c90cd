"""format("coterie"): what Spark calls. Thin: options in, plans and slices out; the rest is in the files beside it.

Spark makes a stream reader twice: one lives with the query, in a process of its own, and plans; another is pickled for
the tasks. So nothing is connected, and no group joined, before Spark asks for an offset.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from coterie.client.network.background import Background, background
from coterie.settings import SettingsError
from coterie.spark.options import SinkOptions, SourceOptions, Use
from coterie.spark.plan import Plan, Span
from coterie.spark.planning import Slice, slices
from coterie.spark.shutdown import Shutdown
from coterie.spark.single_query import SingleQuery
from coterie.spark.slice_reader import read_slice

if TYPE_CHECKING:
    import pyarrow as pa

    from coterie.client.types import TopicPartition
    from coterie.spark.membership import Slot

__all__ = ["CoterieSource"]

COLUMNS = "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
HEADERS = ", headers array<struct<key: string not null, value: binary>>"


class CoterieSource(DataSource):
    """spark.read.format("coterie").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders")"""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "coterie"

    def schema(self) -> str:
        wanted = {name.lower(): text for name, text in self.options.items()}.get("includeheaders", "false")
        return COLUMNS + (HEADERS if wanted.strip().lower() == "true" else "")

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(SourceOptions.of(self.options, Use.BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(SourceOptions.of(self.options, Use.STREAM))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise SettingsError('a topic cannot be overwritten, only appended to: say mode("append")')
        from coterie.spark.sink import BatchWriter

        return BatchWriter(SinkOptions.of(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from coterie.spark.sink import StreamWriter

        return StreamWriter(SinkOptions.of(self.options), schema)


def _cut(spans: dict[TopicPartition, Span], options: SourceOptions) -> list[InputPartition]:
    pieces = slices(spans, least=options.min_partitions, most_records=options.max_records_per_partition)
    return [InputPartition(piece) for piece in pieces]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Spark makes up a partition of None where there is nothing to read."""
    return read_slice(options, partition.value) if isinstance(partition.value, Slice) else iter(())


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        return _cut(background().run(self._spans()), self._options)

    async def _spans(self) -> dict[TopicPartition, Span]:
        from coterie.spark.offset_reader import OffsetReader

        look = OffsetReader(self._options)
        try:
            partitions = await look.existing_partitions()
            starts, ends = await look.starts(partitions), await look.ends(partitions)
        finally:
            await look.close()
        return {each: Span(at, max(at, ends[each])) for each, at in starts.items()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._driver: SingleQuery | Slot | None = None
        self._background: Background | None = None
        self._shutdown = Shutdown(self._end)

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions]]:
        """For the tasks, which need the options alone."""
        return type(self), (self._options,)

    @property
    def driver(self) -> SingleQuery | Slot:
        """What plans, from the first question on; it ends with the process, in order if that is at all possible."""
        if self._driver is None:
            self._background = background()
            self._driver = self._background.run(_driver(self._options))
            self._shutdown.before_the_end()
        return self._driver

    def initialOffset(self) -> dict[str, Any]:
        return background().run(self.driver.initial()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """`start` is in Spark's log of batches that are done. To give it back says that there is nothing new."""
        done = Plan.from_json(start)
        at_most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        may_wait = not isinstance(limit, ReadAllAvailable) or self._options.max_offsets_per_trigger is None
        plan = background().run(self.driver.latest(done, at_most, may_wait=may_wait))
        return start if plan is done else plan.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Where the log ends, in Spark's own form: what progress reports compare us with."""
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self.driver.log_ends.items()):
            topics.setdefault(topic, {})[str(partition)] = end
        return topics or None

    def prepareForTriggerAvailableNow(self) -> None:
        background().run(self.driver.set_target())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Of `end` alone: a batch that is repeated reads what it read before."""
        spans = background().run(self.driver.spans(Plan.from_json(end)))
        return _cut(spans, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Comes a batch late and never for the last one: what is durable is seen in latestOffset instead."""

    def stop(self) -> None:
        """Spark seldom calls it and ends the process instead: a member that does not leave makes others wait."""
        self._shutdown.say()

    def _end(self) -> None:
        """Also from within a signal, so that it takes no lock that the main thread may hold."""
        if self._driver is not None and self._background is not None:
            self._background.run(self._driver.end())


async def _driver(options: SourceOptions) -> SingleQuery | Slot:
    query = os.urandom(6).hex()
    if options.group_id is None:
        return SingleQuery(options, query)
    from coterie.spark.membership import Slot

    return Slot(options, query)
