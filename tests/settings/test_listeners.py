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
        ({"listeners": "SASL_SSL://:9092"}, "listener SASL_SSL has the protocol SASL_SSL"),
        ({"listeners": "SSL://:9092"}, "Make it PLAINTEXT"),
        (
            {"listeners": "CLIENT://:9092", "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT"},
            "listener CLIENT has the protocol SASL_PLAINTEXT",
        ),
        ({"listeners": "CLIENT://:9092"}, "listener CLIENT has the protocol CLIENT"),
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
