"""A job that reads and writes at a secured cluster, in a Spark of its own that keeps an event log.

It prints the plans of its queries, and what a query with a wrong password says. A test looks for secrets in all that.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from coterie.spark.offset_committer import OffsetCommitter


def plans(rows: DataFrame) -> str:
    java: Any = rows._sc._jvm
    execution: Any = rows._jdf.queryExecution()
    return str(execution.toString()) + str(java.PythonSQLUtils.explainString(execution, "extended"))


def main() -> None:
    """Take the settings of Spark, the options of the source, those with a wrong password, a directory and a topic."""
    settings, options, wrong, folder, topic = (json.loads(each) for each in sys.argv[1:])
    spark = SparkSession.builder.config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("INFO")
    batch = spark.read.format("coterie").options(**options, subscribe=topic).load()
    stream = spark.readStream.format("coterie").options(**options, subscribe=topic, groupId=f"{topic}-readers").load()
    spark.streams.addListener(OffsetCommitter({**options, "groupId": f"{topic}-committed"}))
    print(batch.count(), plans(batch), plans(stream))  # noqa: T201
    writer = stream.selectExpr("value").writeStream.format("coterie").options(**options, topic=f"{topic}-copies")
    writer = writer.option("checkpointLocation", str(Path(folder, "checkpoint")))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    print(query._jsq.explainInternal(True), query.lastProgress)  # noqa: T201
    copies = spark.read.format("coterie").options(**options, subscribe=f"{topic}-copies").load()
    print(f"read {batch.count()}, copied {copies.count()}")  # noqa: T201
    try:
        spark.read.format("coterie").options(**wrong, subscribe=topic).load().count()
    except PySparkException as error:
        print(error)  # noqa: T201
    spark.stop()


if __name__ == "__main__":
    main()
