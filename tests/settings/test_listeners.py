"""Listeners: addresses for clients, and nothing opened to everybody that was meant to be protected."""

from __future__ import annotations

import pytest

from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import SettingsError
from coterie.settings.listeners import Endpoint

IMAGE = {
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,PLAINTEXT_HOST:PLAINTEXT",
    "KAFKA_LISTENERS": "CONTROLLER://:29093,PLAINTEXT_HOST://:9092,PLAINTEXT://:19092",
    "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT_HOST://localhost:9092,PLAINTEXT://broker:19092",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
}
"""As the examples of Kafka's image have them."""

SECURE = {
    "listeners": "IN://127.0.0.1:1,IN_TLS://127.0.0.1:2,PLAINTEXT://127.0.0.1:3",
    "listener.security.protocol.map": "IN:SASL_PLAINTEXT,IN_TLS:SASL_SSL,PLAINTEXT:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "ssl.keystore.location": "server.pem",
    "ssl.truststore.location": "ca.pem",
    "connections.max.reauth.ms": "1000",
}


def test_a_listener_has_the_protocol_that_the_map_gives_it() -> None:
    """S1."""
    endpoints = BrokerSettings.of(SECURE).endpoints()
    assert [(each.protocol, each.has_tls, each.has_sasl) for each in endpoints] == [
        ("SASL_PLAINTEXT", False, True),
        ("SASL_SSL", True, True),
        ("PLAINTEXT", False, False),
    ]


def test_a_listener_and_a_mechanism_may_have_settings_of_their_own() -> None:
    """S31: the setting of the mechanism before that of the listener before that of all."""
    settings = BrokerSettings.of(
        SECURE
        | {
            "listener.name.in.connections.max.reauth.ms": "2000",
            "listener.name.in.plain.connections.max.reauth.ms": "3000",
            "listener.name.in_tls.sasl.enabled.mechanisms": "PLAIN",
        }
    )
    inside, tls, _ = settings.endpoints()
    assert settings.of_listener(inside, "PLAIN").connections_max_reauth_ms == 3000
    assert settings.of_listener(inside, "SCRAM-SHA-256").connections_max_reauth_ms == 2000
    assert settings.of_listener(tls, "PLAIN").connections_max_reauth_ms == 1000
    assert settings.of_listener(tls).sasl_enabled_mechanisms == ("PLAIN",)
    assert settings.of_listener(inside).sasl_enabled_mechanisms == ("PLAIN", "SCRAM-SHA-256")


def test_a_sasl_listener_asks_for_certificates_only_by_a_setting_of_its_own() -> None:
    """S24 (KIP-684)."""
    settings = BrokerSettings.of(SECURE | {"ssl.client.auth": "required"})
    assert settings.of_listener(settings.endpoints()[1]).ssl_client_auth == "none"
    own = BrokerSettings.of(SECURE | {"listener.name.in_tls.ssl.client.auth": "required"})
    assert own.of_listener(own.endpoints()[1]).ssl_client_auth == "required"


def test_what_no_listener_can_have_is_reported_as_having_no_effect() -> None:
    settings = BrokerSettings.of(
        SECURE | {"listener.name.other.ssl.client.auth": "none", "listener.name.in.num.partitions": "2"}
    )
    assert [each.name for each in settings.ignored] == [
        "listener.name.other.ssl.client.auth",
        "listener.name.in.num.partitions",
    ]


def test_no_secret_is_shown_by_settings() -> None:
    """S57."""
    jaas = 'PlainLoginModule required user_alice="secret-1";'
    settings = BrokerSettings.of(
        SECURE | {"listener.name.in.plain.sasl.jaas.config": jaas, "ssl.key.password": "secret-1"}
    )
    assert settings.ssl_key_password is not None and settings.ssl_key_password.value == "secret-1"
    assert "secret-1" not in repr(settings)


def test_the_listeners_of_kafkas_image_are_understood() -> None:
    settings = BrokerSettings.load(environ=IMAGE)
    assert settings.endpoints() == (Endpoint("PLAINTEXT_HOST", "", 9092), Endpoint("PLAINTEXT", "", 19092))
    assert settings.advertised() == (
        Endpoint("PLAINTEXT_HOST", "localhost", 9092),
        Endpoint("PLAINTEXT", "broker", 19092),
    )


def test_we_listen_on_this_machine_alone_unless_told_otherwise() -> None:
    assert BrokerSettings().endpoints() == (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    assert BrokerSettings().advertised() == ()


def test_an_address_may_be_of_ipv6_and_a_port_may_be_0() -> None:
    assert BrokerSettings.of({"listeners": "plaintext://[::1]:0"}).endpoints() == (Endpoint("PLAINTEXT", "::1", 0),)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"listeners": "SASL_PLAINTEXT://:9092"}, "listener SASL_PLAINTEXT needs sasl.enabled.mechanisms"),
        ({"listeners": "SASL_SSL://:9092", "sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "supported are PLAIN"),
        (
            {"listeners": "SASL_SSL://:9092", "sasl.enabled.mechanisms": "PLAIN"},
            "listener SASL_SSL needs a certificate",
        ),
        ({"listeners": "SSL://:9092"}, "listener SSL needs a certificate"),
        (
            {"listeners": "SSL://:9092", "ssl.keystore.location": "a.pem", "ssl.client.auth": "required"},
            "cannot verify them",
        ),
        ({"listeners": "CLIENT://:9092"}, "listener CLIENT has no security protocol"),
        ({"listeners": "PLAINTEXT://a:1,SSL://a:1"}, "port 1 twice"),
        ({**SECURE, "listener.name.in.plain.sasl.jaas.config": "Module password=secret-1;"}, "after the login module"),
        ({**SECURE, "listener.name.in.ssl.client.auth": "maybe"}, "must be required or requested or none"),
        ({"listeners": "CONTROLLER://:9093", "controller.listener.names": "CONTROLLER"}, "no listener for clients"),
        ({"listeners": ""}, "no listener for clients"),
        ({"listeners": "localhost:9092"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost:70000"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "twice"),
        ({"listener.security.protocol.map": "CLIENT"}, "NAME:PROTOCOL"),
        ({"listener.security.protocol.map": "CLIENT:TLS"}, "NAME:PROTOCOL"),
        ({"advertised.listeners": "OTHER://a:1"}, "not in listeners"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot"),
        ({"advertised.listeners": "PLAINTEXT://:1"}, "cannot"),
    ],
    ids=str,
)
def test_what_cannot_be_listened_on_is_refused(values: dict[str, str], says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        BrokerSettings.of(values)
