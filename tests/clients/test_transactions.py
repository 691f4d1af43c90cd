"""There are no transactions yet: a producer that wants one hears so at once, instead of waiting for a coordinator."""

from __future__ import annotations

import asyncio
import subprocess
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import TransactionalIdAuthorizationFailed
from confluent_kafka import KafkaException, Producer
from kafka import KafkaProducer
from kafka.errors import TransactionalIdAuthorizationFailedError

from apache_kafka import java_command, needs_apache_kafka
from clients.harness import BrokerProcess, wait_until

pytestmark = pytest.mark.real_time

PATIENCE_S = 25.0
"""Clients wait for a transaction coordinator for a minute or for ever; this is well below."""


def check_reason(broker: BrokerProcess, transactional_id: str) -> None:
    """Most clients show the code alone, so the broker's log has the words."""

    def refusals() -> list[dict[str, Any]]:
        told = [one for one in broker.facts.read() if one["fact"] == "TransactionRefused"]
        return [one for one in told if one["transactional_id"] == transactional_id]

    # The client may have its answer before the log has the line, and may ask once more before it gives up.
    wait_until(lambda: bool(refusals()), f"the broker tells of {transactional_id}", broker.said)
    assert all("does not do transactions" in one["why"] for one in refusals())


def test_confluent_is_told_why(broker: BrokerProcess, name: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name, "log_level": 0})
    with pytest.raises(KafkaException, match="does not do transactions") as failure:
        producer.init_transactions(PATIENCE_S)
    assert failure.value.args[0].fatal() and failure.value.args[0].name() == "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
    check_reason(broker, name)


def test_kafka_python_gives_up_at_once(broker: BrokerProcess, name: str) -> None:
    producer = KafkaProducer(
        bootstrap_servers=broker.bootstrap, transactional_id=name, max_block_ms=int(PATIENCE_S * 1000)
    )
    with pytest.raises(TransactionalIdAuthorizationFailedError):
        producer.init_transactions()
    producer.close()
    check_reason(broker, name)


def test_aiokafka_gives_up_at_once(broker: BrokerProcess, name: str) -> None:
    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=name)
        try:
            await asyncio.wait_for(producer.start(), PATIENCE_S)
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(start())
    check_reason(broker, name)


@needs_apache_kafka
def test_the_java_client_gives_up_at_once(broker: BrokerProcess, name: str) -> None:
    command = java_command(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", name, "--num-records", "1", "--record-size", "10", "--throughput", "-1"),
        *("--transactional-id", name, "--bootstrap-server", broker.bootstrap),
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode
    assert "TransactionalIdAuthorizationException" in done.stdout + done.stderr
    check_reason(broker, name)
