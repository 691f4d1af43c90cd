"""Micro-batches in transactions: each row is seen once, although tasks fail and the driver stops."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import coterie
from apache_kafka import ApacheKafka, needs_apache_kafka
from client.transacting import seen
from coterie import Admin, NewTopic
from coterie.client.admin.results import checked
from coterie.settings import SettingsError
from coterie.spark import TransactionalSink, transaction_tasks, transactional_sink
from coterie.spark.checkpoint import CommitNote
from spark.conftest import in_the_soak, needs_java
from spark.topics import Topic

pytestmark = [pytest.mark.real_time, needs_java]

BATCHES = 4
ROWS = [f"{batch}.{number}" for batch in range(BATCHES) for number in range(20)]


BROKERS = (
    "coterie",
    pytest.param("apache kafka", marks=[needs_apache_kafka, in_the_soak]),
)


@pytest.fixture(scope="module", params=BROKERS)
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "coterie":
        with coterie.Broker() as broker:
            yield broker.bootstrap_servers
    else:
        with ApacheKafka() as kafka:
            yield kafka.bootstrap


class Query:
    """A query of four micro-batches, from files; started again, it goes on with its checkpoint."""

    def __init__(self, spark: SparkSession, bootstrap: str, name: str, folder: Path) -> None:
        self.spark, self.bootstrap, self.name, self.folder = spark, bootstrap, name, folder
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic(name, 2, 1)])
        (folder / "in").mkdir()
        for batch in range(BATCHES):
            (folder / "in" / f"{batch}.txt").write_text("".join(f"{batch}.{number}\n" for number in range(20)))

    def sink(self) -> TransactionalSink:
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": self.name}
        return TransactionalSink(options, transactional_id=self.name)

    def run(self, sink: Any, *, checkpoint: str = "checkpoint") -> None:
        rows = self.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(self.folder / "in"))
        writer = rows.selectExpr("value", "value AS key").writeStream.foreachBatch(sink)
        query = writer.option("checkpointLocation", str(self.folder / checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()

    def seen(self, isolation_level: str = "read_committed") -> list[str]:
        return sorted(seen(self.bootstrap, self.name, isolation_level))


@pytest.fixture
def query(spark: SparkSession, bootstrap: str, request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    return Query(spark, bootstrap, re.sub(r"\W+|_", "-", request.node.name).strip("-"), tmp_path)


def test_a_batch_that_is_there_is_not_written_again(query: Query) -> None:
    """The driver dies after the transaction, before Spark has noted that the batch is done: Spark repeats it."""
    sink = query.sink()

    def dies(rows: DataFrame, batch_id: int) -> None:
        sink(rows, batch_id)
        if batch_id == 2:
            raise LookupError("the driver dies")

    with pytest.raises(Exception, match="the driver dies"):
        query.run(dies)
    query.run(query.sink())
    assert query.seen() == sorted(ROWS) == query.seen("read_uncommitted")
    with pytest.raises(Exception, match="was used by another query"):
        query.run(query.sink(), checkpoint="another")
    assert query.seen() == sorted(ROWS)


def test_a_batch_whose_task_fails_is_aborted_and_written_again(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that a failed task has written are never seen by a reader with read_committed."""
    flag = str(query.folder / "failed")
    original = transaction_tasks.writing

    def failing(*how: Any) -> Callable[[Iterator[Any]], Iterator[Any]]:
        write = original(*how)

        def write_then_fail(batches: Iterator[Any]) -> Iterator[Any]:
            import os

            written = list(write(batches))
            if written and not os.path.exists(flag):  # noqa: PTH110  it runs in a worker of Spark
                open(flag, "w").close()  # noqa: PTH123
                raise LookupError("the task fails")
            yield from written

        return write_then_fail

    monkeypatch.setattr(transactional_sink, "writing", failing)
    query.run(query.sink())
    assert Path(flag).exists()
    assert query.seen() == sorted(ROWS)
    assert len(query.seen("read_uncommitted")) > len(ROWS)


