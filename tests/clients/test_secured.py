"""Unmodified clients log in to our broker and pass a record on: each library, each protocol, each mechanism.

The broker has the listeners and users of `secured_kafka.py`. Apache's tools run in one JVM (`tools.py`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import ssl
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AsyncTokenProvider
from kafka.net.sasl.oauth import AbstractTokenProvider

from apache_kafka import needs_apache_kafka, why_not
from clients.tools import TOOLS, ToolError, Tools
from coterie.broker.io.clock import wall_ms
from coterie.broker.security.client_settings import ClientAccess
from coterie.broker.security.sasl_server_authenticator import SaslServerAuthenticator
from coterie.settings.config_def import Password
from secured_kafka import USERS, Leaf, SecuredCoterie

pytestmark = pytest.mark.real_time
WITHIN_S = 30


class Way(NamedTuple):
    """A way to get in."""

    listener: str
    mechanism: str = ""
    has_certificate: bool = False

    @property
    def protocol(self) -> str:
        return "SSL" if self.listener == "MTLS" else self.listener


PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WAYS = [
    Way("SSL"),
    Way("MTLS", has_certificate=True),
    *(Way(listener, mechanism) for listener in ("SASL_PLAINTEXT", "SASL_SSL") for mechanism in PASSWORDS),
]
TOKENS = [Way("SASL_PLAINTEXT", "OAUTHBEARER"), Way("SASL_SSL", "OAUTHBEARER")]


@pytest.fixture(scope="module")
def broker() -> Iterator[SecuredCoterie]:
    with SecuredCoterie() as broker:
        yield broker


@pytest.fixture(scope="module")
def client_certificate(broker: SecuredCoterie) -> Leaf:
    return broker.certificates.leaf("a-client", "client.test", common_name="tlsuser")


def access(broker: SecuredCoterie, way: Way, password: str | None = None, user: str = "alice") -> ClientAccess:
    return ClientAccess(
        broker.address_of(way.listener),
        way.protocol,
        str(broker.certificates.ca),
        user,
        Password(USERS[user] if password is None else password),
        way.mechanism,
    )


def token() -> str:
    now_s = wall_ms() / 1000
    claims = {"sub": "alice", "iat": now_s - 10, "exp": now_s + 600}
    parts = [
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in ({"alg": "none"}, claims)
    ]
    return ".".join([*parts, ""])


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def librdkafka_settings(broker: SecuredCoterie, way: Way, leaf: Leaf) -> dict[str, Any]:
    settings: dict[str, Any] = dict(access(broker, way).settings("librdkafka"))
    if way.has_certificate:
        settings |= {"ssl.certificate.location": str(leaf.chain), "ssl.key.location": str(leaf.key)}
    if way.mechanism == "OAUTHBEARER":
        del settings["sasl.username"], settings["sasl.password"]
        settings["oauth_cb"] = lambda _config: (token(), time.time() + 600)
    return settings


@pytest.mark.parametrize("way", [*WAYS, *TOKENS], ids=str)
def test_confluent_kafka(broker: SecuredCoterie, client_certificate: Leaf, way: Way, name: str) -> None:
    """S6, S13, S14, S15, S16, S17, S18, S19, S20, S24."""
    settings = librdkafka_settings(broker, way, client_certificate)
    producer = confluent_kafka.Producer(settings)
    producer.produce(name, b"hello" * 100_000)
    assert producer.flush(WITHIN_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    try:
        found = _first(lambda: consumer.poll(1))
        assert found.error() is None and found.value() == b"hello" * 100_000
    finally:
        consumer.close()


def _first(poll: Callable[[], Any]) -> Any:
    for _ in range(WITHIN_S):
        found = poll()
        if found:
            return found
    raise AssertionError("no record")


# --- kafka-python -----------------------------------------------------------------------------------------------------


class Tokens(AbstractTokenProvider):  # type: ignore[misc]
    def token(self) -> str:
        return token()


@pytest.mark.parametrize("way", [*WAYS, *TOKENS], ids=str)
def test_kafka_python(broker: SecuredCoterie, client_certificate: Leaf, way: Way, name: str) -> None:
    """S6, S13, S14, S15, S16, S17, S18, S19, S20, S24."""
    settings: dict[str, Any] = dict(access(broker, way).settings("kafka-python"))
    if way.has_certificate:
        settings |= {"ssl_certfile": str(client_certificate.chain), "ssl_keyfile": str(client_certificate.key)}
    if way.mechanism == "OAUTHBEARER":
        del settings["sasl_plain_username"], settings["sasl_plain_password"]
        settings["sasl_oauth_token_provider"] = Tokens()
    producer = kafka.KafkaProducer(**settings)
    producer.send(name, b"hello").get(WITHIN_S)
    producer.close()
    consumer = kafka.KafkaConsumer(name, group_id=name, auto_offset_reset="earliest", **settings)
    try:
        found = _first(lambda: consumer.poll(1_000))
        assert [record.value for records in found.values() for record in records] == [b"hello"]
    finally:
        consumer.close()


# --- aiokafka ---------------------------------------------------------------------------------------------------------


class AsyncTokens(AsyncTokenProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


@pytest.mark.parametrize("way", [*WAYS, *TOKENS], ids=str)
def test_aiokafka(broker: SecuredCoterie, client_certificate: Leaf, way: Way, name: str) -> None:
    """S6, S13, S14, S15, S16, S17, S18, S19, S20, S24."""
    settings: dict[str, Any] = dict(access(broker, way).settings("kafka-python"))
    if settings.pop("ssl_cafile", None):
        settings["ssl_context"] = context = ssl.create_default_context(cafile=str(broker.certificates.ca))
        if way.has_certificate:
            context.load_cert_chain(client_certificate.chain, client_certificate.key)
    if way.mechanism == "OAUTHBEARER":
        del settings["sasl_plain_username"], settings["sasl_plain_password"]
        settings["sasl_oauth_token_provider"] = AsyncTokens()

    async def pass_on() -> bytes:
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(name, b"hello")
        consumer = aiokafka.AIOKafkaConsumer(name, group_id=name, auto_offset_reset="earliest", **settings)
        async with consumer:
            record = await asyncio.wait_for(consumer.getone(), WITHIN_S)
            return bytes(record.value)

    assert asyncio.run(pass_on()) == b"hello"


# --- Apache's tools ---------------------------------------------------------------------------------------------------


def java_file(path: Path, settings: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def java_settings(broker: SecuredCoterie, way: Way, leaf: Leaf | None, password: str | None = None) -> dict[str, str]:
    settings = access(broker, way, password).settings("java")
    if way.has_certificate:
        assert leaf
        settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(leaf.both)}
    if way.mechanism == "OAUTHBEARER":
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        settings["sasl.jaas.config"] = (
            f'{module} required unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="86400";'
        )
    return settings


@pytest.fixture(scope="module")
def tools(broker: SecuredCoterie) -> Iterator[Tools]:
    """One JVM, since it starts slowly."""
    with Tools(broker.address_of("PLAINTEXT")) as running:
        yield running


@needs_apache_kafka
@pytest.mark.parametrize("way", [*WAYS, *TOKENS], ids=str)
def test_java(
    broker: SecuredCoterie, client_certificate: Leaf, tools: Tools, way: Way, name: str, tmp_path: Path
) -> None:
    """S6, S13, S14, S15, S16, S17, S18, S19, S20, S24: Apache's producer, and its consumer in a group."""
    config = java_file(tmp_path / "java.properties", java_settings(broker, way, client_certificate))
    passed = json.loads(tools.run("PassOn", config, name, name, "0", "0"))
    assert passed == {"sent": 10, "read": 10, "different": 10, "committed": 10, "again": 0}


