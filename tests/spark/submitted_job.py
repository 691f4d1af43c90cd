"""For spark-submit: a member of a group that reads what is there, and says what it has seen.

spark-submit tests/spark/submitted_job.py BROKER TOPIC FOLDER
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

__all__ = ["main"]


def main(address: str, topic: str, folder: str) -> None:
    spark = SparkSession.builder.appName("submitted").getOrCreate()
    checkpoint = f"{folder}/checkpoint"
    query = (
        spark.readStream.format("coterie")
        .options(
            **{
                "kafka.bootstrap.servers": address,
                "subscribe": topic,
                "groupId": "g",
                "kafka.session.timeout.ms": "600000",  # longer than the test waits: who is gone has left
                "startingOffsets": "earliest",
                "checkpointLocation": checkpoint,
            }
        )
        .load()
        .selectExpr("int(string(value)) as number")
        .writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    context = spark.sparkContext
    executors = len(context._jsc.sc().statusTracker().getExecutorInfos())  # the driver among them
    print(context.master, executors)  # noqa: T201  what the test reads
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
