"""The tasks of a `TransactionalSink`: each writes its rows with the driver's producer id and epoch, in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

from pyspark import TaskContext

from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.producer.transaction_worker import TransactionWorker
from coterie.settings.producer_settings import ProducerSettings
from coterie.spark.sink import columns_of, send_rows
from coterie.spark.transaction_turns import TaskAttempt, TaskTurns, TurnsAt
from coterie.spark.worker_memory import settle

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RESULT", "writing"]

Task = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]

RESULT = "attempt long, records long"


def writing(settings: ProducerSettings, topic: str, identity: ProducerIdAndEpoch, turns: TurnsAt) -> Task:
    """Return a function that writes rows as a part of the transaction, and returns how many there were."""

    def write(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        settle()
        context = TaskContext.get()
        assert context is not None, "Spark runs it"
        who = TaskAttempt(context.partitionId(), context.taskAttemptId())
        records = 0
        with ExitStack() as stack:
            producer: TransactionWorker | None = None
            for some in rows:
                if producer is None:  # a task without rows needs none
                    mine = stack.enter_context(closing(TaskTurns(turns, who, settings.transaction_timeout_ms / 1000)))
                    producer = stack.enter_context(TransactionWorker(settings, identity, mine))
                send_rows(producer, topic, columns_of(some))
                records += some.num_rows
            if producer is not None:
                producer.deliver()
        if records:
            yield pa.RecordBatch.from_pydict({"attempt": [who.attempt], "records": [records]})

    return write
