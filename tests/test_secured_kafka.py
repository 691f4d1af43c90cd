"""Apache Kafka with TLS and SASL, as the other tests use it, lets its own users in by other people's clients."""

from __future__ import annotations

import pytest

from secured_kafka import USERS, Cluster


def test_secured_kafka_lets_users_in(secured_kafka: Cluster) -> None:
    admin = pytest.importorskip("confluent_kafka.admin")
    tls = {"ssl.ca.location": str(secured_kafka.certificates.ca)}
    client = secured_kafka.certificates.leaf("client", "client.example", common_name="client")
    certificate = {"ssl.certificate.location": str(client.chain), "ssl.key.location": str(client.key)}
    user = {"sasl.username": "alice", "sasl.password": USERS["alice"]}
    for listener, settings in {
        "SSL": {"security.protocol": "SSL", **tls},
        "MTLS": {"security.protocol": "SSL", **tls, **certificate},
        "SASL_PLAINTEXT": {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **user},
        "SASL_SSL": {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", **tls, **user},
    }.items():
        client_of_listener = admin.AdminClient({"bootstrap.servers": secured_kafka.address_of(listener), **settings})
        assert client_of_listener.list_topics(timeout=60).brokers[1].port == int(
            secured_kafka.address_of(listener).rpartition(":")[2]
        )
