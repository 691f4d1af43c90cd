"""Real clients, unmodified: transactions that are committed, aborted, fenced, with the offsets of a group."""

from __future__ import annotations

import asyncio
import subprocess
import time

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import TopicPartition as Place
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer

from apache_kafka import java_command, needs_apache_kafka
from clients.either import EitherBroker
from clients.harness import BrokerProcess
from clients.producing import Topics

pytestmark = pytest.mark.real_time

PATIENCE_S = 90.0


def values_in(broker: BrokerProcess | EitherBroker, topic: str, *, committed: bool = True) -> list[bytes]:
    """All that a reader sees, up to the end that it is told."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"reader of {topic}",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return found
            value = message.value()
            assert isinstance(value, bytes)
            found.append(value)
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic} after {PATIENCE_S} s; {found}")


def transactional(broker: BrokerProcess, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    return producer


def test_confluent_reads_processes_and_writes(broker: BrokerProcess, topics: Topics, name: str) -> None:
    """TX2, TO4: output and offsets count together; librdkafka uses the older requests."""
    source, target = f"{name}-in", f"{name}-out"
    topics.create(source, 1)
    topics.create(target, 1)
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(6):
        plain.produce(source, b"%d" % number)
    assert plain.flush(PATIENCE_S) == 0
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name, "enable.auto.commit": False})
    partition = TopicPartition(source, 0)
    consumer.assign([TopicPartition(source, 0, 0)])
    messages = consumer.consume(6, PATIENCE_S)
    assert len(messages) == 6
    producer = transactional(broker, name)
    for upto, commits in ((2, True), (4, False), (6, True)):
        producer.begin_transaction()
        for message in messages[upto - 2 : upto]:
            producer.produce(target, b"out-%d" % int(message.value() or b""), partition=0)
        assert producer.flush(PATIENCE_S) == 0
        offsets = [TopicPartition(source, 0, upto)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), PATIENCE_S)
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        (stored,) = consumer.committed([partition], PATIENCE_S)
        assert stored.offset == (upto if commits else 2)
    consumer.close()
    assert values_in(broker, target) == [b"out-0", b"out-1", b"out-4", b"out-5"]
    assert values_in(broker, target, committed=False) == [b"out-%d" % number for number in range(6)]


def test_confluent_fences_an_older_producer(broker: BrokerProcess, topics: Topics, name: str) -> None:
    """TI4, TI5: the open transaction of the older one is aborted."""
    topics.create(name, 1)
    old = transactional(broker, name)
    old.begin_transaction()
    old.produce(name, b"old", partition=0)
    assert old.flush(PATIENCE_S) == 0
    new = transactional(broker, name)
    with pytest.raises(KafkaException) as failure:
        old.commit_transaction(PATIENCE_S)
    assert failure.value.args[0].fatal() and failure.value.args[0].name() == "_FENCED"
    new.begin_transaction()
    new.produce(name, b"new", partition=0)
    new.commit_transaction(PATIENCE_S)
    assert values_in(broker, name) == [b"new"]
    listed = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert listed.list_topics(name, PATIENCE_S).topics[name].partitions.keys() == {0}


def test_kafka_python_commits_and_aborts(broker: BrokerProcess, topics: Topics, name: str) -> None:
    """TE1: with the newer requests, if the library knows them."""
    topics.create(name, 1)
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=name, max_block_ms=int(PATIENCE_S * 1000)
    )
    producer.init_transactions()
    for value, commits in ((b"a", True), (b"b", False), (b"c", True)):
        producer.begin_transaction()
        producer.send(name, value, partition=0).get(PATIENCE_S)
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    assert values_in(broker, name) == [b"a", b"c"]


def test_aiokafka_commits_and_aborts(broker: BrokerProcess, topics: Topics, name: str) -> None:
    """TE1, TO4."""
    topics.create(name, 1)

    async def write() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
        await asyncio.wait_for(producer.start(), PATIENCE_S)
        try:
            async with producer.transaction():
                await producer.send_and_wait(name, b"a", partition=0)
                await producer.send_offsets_to_transaction({Place(name, 0): 7}, name)
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"b", partition=0)
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_and_wait(name, b"c", partition=0)
        finally:
            await producer.stop()

    asyncio.run(write())
    assert values_in(broker, name) == [b"a", b"c"]
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": name})
    (stored,) = consumer.committed([TopicPartition(name, 0)], PATIENCE_S)
    consumer.close()
    assert stored.offset == 7


@needs_apache_kafka
def test_the_java_client_commits_with_the_newer_requests(broker: BrokerProcess, topics: Topics, name: str) -> None:
    """TX1, TP6: Produce 13 adds its partitions, EndTxn 5 bumps the epoch for each transaction."""
    topics.create(name, 1)
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", name, "--num-records", "300", "--record-size", "10", "--throughput", "1000"),
        *("--transactional-id", name, "--transaction-duration-ms", "50", "--bootstrap-server", broker.bootstrap),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(values_in(broker, name)) == 300
