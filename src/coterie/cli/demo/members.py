"""The processes of the demo's group: a Python consumer, or a Spark query. Each can be killed.

    python -m coterie.cli.demo.members python '{"processed": "FILE", "topic": "orders", "settings": {...}, ...}'
    python -m coterie.cli.demo.members spark '{"bootstrap": "...", "group": "...", "topic": "...", "home": "DIR", ...}'

Both record which orders they have processed. The Python consumer writes a file before it commits, so nothing is
committed that was not processed; when partitions are revoked it commits first, so the next owner begins where it ended.
Spark writes Parquet. SIGTERM ends either cleanly. SIGUSR1 makes the Python consumer take longer for the next batch than
its group allows.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from coterie import Consumer
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, KafkaError, RebalanceInProgressError

__all__: list[str] = []


class DemoMember:
    def __init__(self, options: dict[str, Any]) -> None:
        self._slow_s: float = options["slow_s"]
        self._consumer = Consumer(options["settings"])
        self._processed = Path(options["processed"]).open("a", buffering=1)  # noqa: SIM115  closed with the process
        self._positions: dict[TopicPartition, int] = {}
        """The offset of the next record to process, by partition."""
        self._stops = self._is_slow = False
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "_stops", True))
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all processes; the parent ends this one
        signal.signal(signal.SIGUSR1, lambda *_: setattr(self, "_is_slow", True))
        self._consumer.subscribe([options["topic"]], on_revoked=self._revoked, on_lost=self._lost)

    def run(self) -> None:
        while not self._stops:
            records = self._consumer.poll(0.2)
            if not records:
                continue
            for tp, some in records.by_partition().items():
                self._processed.write("".join(f"{tp.partition} {record.offset}\n" for record in some))
                self._positions[tp] = some[-1].offset + 1
            if self._is_slow:
                self._is_slow = False
                time.sleep(self._slow_s)
            self._commit()
        while not self._commit():  # during a rebalance: nothing new is read until it is over
            self._consumer.pause(*self._consumer.assignment())
            self._consumer.poll(0.2)
        self._consumer.close()

    def _commit(self) -> bool:
        """Return False if it must be tried again, with the next batch or after the rebalance."""
        try:
            self._consumer.commit(self._positions)
        except RebalanceInProgressError:
            return False
        except CommitFailedError:
            self._positions.clear()  # this member is out of the group, and another one reads its partitions
        except KafkaError as error:
            if not error.retriable:
                raise
            return False
        return True

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        last = {tp: self._positions.pop(tp) for tp in partitions if tp in self._positions}
        if last:
            self._consumer.commit(last)

    def _lost(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self._positions.pop(tp, None)


def run_spark(options: dict[str, Any]) -> None:
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
    checkpoint = f"{options['home']}/checkpoint"
    source = {
        "kafka.bootstrap.servers": options["bootstrap"],
        "subscribe": options["topic"],
        "groupId": options["group"],
        "checkpointLocation": checkpoint,
        **{f"kafka.{name}": str(value) for name, value in options["settings"].items()},
    }
    orders = spark.readStream.format("coterie").options(**source).load()
    query = (
        orders.select("partition", "offset")
        .writeStream.format("parquet")
        .option("path", f"{options['home']}/orders")
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


def _end_with_parent() -> None:
    """Exit when the parent ends, however it ended: stdin is a pipe that is closed with it."""
    os.read(0, 1)  # not by `sys.stdin`, whose lock would block the exit
    os._exit(1)  # at once: there is no broker left to leave


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    kind, text = sys.argv[1:]
    if kind == "spark":
        run_spark(json.loads(text))
    else:
        DemoMember(json.loads(text)).run()
