"""What format("coterie") and Spark's own format("kafka") do with the same options: the cases of the table in
docs/spark.md. A case is run with either, and what it shows is a short text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coterie.client.types import TopicPartition
from spark.topics import Topic

__all__ = ["CASES", "Case", "World", "shown"]

REFUSED = "refused"
MIDDLE = {"orders": {"0": 3, "1": -2, "2": 10, "3": 5}}


class World:
    """A topic with ten records in each of four partitions, half of them of second 1 and half of second 2."""

    def __init__(self, spark: SparkSession, topic: Topic, folder: Path, source: str) -> None:
        self.spark = spark
        self.topic = topic
        self.folder = folder
        self.source = source

    @staticmethod
    def fill(topic: Topic) -> None:
        for second in (1_000, 2_000):
            topic.write(20, key=b"k", headers=[("h", b"x")], timestamp=second)
        with_gap = Topic(topic.address, "gap", 1)
        with_gap.write(10)
        with_gap.admin.delete_records({TopicPartition("gap", 0): 4})
        with_gap.close()
        Topic(topic.address, "written", 2).close()

    def read(self, given: dict[str, Any]) -> DataFrame:
        return self.spark.read.format(self.source).options(**self.options(given)).load()

    def options(self, given: dict[str, Any]) -> dict[str, str]:
        base: dict[str, Any] = {"kafka.bootstrap.servers": self.topic.address}
        if not given.keys() & {"subscribe", "subscribePattern", "assign"}:
            base["subscribe"] = "orders"
        wanted = base | given
        return {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in wanted.items()
            if value is not None
        }

    def stream(self, given: dict[str, Any], **trigger: Any) -> list[Any]:
        """Run a stream to its end; return the progress of its batches."""
        number = sum(1 for _ in self.folder.iterdir())
        rows = self.spark.readStream.format(self.source).options(**self.options(given)).load()
        writer = rows.writeStream.format("noop").option("checkpointLocation", str(self.folder / str(number)))
        query = writer.trigger(**(trigger or {"availableNow": True})).start()
        query.awaitTermination(60)
        return [each for each in query.recentProgress if each.numInputRows]


Probe = Callable[[World, dict[str, Any]], Any]


def count(world: World, given: dict[str, Any]) -> str:
    return f"{world.read(given).count()} rows"


def tasks(world: World, given: dict[str, Any]) -> str:
    return f"{world.read(given).rdd.getNumPartitions()} tasks"


def columns(world: World, given: dict[str, Any]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in world.read(given).dtypes)


def headers(world: World, given: dict[str, Any]) -> str:
    row = world.read(given).select("headers").first()
    assert row is not None
    return ", ".join(f"{each.key}={bytes(each.value).decode()}" for each in row.headers)


def batches(world: World, given: dict[str, Any]) -> str:
    return ", ".join(str(each.numInputRows) for each in world.stream(given)) + " rows"


def end_offset(world: World, given: dict[str, Any]) -> str:
    return str(json.loads(world.stream(given)[-1].sources[0].endOffset)["orders"]["0"])


def latest_offset(world: World, given: dict[str, Any]) -> str:
    return json.dumps(json.loads(world.stream(given)[-1].sources[0].latestOffset)).replace('"', "")


def metrics(world: World, given: dict[str, Any]) -> str:
    return ", ".join(sorted(world.stream(given)[-1].sources[0].metrics or {})) or "none"


def continuous(world: World, given: dict[str, Any]) -> str:
    rows = world.spark.readStream.format(world.source).options(**world.options(given)).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(world.folder / "continuous"))
    query = writer.trigger(continuous="1 second").start()
    query.stop()
    return "runs" if query.exception() is None else REFUSED


def written(world: World, given: dict[str, Any]) -> str:
    """Write rows, and say what the topic got."""
    select, mode = given.pop("select"), given.pop("mode", "append")
    before = _rows_of(world)
    rows = world.spark.sql(f"select {select}")
    options = {"kafka.bootstrap.servers": world.topic.address} | given
    rows.write.format(world.source).mode(mode).options(**options).save()
    return ", ".join(text for place, text in _rows_of(world).items() if place not in before)


def _rows_of(world: World) -> dict[tuple[int, int], str]:
    rows = world.read({"subscribe": "written", "includeHeaders": "true"}).orderBy("partition", "offset").collect()
    return {
        (row.partition, row.offset): f"{_text(row.key)}:{_text(row.value)} in partition {row.partition}"
        + "".join(f", {each.key}={_text(each.value)}" for each in row.headers or ())
        for row in rows
    }


def _text(value: bytes | None) -> str:
    return "" if value is None else bytes(value).decode()


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    given: dict[str, Any]
    probe: Probe = count
    why: str = ""
    """Why the two differ; it is empty if they do not."""
    is_stream: bool = False


def shown(case: Case, world: World) -> str:
    try:
        return str(case.probe(world, dict(case.given)))
    except PySparkException:
        return REFUSED
    except Exception as error:  # what Java raises comes as an error of py4j
        if "Py4J" not in type(error).__name__:
            raise
        return REFUSED


_UNKNOWN = "an option that has no meaning is an error here"
_OURS = "an option of this source"

CASES: Sequence[Case] = (
    Case("columns", {}, columns),
    Case("`includeHeaders`", {"includeHeaders": "true"}, headers),
    Case("`subscribe`", {"subscribe": "orders"}),
    Case("`subscribe`, two topics", {"subscribe": "orders,gap"}),
    Case("`subscribePattern`", {"subscribePattern": "or.*"}),
    Case("`assign`", {"assign": {"orders": [0, 1]}}),
    Case("`subscribe` and `assign`", {"subscribe": "orders", "assign": {"orders": [0]}}),
    Case("none of the three", {"subscribe": None}),
    Case("a topic that does not exist", {"subscribe": "nowhere"}),
    Case("no `kafka.bootstrap.servers`", {"kafka.bootstrap.servers": None}),
    Case("`startingOffsets`: JSON", {"startingOffsets": MIDDLE}),
    Case("`startingOffsets`: a partition is missing", {"startingOffsets": {"orders": {"0": 1}}}),
    Case("`startingOffsets`: a partition too many", {"startingOffsets": {"orders": {str(n): 0 for n in range(5)}}}),
    Case("`startingOffsets`: latest, in a batch", {"startingOffsets": "latest"}),
    Case("`endingOffsets`: JSON", {"endingOffsets": {"orders": {"0": 3, "1": -1, "2": 0, "3": 5}}}),
    Case("`endingOffsets`: earliest", {"endingOffsets": "earliest"}),
    Case("`startingTimestamp`", {"startingTimestamp": "2000"}),
    Case("`startingTimestamp` after all records", {"startingTimestamp": "9000"}),
    Case(
        "`startingOffsetsByTimestampStrategy`",
        {"startingTimestamp": "9000", "startingOffsetsByTimestampStrategy": "latest"},
    ),
    Case(
        "`startingOffsetsByTimestamp`",
        {"startingOffsetsByTimestamp": {"orders": {str(n): 1_000 * (n // 2 + 1) for n in range(4)}}},
    ),
    Case("`startingTimestamp` and `startingOffsets`", {"startingTimestamp": "2000", "startingOffsets": "earliest"}),
    Case("`endingTimestamp`", {"endingTimestamp": "2000"}),
    Case(
        "`endingOffsetsByTimestamp`",
        {"endingOffsetsByTimestamp": {"orders": {str(n): 1_000 * (n // 2 + 1) for n in range(4)}}},
    ),
    Case("`failOnDataLoss`: true", {"subscribe": "gap", "startingOffsets": {"gap": {"0": 1}}}),
    Case(
        "`failOnDataLoss`: false",
        {"subscribe": "gap", "startingOffsets": {"gap": {"0": 1}}, "failOnDataLoss": "false"},
    ),
    Case(
        "`minPartitions`",
        {"minPartitions": "10"},
        tasks,
        "here it is this number; Spark's own rounds for each partition",
    ),
    Case("`maxRecordsPerPartition`", {"maxRecordsPerPartition": "4"}, tasks, "Spark's own does not heed it in a batch"),
    Case("`groupIdPrefix`", {"groupIdPrefix": "mine"}),
    Case("`kafka.group.id`", {"kafka.group.id": "g"}),
    Case("`groupId`, in a batch", {"groupId": "g"}),
    Case("`startingOffsets`: committed", {"groupId": "g", "startingOffsets": "committed"}, why=_OURS),
    Case("`kafkaConsumer.pollTimeoutMs`", {"kafkaConsumer.pollTimeoutMs": "60000"}),
    Case("`fetchOffset.numRetries`", {"fetchOffset.numRetries": "5"}),
    Case("`fetchOffset.retryIntervalMs`", {"fetchOffset.retryIntervalMs": "5"}),
    Case("`kafka.isolation.level`", {"kafka.isolation.level": "read_committed"}),
    Case("`kafka.max.partition.fetch.bytes`", {"kafka.max.partition.fetch.bytes": "1000"}),
    Case("`kafka.auto.offset.reset`", {"kafka.auto.offset.reset": "latest"}),
    Case("`kafka.enable.auto.commit`", {"kafka.enable.auto.commit": "true"}),
    Case("`kafka.key.deserializer`", {"kafka.key.deserializer": "a.B"}),
    Case("`kafka.interceptor.classes`", {"kafka.interceptor.classes": "a.B"}),
    Case("`kafka.` and a name that is not Kafka's", {"kafka.no.such.setting": "1"}, why=_UNKNOWN),
    Case("another unknown option", {"startingOfsets": "latest"}, why=_UNKNOWN),
    Case("sink: `key`, `value`, `topic`", {"select": "'a' key, 'b' value, 'written' topic, 1 partition"}, written),
    Case(
        "sink: `headers`",
        {
            "select": "'c' key, 'd' value, 0 partition, array(named_struct('key', 'h', 'value', binary('x'))) headers",
            "topic": "written",
            "includeHeaders": "true",
        },
        written,
    ),
    Case(
        "sink: option `topic` before the column",
        {"select": "'e' value, 'no' topic, 0 partition", "topic": "written"},
        written,
    ),
    Case("sink: partition of a key", {"select": "'key' key, 'f' value", "topic": "written"}, written),
    Case("sink: no topic", {"select": "'g' value"}, written),
    Case("sink: no `value`", {"select": "'g' key", "topic": "written"}, written),
    Case("sink: `mode`: overwrite", {"select": "'g' value", "topic": "written", "mode": "overwrite"}, written),
    Case("stream: `startingOffsets`", {"startingOffsets": "earliest"}, batches, is_stream=True),
    Case("stream: `startingTimestamp`", {"startingTimestamp": "2000"}, batches, is_stream=True),
    Case(
        "stream: `maxOffsetsPerTrigger`",
        {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "16"},
        batches,
        is_stream=True,
    ),
    Case(
        "stream: `minOffsetsPerTrigger`, with AvailableNow",
        {"startingOffsets": "earliest", "minOffsetsPerTrigger": "1000", "maxTriggerDelay": "5m"},
        batches,
        is_stream=True,
    ),
    Case("stream: `endingOffsets`", {"endingOffsets": "latest"}, batches, is_stream=True),
    Case("stream: `endOffset` of a partition in progress", {"startingOffsets": "earliest"}, end_offset, is_stream=True),
    Case("stream: `latestOffset` in progress", {"startingOffsets": "earliest"}, latest_offset, is_stream=True),
    Case(
        "stream: `metrics` in progress",
        {"startingOffsets": "earliest"},
        metrics,
        "Spark asks a Python source for none; `kafka_progress` has them",
        is_stream=True,
    ),
    Case(
        "stream: continuous processing",
        {"startingOffsets": "earliest"},
        continuous,
        "Spark has it for sources of the JVM alone",
        is_stream=True,
    ),
)
