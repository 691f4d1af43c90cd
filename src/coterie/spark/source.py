"""format("coterie") and format("coterie-groups"): what Spark calls. Options go in, plans and Arrow batches come out.

Spark creates a stream reader twice: one lives with the query, in a process of its own, and plans; another is pickled
for the tasks. So nothing is connected, and no group is joined, before Spark asks for an offset.
"""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyspark

from coterie.spark.required_pyspark import old_pyspark

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
except ImportError as error:
    raise old_pyspark(pyspark.__version__, error) from None
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from coterie.client.network.runtime import Background, background
from coterie.settings import SettingsError
from coterie.spark.batch_plan import BatchPlan, OffsetRange, Span, by_topic, offset_ranges
from coterie.spark.options import SinkOptions, SourceOptions, Use
from coterie.spark.partition_reader import read_range
from coterie.spark.progress import SOURCE
from coterie.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow as pa

    from coterie.client.types import TopicPartition
    from coterie.spark.queries import GroupQuery, SingleQuery

__all__ = ["CoterieSource", "GroupLogSource"]

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


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        from coterie.spark.queries import batch_spans

        return _input_partitions(background().run(batch_spans(self._options)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._query: SingleQuery | GroupQuery | None = None
        self._background: Background | None = None
        self._last: tuple[dict[str, Any], BatchPlan] | None = None
        """The last plan, as it was given to Spark, which gives it back at each look."""
        self._shutdown = Shutdown(self._end)

    def __reduce__(self) -> tuple[type[StreamReader], tuple[SourceOptions]]:
        """Pickle the options alone: the tasks need nothing else."""
        return type(self), (self._options,)

    @property
    def query(self) -> SingleQuery | GroupQuery:
        """The object that plans the batches, from the first call on; it ends with the process."""
        if self._query is None:
            self._background = background()
            self._query = self._background.run(_query_of(self._options))
            self._shutdown.install()
        return self._query

    def initialOffset(self) -> dict[str, Any]:
        return background().run(self.query.initial()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the next offset; `start`, which is in Spark's log of done batches, if there is nothing new."""
        done = self._last[1] if self._last is not None and self._last[0] == start else BatchPlan.from_json(start)
        max_offsets = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        may_wait = not isinstance(limit, ReadAllAvailable) or self._options.max_offsets_per_trigger is None
        plan = background().run(self.query.latest(done, max_offsets, may_wait=may_wait))
        offset = start if plan is done else plan.to_json(done)
        self._last = offset, plan
        return offset

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return where the log ends, in the JSON of Spark's Kafka source, for progress reports.

        Nothing else of ours gets into them, so what the member of a group does is there too.
        """
        ends = by_topic(self.query.log_ends)
        if ends and self._options.group_id is not None:
            about = {"description": self._options.description, **background().run(self.query.report())}
            return {**ends, SOURCE: about}
        return ends or None

    def prepareForTriggerAvailableNow(self) -> None:
        background().run(self.query.set_target())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch. Both offsets are in Spark's log, so that a repeated batch reads the same."""
        spans = background().run(self.query.spans(BatchPlan.from_json(end, BatchPlan.from_json(start))))
        return _input_partitions(spans, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark calls it a batch late and never for the last one. latestOffset sees what is durable."""

    def stop(self) -> None:
        """Leave the group. Spark rarely calls this and ends the process instead, which `Shutdown` handles."""
        self._shutdown.run()

    def _end(self) -> None:
        """Called within a signal handler too, so it takes no lock that the main thread may hold."""
        if self._query is not None and self._background is not None:
            self._background.run(self._query.end())


async def _query_of(options: SourceOptions) -> SingleQuery | GroupQuery:
    from coterie.spark.queries import GroupQuery, SingleQuery

    query = os.urandom(6).hex()
    if options.group_id is None:
        return SingleQuery(options, query)
    found = GroupQuery(options, query)
    await found.listen()
    return found


def _input_partitions(spans: dict[TopicPartition, Span], options: SourceOptions) -> list[InputPartition]:
    pieces = offset_ranges(spans, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    return [InputPartition(piece) for piece in pieces]


def _read(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read one task. If a batch has none, Spark makes up one whose value is None."""
    settle()
    return read_range(options, partition.value) if isinstance(partition.value, OffsetRange) else iter(())


# --- format("coterie-groups") -----------------------------------------------------------------------------------------


class GroupLogSource(CoterieSource):
    """The source, with records of `__consumer_offsets` decoded by the task that reads them.

    Decoding later would take all rows out of Spark into Python and back again. Its options are those of
    format("coterie"); its columns are `coterie.spark.pipeline.schemas.DECODED`.
    """

    @classmethod
    def name(cls) -> str:
        return "coterie-groups"

    def schema(self) -> str:
        from coterie.spark.pipeline.schemas import DECODED

        return DECODED.ddl

    def reader(self, schema: StructType) -> DataSourceReader:
        return _DecodedBatch(SourceOptions.of(self.options, Use.BATCH))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return _DecodedStream(SourceOptions.of(self.options, Use.STREAM))


class _DecodedBatch(BatchReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _decoded(super().read(partition))


class _DecodedStream(StreamReader):
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _decoded(super().read(partition))


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from coterie.spark.pipeline.decoding import decode_batches

    return decode_batches(batches)


# --- the end of the process -------------------------------------------------------------------------------------------


class Shutdown:
    """Runs a function before the process ends: once, and to its end, however many signals come.

    Spark ends the process of a query with SIGTERM, closes its socket and sends SIGTERM again, all within a millisecond
    or two. The second signal may interrupt the handler of the first, which waits for the group's answer, or `stop`,
    which Spark calls when the socket is closed. It must not cut off what they have begun. All of this happens on the
    main thread, where Python runs signal handlers.
    """

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function
        self._has_begun = False
        self._is_over = False
        self._must_exit = False

    def install(self) -> None:
        """Run at exit, or at SIGTERM, which then ends the process as it would have done without this."""
        atexit.register(self.run)
        with suppress(ValueError):  # not the main thread: it runs at exit
            signal.signal(signal.SIGTERM, self._terminate)

    def run(self) -> None:
        """Run the function, unless an earlier call has begun to."""
        if self._has_begun:
            return
        self._has_begun = True
        try:
            self._function()
        finally:
            self._is_over = True
            if self._must_exit:
                _exit()

    def _terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self._must_exit = True  # if the function runs below this on the stack, that call exits when it is over
        self.run()
        if self._is_over:
            _exit()


def _exit() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGTERM)
