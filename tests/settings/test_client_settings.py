"""The clients' settings: the names, types, bounds and defaults of the Java clients; errors that help."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer
from coterie.settings.client_settings import Address, AdminSettings, ClientSettings
from coterie.settings.config_def import Number, SettingsError
from coterie.settings.consumer_settings import ConsumerSettings, duration_ms
from coterie.settings.producer_settings import ProducerSettings

JAVA: dict[str, dict[str, list[str]]] = json.loads(Path(__file__).with_name("java_settings.json").read_text())
OURS: dict[str, type[ClientSettings]] = {
    "consumer": ConsumerSettings,
    "producer": ProducerSettings,
    "admin": AdminSettings,
}
CODES = {"BOOLEAN": 1, "STRING": 2, "INT": 3, "LONG": 5, "LIST": 7, "CLASS": 8, "PASSWORD": 9}

OTHER_BOUNDS = {
    "session.timeout.ms": "a session that ends before it begins",
    "heartbeat.interval.ms": "the same",
    "socket.connection.setup.timeout.ms": "a negative time means nothing",
    "socket.connection.setup.timeout.max.ms": "a negative time means nothing",
}
NOT_JAVAS = {("producer", "default.api.timeout.ms")}
"""Java's producer has max.block.ms alone; ours may also ask the cluster who leads what."""
OF_PYTHON = {
    "enable.ssl.certificate.verification",
    "https.ca.location",
    "sasl.oauth.token.provider",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.extensions",
    "sasl.oauthbearer.method",
    "sasl.password",
    "sasl.username",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.context",
    "ssl.key.location",
}
"""Names of librdkafka, kafka-python and aiokafka for what Java has no name for, or another kind of value (rule 55)."""


@pytest.mark.parametrize(
    ("whose", "name"),
    [
        (whose, name)
        for whose, kind in OURS.items()
        for name in kind.rows()
        if not name.startswith("coterie.") and (whose, name) not in NOT_JAVAS and name not in OF_PYTHON
    ],
)
def test_a_setting_has_the_type_default_and_bounds_of_java(whose: str, name: str) -> None:
    row = OURS[whose].rows()[name]
    kind, default, validator = JAVA[whose][name]
    assert row.kind.code == CODES[kind]
    said = row.text(row.default) or ""
    if kind == "LIST":
        default = default.strip("[]").replace("class ", "").replace(", ", ",")
        default = ",".join(row.kind.read(default) if default else ())
    assert said == ("" if default == "null" else default)
    if isinstance(row.kind, Number):
        match = re.match(r"\[(-?\d+)", validator)
        least = int(match.group(1)) if match else -(2**31 if kind == "INT" else 2**63)
        assert (row.kind.least != least) == (name in OTHER_BOUNDS)


@pytest.mark.parametrize("whose", OURS)
def test_every_setting_of_java_is_taken_or_refused_for_a_reason(whose: str) -> None:
    rows = OURS[whose].rows()
    refused = {name for name in [*JAVA[whose], *rows] if any(row.has(name) for row in OURS[whose].unsupported)}
    assert not JAVA[whose].keys() - rows.keys() - refused
    assert not rows.keys() & refused, "taken or refused, not both"


def test_every_name_that_is_refused_is_javas_or_was() -> None:
    javas = {name for table in JAVA.values() for name in table} | {"auto.include.jmx.reporter"}
    javas |= {f"config.providers.{each}.class" for each in ("env", "file", "vault")}
    for row in ClientSettings.unsupported:
        for pattern in row.names:
            assert any(row._replace(names=(pattern,)).has(name) for name in javas), pattern


def test_dots_and_underscores_mean_the_same_and_none_is_not_given() -> None:
    settings = ConsumerSettings.of({"group.id": "a", "session_timeout_ms": 9_000}, group_id="b", client_id=None)
    assert (settings.group_id, settings.session_timeout_ms, settings.client_id) == ("b", 9_000, "")
    assert settings.given.keys() == {"group.id", "session.timeout.ms"}


