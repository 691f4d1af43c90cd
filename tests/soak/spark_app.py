"""A Spark application of its own: a query in a group, slow batches, a file for each. Ends in order on SIGTERM.

python tests/soak/spark_app.py localhost:9092 TOPIC GROUP FOLDER LONGEST_BATCH_S [MASTER]
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from random import Random
from threading import Event

from pyspark.sql import DataFrame, SparkSession

__all__ = ["main"]


def main(address: str, topic: str, group_id: str, folder: Path, longest_s: float, master: str = "local[2]") -> int:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    asked_to_end = Event()
    signal.signal(signal.SIGTERM, lambda _signal, _frame: asked_to_end.set())
    spark = (
        SparkSession.builder.master(master)
        .config("spark.executor.memory", "512m")
        .config("spark.speculation", str(not master.startswith("local")).lower())
        .config("spark.speculation.interval", "50ms")
        .config("spark.speculation.multiplier", "1.1")
        .config("spark.speculation.quantile", "0.3")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.streaming.minBatchesToRetain", "100000")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    sink = folder / "sink"
    sink.mkdir(parents=True, exist_ok=True)
    rng = Random(os.getpid())

    def write(rows: DataFrame, batch: int) -> None:
        """A batch that is run again replaces itself: the sink is as exact as Spark's checkpoint."""
        found = [[row.partition, row.offset] for row in rows.select("partition", "offset").collect()]
        asked_to_end.wait(rng.uniform(0, longest_s))
        (sink / f"{batch}.part").write_text(json.dumps(found))
        (sink / f"{batch}.part").rename(sink / str(batch))

    checkpoint = str(folder / "checkpoint")
    query = (
        spark.readStream.format("coterie")
        .options(
            **{
                "kafka.bootstrap.servers": address,
                "subscribe": topic,
                "groupId": group_id,
                "checkpointLocation": checkpoint,
                "maxOffsetsPerTrigger": "5000",
                "kafka.heartbeat.interval.ms": "300",
                "kafka.session.timeout.ms": "6000",
            }
        )
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .start()
    )
    (folder / "started").touch()
    while not asked_to_end.wait(0.2) and query.isActive:
        pass
    query.stop()
    error = query.exception()
    if error is not None:
        (folder / "error").write_text(str(error))
    spark.stop()
    return 0 if error is None else 1


if __name__ == "__main__":
    address, topic, group_id, folder, longest_s, *master = sys.argv[1:]
    sys.exit(main(address, topic, group_id, Path(folder), float(longest_s), *master))