@needs_apache_kafka
def test_apaches_tools(broker: SecuredCoterie, client_certificate: Leaf, tools: Tools, tmp_path: Path) -> None:
    """S6, S13, S14, S15, S16, S17, S18, S19, S20, S24, S33: an admin makes a topic; a wrong password is named."""
    for number, way in enumerate([*WAYS, *TOKENS]):
        config = java_file(tmp_path / f"{number}.properties", java_settings(broker, way, client_certificate))
        topic = f"java-{number}-{uuid.uuid4().hex[:6]}"
        at = ("--bootstrap-server", broker.address_of(way.listener), "--command-config", config)
        assert topic in tools.run(f"{TOOLS}.TopicCommand", *at, "--create", "--topic", topic)
    wrong = java_settings(broker, Way("SASL_SSL", "SCRAM-SHA-256"), client_certificate, "wrong")
    config = java_file(tmp_path / "wrong.properties", wrong)
    with pytest.raises(ToolError, match="invalid credentials with SASL mechanism SCRAM-SHA-256"):
        tools.run(
            f"{TOOLS}.TopicCommand", "--bootstrap-server", broker.address_of("SASL_SSL"),
            "--command-config", config, "--list",
        )  # fmt: skip


# --- sessions that end ------------------------------------------------------------------------------------------------

IS_SOAK = "COTERIE_SECURED_SOAK" in os.environ
SESSION_MS = 5_000 if IS_SOAK else 3_000
"""Kafka takes a second between two logins of a connection at least."""
LOAD_MS = 60_000 if IS_SOAK else 5_000
AGAIN = Way("SASL_SSL", "SCRAM-SHA-256")


class Passed(NamedTuple):
    """What a producer has sent, and what a member of a group has read meanwhile."""

    sent: int
    read: int
    different: int
    renewed: int
    """How many sessions were renewed, or connections with a renewed one."""


