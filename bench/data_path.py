"""The broker's CPU for a megabyte that librdkafka produces or consumes, 1 KiB records, its default batches.

    .venv/bin/python bench/data_path.py HOST:PORT --pid PID [--megabytes 200]

`next_to_kafka.py` asks this of both brokers. The topic has one partition and is made for the run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

__all__ = ["data_path"]

SIZE = 1024
PER_MB = 1_000_000 / SIZE
SILENCE_S = 60


def cpu_s(pid: int) -> float:
    """User and system, of all threads, to the nanosecond; of threads that have ended as well."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ended = (int(fields[11]) + int(fields[12])) / 100
    tasks = sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    return max(ended, tasks)


def produce(where: str, topic: str, records: int) -> None:
    failed: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": where, "queue.buffering.max.messages": 200_000})
    value = bytes(SIZE)

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    if producer.flush(SILENCE_S) or failed:
        raise SystemExit(f"not all records were taken: {failed[:1]}")


def consume(where: str, topic: str, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": where, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen, last = 0, time.monotonic()
    while seen < records:
        messages = consumer.consume(10_000, timeout=1)
        for message in messages:
            if message.error() is not None:
                raise KafkaException(message.error())
        seen += len(messages)
        last = time.monotonic() if messages else last
        if time.monotonic() - last > SILENCE_S:
            raise SystemExit(f"{seen} of {records} records came, and no more")
    consumer.close()


def data_path(where: str, pid: int, megabytes: int, runs: int = 3) -> Mapping[str, Mapping[str, float]]:
    """Cases as coordbench gives them: medians; one run before them is thrown away."""
    records = int(megabytes * PER_MB)
    admin = AdminClient({"bootstrap.servers": where})
    spent: dict[str, list[float]] = {"produce 1 KiB": [], "fetch 1 KiB": []}
    for run in range(runs + 1):
        topic = f"data-{uuid4()}"
        for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
            future.result(SILENCE_S)
        for (_, figures), work in zip(spent.items(), (produce, consume), strict=True):
            before = cpu_s(pid)
            work(where, topic, records)
            if run:
                figures.append((cpu_s(pid) - before) * 1000 / megabytes)
    return {case: {"broker_cpu_ms_per_mb": statistics.median(figures)} for case, figures in spent.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("--pid", type=int, required=True)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(json.dumps(data_path(options.bootstrap, options.pid, options.megabytes, options.runs), indent=2))


if __name__ == "__main__":
    main()
