"""A Spark application on executors of its own: it reads a topic in a group, and writes another in transactions.

python tests/soak/spark_transactions_app.py localhost:9092 INPUT OUTPUT GROUP FOLDER
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from coterie.spark import TransactionalSink

__all__ = ["main"]


def main(address: str, topic: str, output: str, group_id: str, folder: Path) -> int:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    asked_to_end = Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: asked_to_end.set())
    spark = (
        SparkSession.builder.master("local-cluster[2,1,512]")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    where = {"kafka.bootstrap.servers": address}
    sink = TransactionalSink({**where, "topic": output}, transactional_id="spark")
    checkpoint = str(folder / "checkpoint")
    source = spark.readStream.format("coterie").options(
        **where,
        **sink.source_options(),
        **{
            "subscribe": topic,
            "groupId": group_id,
            "checkpointLocation": checkpoint,
            "maxOffsetsPerTrigger": "5000",
            "kafka.heartbeat.interval.ms": "300",
            "kafka.session.timeout.ms": "6000",
        },
    )
    rows = source.load().selectExpr("key", "concat_ws(':', partition, offset, string(value)) as value")
    query = rows.writeStream.foreachBatch(sink).option("checkpointLocation", checkpoint).start()
    while not asked_to_end.wait(0.2) and query.isActive:
        pass
    query.stop()
    error = query.exception()
    if error is not None:
        (folder / "error").write_text(str(error))
    spark.stop()
    return 0 if error is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5])))
