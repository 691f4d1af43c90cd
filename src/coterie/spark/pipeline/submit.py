"""The program that spark-submit runs, and that `coterie pipeline` runs too."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Protocol

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from coterie.client.network.runtime import clock_ms
from coterie.errors import CoterieError
from coterie.settings import SettingsError
from coterie.settings.sources import from_properties, from_sets
from coterie.spark.pipeline.groups_pipeline import GroupsPipeline, PipelineOptions

_SETTINGS = {
    "spark.ui.showConsoleProgress": "false",  # the pipeline reports its own progress
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
}
_LOCAL_SETTINGS = {
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",  # rows are made and dropped: G1 spends a fifth more on them
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
DEFAULT_MASTER = "local[*]"
SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
WORKER_LATE = "Python worker failed to connect back"
NO_METRICS = 'because the return value of "scala.Option.get()" is null'
AGAIN = {
    WORKER_LATE: "Spark waited 10 s for a Python worker, in vain",
    NO_METRICS: "Spark 4.1's Kafka source has repeated a batch, and fails then",  # corrected in 4.2
}
"""Errors of Spark that are over at the next start, and what is said of them."""
MOST_STARTS = 5
LASTED_MS = 600_000
"""A query that has run for so long has started well: the count of starts begins again."""


class Pipeline(Protocol):
    def once(self) -> None:
        """Read all that is there now."""
        ...

    def follow(self) -> None:
        """Read what is written until the process is stopped."""
        ...


def session(name: str, master: str | None = None, conf: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Return the session of spark-submit, or a new one; without `master`, on all cores of this machine.

    Args:
        name: The name of the application.
        master: The master; of a local one, more settings are set.
        conf: Settings of Spark. They count more than the others.
    """
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if master is None and not is_submitted:
        master = DEFAULT_MASTER
    builder = SparkSession.builder.appName(name)
    settings = dict(_SETTINGS)
    if master is not None:
        builder = builder.master(master)
        if master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run whatever python3 is on the PATH
            settings |= _LOCAL_SETTINGS
    for key, value in (settings | dict(conf)).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    context = spark.sparkContext
    context.setLogLevel("ERROR")
    if (context.master or "").startswith("local") and not context.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, 2 * context.defaultParallelism)  # of 200 most would be empty, in Python too
    return spark


def run(options: PipelineOptions, *, follow: bool, master: str | None, say: Callable[[str], None]) -> None:
    """Run the pipeline of the groups to its end, or until Ctrl-C or SIGTERM."""
    run_pipeline("groups", lambda spark: GroupsPipeline(spark, options, say), follow=follow, master=master, say=say)


def run_pipeline(
    name: str,
    make: Callable[[SparkSession], Pipeline],
    *,
    follow: bool,
    master: str | None,
    say: Callable[[str], None],
    conf: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a pipeline to its end, or until Ctrl-C or SIGTERM; the next start repeats an unfinished batch."""
    signal.signal(signal.SIGTERM, _interrupted)
    say("starting Spark")
    spark = session(f"coterie pipeline {name}", master, conf)
    try:
        until_workers_start(lambda: _read(make(spark), follow=follow), say)
    except KeyboardInterrupt:
        say("stopped; the next start reads on from here")
    finally:
        spark.stop()


def _read(pipeline: Pipeline, *, follow: bool) -> None:
    if follow:
        pipeline.follow()
    else:
        pipeline.once()


def until_workers_start(read: Callable[[], None], say: Callable[[str], None]) -> None:
    """Call `read`, and again if Spark gave up waiting for a Python worker (ten seconds, whatever the load), or `AGAIN`.

    The pipeline repeats an unfinished batch, so nothing is lost or doubled. The error is raised after `MOST_STARTS` in
    a row.
    """
    start = 1
    while True:
        began_ms = clock_ms()
        try:
            read()
        except PySparkException as error:
            why = next((why for sign, why in AGAIN.items() if sign in str(error)), None)
            if clock_ms() - began_ms >= LASTED_MS:
                start = 1
            if why is None or start == MOST_STARTS:
                raise
            start += 1
            say(f"{why}; starting the query again ({start} of {MOST_STARTS})")
        else:
            return


def _interrupted(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def kafka_options(bootstrap: str | None, sets: Sequence[str], properties: str = "") -> Mapping[str, str]:
    """Return the options of the source: the client's settings from a properties file, then from `sets`."""
    problems: list[str] = []
    given = [*from_properties(properties, problems), *from_sets(sets, problems)]
    if problems:
        raise SettingsError("\n".join(problems))
    options = {f"kafka.{each.name}": each.text.strip() for each in given}
    return options | ({"kafka.bootstrap.servers": bootstrap} if bootstrap else {})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description="Export the history of all consumer groups to Parquet; see docs/pipeline.md."
    )
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument(
        "--out", required=True, metavar="DIR", help="directory for the tables, or a URI that Spark can write to"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="read what is there, then exit (default)")
    how.add_argument("--follow", action="store_true", help="keep reading until stopped")
    parser.add_argument("--every", type=float, default=PipelineOptions.every_s, metavar="SECONDS")
    parser.add_argument("--records-per-batch", type=int, default=PipelineOptions.records_per_batch, metavar="N")
    parser.add_argument("--keep", type=int, metavar="DAYS", help="days to keep (default: all)")
    parser.add_argument("--keep-lag", type=int, metavar="HOURS", help="hours to keep each measurement of a partition")
    parser.add_argument("--config", metavar="FILE", help="properties file with client settings")
    parser.add_argument("--set", action="append", default=[], dest="sets", metavar="NAME=VALUE")
    asked = parser.parse_args(arguments)
    try:
        properties = Path(asked.config).read_text(encoding="utf-8") if asked.config else ""
        kafka = kafka_options(asked.bootstrap, asked.sets, properties)
        options = PipelineOptions(
            asked.out,
            kafka,
            records_per_batch=asked.records_per_batch,
            every_s=asked.every,
            keep_days=asked.keep,
            keep_lag_hours=asked.keep_lag,
        )
        run(options, follow=asked.follow, master=None, say=lambda text: print(text, file=sys.stderr, flush=True))  # noqa: T201
    except CoterieError as error:
        raise SystemExit(f"coterie: {error}") from None


if __name__ == "__main__":
    main()
