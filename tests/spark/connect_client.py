"""A client of Spark Connect, in a process without a JVM: source, group and sink by their names alone.

python tests/spark/connect_client.py sc://127.0.0.1:15002 BROKER TOPIC FOLDER      prints what it found, as JSON
"""

from __future__ import annotations

import json
import sys
from threading import Event
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from coterie.spark import OffsetCommitter, ProgressListener

__all__ = ["main"]


def main(remote: str, address: str, topic: str, folder: str) -> dict[str, object]:
    spark = SparkSession.builder.remote(remote).getOrCreate()
    servers = {"kafka.bootstrap.servers": address}
    source = servers | {"subscribe": topic, "startingOffsets": "earliest"}
    read = spark.read.format("coterie").options(**source).load().count()
    checkpoint = f"{folder}/checkpoint"
    # The session outlives the test, so that the member is gone only if it has left.
    described: list[str] = []
    is_reported = Event()

    def report(_query: str, _batch: int, progress: dict[str, Any]) -> None:
        described.append(progress["description"])
        is_reported.set()

    spark.streams.addListener(OffsetCommitter(servers | {"groupId": "lag"}))
    spark.streams.addListener(ProgressListener(report))
    member = {"groupId": "g", "checkpointLocation": checkpoint, "kafka.session.timeout.ms": "600000"}
    query = (
        spark.readStream.format("coterie")
        .options(**source, **member)
        .load()
        .selectExpr("key", "value", "'copies' as topic")
        .writeStream.format("coterie")
        .options(**servers, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    is_over = query.awaitTermination(120)
    error = query.exception()
    is_reported.wait(60)
    rows = spark.range(7).selectExpr("string(id) as value")
    rows.write.format("coterie").mode("append").options(**servers, topic="copies").save()
    mistake = ""
    try:
        spark.read.format("coterie").options(**source, startingOfsets="latest").load().count()
    except Exception as refused:  # noqa: BLE001  what a user sees, whatever Connect makes of it
        mistake = str(refused)
    found = {
        "session": type(spark).__module__,
        "jvm": SparkContext._gateway is not None,
        "read": read,
        "is_over": is_over,
        "error": str(error) if error else None,
        "mistake": mistake,
        "described": described[:1],
    }
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))  # noqa: T201  what the test reads
