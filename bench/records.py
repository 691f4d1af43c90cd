"""What records cost: CPU seconds per million, read into objects, read into Arrow columns, and written.

    make bench-records              # or: .venv/bin/python bench/records.py [--json FILE] [--megabytes 20]

Measured as a client meets them: answers to fetches of about 1 MiB, in batches of 16 KiB (`batch.size`, before
compression), checksums checked. Values are words, so that compression has something to do. Each figure is the best of
several runs in turn; each of the two ways (compiled, plain Python) is a process of its own, chosen by COTERIE_PURE.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from measured import write_results

from coterie.protocol.arrow import ArrowReader
from coterie.protocol.batch import Compression, assign
from coterie.protocol.fetched import FetchedBatches, FetchedRecords
from coterie.protocol.records import IS_COMPILED, BatchBuilder

SIZES = {"100 B": 100, "1 KiB": 1024}
BATCH_BYTES = 16 * 1024
FETCH_BYTES = 1024 * 1024
START_MS = 1_700_000_000_000
RUNS = 5

Content = list[tuple[bytes, bytes]]


def content_of(size: int, total: int) -> Content:
    """Keys of 10 bytes; key and value together are `size`."""
    rng = random.Random(size)  # the same words in every run
    words = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randrange(3, 10))) for _ in range(500)]
    values = []
    for _ in range(200):
        value = b""
        while len(value) < size - 10:
            value += rng.choice(words) + b" "
        values.append(value[: size - 10])
    return [(b"key%07d" % number, values[number % 200]) for number in range(total // size)]


def write_all(content: Content, compression: Compression) -> Iterator[bytearray]:
    builder = BatchBuilder(BATCH_BYTES, compression)
    for number, (key, value) in enumerate(content):
        if not builder.append(key, value, START_MS + number):
            yield builder.finish()
            builder = BatchBuilder(BATCH_BYTES, compression)
            builder.append(key, value, START_MS + number)
    yield builder.finish()


def fetches_of(content: Content, compression: Compression) -> list[tuple[int, bytes]]:
    """First offset and bytes of each answer."""
    fetches, data, first, offset = [], bytearray(), 0, 0
    for batch in write_all(content, compression):
        assign(batch, 0, offset, 0)
        offset += int.from_bytes(batch[57:61], "big")
        data += batch
        if len(data) >= FETCH_BYTES:
            fetches.append((first, bytes(data)))
            data, first = bytearray(), offset
    return [*fetches, (first, bytes(data))] if data else fetches


def to_objects(fetches: list[tuple[int, bytes]]) -> int:
    """As a consumer that polls 500 at a time and lets them go."""
    count = 0
    for first, data in fetches:
        fetched = FetchedRecords("topic", 0, data, next_offset=first)
        while taken := fetched.take(500):
            count += len(taken)
    return count


def to_arrow(fetches: list[tuple[int, bytes]]) -> int:
    reader, count = ArrowReader(), 0
    for first, data in fetches:
        fetched = FetchedBatches("topic", 0, data, next_offset=first)
        while rows := reader.take(fetched).num_rows:
            count += rows
    return count


def cpu_per_million(work: Callable[[], int], expected: int) -> float:
    gc.collect()
    before = time.process_time()
    count = work()
    spent = time.process_time() - before
    if count != expected:
        raise SystemExit(f"{count} records came of {expected}")
    return spent / count * 1e6


def measure(megabytes: int) -> dict[str, dict[str, float]]:
    """The way of the process it runs in, whichever it is."""
    figures: dict[str, dict[str, float]] = {}
    for name, size in SIZES.items():
        content = content_of(size, megabytes * 1_000_000)
        for compression in Compression:
            fetches = fetches_of(content, compression)
            works: dict[str, Callable[[], int]] = {
                "objects": lambda fetches=fetches: to_objects(fetches),  # type: ignore[misc]
                "arrow": lambda fetches=fetches: to_arrow(fetches),  # type: ignore[misc]
                "encode": lambda content=content, compression=compression: (  # type: ignore[misc]
                    sum(len(batch) > 0 for batch in write_all(content, compression)) and len(content)
                ),
            }
            best = dict.fromkeys(works, float("inf"))
            for _ in range(RUNS if IS_COMPILED else 2):
                for what, work in works.items():
                    best[what] = min(best[what], cpu_per_million(work, len(content)))
            figures[f"{name} {compression.name.lower()}"] = {what: round(best[what], 3) for what in works}
    return figures


def in_a_process(megabytes: int, *, pure: bool) -> dict[str, dict[str, float]]:
    """As the compiled one or as plain Python: which is decided when `coterie.protocol.records` is imported."""
    command = [sys.executable, __file__, "--this-process", "--megabytes", str(megabytes)]
    environ = {**os.environ, "COTERIE_PURE": "1" if pure else "0"}
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=environ).stdout)
    if answer["compiled"] == pure:
        raise SystemExit("the compiled file is not there: make venv, with a C compiler installed")
    figures: dict[str, dict[str, float]] = answer["figures"]
    return figures


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", metavar="FILE")
    options.add_argument("--megabytes", type=int, default=20, help="of records in each case; plain Python gets a tenth")
    options.add_argument("--this-process", action="store_true", help=argparse.SUPPRESS)
    asked = options.parse_args()
    if asked.this_process:
        print(json.dumps({"compiled": IS_COMPILED, "figures": measure(asked.megabytes)}))
        return
    figures: dict[str, Any] = {
        "cpu_s_per_million_records": {
            "compiled": in_a_process(asked.megabytes, pure=False),
            "pure": in_a_process(max(asked.megabytes // 10, 1), pure=True),
        },
        "load": round(os.getloadavg()[0], 1),  # of other processes: their share of caches is in the figures
    }
    write_results(asked.json, figures)


if __name__ == "__main__":
    main()