def test_a_file_then_sets_then_keywords_count() -> None:
    text = "bootstrap.servers=a:1\nrequest.timeout.ms=1\nclient.id=file"
    settings = ClientSettings.load(text, ["request.timeout.ms=2", "client.id=set"], client_id="keyword")
    assert (settings.request_timeout_ms, settings.client_id) == (2, "keyword")
    assert settings.addresses == (Address("a", 1),)


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (ConsumerSettings, {"group.idd": "g"}, "did you mean group.id?"),
        (ConsumerSettings, {"linger.ms": 5}, "see docs/client-settings.md for all settings"),
        (ConsumerSettings, {"value.deserializer": "x"}, "record.value.decode()"),
        (ProducerSettings, {"transactional.id": ""}, "any text that is not empty"),
        (ProducerSettings, {"transactional.id": "x", "acks": 1}, "idempotent producer, and acks is 1: it is to be all"),
        (
            ProducerSettings,
            {"transactional.id": "x", "enable.idempotence": False},
            "transactional.id needs an idempotent producer, and enable.idempotence is false",
        ),
        (ProducerSettings, {"transaction.two.phase.commit.enable": True}, "there is no two-phase commit"),
        (ClientSettings, {"bootstrap.servers": "localhost"}, "must be host:port"),
        (ClientSettings, {"bootstrap.servers": "SSL://a:1"}, "set security.protocol to SSL, or leave SSL:// out"),
        (ClientSettings, {"request.timeout.ms": "soon"}, "must be a whole number from 0 to 2147483647"),
        (ConsumerSettings, {"heartbeat.interval.ms": 45_000}, "out before its next heartbeat"),
        (ConsumerSettings, {"enable.auto.commit": True}, "enable.auto.commit=true needs a group.id"),
        (ConsumerSettings, {"group.protocol": "share"}, "classic or consumer"),
        (
            ConsumerSettings,
            {"group.protocol": "consumer", "session.timeout.ms": 6_000},
            "session.timeout.ms cannot be set with group.protocol=consumer",
        ),
        (
            ConsumerSettings,
            {"group.protocol": "CONSUMER", "heartbeat.interval.ms": 100},
            "heartbeat.interval.ms cannot be set with group.protocol=consumer",
        ),
        (
            ConsumerSettings,
            {"group.protocol": "consumer", "partition.assignment.strategy": "range"},
            "Use group.remote.assignor",
        ),
        (ConsumerSettings, {"group.remote.assignor": "range"}, "cannot be set with group.protocol=classic"),
        (ConsumerSettings, {"auto.offset.reset": "by_duration:1h"}, "an ISO 8601 duration"),
        (ConsumerSettings, {"partition.assignment.strategy": ""}, "a comma-separated list"),
        (ProducerSettings, {"enable.idempotence": True, "acks": 1}, "acks is 1: it is to be all"),
        (ProducerSettings, {"delivery.timeout.ms": 10}, "at least linger.ms + request.timeout.ms"),
        (AdminSettings, {"default.api.timeout.ms": 10}, "before its first answer"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(kind: type[ClientSettings], given: dict[str, Any], says: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(says)):
        kind.of(given)


def test_nowhere_to_begin_is_said_when_it_is_needed() -> None:
    with pytest.raises(SettingsError, match=re.escape("bootstrap.servers is empty: name a broker")):
        _ = ClientSettings.of().addresses


def test_addresses_may_have_ipv6_and_a_protocol() -> None:
    settings = ClientSettings.of(bootstrap_servers=["PLAINTEXT://a.example:9092", "[::1]:9093"])
    assert settings.addresses == (Address("a.example", 9092), Address("::1", 9093))
    assert [str(address) for address in settings.addresses] == ["a.example:9092", "[::1]:9093"]


def test_javas_class_names_of_assignors_mean_ours() -> None:
    java = "org.apache.kafka.clients.consumer"
    settings = ConsumerSettings.of({"partition.assignment.strategy": f"{java}.StickyAssignor,{java}.RangeAssignor,own"})
    assert settings.partition_assignment_strategy == ("sticky", "range", "own")


def test_a_producer_is_idempotent_unless_what_was_given_makes_it_impossible() -> None:
    """As Java's ProducerConfig: silently so by default, an error when idempotence was asked for."""
    assert ProducerSettings.of().is_idempotent
    for values in ({"acks": 1}, {"retries": 0}, {"max.in.flight.requests.per.connection": 6}):
        assert not ProducerSettings.of(values).is_idempotent
    assert (ProducerSettings.of(acks="all").required_acks, ProducerSettings.of(acks=0).required_acks) == (-1, 0)
    assert ProducerSettings.of(linger_ms=200_000).delivers_within_ms == 230_000


def test_without_a_group_nothing_is_committed_by_itself() -> None:
    assert not ConsumerSettings.of().commits_automatically
    assert ConsumerSettings.of(group_id="g").commits_automatically


@given(st.integers(0, 999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_a_duration_is_the_sum_of_its_parts(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{seconds}S"
    assert duration_ms(text) == (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1D", "P-1D", "P1M", "PT1H2H", "P1DT"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        duration_ms(text)


@pytest.mark.parametrize("client", [Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer])
def test_an_address_alone_is_refused_with_what_to_write_instead(client: Callable[[object], object]) -> None:
    with pytest.raises(SettingsError, match=r"a mapping, not 'localhost:9092'; give .*bootstrap_servers="):
        client("localhost:9092")