def test_the_offsets_of_a_group_are_in_the_transaction(
    spark: SparkSession, bootstrap: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The driver dies after the transaction of a batch: it is read again for the query's state, and not written."""
    topic = Topic(bootstrap, re.sub(r"\W+|_", "-", request.node.name).strip("-"), 2)
    topic.admin.create_topics([NewTopic(f"{topic.name}-out", 2)])
    topic.write(60)
    topic.written = 0
    topic.write(60)  # each value twice: the query drops what it has seen, in whatever batch

    def run(dies_after: int | None) -> None:
        options = {"kafka.bootstrap.servers": bootstrap, "topic": f"{topic.name}-out"}
        sink = TransactionalSink(options, transactional_id=topic.name)

        def write(rows: DataFrame, batch_id: int) -> None:
            sink(rows, batch_id)
            if batch_id == dies_after:
                raise LookupError("the driver dies")

        source = spark.readStream.format("coterie").options(
            **sink.source_options(),
            **{"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, "groupId": topic.name},
            startingOffsets="earliest",
            maxOffsetsPerTrigger="60",
            checkpointLocation=str(tmp_path),
        )
        rows = source.load().selectExpr("string(value)").dropDuplicates(["value"])
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the driver dies"):
        run(0)
    assert topic.committed(topic.name) == 60, "before Spark has noted that the batch is done"
    run(None)
    assert topic.committed(topic.name) == 120
    found = checked(topic.admin.list_group_offsets(topic.name)).values()
    assert {note.in_transaction for each in found if each and (note := CommitNote.parse(each.metadata))} == {True}
    assert sorted(map(int, seen(bootstrap, f"{topic.name}-out"))) == list(range(60))
    said = "\n".join(job_descriptions(spark))
    assert (
        f"batch = 1<br/>writes {topic.name}-out in a transaction of {topic.name}<br/>reads {topic.name}-0 up to "
        in said
    )
    assert re.search(rf"of group {topic.name}, generation \d", said)
    topic.close()


def job_descriptions(spark: SparkSession) -> list[str]:
    """Return what Spark's UI shows of jobs; it has them without the UI, too."""
    jobs = spark._jsc.sc().statusStore().jobsList(None)
    found = [jobs.apply(at).description() for at in range(jobs.size())]
    return [str(one.get()) for one in found if one.isDefined()]  # a job need not have one


@in_the_soak
def test_a_query_of_two_sources_commits_the_offsets_of_both(
    spark: SparkSession, bootstrap: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """They are two members of one group here. The last batches have records of one source alone."""
    name = re.sub(r"\W+|_", "-", request.node.name).strip("-")
    orders, returns = Topic(bootstrap, f"{name}-orders", 2), Topic(bootstrap, f"{name}-returns", 2)
    orders.admin.create_topics([NewTopic(name, 2)])
    orders.write(40)
    returns.written = 1000
    returns.write(80)

    def run(dies_after: int | None) -> None:
        sink = TransactionalSink({"kafka.bootstrap.servers": bootstrap, "topic": name}, transactional_id=name)

        def write(rows: DataFrame, batch_id: int) -> None:
            sink(rows, batch_id)
            if batch_id == dies_after:
                raise LookupError("the driver dies")

        def source(topic: Topic) -> DataFrame:
            where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic.name, "groupId": name}
            reader = spark.readStream.format("coterie").options(**where, **sink.source_options())
            quick = {"kafka.heartbeat.interval.ms": "200"}  # one source joins after the other
            more = {"maxOffsetsPerTrigger": "40", "checkpointLocation": str(tmp_path)}
            return reader.options(startingOffsets="earliest", **more, **quick).load()

        rows = source(orders).union(source(returns)).selectExpr("string(value)")
        query = rows.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        query.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the driver dies"):
        run(0)
    run(None)
    assert orders.committed(name) == 120
    assert sorted(map(int, seen(bootstrap, name))) == [*range(40), *range(1000, 1080)]
    orders.close()
    returns.close()


def test_a_topic_is_needed() -> None:
    with pytest.raises(SettingsError, match="the option topic is missing"):
        TransactionalSink({"kafka.bootstrap.servers": "127.0.0.1:1"}, transactional_id="x")
    with pytest.raises(SettingsError, match=r"Use coterie\.spark\.TransactionalSink"):
        TransactionalSink({"kafka.bootstrap.servers": "h:1", "kafka.transactional.id": "y"}, transactional_id="x")