def pass_on_by_confluent_kafka(broker: SecuredCoterie) -> Passed:
    errors: list[Any] = []
    settings = {**access(broker, AGAIN, user="bob").settings("librdkafka"), "error_cb": errors.append}
    name = "by-confluent-kafka"
    producer = confluent_kafka.Producer(settings)
    producer.produce(name, b"first")
    assert producer.flush(WITHIN_S) == 0
    consumer = confluent_kafka.Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    read: list[bytes] = []

    def poll() -> None:
        for record in consumer.consume(100, 0.02):
            assert record.error() is None, record.error()
            read.append(record.value() or b"")

    def delivered(error: Any, _record: Any) -> None:
        if error is not None:
            errors.append(error)

    def send(value: bytes) -> None:
        producer.produce(name, value, on_delivery=delivered)
        producer.poll(0)

    try:
        sent = _under_load(send, poll, lambda: producer.flush(WITHIN_S), read, lambda: _renewed(broker, "bob"))
        renewed = _renewed(broker, "bob")
    finally:
        consumer.close()
    assert not errors
    return Passed(sent, len(read), len(set(read)), renewed)


def pass_on_by_kafka_python(broker: SecuredCoterie) -> Passed:
    settings = access(broker, AGAIN, user="carol").settings("kafka-python")
    name = "by-kafka-python"
    producer = kafka.KafkaProducer(**settings)
    producer.send(name, b"first").get(WITHIN_S)
    consumer = kafka.KafkaConsumer(name, group_id=name, auto_offset_reset="earliest", **settings)
    read: list[bytes] = []
    futures: list[Any] = []

    def poll(timeout_ms: int = 20) -> None:
        read.extend(record.value for records in consumer.poll(timeout_ms).values() for record in records)

    def settle() -> None:
        for future in futures:
            future.get(WITHIN_S)

    try:
        poll(int(WITHIN_S * 1000))  # kafka-python can lose its assignment if a poll ends while it joins
        send = producer.send
        sent = _under_load(
            lambda value: futures.append(send(name, value)), poll, settle, read, lambda: _renewed(broker, "carol")
        )
        renewed = _renewed(broker, "carol")
    finally:
        consumer.close()
        producer.close()
    return Passed(sent, len(read), len(set(read)), renewed)


def _under_load(
    send: Callable[[bytes], Any],
    poll: Callable[[], None],
    settle: Callable[[], Any],
    read: list[bytes],
    renewed: Callable[[], int],
) -> int:
    """Send and read for a while, and until a session was renewed; then read the rest.

    Return how many records there are; one was there before.
    """
    sent = 1
    ends_s = time.monotonic() + LOAD_MS / 1000
    while time.monotonic() < ends_s or (not renewed() and time.monotonic() < ends_s + WITHIN_S):
        for _ in range(10):
            send(b"%d" % sent)
            sent += 1
        poll()
    settle()
    while len(read) < sent and time.monotonic() < ends_s + WITHIN_S:
        poll()
    return sent


def _renewed(broker: SecuredCoterie, user: str) -> int:
    """Return how many connections of a user have authenticated again."""
    server = broker.broker._server
    assert server is not None
    mine = [link.connection for link in list(server.links) if link.connection.principal == f"User:{user}"]
    return sum(
        isinstance(each.authenticator, SaslServerAuthenticator) and each.authenticator._is_again for each in mine
    )


@pytest.fixture(scope="module")
def passed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Passed]]:
    """All libraries at the same time, at a broker whose sessions are short."""
    jvm: Tools | None = request.getfixturevalue("tools") if why_not() is None else None

    def pass_on_by_java(broker: SecuredCoterie) -> Passed:
        assert jvm is not None
        config = java_file(tmp_path_factory.mktemp("java") / "again.properties", java_settings(broker, AGAIN, None))
        said = json.loads(jvm.run("PassOn", config, "by-java", "by-java", str(LOAD_MS), "1"))
        return Passed(said["sent"], said["read"], said["different"], said["again"])

    libraries = {"confluent-kafka": pass_on_by_confluent_kafka, "kafka-python": pass_on_by_kafka_python}
    if jvm is not None:
        libraries["java"] = pass_on_by_java
    settings = {"listener.name.sasl_ssl.connections.max.reauth.ms": str(SESSION_MS)}
    with SecuredCoterie(settings) as broker, ThreadPoolExecutor() as pool:
        return {library: pool.submit(pass_on, broker) for library, pass_on in libraries.items()}


@pytest.mark.parametrize("library", [pytest.param("java", marks=needs_apache_kafka), "confluent-kafka", "kafka-python"])
def test_clients_authenticate_again_under_load_and_no_record_is_lost_or_read_twice(
    library: str, passed: dict[str, Future[Passed]]
) -> None:
    """S31, S33 and S34: three sessions of a second and a half; `make soak` has twelve of five seconds."""
    found = passed[library].result()
    assert found.sent == found.read == found.different > 100
    assert found.renewed
