"""Our clients at secured clusters: Coterie's broker and Apache Kafka 4.3.1, with the same listeners and users.

Each listener lets its clients in; each mistake is one sentence that names the setting, is raised at once, and has no
secret in it; a session that ends is renewed and nobody notices.
"""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme

from client.consumers import PATIENCE_S
from client.peers import Run
from coterie import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    KafkaError,
    NewTopic,
    Producer,
    RequestTimedOutError,
    SaslAuthenticationError,
    SslAuthenticationError,
    checked,
)
from secured_kafka import REAUTH_MS, USERS, Cluster, SecuredCoterie

pytestmark = pytest.mark.real_time

Settings = dict[str, object]
WRONG = "not-her-password"
SESSION_MS = REAUTH_MS["sasl_ssl.scram-sha-256"]
# Tokens live long enough for a broker whose clock is ahead (COTERIE_TEST_CLOCK).
JAAS = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_{}='alice' "
    "unsecuredLoginLifetimeSeconds='86400';"
)


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """S57."""
    caplog.set_level(logging.DEBUG)
    yield
    assert not [secret for secret in (*USERS.values(), WRONG) if secret in caplog.text]


def tls(cluster: Cluster) -> Settings:
    return {"ssl.ca.location": str(cluster.certificates.ca)}


def certificate(cluster: Cluster) -> Settings:
    leaf = cluster.certificates.leaf("client", "client.example", common_name="client")
    return {"ssl.certificate.location": str(leaf.chain), "ssl.key.location": str(leaf.key)}


def login(cluster: Cluster, protocol: str, mechanism: str) -> Settings:
    settings: Settings = {"security.protocol": protocol, "sasl.mechanism": mechanism}
    if protocol == "SASL_SSL":
        settings |= tls(cluster)
    if mechanism == "OAUTHBEARER":
        return {**settings, "sasl.jaas.config": JAAS.format("sub")}
    return {**settings, "sasl.username": "alice", "sasl.password": USERS["alice"]}


def ways_in(cluster: Cluster) -> dict[str, tuple[str, Settings]]:
    """Settings that each listener accepts, by a name of the case."""
    return {
        "PLAINTEXT": ("PLAINTEXT", {}),
        "SSL": ("SSL", {"security.protocol": "SSL", **tls(cluster)}),
        "SSL with certificate": ("SSL", {"security.protocol": "SSL", **tls(cluster), **certificate(cluster)}),
        "mutual TLS": ("MTLS", {"security.protocol": "SSL", **tls(cluster), **certificate(cluster)}),
        **{
            f"{protocol} {mechanism}": (protocol, login(cluster, protocol, mechanism))
            for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
            for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
        },
    }


WAYS_IN = (
    "PLAINTEXT",
    "SSL",
    "SSL with certificate",
    "mutual TLS",
    *(
        f"{protocol} {mechanism}"
        for protocol in ("SASL_PLAINTEXT", "SASL_SSL")
        for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    ),
)


def at(cluster: Cluster, listener: str) -> str:
    """Return the address with the name that certificates have too."""
    return cluster.address_of(listener).replace("127.0.0.1", "localhost")


def create_topic(cluster: Cluster, name: str, partitions: int = 1) -> str:
    with Admin(bootstrap_servers=cluster.address_of("PLAINTEXT")) as admin:
        checked(admin.create_topics([NewTopic(name, partitions)]))
    return name


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_listener_lets_producers_consumers_and_admins_in(cluster: Cluster, way: str, name: str) -> None:
    """S1, S13 to S20, S24 and S35."""
    listener, settings = ways_in(cluster)[way]
    settings = {"bootstrap.servers": at(cluster, listener), **settings}
    with Admin(settings) as admin:
        checked(admin.create_topics([NewTopic(name)]))
    with Producer(settings) as producer:
        producer.send(name, b"value").result(PATIENCE_S)
    with Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([name])
        assert next(consumer).value == b"value"
        consumer.commit()


