"""A Spark session for a pipeline: the one that spark-submit has made, or one on this machine."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

__all__ = ["session"]

_OURS = {
    "spark.ui.showConsoleProgress": "false",  # the pipeline says itself how far it is
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
_ON_ONE_MACHINE = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # rows are made and dropped: G1 spends a fifth more on them
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
DEFAULT_MASTER = "local[*]"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"


def session(name: str, master: str | None = None) -> SparkSession:
    """`master` None: what spark-submit says, or all cores of this machine."""
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if master is None and not is_submitted:
        master = DEFAULT_MASTER
    builder = SparkSession.builder.appName(name)
    settings = dict(_OURS)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is on the PATH
            settings |= _ON_ONE_MACHINE
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("ERROR")
    if (context.master or "").startswith("local") and not context.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, 2 * context.defaultParallelism)  # of 200 most would be empty, in Python too
    return spark
