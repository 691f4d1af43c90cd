"""What decoding `__consumer_offsets` costs in Spark: CPU seconds per million records, and memory.

    make bench-pipeline             # or: .venv/bin/python bench/pipeline.py [--json FILE] [--millions 1 10]

From Parquet files with the columns of the source to nowhere (`noop`), so that what is measured is the decoding with
Spark around it: the JVM and its Python workers are counted, by the kernel's own accounts. `bare` is the decoder alone,
in this process, and `nothing` the same way through Spark with rows passed on undecoded. Offset commits of version 4
with a topic id, as Kafka 4.3.1 writes them; one record in a hundred is a tombstone, one in ten thousand a group's.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
from measured import write_results
from pyspark.sql import DataFrame, SparkSession

from coterie.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup
from coterie.spark.decoding import decode
from coterie.spark.pipelines.session import session
from coterie.spark.transforms import decoded
from coterie.wire.offsets_topic import write_record

MILLION = 1_000_000
DISTINCT = 100_000
START_MS = 1_700_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")


def records() -> Any:
    keys, values = [], []
    for number in range(DISTINCT):
        if number % 10_000 == 9_999:
            key, value = write_record(GroupRecord(f"group-{number % 500}", StoredGroup("consumer", number)))
        else:
            topic = number % 20
            committed = CommittedOffset(number, 3, "", START_MS + number, topic_id=UUID(int=1_000 + topic))
            at = None if number % 100 == 99 else committed
            key, value = write_record(OffsetRecord(f"group-{number % 500}", f"topic-{topic}", number % 12, at))
        keys.append(key)
        values.append(value)
    return pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["__consumer_offsets"] * DISTINCT),
            "partition": pa.array([0] * DISTINCT, pa.int32()),
            "offset": pa.array(range(DISTINCT), pa.int64()),
            "timestamp": pa.array(range(START_MS * 1_000, START_MS * 1_000 + DISTINCT), pa.timestamp("us", "UTC")),
        }
    )


def write_files(table: Any, folder: Path, millions: int) -> None:
    """A file for each million, of ten row groups."""
    folder.mkdir()
    whole = pa.concat_tables([table] * (MILLION // DISTINCT))
    for number in range(millions):
        pq.write_table(whole, folder / f"{number}.parquet", row_group_size=DISTINCT)


def passed_on(batches: Iterable[Any]) -> Iterator[Any]:
    return iter(batches)


def processes() -> list[int]:
    """The JVM and its workers: children of this process, and their children."""
    found, parents = [], {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has just ended
            continue
    wanted = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
        found += sorted(more)
    return found


class Spent(NamedTuple):
    total: float
    in_python: float
    wall: float

    def since(self, before: Spent) -> Spent:
        return Spent(*(now - then for now, then in zip(self, before, strict=True)))


def spent() -> Spent:
    """In CPU seconds, and by the clock."""
    total = in_python = 0
    for pid in processes():
        try:
            _, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
            is_python = "python" in Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            continue
        ticks = sum(int(field) for field in rest.split()[11:15])  # with children that have ended
        total += ticks
        in_python += ticks if is_python else 0
    return Spent(total / TICKS, in_python / TICKS, time.perf_counter())


def largest_worker_mib() -> float:
    """The most that any Python worker ever had."""
    most = 0
    for pid in processes():
        try:
            if "python" in Path(f"/proc/{pid}/comm").read_text():
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
                most = max(most, *(int(line.split()[1]) for line in lines if line.startswith("VmHWM")))
        except OSError:
            continue
    return most / 1024


def through_spark(spark: SparkSession, folder: Path, work: Callable[[DataFrame], DataFrame]) -> Spent:
    before = spent()
    work(spark.read.parquet(str(folder))).write.format("noop").mode("overwrite").save()
    return spent().since(before)


def bare(table: Any) -> float:
    batches = table.to_batches(max_chunksize=10_000)
    before = time.process_time()
    for batch in batches:
        decode(batch)
    rows: int = table.num_rows
    return (time.process_time() - before) * MILLION / rows


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--millions", type=int, nargs="+", default=[1, 10])
    asked = options.parse_args()
    table = records()
    figures: dict[str, Any] = {"bare_cpu_s_per_million": round(min(bare(table) for _ in range(3)), 2)}
    spark = session("bench", "local[2]")
    with tempfile.TemporaryDirectory() as scratch:
        for millions in asked.millions:
            folder = Path(scratch, str(millions))
            write_files(table, folder, millions)
            if not figures.get("warm"):
                through_spark(spark, folder, decoded)
                figures["warm"] = True
            nothing = through_spark(spark, folder, lambda rows: rows.mapInArrow(passed_on, rows.schema))
            best = min(through_spark(spark, folder, decoded) for _ in range(2))
            figures[f"{millions} M"] = {
                "cpu_s_per_million": round(best.total / millions, 2),
                "of_it_python": round(best.in_python / millions, 2),
                "nothing_cpu_s_per_million": round(nothing.total / millions, 2),
                "wall_s": round(best.wall, 1),
                "largest_worker_mib": round(largest_worker_mib()),
            }
    spark.stop()
    del figures["warm"]
    write_results(asked.json, figures)


if __name__ == "__main__":
    main()
