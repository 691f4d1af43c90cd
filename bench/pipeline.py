"""What decoding `__consumer_offsets` costs in Spark: CPU seconds per million records, linear or not, and memory.

    make bench-pipeline             # or: .venv/bin/python bench/pipeline.py [--json FILE] [--millions 1 10] [--runs 3]

From a broker's log by format("coterie-groups") to nowhere (`noop`), as the pipeline reads it: fetched, decoded and made
rows of Spark. Counted are this process, the JVM and its Python workers, by the kernel's own accounts; not the broker,
which is a process of its own. `undecoded` is the same log by format("coterie"), in turn with it, and `bare` the decoder
alone. `first` is the first job of a session: starting Python workers, compiling Java. `whole` is all of the pipeline,
tables written. The records are offset commits of version 4 with a topic id, as Kafka 4.3.1 writes them, in batches of
100; one in a hundred is a tombstone, one in ten thousand a group's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
from measured import Process, coterie_serve, write_results
from pyspark.sql import SparkSession

from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup
from coterie.protocol.offsets_topic import write_record
from coterie.protocol.records import BatchRecord, build_batch
from coterie.spark.pipeline.decoding import decode
from coterie.spark.pipeline.groups_pipeline import GroupsPipeline, PipelineOptions
from coterie.spark.pipeline.schemas import TABLES
from coterie.spark.pipeline.submit import session
from coterie.spark.source import GroupLogSource
from coterie.storage import DataDirectory, DiskFiles, StoredTopic

MILLION = 1_000_000
DISTINCT = 100_000
IN_A_BATCH = 100
PARTITIONS = 4
START_MS = 1_700_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")


def records() -> list[tuple[bytes, bytes | None]]:
    made = []
    for number in range(DISTINCT):
        if number % 10_000 == 9_999:
            made.append(write_record(GroupRecord(f"group-{number % 500}", StoredGroup("consumer", number))))
            continue
        topic = number % 20
        committed = CommittedOffset(number, 3, "", START_MS + number, topic_id=UUID(int=1_000 + topic))
        at = None if number % 100 == 99 else committed
        made.append(write_record(OffsetRecord(f"group-{number % 500}", f"topic-{topic}", number % 12, at)))
    return made


def write_log(folder: Path, millions: list[int]) -> None:
    """A topic for each size: as a broker that was stopped leaves them."""
    content = [BatchRecord(key, value, START_MS + at) for at, (key, value) in enumerate(records())]
    batches = [bytes(build_batch(content[at : at + IN_A_BATCH])) for at in range(0, DISTINCT, IN_A_BATCH)]
    folder.mkdir()
    directory = DataDirectory.open(DiskFiles(folder), START_MS, cluster_id="bench")
    for size in millions:
        change = directory.create_topic(StoredTopic(name(size), UUID(int=size), PARTITIONS), START_MS)
        change.run()
        change.done()
        for number in range(size * MILLION // DISTINCT):
            log = directory.logs[name(size), number % PARTITIONS]
            for at in range(0, len(batches), 100):
                for each in batches[at : at + 100]:
                    log.append(bytearray(each), START_MS)
    directory.close()


def name(millions: int) -> str:
    return f"log-{millions}"


class Machine:
    """What is counted: we, the JVM and its workers; not the broker."""

    def __init__(self, broker: int) -> None:
        self._broker = broker

    def processes(self) -> list[int]:
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
            except OSError:  # it has just ended
                continue
        wanted = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted - {self._broker}:
            wanted |= more
        return sorted(wanted)

    def spent(self) -> Spent:
        """In CPU seconds, and by the clock."""
        total = in_python = 0
        for pid in self.processes():
            try:
                _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
                is_python = "python" in Path(f"/proc/{pid}/comm").read_text()
            except OSError:
                continue
            # With children that have ended; this process's are others' business.
            ticks = sum(int(field) for field in rest.split()[11 : 13 if pid == os.getpid() else 15])
            total += ticks
            in_python += ticks if is_python else 0
        return Spent(total / TICKS, in_python / TICKS, time.perf_counter())

    def largest_worker_mib(self) -> float:
        """The most that any Python worker ever had."""
        most = 0
        for pid in self.processes():
            try:
                if pid != os.getpid() and "python" in Path(f"/proc/{pid}/comm").read_text():
                    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                    most = max(most, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
            except OSError:
                continue
        return most / 1024

    def cost_of(self, work: Callable[[], None]) -> Spent:
        before = self.spent()
        work()
        return Spent(*(now - then for now, then in zip(self.spent(), before, strict=True)))


class Spent(NamedTuple):
    total: float
    in_python: float
    wall: float


def bare() -> float:
    """Of batches as large as the source makes them."""
    pairs = records()
    table = pa.table(
        {
            "key": pa.array([key for key, _ in pairs], pa.binary()),
            "value": pa.array([value for _, value in pairs], pa.binary()),
            "topic": pa.array(["__consumer_offsets"] * DISTINCT),
            "partition": pa.array([0] * DISTINCT, pa.int32()),
            "offset": pa.array(range(DISTINCT), pa.int64()),
            "timestamp": pa.array(range(START_MS * 1_000, START_MS * 1_000 + DISTINCT), pa.timestamp("us", "UTC")),
        }
    )
    batches = table.to_batches(max_chunksize=40_000)
    times = []
    for _ in range(5):
        before = time.process_time()
        for batch in batches:
            list(decode(batch))
        times.append(time.process_time() - before)
    return min(times) * MILLION / DISTINCT


def read(spark: SparkSession, source: str, address: str, millions: int) -> None:
    frame = spark.read.format(source).option("kafka.bootstrap.servers", address).option("subscribe", name(millions))
    frame.load().write.format("noop").mode("overwrite").save()


def pipeline(spark: SparkSession, address: str, millions: int, out: Path) -> None:
    kafka = {"kafka.bootstrap.servers": address}
    GroupsPipeline(spark, PipelineOptions(str(out), kafka, source={"subscribePattern": name(millions)}), print).once()


def whole(spark: SparkSession, machine: Machine, address: str, millions: int, out: Path) -> dict[str, Any]:
    cost = machine.cost_of(lambda: pipeline(spark, address, millions, out))
    files = list((out / TABLES["commits"].name).rglob("*.parquet"))
    return {
        "millions": millions,
        "cpu_s_per_million": round(cost.total / millions, 2),
        "wall_s": round(cost.wall, 1),
        "bytes_per_commit": round(sum(each.stat().st_size for each in files) / millions / MILLION, 1),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--millions", type=int, nargs="+", default=[1, 10])
    options.add_argument("--runs", type=int, default=3)
    options.add_argument("--only-decode", action="store_true", help="not the whole pipeline")
    asked = options.parse_args()
    sizes: list[int] = sorted(asked.millions)
    figures: dict[str, Any] = {"bare_cpu_s_per_million": round(bare(), 2)}
    with tempfile.TemporaryDirectory() as scratch:
        write_log(Path(scratch, "data"), sizes)
        with Process(coterie_serve("--data", str(Path(scratch, "data")))) as broker:
            address = ":".join(map(str, broker.ready()))
            spark, machine = session("bench", "local[2]"), Machine(broker.pid)
            spark.dataSource.register(GroupLogSource)
            ours = GroupLogSource.name()
            first = machine.cost_of(lambda: read(spark, ours, address, sizes[0]))
            figures["first"] = {"millions": sizes[0], "cpu_s": round(first.total, 1), "wall_s": round(first.wall, 1)}
            least = {}
            for size in sizes:
                decoded, undecoded = [], []
                for _ in range(asked.runs):
                    decoded.append(machine.cost_of(lambda size=size: read(spark, ours, address, size)))  # type: ignore[misc]
                    undecoded.append(machine.cost_of(lambda size=size: read(spark, "coterie", address, size)))  # type: ignore[misc]
                best = least[size] = min(decoded)
                figures[f"{size} M"] = {
                    "cpu_s_per_million": round(best.total / size, 2),
                    "of_it_python": round(best.in_python / size, 2),
                    "undecoded_cpu_s_per_million": round(min(undecoded).total / size, 2),
                    "all_runs": [round(each.total / size, 2) for each in decoded],
                    "wall_s": round(best.wall, 1),
                    "largest_worker_mib": round(machine.largest_worker_mib()),
                }
            small, large = sizes[0], sizes[-1]
            if large > small:
                more = (least[large].total - least[small].total) / (large - small)
                figures["each_further_million_cpu_s"] = round(more, 2)
            if not asked.only_decode:
                figures["whole"] = whole(spark, machine, address, large, Path(scratch, "out"))
            spark.stop()
    write_results(asked.json, figures)


if __name__ == "__main__":
    main()
