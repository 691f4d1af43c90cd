"""AlterConfigs and IncrementalAlterConfigs: the codes, and what a topic has afterwards, are Apache Kafka 4.3.1's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.kafka_record import NOT_ALTERED_HERE, OTHER_ALTERATIONS, RECORD
from coterie.broker.config_manager import OwnConfigs, alter, alter_all, incremental_alter, incremental_alter_all, tidy
from coterie.broker.handlers.refusals import Refusal
from coterie.errors import ErrorCode
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import alter_configs, incremental_alter_configs
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.topic_configs import TOPIC_CONFIGS
from coterie.storage import LogConfig

DEFAULTS = BrokerSettings()


def incremental(
    changes: list[Any], resource_type: int = ResourceType.TOPIC, name: str = "t"
) -> incremental_alter_configs.Resource:
    configs = [
        incremental_alter_configs.Config(name=key, operation=operation, value=value)
        for key, operation, value in changes
    ]
    return incremental_alter_configs.Resource(resource_type=resource_type, resource_name=name, configs=configs)


def legacy(configs: list[Any], resource_type: int = ResourceType.TOPIC, name: str = "t") -> alter_configs.Resource:
    entries = [alter_configs.Config(name=key, value=value) for key, value in configs]
    return alter_configs.Resource(resource_type=resource_type, resource_name=name, configs=entries)


def own_of(topics: Mapping[str, Mapping[str, str]]) -> OwnConfigs:
    """Return what topics have of their own, and no group anything."""
    return lambda kind, name: topics.get(name) if kind == ResourceType.TOPIC else {}


def code(answer: dict[str, str] | Refusal) -> int:
    if isinstance(answer, Refusal):
        assert answer.error and answer.message, "a refusal says why"
        return answer.error
    return ErrorCode.NONE


def reason_to_differ(changes: list[Any]) -> str | None:
    if len(changes) != 1:
        return None
    ((name, operation, value),) = changes
    return OTHER_ALTERATIONS.get((name, value, operation)) or OTHER_ALTERATIONS.get((name, value))


@pytest.mark.parametrize("kafka", RECORD["incremental"], ids=lambda kafka: str(kafka["changes"]))
def test_single_configs_change_as_in_kafka(kafka: dict[str, Any]) -> None:
    """KIP-339."""
    ours = incremental_alter(incremental(kafka["changes"]), kafka["before"], DEFAULTS)
    if reason_to_differ(kafka["changes"]):
        assert code(ours) != kafka["error"], "no difference any more: strike it from the list"
        return
    assert code(ours) == kafka["error"]
    if not isinstance(ours, Refusal):
        assert ours == kafka["after"]


def test_every_listed_difference_is_one() -> None:
    assert sum(1 for kafka in RECORD["incremental"] if reason_to_differ(kafka["changes"])) == len(OTHER_ALTERATIONS)


@pytest.mark.parametrize("kafka", RECORD["altered"], ids=lambda kafka: str(kafka["configs"]))
def test_all_configs_change_as_in_kafka(kafka: dict[str, Any]) -> None:
    ours = alter(legacy(kafka["configs"]), kafka["before"], DEFAULTS)
    assert code(ours) == kafka["error"]
    if not isinstance(ours, Refusal):
        assert ours == kafka["after"]


@pytest.mark.parametrize("kafka", RECORD["elsewhere"], ids=lambda kafka: str(kafka["resource"]))
def test_what_is_no_topic_of_ours_is_refused_as_in_kafka(kafka: dict[str, Any]) -> None:
    """Where Kafka would alter something that we have not, we say INVALID_REQUEST and what to do instead."""
    resource_type, name, key, value = kafka["resource"]
    ours = incremental_alter(incremental([(key, 0, value)], resource_type, name), None, DEFAULTS)
    ours_legacy = alter(legacy([(key, value)], resource_type, name), None, DEFAULTS)
    if resource_type in NOT_ALTERED_HERE:
        assert code(ours) == code(ours_legacy) == ErrorCode.INVALID_REQUEST
    else:
        assert (code(ours), code(ours_legacy)) == (kafka["incremental"], kafka["alter"])


@pytest.mark.parametrize(
    ("resource_type", "name", "error"),
    [
        (ResourceType.BROKER, "1", ErrorCode.NONE),
        (ResourceType.BROKER, "", ErrorCode.NONE),
        (ResourceType.BROKER, "2", ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, "x", ErrorCode.INVALID_REQUEST),
        (ResourceType.GROUP, "g", ErrorCode.NONE),
        (ResourceType.GROUP, "", ErrorCode.INVALID_REQUEST),
        (ResourceType.CLIENT_METRICS, "m", ErrorCode.NONE),
        (ResourceType.CLIENT_METRICS, "", ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_config_is_deleted_where_none_is_set_as_in_kafka(resource_type: int, name: str, error: ErrorCode) -> None:
    """Apache's tool for reassignments does so to the throttles of brokers when it verifies and cancels."""
    for names in (["leader.replication.throttled.rate"], ["nonsense"], []):
        resource = incremental([(key, 1, None) for key in names], resource_type, name)
        request = incremental_alter_configs.Request(resources=[resource])
        response, changes = incremental_alter_all(request, own_of({name: {"retention.ms": "1"}}), DEFAULTS)
        assert (response.responses[0].error, changes) == (error, {}), "a topic of the same name stays as it is"
    twice = incremental([("a", 1, None), ("a", 1, None)], resource_type, name)
    assert code(incremental_alter(twice, None, DEFAULTS)) == ErrorCode.INVALID_REQUEST


