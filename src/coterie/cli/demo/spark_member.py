"""A Spark query that is a member of the demonstration's group, as an application of its own.

    python -m coterie.cli.demo.spark_member '{"bootstrap": "...", "group": "...", "topic": "...", "home": "DIR"}'

It keeps which records it has read as Parquet. SIGTERM ends it in order.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from coterie.cli.demo.parent import end_with_parent

__all__: list[str] = []


def run(told: dict[str, Any]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("coterie demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    checkpoint = f"{told['home']}/checkpoint"
    options = {
        "kafka.bootstrap.servers": told["bootstrap"],
        "subscribe": told["topic"],
        "groupId": told["group"],
        "checkpointLocation": checkpoint,
        **{f"kafka.{name}": str(value) for name, value in told["settings"].items()},
    }
    orders = spark.readStream.format("coterie").options(**options).load()
    query = (
        orders.select("partition", "offset")
        .writeStream.format("parquet")
        .option("path", f"{told['home']}/orders")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="1 second")
        .start()
    )
    while not ended.wait(0.2):
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
            break
    query.stop()
    spark.stop()


if __name__ == "__main__":
    end_with_parent()
    run(json.loads(sys.argv[1]))
