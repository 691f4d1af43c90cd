"""Apache Kafka's kafka-acls, unmodified, and what it grants: against our broker, by users that log in."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from apache_kafka import needs_apache_kafka
from clients.tools import TOOLS, ToolError, Tools
from coterie import Admin, NewTopic, checked
from secured_kafka import USERS, SecuredCoterie

pytestmark = [pytest.mark.real_time, needs_apache_kafka]

SECONDS = 30.0
ACLS = f"{TOOLS}.AclCommand"


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredCoterie]:
    settings = {"authorizer.class.name": "StandardAuthorizer", "super.users": "User:admin;User:ANONYMOUS"}
    with SecuredCoterie(settings) as running:
        yield running


@pytest.fixture(scope="module")
def tools(broker: SecuredCoterie) -> Iterator[Tools]:
    with Tools(broker.address_of("SASL_PLAINTEXT")) as runner:
        yield runner


@pytest.fixture
def topic(broker: SecuredCoterie, name: str) -> str:
    with Admin(bootstrap_servers=broker.address_of("PLAINTEXT")) as admin:
        checked(admin.create_topics([NewTopic(name, 1)]))
    return name


def config_of(user: str, directory: Path) -> str:
    path = directory / f"{user}.properties"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="{user}" password="{USERS[user]}";\n'
    )
    return str(path)


def run(broker: SecuredCoterie, tools: Tools, config: str, *arguments: str) -> str:
    server = broker.address_of("SASL_PLAINTEXT")
    return tools.run(ACLS, "--bootstrap-server", server, "--command-config", config, *arguments)


def test_acls_live_by_the_tool(broker: SecuredCoterie, tools: Tools, topic: str, tmp_path: Path) -> None:
    """S46 and S50."""
    admin = config_of("admin", tmp_path)
    added = run(broker, tools, admin, "--add", "--allow-principal", "User:bob", "--operation", "Read", "--topic", topic)
    assert "principal=User:bob, host=*, operation=READ, permissionType=ALLOW" in added
    denied = ("--add", "--deny-principal", "User:eve", "--operation", "All", "--topic", topic[:-1])
    run(broker, tools, admin, *denied, "--resource-pattern-type", "prefixed")
    matching = run(broker, tools, admin, "--list", "--topic", topic, "--resource-pattern-type", "match")
    assert "principal=User:bob" in matching and "principal=User:eve" in matching
    literal = run(broker, tools, admin, "--list", "--topic", topic)
    assert "principal=User:bob" in literal and "User:eve" not in literal
    run(broker, tools, admin, "--remove", "--force", "--topic", topic)
    assert "User:bob" not in run(broker, tools, admin, "--list", "--topic", topic)
    with pytest.raises(ToolError, match="ClusterAuthorizationException"):
        run(broker, tools, config_of("bob", tmp_path), "--list")


def test_what_the_tool_grants_is_enough_for_librdkafka(
    broker: SecuredCoterie, tools: Tools, topic: str, tmp_path: Path
) -> None:
    """S46."""
    admin = config_of("admin", tmp_path)
    login = {
        "bootstrap.servers": broker.address_of("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": USERS["bob"],
    }
    # Metadata is refused; and InitProducerId before or after it, unless another test lets bob write to some topic.
    denied = {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}
    assert _produced({**login, "enable.idempotence": True}, topic) in denied
    run(broker, tools, admin, "--add", "--allow-principal", "User:bob", "--producer", "--topic", topic)
    assert _produced({**login, "enable.idempotence": True}, topic) is None
    settings = {**login, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    run(
        broker, tools, admin, "--add", "--allow-principal", "User:bob", "--consumer", "--topic", topic,
        "--group", topic,
    )  # fmt: skip
    consumer = Consumer(settings)
    try:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS)
        assert message is not None and message.error() is None and message.value() == b"x"
        consumer.commit(message=message, asynchronous=False)
        run(broker, tools, admin, "--remove", "--force", "--group", topic)
        with pytest.raises(KafkaException, match="Group authorization failed"):
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    finally:
        consumer.close()


def _produced(settings: dict[str, object], topic: str) -> int | None:
    """Send a record; return the code of the error that it met."""
    met: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 10_000, "error_cb": met.append})
    producer.produce(topic, b"x", on_delivery=lambda error, _message: met.append(error))
    until = time.monotonic() + SECONDS
    while not met and time.monotonic() < until:
        try:
            producer.poll(0.1)
        except KafkaException as fatal:
            met.append(fatal.args[0])
    producer.purge()
    producer.poll(0)
    first = met[0]
    return None if first is None else first.code()
