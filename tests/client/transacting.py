"""Transactional producers on any broker, and what a reader sees of them."""

from __future__ import annotations

import json
from contextlib import ExitStack
from random import Random  # noqa: TID251  seeded

import confluent_kafka
from typer.testing import CliRunner

import coterie
from apache_kafka import run_java
from client.consumers import QUICK, until
from coterie import Admin, Consumer, Producer, TopicPartition
from coterie.cli.app import app

__all__ = [
    "DYING",
    "WAIT_S",
    "committed",
    "fail",
    "interleaved",
    "java_reads",
    "librdkafka_reads",
    "producer",
    "run",
    "seen",
    "stable_end",
]

WAIT_S = 60.0
LAST = "last"
DYING = """
import sys, time
from coterie import Producer
bootstrap, topic = sys.argv[1:]
producer = Producer(bootstrap_servers=bootstrap, transactional_id=topic)
with producer.transaction():
    producer.send(topic, "before", partition=0)
producer.begin_transaction()
for number in range(10):
    producer.send(topic, "never", partition=number % 2)
producer.flush()
print("open", flush=True)
time.sleep(600)
"""
"""A producer that dies with an open transaction."""


def producer(bootstrap: str, name: str, **more: object) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 0, **more})


def seen(bootstrap: str, topic: str, isolation_level: str = "read_committed") -> list[str]:
    """The values of the topic, in the order of each partition: all up to a record that is written now."""
    partitions = [TopicPartition(topic, number) for number in range(2)]
    with Producer(bootstrap_servers=bootstrap) as plain:
        for partition in partitions:
            plain.send(topic, LAST, partition=partition.partition)
    found: dict[TopicPartition, list[str]] = {}
    with Consumer({**QUICK, "bootstrap.servers": bootstrap, "isolation.level": isolation_level}) as consumer:
        consumer.assign(partitions)

        def has_all() -> bool:
            for record in consumer.poll(1):
                assert record.value is not None
                found.setdefault(TopicPartition(record.topic, record.partition), []).append(record.value.decode())
            return [values[-1:] for values in found.values()] == [[LAST], [LAST]]

        until(has_all)
    return [value for _, values in sorted(found.items()) for value in values if value != LAST]


def stable_end(bootstrap: str, topic: str, partition: int = 0) -> int:
    with Admin(bootstrap_servers=bootstrap) as admin:
        where = TopicPartition(topic, partition)
        return coterie.checked(admin.list_offsets({where: coterie.LATEST}, read_committed=True))[where].offset


def interleaved(bootstrap: str, topic: str) -> dict[int, str | None]:
    """Interleaved transactions of five producers in partition 0: each offset with a record, None if it was aborted."""
    random = Random(7)
    log: dict[int, str | None] = {}
    open_: dict[Producer, list[int]] = {}
    with ExitStack() as stack:
        ours = [
            stack.enter_context(producer(bootstrap, f"{topic}-{codec}", **{"compression.type": codec, "linger.ms": 5}))
            for codec in ("none", "gzip", "snappy", "lz4", "zstd")
        ]
        plain = stack.enter_context(Producer(bootstrap_servers=bootstrap))
        for one in ours:
            one.init_transactions()
        for step in range(90):
            one = random.choice(ours)
            if one not in open_:
                one.begin_transaction()
                open_[one] = []
            if open_[one] and random.random() < 0.3:
                _end(one, open_.pop(one), log, is_commit=random.random() < 0.5)
                continue
            sent = [one.send(topic, f"{step}.{number}", partition=0) for number in range(random.randint(1, 3))]
            for number, each in enumerate(sent):
                offset = each.result(WAIT_S).offset
                open_[one].append(offset)
                log[offset] = f"{step}.{number}"
            if step % 20 == 0:
                log[plain.send(topic, f"plain {step}", partition=0).result(WAIT_S).offset] = f"plain {step}"
        for one, offsets in open_.items():
            _end(one, offsets, log, is_commit=False)
        log[plain.send(topic, LAST, partition=0).result(WAIT_S).offset] = LAST
    return log


def _end(one: Producer, offsets: list[int], log: dict[int, str | None], *, is_commit: bool) -> None:
    if is_commit:
        one.commit_transaction()
    else:
        one.abort_transaction()
        log |= dict.fromkeys(offsets)


def java_reads(bootstrap: str, topic: str, count: int) -> list[str]:
    """What Java's consumer reads of committed records: so many, or those that came in a minute."""
    told = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--isolation-level", "read_committed", "--max-messages", str(count), "--timeout-ms", "60000"),
    )
    return told.splitlines()


def librdkafka_reads(bootstrap: str, topic: str, last: int) -> list[tuple[int, str]]:
    """The offsets and values that librdkafka reads of committed records, up to the offset `last`."""
    found: list[tuple[int, str]] = []
    theirs = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": f"{topic}-rd", "isolation.level": "read_committed"}
    )
    theirs.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:

        def has_all() -> bool:
            message = theirs.poll(1)
            if message is not None and not message.error():
                found.append((message.offset() or 0, (message.value() or b"").decode()))
            return bool(found) and found[-1][0] >= last

        until(has_all)
    finally:
        theirs.close()
    return found


def run(bootstrap: str, *words: str) -> tuple[int, list[dict[str, object]], str]:
    """What `coterie transactions` prints: its exit status, its rows, and what goes to stderr."""
    done = CliRunner().invoke(app, ["transactions", *words, "-o", "json"], env={"COTERIE_BOOTSTRAP": bootstrap})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout or "[]"), done.stderr


def committed(consumer: Consumer, where: TopicPartition) -> int | None:
    found = consumer.committed(where)[where]
    return None if found is None else found.offset


def fail() -> None:
    raise LookupError("it did not work")
