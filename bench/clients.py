"""Producing and consuming with our clients and with others, each in a process of its own against one `coterie serve`.

    python bench/clients.py --json bench/results/clients.json
    python bench/clients.py --only produce --clients coterie kafka-python --records 200000

What is measured is the client's own CPU, all its threads: records per CPU second. Every client has its defaults, and
then the same batches: 128 KiB, 10 ms of lingering. Each run writes to a topic of its own, of four partitions, without
keys and without compression. Consumers have their defaults, and read what our producer has written with its defaults.
The order of clients changes from round to round, and the median counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from measured import Process, coterie_serve, write_results

from coterie import Admin, TopicPartition
from coterie.client.admin import LATEST, NewTopic
from coterie.errors import KafkaError

HERE = Path(__file__).parent
PARTITIONS = 4
TOPIC_SETTINGS = ("--set", f"num.partitions={PARTITIONS}")


class Client(NamedTuple):
    """How a client is called: `python -m client_tasks.<file> TASK bootstrap topic records size settings`."""

    file: str
    tasks: tuple[str, ...] = ("produce", "consume", "iterate")


CLIENTS = {
    "coterie": Client("ours"),
    "coterie async": Client("ours_async"),
    "kafka-python": Client("kafka_python"),
    "aiokafka": Client("with_aiokafka"),
    "confluent-kafka": Client("with_confluent"),
}
IDLE = Client("idle")
MEMBERS_OF_A_GROUP = 10
SIZES = (100, 1024)
SETTINGS = {"defaults": {}, "batches of 128 KiB": {"batch_size": 131_072, "linger_ms": 10}}


def run(client: Client, task: str, bootstrap: str, topic: str, *, records: int, size: int, settings: object) -> Any:
    """What the process says of itself when it is done: cpu_s, wall_s, records."""
    command = [sys.executable, "-m", f"client_tasks.{client.file}"]
    command += [task, bootstrap, topic, str(records), str(size), json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, cwd=HERE)
    if done.returncode:
        raise SystemExit(f"{client.file} {task} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def check(admin: Admin, topic: str, records: int) -> None:
    """What a client says it has sent must be there; then the memory is needed for the next."""
    ends = admin.list_offsets({TopicPartition(topic, number): LATEST for number in range(PARTITIONS)})
    found = sum(end.offset for end in ends.values() if not isinstance(end, KafkaError))
    if found != records:
        raise SystemExit(f"{topic} has {found} records of {records}")
    admin.delete_topics([topic])


def produce(bootstrap: str, admin: Admin, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    names = [name for name in options.clients if "produce" in CLIENTS[name].tasks]
    for turn in range(options.rounds):
        for settings_name, settings in SETTINGS.items():
            for size in SIZES:
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    topic = f"produce-{turn}-{size}-{name}-{settings_name}".replace(" ", "-")
                    one = run(
                        CLIENTS[name],
                        "produce",
                        bootstrap,
                        topic,
                        records=options.records,
                        size=size,
                        settings=settings,
                    )
                    check(admin, topic, options.records)
                    rows.setdefault((settings_name, size, name), []).append(one)
                    print(f"{settings_name:18} {size:5} B  {name:16} {one}", file=sys.stderr, flush=True)
    return [_row(*key, found) for key, found in rows.items()]


def _row(settings_name: str, size: int, name: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    cpu_s = statistics.median(one["cpu_s"] for one in found)
    wall_s = statistics.median(one["wall_s"] for one in found)
    records = found[0]["records"]
    return {
        "client": name,
        "record_bytes": size,
        "settings": settings_name,
        "cpu_s": round(cpu_s, 2),
        "records_per_cpu_s": round(records / cpu_s),
        "records_per_s": round(records / wall_s),
    }


def consume(bootstrap: str, admin: Admin, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Every client reads the same topic in a group of its own, by polls of 500 records or record by record."""
    rows: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for size in SIZES:
        topic = f"consume-{size}"
        how = {"records": options.records, "size": size, "settings": {}}
        run(CLIENTS["coterie"], "produce", bootstrap, topic, **how)
        for turn in range(options.rounds):
            for task in ("consume", "iterate"):
                names = options.clients[turn % len(options.clients) :] + options.clients[: turn % len(options.clients)]
                for name in names:
                    one = run(CLIENTS[name], task, bootstrap, topic, **how)
                    rows.setdefault(("polls" if task == "consume" else "one by one", size, name), []).append(one)
                    print(f"{task:18} {size:5} B  {name:16} {one}", file=sys.stderr, flush=True)
        check(admin, topic, options.records)
    return [_row(*key, found) for key, found in rows.items()]


def idle(bootstrap: str, admin: Admin, options: argparse.Namespace) -> dict[str, Any]:
    """CPU of members that wait, a hundred groups of ten in one process."""
    admin.create_topics([NewTopic("idle", MEMBERS_OF_A_GROUP)])
    figures: dict[str, Any] = {"members": options.members}
    for task in ("idle", "waiting"):
        one = run(IDLE, task, bootstrap, "idle", records=options.members, size=0, settings={})
        print(f"{task:18} {one}", file=sys.stderr, flush=True)
        figures[f"cpu_ms_per_member_second_{task}"] = round(one["cpu_ms_per_member_second"], 3)
    return figures


TASKS: dict[str, Callable[[str, Admin, argparse.Namespace], Any]] = {
    "produce": produce,
    "consume": consume,
    "idle": idle,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", help="where to keep the figures")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--members", type=int, default=1_000, help="of the idle ones")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=TASKS, nargs="*", default=list(TASKS))
    parser.add_argument("--clients", choices=CLIENTS, nargs="*", default=list(CLIENTS))
    options = parser.parse_args()
    with Process(coterie_serve("--memory", *TOPIC_SETTINGS)) as broker:
        host, port = broker.ready()
        with Admin(bootstrap_servers=f"{host}:{port}") as admin:
            figures = {task: TASKS[task](f"{host}:{port}", admin, options) for task in options.only}
    write_results(options.json, {"records": options.records, "rounds": options.rounds, **figures})


if __name__ == "__main__":
    main()
