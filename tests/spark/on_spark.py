"""What the tests on real Spark have in common: a query, where its rows go, and why it failed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.topics import Topic

__all__ = ["GROUP", "Slow", "batch", "failure", "member", "numbers", "options", "process_that_plans", "stream"]

GROUP = {"groupId": "g", "kafka.heartbeat.interval.ms": "200", "kafka.session.timeout.ms": "6000"}


def options(topic: Topic, **more: str) -> dict[str, str]:
    base = {"kafka.bootstrap.servers": topic.address, "subscribe": topic.name}
    return base | {name.replace("__", "."): text for name, text in more.items()}


def batch(spark: SparkSession, topic: Topic, **more: str) -> DataFrame:
    return spark.read.format("coterie").options(**options(topic, **more)).load()


def stream(
    spark: SparkSession, topic: Topic, folder: Path, *, given: dict[str, str] | None = None, **trigger: Any
) -> StreamingQuery:
    """To files: Spark's own sink that has each batch once."""
    rows = (
        spark.readStream.format("coterie").options(**options(topic, startingOffsets="earliest"), **(given or {})).load()
    )
    writer = rows.selectExpr("int(string(value)) as number", "partition", "offset").writeStream.format("parquet")
    writer = writer.option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def numbers(spark: SparkSession, folder: Path) -> list[int]:
    return [row.number for row in spark.read.parquet(str(folder / "out")).collect()]


def failure(run: Callable[[], Any]) -> str:
    with pytest.raises(PySparkException) as raised:
        run()
    return str(raised.value)


def ancestors(pid: int, parents: dict[int, int]) -> set[int]:
    """Numbers of processes start again when they are used up, so a child's may be the smaller one."""
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found


def process_that_plans() -> int:
    """Of our own Spark: a descendant of this process, whatever else runs on the machine."""
    parents, planning = {}, []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if b"python_streaming_source_runner" in (path / "cmdline").read_bytes():
                planning.append(int(path.name))
        except OSError:
            continue  # it has ended meanwhile
    found = [pid for pid in sorted(planning) if os.getpid() in ancestors(pid, parents)]
    assert found, "no stream is running"
    return found[-1]


class Slow:
    """A sink that keeps what each batch brought under its number, and may take its time."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, int]]] = {}
        self.is_in_batch, self.may_end = Event(), Event()
        self.may_end.set()
        self.crashes = False

    def __call__(self, rows: DataFrame, number: int) -> None:
        """In this process: Spark calls back, and waits."""
        found = [(int(bytes(row.value)), row.partition, row.offset) for row in rows.collect()]
        self.is_in_batch.set()
        assert self.may_end.wait(120)
        if self.crashes:
            raise RuntimeError("the batch has read, and nothing of it is durable")
        self.batches[number] = found

    def hold(self) -> None:
        """The next batch ends when `may_end` is set."""
        self.may_end.clear()
        self.is_in_batch.clear()

    @property
    def seen(self) -> list[int]:
        return [row[0] for number in sorted(self.batches) for row in self.batches[number]]


def member(spark: SparkSession, topic: Topic, folder: Path, sink: Slow, **more: str) -> StreamingQuery:
    checkpoint = str(folder / "checkpoint")
    given = GROUP | {"checkpointLocation": checkpoint, "startingOffsets": "earliest"}
    rows = spark.readStream.format("coterie").options(**(options(topic) | given | options(topic, **more))).load()
    return rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
