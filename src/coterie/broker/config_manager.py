"""The rules of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, without I/O.

Codes, names, types, sources and the order of the checks are those of Kafka 4.3.1; the messages are ours. Topics are all
that can be altered. `own` are the configs that a topic has of its own, None if there is no such topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import dropwhile
from typing import NamedTuple, Protocol, TypeVar

from coterie.broker.handlers.refusals import Refusal, illegal_name, no_such_topic, unknown_type
from coterie.errors import ErrorCode
from coterie.protocol.api import ConfigSource, ResourceType
from coterie.protocol.apis import alter_configs, describe_configs, incremental_alter_configs
from coterie.protocol.apis.describe_configs import Config, Synonym
from coterie.protocol.apis.incremental_alter_configs import AlterConfigOp
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Words
from coterie.settings.topic_configs import TOPIC_CONFIGS, effective
from coterie.storage.metadata_files import is_legal_name

__all__ = [
    "ConfigChanges",
    "ConfigsByTopic",
    "alter",
    "alter_all",
    "describe",
    "incremental_alter",
    "incremental_alter_all",
    "tidy",
]


# --- describing -------------------------------------------------------------------------------------------------------

_STRING, _INT, _BOOLEAN, _LIST = 2, 3, 1, 7


class OtherConfig(NamedTuple):
    """A config of a group or of a client metrics subscription, with the default that Kafka 4.3.1 returns.

    They have no effect: groups are of the classic protocol, and metrics of clients are not collected. They are returned
    because tools ask for them.
    """

    name: str
    value: str
    code: int
    behind: str
    doc: str


def _group(name: str, value: str, code: int = _INT, behind: str | None = None) -> OtherConfig:
    protocol = name.partition(".")[0]
    return OtherConfig(
        name, value, code, behind or f"group.{name}", f"For {protocol} groups, which are not supported yet."
    )


def _metrics(name: str, value: str, code: int) -> OtherConfig:
    return OtherConfig(name, value, code, "", "Metrics of clients are not collected here.")


GROUP_CONFIGS = (
    _group("consumer.assignment.interval.ms", "1000"),
    _group("consumer.heartbeat.interval.ms", "5000"),
    _group("consumer.session.timeout.ms", "45000"),
    _group("share.assignment.interval.ms", "1000"),
    _group("share.auto.offset.reset", "latest", _STRING, behind="share.auto.offset.reset"),
    _group("share.delivery.count.limit", "5"),
    _group("share.heartbeat.interval.ms", "5000"),
    _group("share.isolation.level", "read_uncommitted", _STRING, behind="share.isolation.level"),
    _group("share.partition.max.record.locks", "2000"),
    _group("share.record.lock.duration.ms", "30000"),
    _group("share.renew.acknowledge.enable", "true", _BOOLEAN, behind="share.renew.acknowledge.enable"),
    _group("share.session.timeout.ms", "45000"),
    _group("streams.assignment.interval.ms", "1000"),
    _group("streams.heartbeat.interval.ms", "5000"),
    _group("streams.initial.rebalance.delay.ms", "3000"),
    _group("streams.num.standby.replicas", "0"),
    _group("streams.session.timeout.ms", "45000"),
)

CLIENT_METRICS_CONFIGS = (
    _metrics("interval.ms", "300000", _INT),
    _metrics("match", "", _LIST),
    _metrics("metrics", "", _LIST),
)


_CHAINS = {name: tuple(config.behind) for config in TOPIC_CONFIGS.values() for name in config.behind}


def describe(
    resource: describe_configs.Resource,
    own: Mapping[str, str] | None,
    settings: BrokerSettings,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> describe_configs.Result:
    """Return what DescribeConfigs answers for a resource. `own` is None for all resources but topics."""
    found = _configs_of(resource.resource_type, resource.resource_name, own, settings)
    if isinstance(found, Refusal):
        return describe_configs.Result(
            error=found.error,
            message=found.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    asked = resource.configuration_keys or ()  # none is all, as null is
    configs = [config for config in found if not asked or config.name in asked]
    for config in configs:
        config.synonyms = config.synonyms if synonyms else ()
        config.documentation = config.documentation if documentation else None
    return describe_configs.Result(
        resource_type=resource.resource_type, resource_name=resource.resource_name, configs=configs
    )


def _configs_of(
    resource_type: int, name: str, own: Mapping[str, str] | None, settings: BrokerSettings
) -> list[Config] | Refusal:
    if resource_type == ResourceType.TOPIC:
        if not is_legal_name(name):
            return illegal_name(name)
        if own is None:
            return no_such_topic(name)
        return [_topic_config(each, own, settings) for each in TOPIC_CONFIGS]
    if resource_type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER}:
        if name == "" and resource_type == ResourceType.BROKER:
            return []  # what was altered for all brokers, which nothing ever is
        if name != str(settings.node_id):
            return Refusal(ErrorCode.INVALID_REQUEST, f"broker {name[:100]!r} is asked for; this is {settings.node_id}")
        return (
            [_broker_config(each, settings) for each in BrokerSettings.rows()]
            if resource_type == ResourceType.BROKER
            else []
        )
    tables: Mapping[int, Sequence[OtherConfig]] = {
        ResourceType.GROUP: GROUP_CONFIGS,
        ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIGS,
    }
    if resource_type not in tables:
        return unknown_type(resource_type)
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "a resource of this type needs a name")
    return [_other_config(each) for each in tables[resource_type]]


def _topic_config(name: str, own: Mapping[str, str], settings: BrokerSettings) -> Config:
    config = TOPIC_CONFIGS[name]
    value = config.kind.write(effective(name, own, settings))
    synonyms = _broker_synonyms(next(iter(config.behind)), settings) if config.behind else []
    if name in own:
        synonyms.insert(0, Synonym(name=name, value=value, source=ConfigSource.DYNAMIC_TOPIC))
    return Config(
        name=name,
        value=value,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        config_type=config.kind.code,
        documentation=config.help,
    )


def _broker_config(name: str, settings: BrokerSettings) -> Config:
    row = BrokerSettings.rows()[name]
    synonyms = _broker_synonyms(name, settings)
    return Config(
        name=name,
        value=row.text(settings[name]),
        read_only=True,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        config_type=row.kind.code,
        documentation=row.help,
    )


def _broker_synonyms(name: str, settings: BrokerSettings) -> list[Synonym]:
    """Return the synonyms of a setting in Kafka's order. As in Kafka, those before the setting itself are left out.

    So a topic's retention.ms that comes from log.retention.hours has no synonyms, and its source is the default.
    """
    rows = BrokerSettings.rows()
    chain = _CHAINS.get(name, (name,))
    started_with = [(each, settings[each], ConfigSource.STATIC_BROKER) for each in chain if each in settings.given]
    defaults = [(each, rows[each].default, ConfigSource.DEFAULT) for each in chain if rows[each].default is not None]
    found = [
        Synonym(name=each, value=rows[each].text(value), source=source)
        for each, value, source in (*started_with, *defaults)
    ]
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _other_config(config: OtherConfig) -> Config:
    synonyms = [Synonym(name=config.behind, value=config.value, source=ConfigSource.DEFAULT)] if config.behind else []
    return Config(
        name=config.name,
        value=config.value,
        config_source=ConfigSource.DEFAULT,
        synonyms=synonyms,
        config_type=config.code,
        documentation=config.doc,
    )


# --- altering ---------------------------------------------------------------------------------------------------------

LONGEST = 10_000
"""The longest text of a list. Old versions of DescribeConfigs count the bytes of a string in 16 bits."""

NOT_ALTERED: Mapping[int, str] = {
    ResourceType.BROKER: "the broker reads its settings when it starts: put them into its properties file, its "
    "environment or --set, and start it again",
    ResourceType.BROKER_LOGGER: "there are no loggers to set here",
    ResourceType.CLIENT_METRICS: "metrics of clients are not collected here",
    ResourceType.GROUP: "groups of the classic protocol have no configs: their members bring them",
}


def tidy(configs: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str] | Refusal:
    """Return the configs of a topic as they are stored, or why they are refused. CreateTopics uses it too."""
    kept = {}
    for name, text in configs.items():
        config = TOPIC_CONFIGS.get(name)
        if text is None:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{name[:100]} without a value; leave it out")
        if config is None:
            nearest = get_close_matches(name, TOPIC_CONFIGS, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            return Refusal(ErrorCode.INVALID_CONFIG, f"topics have no config {name[:100]!r}{hint}")
        try:
            kept[name] = config.kind.write(config.kind.read(text))
        except ValueError:
            message = f"{name} cannot be {text[:100]!r}: must be {config.kind.allowed}"
            return Refusal(ErrorCode.INVALID_CONFIG, message)
        if len(kept[name]) > LONGEST:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{name} has {len(kept[name])} letters; allowed are {LONGEST}")
    if effective("min.compaction.lag.ms", kept, settings) > effective("max.compaction.lag.ms", kept, settings):
        return Refusal(ErrorCode.INVALID_CONFIG, "min.compaction.lag.ms is above max.compaction.lag.ms")
    if effective("remote.storage.enable", kept, settings):
        return Refusal(ErrorCode.INVALID_CONFIG, "remote.storage.enable cannot be true: there is no tiered storage")
    return kept


def alter(
    resource: alter_configs.Resource, own: Mapping[str, str] | None, settings: BrokerSettings
) -> dict[str, str] | Refusal:
    """Return all configs that a topic then has. Those that are not named go back to their defaults."""
    refusal = _refuse(resource.resource_type, [(config.name, config.value is None) for config in resource.configs])
    if refusal:
        return refusal
    wanted = {config.name: config.value for config in resource.configs}
    return _of_topic(resource.resource_name, wanted, own, settings)


def incremental_alter(
    resource: incremental_alter_configs.Resource, own: Mapping[str, str] | None, settings: BrokerSettings
) -> dict[str, str] | Refusal:
    """Return all configs that a topic then has. Those that are not named stay (KIP-339)."""
    nulls = [
        (config.name, config.value is None and config.operation != AlterConfigOp.DELETE) for config in resource.configs
    ]
    refusal = _refuse(resource.resource_type, nulls)
    if refusal:
        return refusal
    wanted: dict[str, str | None] = dict(own or {})
    for config in resource.configs:
        if config.operation == AlterConfigOp.SET:
            wanted[config.name] = config.value
        elif config.operation == AlterConfigOp.DELETE:
            wanted.pop(config.name, None)
        elif config.operation in {AlterConfigOp.APPEND, AlterConfigOp.SUBTRACT}:
            row = TOPIC_CONFIGS.get(config.name)
            if row is None or not isinstance(row.kind, Words):
                return Refusal(
                    ErrorCode.INVALID_CONFIG,
                    f"{_listed([config.name])} is not a list: it can be set or deleted, not appended to",
                )
            present = wanted.get(config.name)
            wanted[config.name] = _edited(
                row.kind.write(row.default) if present is None else present, config.value or "", config.operation
            )
        else:
            return Refusal(
                ErrorCode.INVALID_REQUEST,
                f"operation {config.operation}: must be 0 set, 1 delete, 2 append, 3 subtract",
            )
    return _of_topic(resource.resource_name, wanted, own, settings)


def _edited(present: str, operand: str, operation: int) -> str:
    """Return a list with the words of `operand` added or removed. Each word is in it once."""
    values, others = [part for part in present.split(",") if part], operand.split(",")
    if operation == AlterConfigOp.APPEND:
        return ",".join(dict.fromkeys([*values, *others]))
    return ",".join(value for value in values if value not in others)


def _refuse(resource_type: int, names: Sequence[tuple[str, bool]]) -> Refusal | None:
    """Return what is wrong with a request by itself: repeated names, names without a value, unknown types."""
    repeated = [name for name, count in Counter(name for name, _ in names).items() if count > 1]
    if repeated:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{_listed(repeated)} named twice; each config once")
    nulls = [name for name, is_null in names if is_null]
    if nulls:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{_listed(nulls)} without a value; leave it out, or delete it")
    if resource_type in NOT_ALTERED:
        return Refusal(ErrorCode.INVALID_REQUEST, NOT_ALTERED[resource_type])
    return None if resource_type == ResourceType.TOPIC else unknown_type(resource_type)


def _listed(names: Sequence[str]) -> str:
    """Return names for a message, cut so that it fits into the string of an old version."""
    return ", ".join(name[:100] for name in names[:10])


def _of_topic(
    name: str, wanted: Mapping[str, str | None], own: Mapping[str, str] | None, settings: BrokerSettings
) -> dict[str, str] | Refusal:
    """Check in Kafka's order: the name of the topic, the configs, and only then whether the topic exists."""
    if not name:
        return Refusal(ErrorCode.INVALID_REQUEST, "a topic needs a name; there are no configs for all topics")
    if not is_legal_name(name):
        return illegal_name(name)
    kept = tidy(wanted, settings)
    if not isinstance(kept, Refusal) and own is None:
        return no_such_topic(name)
    return kept


