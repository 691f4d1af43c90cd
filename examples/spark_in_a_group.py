"""A Spark query and a Python consumer share a topic: both are members of one group.

    python examples/spark_in_a_group.py

It needs the extra `spark` and Java 17 or newer. With `groupId` a query is a member; without, it reads everything.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import coterie

BROKER = {"group.initial.rebalance.delay.ms": 0, "num.partitions": 4}


def start(spark: SparkSession, where: str, home: Path) -> StreamingQuery:
    return (
        spark.readStream.format("coterie")
        .option("kafka.bootstrap.servers", where)
        .option("subscribe", "orders")
        .option("groupId", "billing")
        .option("kafka.heartbeat.interval.ms", "300")
        .option("checkpointLocation", str(home / "checkpoint"))
        .load()
        .selectExpr("string(value) AS value", "partition", "offset")
        .writeStream.format("parquet")
        .option("path", str(home / "orders"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .start()
    )


def main() -> None:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else Spark's workers run whatever python3 is on the PATH
    spark = SparkSession.builder.getOrCreate()
    with coterie.Broker(settings=BROKER) as broker, TemporaryDirectory() as home:
        where = broker.bootstrap_servers
        with coterie.Producer(bootstrap_servers=where) as producer:
            for number in range(100):
                producer.send("orders", f"order {number}", partition=number % 4)
        query = start(spark, where, Path(home))
        with coterie.Consumer(
            bootstrap_servers=where,
            group_id="billing",
            heartbeat_interval_ms=300,
            partition_assignment_strategy="cooperative-sticky",  # as Spark's member is
        ) as consumer:
            consumer.subscribe(["orders"])
            while len(consumer.assignment()) != 2:  # the group has both when Spark has started, and they have two each
                assert query.exception() is None, query.exception()
                consumer.poll(0.2)
            print("Python has", *sorted(map(str, consumer.assignment())), "and Spark the rest")
        query.processAllAvailable()  # so that it is not stopped in the middle of a batch
        query.stop()
        print("why it rebalanced:", *(f"{one.cause};" for one in broker.rebalances("billing")))


if __name__ == "__main__":
    main()
