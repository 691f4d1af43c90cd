"""DescribeConfigs: what we say of topics, brokers and groups Apache Kafka 4.3.1 says, but for listed reasons."""

from __future__ import annotations

from typing import Any

import pytest

from apache_kafka import ApacheKafka, needs_apache_kafka
from broker.kafka_record import ONE_REPLICA, OTHER_ANSWERS_ABOUT, OTHER_ROWS, RECORD
from broker.record_configs import answers
from coterie.broker.config_manager import describe
from coterie.errors import ErrorCode
from coterie.protocol.api import ConfigSource, ResourceType
from coterie.protocol.apis import describe_configs
from coterie.protocol.apis.describe_configs import Resource
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Secret
from coterie.settings.topic_configs import TOPIC_CONFIGS
from coterie.storage import offsets_topic_configs
from raw_kafka import RawConnection

DEFAULTS = BrokerSettings()
TOPICS = {
    "plain": {},
    "with-configs": {"retention.ms": "5000", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.25"},
    "__consumer_offsets": offsets_topic_configs(DEFAULTS),
}


def rows(result: describe_configs.Result) -> list[dict[str, Any]]:
    return [
        {
            "name": config.name,
            "value": config.value,
            "read_only": config.read_only,
            "source": config.config_source,
            "sensitive": config.is_sensitive,
            "type": config.config_type,
            "synonyms": [[synonym.name, synonym.value, synonym.source] for synonym in config.synonyms],
        }
        for config in result.configs
    ]


def ask(resource_type: int, name: str, keys: list[str] | None = None, settings: BrokerSettings = DEFAULTS) -> Any:
    resource = Resource(resource_type=resource_type, resource_name=name, configuration_keys=keys)
    return describe(resource, TOPICS.get(name), settings, synonyms=True)


@pytest.mark.parametrize("kafka", RECORD["described"], ids=lambda kafka: kafka["what"])
def test_an_answer_is_kafkas(kafka: dict[str, Any]) -> None:
    ours = ask(*kafka["resource"])
    assert ours.error == kafka["error"]
    if kafka["what"] in OTHER_ANSWERS_ABOUT:
        assert rows(ours) != kafka["configs"], "no difference any more: strike it from the list"
        return
    assert [row for row in rows(ours) if row["name"] not in OTHER_ROWS] == [
        row for row in kafka["configs"] if row["name"] not in OTHER_ROWS
    ]
    if kafka["error"]:
        assert ours.message, "a refusal says why"


def test_what_differs_in_a_topics_configs_is_listed() -> None:
    ours = {row["name"]: row for row in rows(ask(ResourceType.TOPIC, "plain"))}
    kafka = {row["name"]: row for row in RECORD["described"][0]["configs"]}
    assert RECORD["described"][0]["what"] == "a plain topic" and len(kafka) == 33
    assert {name for name in kafka if ours[name] != kafka[name]} == set(OTHER_ROWS), ONE_REPLICA
    assert ours.keys() == kafka.keys()


@pytest.mark.parametrize("kafka", RECORD["started_with"], ids=lambda kafka: next(iter(kafka["settings"])))
def test_a_topic_takes_its_defaults_from_the_broker_as_in_kafka(kafka: dict[str, Any]) -> None:
    """Also where Kafka is odd: retention.ms that comes from log.retention.hours says it is a default."""
    settings = BrokerSettings.of(kafka["settings"])
    ours = [row for row in rows(ask(ResourceType.TOPIC, "plain", settings=settings)) if row["name"] not in OTHER_ROWS]
    assert ours == [row for row in kafka["topic"] if row["name"] not in OTHER_ROWS]


@pytest.mark.parametrize("kafka", RECORD["started_with"], ids=lambda kafka: next(iter(kafka["settings"])))
def test_a_broker_says_what_it_was_started_with_as_in_kafka(kafka: dict[str, Any]) -> None:
    """All of it is read-only: Kafka can change some of it while it runs, we change nothing."""
    settings = BrokerSettings.of(kafka["settings"])
    ours = [row for row in rows(ask(ResourceType.BROKER, "1", settings=settings)) if row["name"] in kafka["settings"]]
    key = BrokerSettings.rows().keys()
    assert len(ours) == len(kafka["settings"]) and set(kafka["settings"]) <= key
    for row in kafka["broker"]:
        assert {**row, "read_only": True} in ours


def test_a_broker_describes_every_setting_it_has() -> None:
    ours = ask(ResourceType.BROKER, "1")
    assert [config.name for config in ours.configs] == list(BrokerSettings.rows())
    assert all(config.read_only for config in ours.configs)


def test_a_password_of_a_broker_is_never_shown() -> None:
    """Neither as a value nor as a synonym, whether it was given or not."""
    settings = BrokerSettings.of({"ssl.key.password": "hush"})
    ours = {config.name: config for config in ask(ResourceType.BROKER, "1", settings=settings).configs}
    assert ours["ssl.key.password"].config_source == ConfigSource.STATIC_BROKER
    sensitive = {config.name for config in ours.values() if config.is_sensitive}
    assert sensitive == {name for name, row in BrokerSettings.rows().items() if isinstance(row.kind, Secret)}
    shown = [ours[name].value for name in sensitive]
    shown += [synonym.value for name in sensitive for synonym in ours[name].synonyms]
    assert set(shown) == {None}


def test_a_broker_has_no_loggers_to_describe() -> None:
    """Kafka lists log4j's."""
    assert ask(ResourceType.BROKER_LOGGER, "1").error == ErrorCode.NONE
    assert not ask(ResourceType.BROKER_LOGGER, "1").configs


def test_the_broker_is_known_by_its_node_id() -> None:
    settings = BrokerSettings.of({"node.id": 7})
    assert ask(ResourceType.BROKER, "7", settings=settings).error == ErrorCode.NONE
    assert ask(ResourceType.BROKER, "1", settings=settings).error == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("resource_type", [ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP])
def test_synonyms_and_documentation_come_only_when_asked_for(resource_type: int) -> None:
    names: dict[int, str] = {ResourceType.TOPIC: "plain", ResourceType.BROKER: "1", ResourceType.GROUP: "g"}
    name = names[resource_type]
    resource = Resource(resource_type=resource_type, resource_name=name)
    bare = describe(resource, {}, DEFAULTS)
    assert not any(config.synonyms or config.documentation for config in bare.configs)
    whole = describe(resource, {}, DEFAULTS, synonyms=True, documentation=True)
    assert any(config.synonyms for config in whole.configs)
    assert all(config.documentation for config in whole.configs)


def test_an_answer_can_be_written_in_every_version() -> None:
    for resource_type, name in (
        (ResourceType.TOPIC, "plain"),
        (ResourceType.TOPIC, "x" * 5000),
        (ResourceType.BROKER, "1"),
        (ResourceType.BROKER, "é" * 9000),
        (ResourceType.GROUP, "g"),
    ):
        resource = Resource(resource_type=resource_type, resource_name=name)
        result = describe(resource, {}, DEFAULTS, synonyms=True, documentation=True)
        for version in describe_configs.API.versions:
            written = describe_configs.write_response(describe_configs.Response(results=[result]), version)
            assert describe_configs.read_response(written, 0, version).results[0].error == result.error


def test_the_table_is_kafkas_table() -> None:
    """Types, bounds and defaults of Kafka 4.3.1; internal.segment.bytes is for Kafka's own tests."""
    kafka = RECORD["definitions"]["topic"]
    assert TOPIC_CONFIGS.keys() == kafka.keys() - {"internal.segment.bytes"}
    for config in ask(ResourceType.TOPIC, "plain").configs:
        assert config.value == kafka[config.name][1], config.name


@needs_apache_kafka
@pytest.mark.real_time
def test_apache_kafka_still_says_what_was_recorded() -> None:
    with ApacheKafka() as kafka, RawConnection(kafka.bootstrap) as connection:
        told = answers(connection)
    for what, answer in told.items():
        for ours, recorded in zip(_plain(answer), RECORD[what], strict=True):
            assert ours == recorded


def _plain(answer: Any) -> Any:
    """As JSON would give it back."""
    import json

    return json.loads(json.dumps(answer))