class _Resource(Protocol):
    resource_type: int
    resource_name: str


R = TypeVar("R", bound=_Resource)
T = TypeVar("T")
ConfigsByTopic = Mapping[str, Mapping[str, str]]
ConfigChanges = dict[str, dict[str, str]]


def alter_all(
    request: alter_configs.Request, topics: ConfigsByTopic, settings: BrokerSettings
) -> tuple[alter_configs.Response, ConfigChanges]:
    """Return the response, and the new configs of each topic that is altered."""
    results, changes = _judge(
        request.resources, alter_configs.Result, topics, lambda resource, own: alter(resource, own, settings)
    )
    return alter_configs.Response(responses=results), {} if request.validate_only else changes


def incremental_alter_all(
    request: incremental_alter_configs.Request, topics: ConfigsByTopic, settings: BrokerSettings
) -> tuple[incremental_alter_configs.Response, ConfigChanges]:
    """Return the response, and the new configs of each topic that is altered."""
    results, changes = _judge(
        request.resources,
        incremental_alter_configs.Result,
        topics,
        lambda resource, own: incremental_alter(resource, own, settings),
    )
    return incremental_alter_configs.Response(responses=results), {} if request.validate_only else changes


def _judge(
    resources: Sequence[R],
    result: Callable[..., T],
    topics: ConfigsByTopic,
    rule: Callable[[R, Mapping[str, str] | None], dict[str, str] | Refusal],
) -> tuple[list[T], ConfigChanges]:
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    results, changes = [], {}
    for each in resources:
        found: dict[str, str] | Refusal = Refusal(ErrorCode.INVALID_REQUEST, "a request may name a resource once")
        if counts[each.resource_type, each.resource_name] == 1:
            found = rule(each, topics.get(each.resource_name) if each.resource_type == ResourceType.TOPIC else None)
        error, message = (ErrorCode.NONE, None)
        if isinstance(found, Refusal):
            error, message = found
        else:
            changes[each.resource_name] = found
        results.append(
            result(error=error, message=message, resource_type=each.resource_type, resource_name=each.resource_name)
        )
    return results, changes