def test_the_async_clients_log_in_too(cluster: Cluster, run: Run, name: str) -> None:
    settings = {"bootstrap.servers": at(cluster, "SASL_SSL"), **login(cluster, "SASL_SSL", "SCRAM-SHA-512")}

    async def story() -> None:
        async with AsyncAdmin(settings) as admin:
            checked(await admin.create_topics([NewTopic(name)]))
        async with AsyncProducer(settings) as producer:
            await (await producer.send(name, b"value"))
        async with AsyncConsumer({**settings, "group.id": name, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([name])
            async for record in consumer:
                assert record.value == b"value"
                break

    run(story())


# --- mistakes ---------------------------------------------------------------------------------------------------------


def mistakes(cluster: Cluster, other_ca: Path) -> dict[str, tuple[str, Settings, type[KafkaError], str]]:
    """The listener, the settings, the error and a part of its sentence."""
    trusting: Settings = {"security.protocol": "SSL", **tls(cluster)}
    plain, scram = login(cluster, "SASL_SSL", "PLAIN"), login(cluster, "SASL_SSL", "SCRAM-SHA-256")
    sasl, tls_failed = SaslAuthenticationError, SslAuthenticationError
    foreign = trustme.CA().issue_cert("client.example")
    foreign.private_key_and_cert_chain_pem.write_to_path(other_ca.with_name("foreign.pem"))
    return {
        "wrong password of PLAIN": (
            "SASL_SSL",
            {**plain, "sasl.password": WRONG},
            sasl,
            "PLAIN: Authentication failed: Invalid username or password (SASL_AUTHENTICATION_FAILED); check sasl.",
        ),
        "wrong password of SCRAM": (
            "SASL_SSL",
            {**scram, "sasl.password": WRONG},
            sasl,
            "due to invalid credentials with SASL mechanism SCRAM-SHA-256",
        ),
        "unknown user of SCRAM": ("SASL_SSL", {**scram, "sasl.username": "nobody"}, sasl, "refused user 'nobody'"),
        "token without a subject": (
            "SASL_SSL",
            {**login(cluster, "SASL_SSL", "OAUTHBEARER"), "sasl.jaas.config": JAAS.format("other")},
            sasl,
            'refused the token with sasl.mechanism OAUTHBEARER: {"status":"invalid_token"}',
        ),
        "unknown CA": ("SSL", {"security.protocol": "SSL"}, tls_failed, "give it in ssl.ca.location"),
        "another CA": (
            "SSL",
            {**trusting, "ssl.ca.location": str(other_ca)},
            tls_failed,
            "ssl.ca.location does not have",
        ),
        "wrong host name": (
            "ELSEWHERE",
            trusting,
            tls_failed,
            "(Hostname mismatch, certificate is not valid for 'localhost'): use its name in bootstrap.servers",
        ),
        "expired certificate": ("EXPIRED", trusting, tls_failed, "the broker's certificate has expired"),
        "no client certificate": ("MTLS", trusting, tls_failed, "the broker wants a client certificate"),
        "no client certificate, TLS 1.2": (
            "MTLS",
            {**trusting, "ssl.enabled.protocols": "TLSv1.2"},
            tls_failed,
            "give ssl.certificate.location and ssl.key.location",
        ),
        "foreign client certificate": (
            "MTLS",
            {**trusting, "ssl.keystore.location": str(other_ca.with_name("foreign.pem"))},
            tls_failed,
            "does not accept the client's certificate in ssl.keystore.location",
        ),
        "SASL_PLAINTEXT at PLAINTEXT": (
            "PLAINTEXT",
            login(cluster, "SASL_PLAINTEXT", "PLAIN"),
            sasl,
            "the listener has no login, and security.protocol is SASL_PLAINTEXT: is it PLAINTEXT?",
        ),
        "SASL_SSL at SSL": ("SSL", plain, sasl, "has no login, and security.protocol is SASL_SSL: is it SSL?"),
    }


MISTAKES = (
    "wrong password of PLAIN",
    "wrong password of SCRAM",
    "unknown user of SCRAM",
    "token without a subject",
    "unknown CA",
    "another CA",
    "wrong host name",
    "expired certificate",
    "no client certificate",
    "no client certificate, TLS 1.2",
    "foreign client certificate",
    "SASL_PLAINTEXT at PLAINTEXT",
    "SASL_SSL at SSL",
)


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("other") / "ca.pem"
    trustme.CA().cert_pem.write_to_path(path)
    return path


def test_every_mistake_has_a_name(cluster: Cluster, other_ca: Path) -> None:
    assert tuple(mistakes(cluster, other_ca)) == MISTAKES
    assert tuple(ways_in(cluster)) == WAYS_IN


def check_error(error: KafkaError, says: str) -> None:
    assert says in str(error) and len(str(error).splitlines()) == 1
    assert not [secret for secret in (*USERS.values(), WRONG) if secret in f"{error!r} {error}"]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_raised_at_once_in_a_sentence_with_the_setting(
    cluster: Cluster, other_ca: Path, mistake: str
) -> None:
    """S25 to S27 and S57: a retry would end with a RequestTimedOutError."""
    listener, settings, kind, says = mistakes(cluster, other_ca)[mistake]
    with (
        Admin({"bootstrap.servers": at(cluster, listener), **settings}) as admin,
        pytest.raises(kind) as raised,
    ):
        admin.list_topics()
    assert not raised.value.retriable
    check_error(raised.value, says)


@pytest.mark.parametrize(
    "mistake", ["wrong password of SCRAM", "another CA", "wrong host name", "no client certificate", "SASL_SSL at SSL"]
)
def test_both_event_loops_report_a_mistake_alike(cluster: Cluster, other_ca: Path, run: Run, mistake: str) -> None:
    listener, settings, kind, says = mistakes(cluster, other_ca)[mistake]

    async def story() -> None:
        async with AsyncAdmin({"bootstrap.servers": at(cluster, listener), **settings}) as admin:
            with pytest.raises(kind) as raised:
                await admin.list_topics()
            check_error(raised.value, says)

    run(story())


SHORT: Settings = {"default.api.timeout.ms": 2_000, "request.timeout.ms": 2_000}


@pytest.mark.parametrize(
    ("listener", "protocol", "says"),
    [
        ("PLAINTEXT", "SSL", "during the TLS handshake: is it a listener of PLAINTEXT? security.protocol is SSL"),
        ("SASL_PLAINTEXT", "PLAINTEXT", "want a login? security.protocol is PLAINTEXT, and not SASL_PLAINTEXT"),
        ("SASL_SSL", "SSL", "want a login? security.protocol is SSL, and not SASL_SSL"),
    ],
)
def test_a_listener_of_another_kind_that_only_closes_is_guessed(
    cluster: Cluster, run: Run, listener: str, protocol: str, says: str
) -> None:
    """S26. A broker that is being stopped closes too, so that these are tried again."""
    settings: Settings = {"security.protocol": protocol, **(tls(cluster) if protocol == "SSL" else {}), **SHORT}

    async def story() -> None:
        async with AsyncAdmin({"bootstrap.servers": at(cluster, listener), **settings}) as admin:
            with pytest.raises(RequestTimedOutError) as raised:
                await admin.list_topics()
            check_error(raised.value, says)

    run(story())


@pytest.mark.parametrize(("listener", "protocol"), [("SSL", "PLAINTEXT"), ("SASL_SSL", "SASL_PLAINTEXT")])
def test_a_listener_with_tls_is_recognised_by_its_alert_or_guessed(
    cluster: Cluster, listener: str, protocol: str
) -> None:
    """S26: Kafka sends an alert, which says for certain that it is TLS; others may only close."""
    settings = login(cluster, protocol, "PLAIN") if protocol.startswith("SASL") else {}
    with (
        Admin({"bootstrap.servers": at(cluster, listener), **settings, **SHORT}) as admin,
        pytest.raises((SslAuthenticationError, RequestTimedOutError)) as raised,
    ):
        admin.list_topics()
    assert isinstance(raised.value, SslAuthenticationError) or isinstance(cluster, SecuredCoterie)
    check_error(raised.value, "TLS")
    check_error(raised.value, f"security.protocol is {protocol}")


def test_consumers_and_producers_raise_a_refused_login_too(cluster: Cluster, name: str) -> None:
    """S57."""
    settings = {"bootstrap.servers": at(cluster, "SASL_SSL"), **login(cluster, "SASL_SSL", "PLAIN")}
    settings["sasl.password"] = WRONG
    with Consumer({**settings, "group.id": name}) as consumer:
        consumer.subscribe([name])
        with pytest.raises(SaslAuthenticationError) as raised:
            consumer.poll(PATIENCE_S)
    check_error(raised.value, "Invalid username or password")
    with Producer(settings) as producer, pytest.raises(SaslAuthenticationError) as raised:
        producer.send(name, b"value").result(PATIENCE_S)
    check_error(raised.value, "Invalid username or password")


def test_the_checks_of_host_name_and_certificate_can_be_turned_off(cluster: Cluster) -> None:
    """S27."""
    for listener, more in (
        ("ELSEWHERE", {**tls(cluster), "ssl.endpoint.identification.algorithm": ""}),
        ("EXPIRED", {"enable.ssl.certificate.verification": False}),
    ):
        with Admin({"bootstrap.servers": at(cluster, listener), "security.protocol": "SSL", **more}) as admin:
            admin.connect(within_ms=PATIENCE_S * 1000)


# --- sessions that end ------------------------------------------------------------------------------------------------


def _connections(client: Producer | Consumer, group: str) -> float:
    found = client.metrics()[group]["connection-creation-total"]
    assert found is not None
    return found


def test_sessions_are_renewed_under_load_and_no_record_is_lost_or_read_twice(cluster: Cluster, name: str) -> None:
    """S31 to S34: three sessions later the connections are those of the beginning."""
    settings = {"bootstrap.servers": at(cluster, "SASL_SSL"), **login(cluster, "SASL_SSL", "SCRAM-SHA-256")}
    create_topic(cluster, name, partitions=3)
    is_over = threading.Event()
    sent: list[bytes] = []
    with (
        Producer({**settings, "linger.ms": 0}) as producer,
        Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"}) as consumer,
    ):
        producer.send(name, b"first").result(PATIENCE_S)
        consumer.subscribe([name])
        read = [next(consumer).value or b""]
        before = _connections(producer, "producer-metrics"), _connections(consumer, "consumer-metrics")

        def produce() -> None:
            while not is_over.wait(0.002):
                value = b"%d" % len(sent)
                producer.send(name, value, key=value)
                sent.append(value)

        thread = threading.Thread(target=produce)
        thread.start()
        timer = threading.Timer(3.5 * SESSION_MS / 1000, is_over.set)
        timer.start()
        while not is_over.is_set():
            read += [record.value or b"" for record in consumer.poll(0.1)]
        thread.join()
        producer.flush()
        while len(read) <= len(sent):
            records = consumer.poll(PATIENCE_S)
            assert records, f"{len(sent) + 1 - len(read)} records are missing"
            read += [record.value or b"" for record in records]
        after = _connections(producer, "producer-metrics"), _connections(consumer, "consumer-metrics")
    assert sorted(read) == sorted([b"first", *sent])
    assert after == before, "a session that is not renewed costs the connection"


class ShortTokens:
    """Tokens that live for a short time, as confluent-kafka's callback returns them."""

    def __init__(self, token_of: Callable[[float], tuple[str, float]]) -> None:
        self._token_of = token_of
        self.count = 0

    def __call__(self, _config: str) -> tuple[str, float]:
        self.count += 1
        return self._token_of(SESSION_MS / 1000)


def test_a_token_that_expires_is_fetched_again_and_the_session_goes_on(cluster: Cluster, name: str) -> None:
    """S19 and S23: the session lives as long as the token."""
    tokens = ShortTokens(partial(unsecured_token, cluster))
    settings = login(cluster, "SASL_PLAINTEXT", "OAUTHBEARER")
    del settings["sasl.jaas.config"]
    settings |= {"bootstrap.servers": at(cluster, "SASL_PLAINTEXT"), "oauth_cb": tokens}
    create_topic(cluster, name)
    with Producer(settings) as producer:
        producer.send(name, b"first").result(PATIENCE_S)
        before = _connections(producer, "producer-metrics")
        while tokens.count < 4:
            producer.send(name, b"more").result(PATIENCE_S)
        producer.send(name, b"last").result(PATIENCE_S)
        assert _connections(producer, "producer-metrics") == before


def unsecured_token(cluster: Cluster, lives_s: float) -> tuple[str, float]:
    """Return a token as Kafka's own test validator accepts it (S20), and when it expires by the client's clock."""
    now, by_broker = time.time(), cluster.time_s()  # noqa: TID251
    claims: dict[str, Any] = {"sub": "alice", "iat": by_broker - 5, "exp": by_broker + lives_s}
    parts = [urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in ({"alg": "none"}, claims)]
    return f"{'.'.join(parts)}.", now + lives_s


def test_our_broker_answers_the_end_of_a_tls_connection() -> None:
    """Otherwise a client waits for it when it closes."""
    with SecuredCoterie() as broker:
        host, _, port = broker.address_of("SSL").rpartition(":")
        context = ssl.create_default_context(cafile=broker.certificates.ca)
        with (
            socket.create_connection((host, int(port)), timeout=PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=host) as secured,
        ):
            secured.unwrap()