def test_a_broker_says_how_its_settings_are_changed() -> None:
    refused = alter(legacy([("num.partitions", "3")], ResourceType.BROKER, "1"), None, DEFAULTS)
    assert isinstance(refused, Refusal) and "start it again" in refused.message


def test_an_unknown_config_names_the_nearest_one() -> None:
    refused = tidy({"retention.msec": "5"}, DEFAULTS)
    assert isinstance(refused, Refusal) and "did you mean retention.ms?" in refused.message


def test_a_wrong_value_names_what_is_allowed() -> None:
    refused = tidy({"message.timestamp.type": "createtime"}, DEFAULTS)
    assert isinstance(refused, Refusal) and "CreateTime or LogAppendTime" in refused.message


def test_a_null_when_creating_a_topic_is_an_invalid_config() -> None:
    """And an INVALID_REQUEST when altering one; so does Kafka."""
    assert code(tidy({"retention.ms": None}, DEFAULTS)) == ErrorCode.INVALID_CONFIG
    assert code(alter(legacy([("retention.ms", None)]), {}, DEFAULTS)) == ErrorCode.INVALID_REQUEST


def test_configs_are_judged_with_the_brokers_defaults() -> None:
    settings = BrokerSettings.of({"log.cleaner.max.compaction.lag.ms": 5})
    assert code(tidy({"min.compaction.lag.ms": "6"}, settings)) == ErrorCode.INVALID_CONFIG
    assert code(tidy({"min.compaction.lag.ms": "5"}, settings)) == ErrorCode.NONE


def test_a_list_is_added_to_from_kafkas_default_not_the_brokers() -> None:
    """Seen in Kafka 4.3.1 with log.cleanup.policy=compact: what is added to is `delete`."""
    settings = BrokerSettings.of({"log.cleanup.policy": "compact"})
    assert incremental_alter(incremental([("cleanup.policy", 2, "delete")]), {}, settings) == {
        "cleanup.policy": "delete"
    }


def test_validating_answers_and_changes_nothing() -> None:
    for validate_only, changed in ((False, {(ResourceType.TOPIC, "t"): {"retention.ms": "5"}}), (True, {})):
        request = incremental_alter_configs.Request(
            resources=[incremental([("retention.ms", 0, "5")])], validate_only=validate_only
        )
        response, changes = incremental_alter_all(request, own_of({"t": {}}), DEFAULTS)
        assert [result.error for result in response.responses] == [ErrorCode.NONE] and changes == changed
        request_all = alter_configs.Request(resources=[legacy([("retention.ms", "5")])], validate_only=validate_only)
        response_all, changes = alter_all(request_all, own_of({"t": {"segment.ms": "9"}}), DEFAULTS)
        assert [result.error for result in response_all.responses] == [ErrorCode.NONE] and changes == changed


def test_a_resource_named_twice_is_refused_both_times_and_others_are_not() -> None:
    resources = [incremental([("retention.ms", 0, "5")], name=name) for name in ("t", "u", "t")]
    response, changes = incremental_alter_all(
        incremental_alter_configs.Request(resources=resources), own_of({"t": {}, "u": {}}), DEFAULTS
    )
    assert [result.error for result in response.responses] == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
    ]
    assert changes == {(ResourceType.TOPIC, "u"): {"retention.ms": "5"}}


def test_a_change_leaves_what_the_topic_has_alone() -> None:
    own = {"segment.ms": "9"}
    incremental_alter(incremental([("segment.ms", 0, "8"), ("retention.ms", 0, "5")]), own, DEFAULTS)
    assert own == {"segment.ms": "9"}


names = st.sampled_from([*TOPIC_CONFIGS, "nonsense"]) | st.text(max_size=20)
values = st.none() | st.text(max_size=20) | st.sampled_from(["1", "0.5", "true", "delete", "0:1", "x" * 40_000])
changes = st.lists(st.tuples(names, st.integers(-128, 127) | st.integers(0, 3), values), max_size=4)


@given(
    changes=changes,
    resource_type=st.sampled_from([ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.BROKER, 0, 33]),
    name=st.just("t") | st.text(),
)
def test_whatever_is_asked_is_answered_and_what_is_kept_is_tidy(
    changes: list[tuple[str, int, str | None]], resource_type: int, name: str
) -> None:
    """No exception, a message every version can carry, and configs that are kept as they are when seen again."""
    topics: Mapping[str, Mapping[str, str]] = {"t": {"cleanup.policy": "compact"}}
    request = incremental_alter_configs.Request(resources=[incremental(changes, resource_type, name)])
    response, changed = incremental_alter_all(request, own_of(topics), DEFAULTS)
    if len(name.encode()) < 30_000:
        for version in incremental_alter_configs.API.versions:
            incremental_alter_configs.write_response(response, version)
    for own in changed.values():
        assert tidy(own, DEFAULTS) == own
        LogConfig.of(own, DEFAULTS)
