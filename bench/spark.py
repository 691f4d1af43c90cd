"""Our Spark source and sink next to Spark's own, and our sinks next to each other, in one session, in turn.

CPU seconds of the JVM, its workers and the driver:

    make bench-spark
    PYTHONPATH=tests python bench/spark.py --only sinks
    PYTHONPATH=tests python bench/spark.py --only idle --partitions 10 1000 5000
    PYTHONPATH=tests python bench/spark.py --only batches --batches 1000
    PYTHONPATH=tests python bench/spark.py --records 5000000 --runs 5 --json bench/results/spark.json

The JVM source comes by Maven: no connector of Spark 4.3 is published yet, so it is connector 4.2.0 with token-provider
4.0.0 and kafka-clients 3.9.2, by hand; on matching versions its cost was the same. The broker is a process of its own
and not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from measured import Process, coterie_serve, rss_mib, write_results
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from coterie.client.admin import LATEST, checked
from coterie.client.admin.admin import Admin
from coterie.client.admin.admin_types import NewTopic
from coterie.client.producer.producer import Producer
from coterie.client.types import TopicPartition
from coterie.spark import TransactionalSink
from spark_connector import connector

PARTITIONS = 8
VALUE = bytes(range(33, 126)) + b"0123456"
IDLE_S = 8
BATCHES_WITHIN_S = 400
MANY_PARTITIONS = 5_000
TICKS = os.sysconf("SC_CLK_TCK")


def fill(address: str, topic: str, count: int, compression: str) -> None:
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS)])
    how = {"compression.type": compression, "batch.size": 65_536, "linger.ms": 20, "buffer.memory": 67_108_864}
    with Producer({"bootstrap.servers": address, **how}) as producer:
        for number in range(count):
            producer.send(topic, VALUE, key=b"%012d" % number, partition=number % PARTITIONS)


def descendants(root: int) -> list[int]:
    """Of a process, and itself."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_s(root: int) -> float:
    """Of a process and all it started, also those that have ended; to 10 ms."""
    total = 0
    for pid in descendants(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def measured(run: Callable[[], Any], root: int) -> dict[str, float]:
    cpu, wall = cpu_s(root) + time.process_time(), time.perf_counter()
    run()
    cpu = cpu_s(root) + time.process_time() - cpu
    return {"cpu_s": round(cpu, 2), "wall_s": round(time.perf_counter() - wall, 2)}


def session(folder: str, jars: str) -> tuple[SparkSession, int]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", jars)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", folder)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    (jvm,) = [pid for pid in descendants(os.getpid()) if b"SparkSubmit" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    return spark, jvm


def read(spark: SparkSession, source: str, address: str, topic: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format(source).options(**options).load()


def in_turn(
    spark: SparkSession,
    jvm: int,
    runs: int,
    task: Callable[[SparkSession, str], Any],
    who: tuple[str, str] = ("kafka", "coterie"),
) -> dict[str, dict[str, Any]]:
    """The first of each warms up and does not count; then one after the other."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in who}
    for number in range(runs + 1):
        for source, results in found.items():
            figures = measured(lambda source=source: task(spark, source), jvm)  # type: ignore[misc]
            if number:
                results.append(figures)
                print(source, figures, flush=True)
    medians = {source: median(each["cpu_s"] for each in results) for source, results in found.items()}
    return {
        **{source: {"cpu_s": medians[source], "runs": results} for source, results in found.items()},
        "ratio": {"cpu": round(medians[who[1]] / medians[who[0]], 3)},
    }


def rows_to_write(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr(
        "cast(lpad(id, 12, '0') as binary) as key", f"cast(repeat('x', {len(VALUE)}) as binary) as value"
    )


def exactly_once(spark: SparkSession, jvm: int, address: str, written: int, runs: int) -> dict[str, Any]:
    """The sink that writes at least once, and the one that writes a batch in a transaction."""
    rows = rows_to_write(spark, written)
    options = {"kafka.bootstrap.servers": address, "topic": "once"}
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic("once", PARTITIONS)])
    sink = TransactionalSink(options, transactional_id="bench")
    batches = count()

    def write(_spark: SparkSession, how: str) -> None:
        if how == "exactly once":
            sink(rows, next(batches))
        else:
            rows.write.format("coterie").mode("append").options(**options).save()

    return in_turn(spark, jvm, runs, write, ("at least once", "exactly once"))


# --- queries that wait ------------------------------------------------------------------------------------------------

WAITING = {"kafka": {}, "coterie": {}, "coterie in a group": {"groupId": "idle"}}


def start(spark: SparkSession, who: str, address: str, topic: str, folder: str) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": address, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format(who.split(maxsplit=1)[0]).options(**options, **WAITING[who]).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", f"{folder}/{topic} {who}").start()
    query.processAllAvailable()
    return query


def through_ms(query: StreamingQuery, producer: Producer, topic: str) -> float:
    """From the call that writes a record to the end of its batch. A report without rows has the next batch's number."""
    before, began = query.lastProgress, time.perf_counter()
    assert before is not None
    at_least = before.batchId + (before.numInputRows > 0)
    producer.send(topic, VALUE, partition=0)
    producer.flush()
    while (now := query.lastProgress) is None or now.batchId < at_least or not now.numInputRows:
        time.sleep(0.002)
    return (time.perf_counter() - began) * 1_000


def idle(spark: SparkSession, jvm: int, broker: Process, address: str, partitions: int, folder: str) -> dict[str, Any]:
    """CPU of queries that find nothing new, and how long a record then takes, with the broker and without."""
    topic = f"idle-{partitions}"
    began = time.perf_counter()
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topics([NewTopic(topic, partitions)])
    found: dict[str, Any] = {"topic created in s": round(time.perf_counter() - began, 1)}
    with Producer(bootstrap_servers=address) as producer:
        producer.send(topic, VALUE, partition=0)
        producer.flush()
        for who in WAITING:
            query = start(spark, who, address, topic, folder)
            for _ in range(5):
                through_ms(query, producer, topic)
            time.sleep(IDLE_S)
            cpu, cpu_of_broker, wall = cpu_s(jvm), broker.cpu_s(), time.perf_counter()
            time.sleep(IDLE_S)
            wall = time.perf_counter() - wall
            share, of_broker = (cpu_s(jvm) - cpu) / wall, (broker.cpu_s() - cpu_of_broker) / wall
            waits = sorted(through_ms(query, producer, topic) for _ in range(9))
            query.stop()
            found[who] = {
                "cpu ms/s": round(share * 1_000),
                "broker cpu ms/s": round(of_broker * 1_000),
                "record through in ms": round(median(waits)),
                "offset in the checkpoint, bytes": last_offset_bytes(f"{folder}/{topic} {who}"),
            }
            print(partitions, "partitions:", who, found[who], flush=True)
    return found


def last_offset_bytes(checkpoint: str) -> int:
    newest = max(Path(checkpoint, "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return len(newest.read_text().splitlines()[2])


def small_batches(spark: SparkSession, jvm: int, address: str, count: int, folder: str) -> dict[str, Any]:
    """Time, CPU and memory of batches of one record, by hundreds: they stay the same if nothing piles up.

    Spark's own source, for comparison, has a fifth of the batches. The time for both is limited.
    """
    found: dict[str, Any] = {}
    ends_at = time.perf_counter() + BATCHES_WITHIN_S
    for who, batches in (("kafka", count // 5), ("coterie in a group", count)):
        topic = f"small-{len(found)}"
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic(topic, 2)])
        with Producer(bootstrap_servers=address) as producer:
            producer.send(topic, VALUE, partition=0)
            producer.flush()
            query = start(spark, who, address, topic, folder)
            hundreds: list[dict[str, float]] = []
            while len(hundreds) < batches // 100 and time.perf_counter() < ends_at:
                cpu = cpu_s(jvm)
                waits = [through_ms(query, producer, topic) for _ in range(100)]
                each_ms = (cpu_s(jvm) - cpu) / 100 * 1_000
                planning = [pid for pid in descendants(jvm) if b"streaming_source_runner" in command(pid)]
                mib = sum(rss_mib(pid) for pid in planning)
                hundreds.append(
                    {
                        "ms/batch": round(median(waits), 1),
                        "cpu ms/batch": round(each_ms, 1),
                        "MiB of the process that plans": round(mib, 1),
                        "MiB of the JVM": round(rss_mib(jvm)),
                    }
                )
                print(who, len(hundreds) * 100, hundreds[-1], flush=True)
            query.stop()
        found[who] = hundreds
    return found


def topic_created_s(address: str, partitions: int) -> float:
    """From the request to the moment when all partitions have a leader and answer with their end."""
    began = time.perf_counter()
    with Admin(bootstrap_servers=address) as admin:
        checked(admin.create_topics([NewTopic("many", partitions)]))
        ends = checked(admin.list_offsets({TopicPartition("many", one): LATEST for one in range(partitions)}))
    assert len(ends) == partitions
    return round(time.perf_counter() - began, 2)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    parser.add_argument("--written", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--compressions", nargs="*", default=["none", "lz4"])
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 1_000, 5_000], help="of idle queries")
    parser.add_argument("--batches", type=int, default=1_000, help="small batches of one query")
    parser.add_argument(
        "--only", choices=["read", "write", "sinks", "idle", "batches"], help="sinks needs no connector"
    )
    parser.add_argument("--json")
    given = parser.parse_args()
    load = os.getloadavg()[0]
    figures: dict[str, Any] = {"records": given.records, "bytes_each": len(VALUE), "written": given.written}
    with tempfile.TemporaryDirectory() as folder, Process(coterie_serve("--data", f"{folder}/data")) as broker:
        address = "{}:{}".format(*broker.ready())
        spark, jvm = session(f"{folder}/warehouse", connector("4.2.0") if given.only != "sinks" else "")
        for partitions in given.partitions if given.only in {None, "idle"} else ():
            figures[f"idle, {partitions} partitions"] = idle(spark, jvm, broker, address, partitions, folder)
        if given.batches and given.only in {None, "batches"}:
            figures[f"a topic of {MANY_PARTITIONS} partitions, created in s"] = topic_created_s(
                address, MANY_PARTITIONS
            )
            print(figures, flush=True)
            figures["small batches"] = small_batches(spark, jvm, address, given.batches, folder)
        for compression in given.compressions if given.only in {None, "read"} else ():
            topic = f"topic-{compression}"
            fill(address, topic, given.records, compression)
            for source in ("kafka", "coterie"):
                found = read(spark, source, address, topic).count()
                assert found == given.records, f"{source} counts {found}"

            def to_nowhere(spark: SparkSession, source: str, topic: str = topic) -> None:
                read(spark, source, address, topic).write.format("noop").mode("overwrite").save()

            figures[f"read, {compression}"] = in_turn(spark, jvm, given.runs, to_nowhere)
        if given.written and given.only in {None, "write"}:
            rows = rows_to_write(spark, given.written)
            with Admin(bootstrap_servers=address) as admin:
                admin.create_topics([NewTopic("written", PARTITIONS)])

            def write(_spark: SparkSession, sink: str) -> None:
                options = {"kafka.bootstrap.servers": address, "topic": "written"}
                rows.write.format(sink).mode("append").options(**options).save()

            figures["write"] = in_turn(spark, jvm, min(given.runs, 3), write)
        if given.written and given.only in {None, "sinks"}:
            name = "write, exactly once"
            figures[name] = exactly_once(spark, jvm, address, given.written, min(given.runs, 3))
            print(name, figures[name]["ratio"], flush=True)
        spark.stop()
    figures["load at the start of"] = {given.only or "all": round(load, 2)}
    write_results(given.json, with_others(given.json, figures) if given.only else figures)


def with_others(path: str | None, figures: dict[str, Any]) -> dict[str, Any]:
    """Return the figures of a part together with those of the others, if there is a file of results."""
    if path is None or not Path(path).exists():
        return figures
    others = json.loads(Path(path).read_text())
    loads = "load at the start of"
    return {**others, **figures, loads: {**others.get(loads, {}), **figures[loads]}}


if __name__ == "__main__":
    main()
