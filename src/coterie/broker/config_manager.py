"""The rules of DescribeConfigs, AlterConfigs and IncrementalAlterConfigs, without I/O.

Codes, names, types, sources and the order of the checks are those of Kafka 4.3.1; the messages are ours. The configs of
topics, consumer groups and client metrics can be altered. `own` are the configs that a resource has of its own, None if
there is no such topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from itertools import dropwhile
from typing import NamedTuple, Protocol, TypeVar

from coterie.broker.client_metrics import CLIENT_METRICS, tidy_client_metrics
from coterie.broker.handlers.refusals import NAMELESS, Refusal, illegal_name, no_such_topic, unknown_type
from coterie.errors import ErrorCode
from coterie.protocol.api import ConfigSource, ResourceType
from coterie.protocol.apis import alter_configs, describe_configs, incremental_alter_configs
from coterie.protocol.apis.describe_configs import Config, Synonym
from coterie.protocol.apis.incremental_alter_configs import AlterConfigOp
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Secret, Words
from coterie.settings.topic_configs import LONGEST, TOPIC_CONFIGS, effective
from coterie.storage.metadata_files import is_legal_name

__all__ = [
    "ConfigChanges",
    "OwnConfigs",
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

    Those of consumer groups are the broker's settings, and can be altered for a group (K29). Those of share and streams
    groups have no effect, since there are none. They are returned because tools ask for them.
    """

    name: str
    value: str
    code: int
    behind: str
    doc: str


def _consumer(name: str) -> OtherConfig:
    """Return a config of consumer groups: its default and its help are those of the broker's setting."""
    behind = f"group.{name}"
    row = BrokerSettings.rows()[behind]
    return OtherConfig(name, row.kind.write(row.default), row.kind.code, behind, row.help)


def _group(name: str, value: str, code: int = _INT, behind: str | None = None) -> OtherConfig:
    doc = f"For {name.partition('.')[0]} groups, which are not supported."
    return OtherConfig(name, value, code, behind or f"group.{name}", doc)


GROUP_CONFIGS = (
    _consumer("consumer.assignment.interval.ms"),
    _consumer("consumer.heartbeat.interval.ms"),
    _consumer("consumer.session.timeout.ms"),
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

CLIENT_METRICS_CONFIGS = tuple(
    OtherConfig(name, row.default, row.kind.code, "", row.help) for name, row in CLIENT_METRICS.items()
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
            return _other_broker(name, settings)
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
        return NAMELESS
    return [
        _group_config(each, own or {}, settings) if each.name in ALTERED else _other_config(each, own or {})
        for each in tables[resource_type]
    ]


def _other_broker(name: str, settings: BrokerSettings) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, f"broker {name[:100]!r} is asked for; this is {settings.node_id}")


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
    is_sensitive = isinstance(row.kind, Secret)
    return Config(
        name=name,
        value=None if is_sensitive else row.text(settings[name]),
        read_only=True,
        is_sensitive=is_sensitive,
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
        Synonym(
            name=each,
            value=None if isinstance(rows[each].kind, Secret) else rows[each].text(value),
            source=source,
        )
        for each, value, source in (*started_with, *defaults)
    ]
    return list(dropwhile(lambda synonym: synonym.name != name, found))


def _group_config(config: OtherConfig, own: Mapping[str, str], settings: BrokerSettings) -> Config:
    """Return a config of a consumer group: its own value, or the broker's setting."""
    synonyms = _broker_synonyms(config.behind, settings)
    value = str(settings[config.behind])
    source = synonyms[0].source if synonyms else ConfigSource.DEFAULT
    if config.name in own:
        value, source = own[config.name], ConfigSource.GROUP
        synonyms.insert(0, Synonym(name=config.name, value=value, source=source))
    return Config(
        name=config.name,
        value=value,
        config_source=source,
        synonyms=synonyms,
        config_type=config.code,
        documentation=config.doc,
    )


def _other_config(config: OtherConfig, own: Mapping[str, str]) -> Config:
    """Return a config of client metrics, or one of a group that has no effect and is never set."""
    synonyms = [Synonym(name=config.behind, value=config.value, source=ConfigSource.DEFAULT)] if config.behind else []
    value = own.get(config.name, config.value)
    if config.name in own:
        synonyms.insert(0, Synonym(name=config.name, value=value, source=ConfigSource.CLIENT_METRICS))
    return Config(
        name=config.name,
        value=value,
        config_source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        synonyms=synonyms,
        config_type=config.code,
        documentation=config.doc,
    )


# --- altering ---------------------------------------------------------------------------------------------------------

Denial = Callable[[int, str], Refusal | None]
"""Returns the refusal if the client may not alter a resource, which it takes as type and name."""


def _allowed(_resource_type: int, _name: str) -> Refusal | None:
    return None


NOT_ALTERED: Mapping[int, str] = {
    ResourceType.BROKER: "the broker reads its settings when it starts: put them into its properties file, its "
    "environment or --set, and start it again",
    ResourceType.BROKER_LOGGER: "there are no loggers to set here",
}

STORED = frozenset({ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLIENT_METRICS})
"""The types of resources that can have configs of their own."""

ALTERED = ("consumer.assignment.interval.ms", "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")
"""The configs that a consumer group may have of its own."""


def tidy_group(name: str, configs: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str] | Refusal:
    """Return the configs of a group as they are stored, or why they are refused (K29)."""
    if not name:
        return NAMELESS
    kept = {}
    for config, text in configs.items():
        if config not in ALTERED:
            return Refusal(ErrorCode.INVALID_CONFIG, f"groups have no config {config[:100]!r} here")
        what = config.removeprefix("consumer.")
        least, most = (settings[f"group.consumer.{bound}.{what}"] for bound in ("min", "max"))
        try:
            value = int(text or "")
        except ValueError:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{config} cannot be {(text or '')[:100]!r}: it is a number")
        if not least <= value <= most:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{config} cannot be {value}: must be {least} to {most}")
        kept[config] = str(value)
    session, interval = (
        int(kept.get(f"consumer.{what}", settings[f"group.consumer.{what}"]))
        for what in ("session.timeout.ms", "heartbeat.interval.ms")
    )
    if session <= interval:
        return Refusal(ErrorCode.INVALID_CONFIG, "consumer.session.timeout.ms must be above the heartbeat interval")
    return kept


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
    resource: alter_configs.Resource,
    own: Mapping[str, str] | None,
    settings: BrokerSettings,
    denial: Denial = _allowed,
) -> dict[str, str] | Refusal:
    """Return all configs that a topic then has. Those that are not named go back to their defaults."""
    nulls = [(config.name, config.value is None) for config in resource.configs]
    refusal = _refuse(resource, nulls, settings, denial, sets=bool(resource.configs))
    wanted: dict[str, str | None] = {config.name: config.value for config in resource.configs}
    if refusal or resource.resource_type not in STORED:
        return refusal or {}
    return _tidied(resource, wanted, own, settings)


def incremental_alter(
    resource: incremental_alter_configs.Resource,
    own: Mapping[str, str] | None,
    settings: BrokerSettings,
    denial: Denial = _allowed,
) -> dict[str, str] | Refusal:
    """Return all configs that a topic then has. Those that are not named stay (KIP-339)."""
    nulls = [
        (config.name, config.value is None and config.operation != AlterConfigOp.DELETE) for config in resource.configs
    ]
    sets = any(config.operation != AlterConfigOp.DELETE for config in resource.configs)
    refusal = _refuse(resource, nulls, settings, denial, sets=sets)
    if refusal or resource.resource_type not in STORED:
        return refusal or {}
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
    return _tidied(resource, wanted, own, settings)


def _tidied(
    resource: _Resource, wanted: Mapping[str, str | None], own: Mapping[str, str] | None, settings: BrokerSettings
) -> dict[str, str] | Refusal:
    """Return the configs of a resource as they are stored, or why they are refused."""
    name = resource.resource_name
    if resource.resource_type == ResourceType.GROUP:
        return tidy_group(name, wanted, settings)
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        return tidy_client_metrics(name, wanted)
    return _of_topic(name, wanted, own, settings)


def _edited(present: str, operand: str, operation: int) -> str:
    """Return a list with the words of `operand` added or removed. Each word is in it once."""
    values, others = [part for part in present.split(",") if part], operand.split(",")
    if operation == AlterConfigOp.APPEND:
        return ",".join(dict.fromkeys([*values, *others]))
    return ",".join(value for value in values if value not in others)


def _refuse(
    resource: _Resource, names: Sequence[tuple[str, bool]], settings: BrokerSettings, denial: Denial, *, sets: bool
) -> Refusal | None:
    """Return what is wrong with a request by itself: repeated names, names without a value, unknown types.

    As in Kafka, some of that comes before what the client may do. Brokers have no configs that can be set, so to delete
    some is no error.
    """
    repeated = [name for name, count in Counter(name for name, _ in names).items() if count > 1]
    if repeated:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{_listed(repeated)} named twice; each config once")
    nulls = [name for name, is_null in names if is_null]
    if nulls:
        return Refusal(ErrorCode.INVALID_REQUEST, f"{_listed(nulls)} without a value; leave it out, or delete it")
    kind, name = resource.resource_type, resource.resource_name
    denied = denial(kind, name)
    if denied is not None:
        return denied
    if kind not in NOT_ALTERED:
        return None if kind in STORED else unknown_type(kind)
    if sets or kind == ResourceType.BROKER_LOGGER:
        return Refusal(ErrorCode.INVALID_REQUEST, NOT_ALTERED[kind])
    return None if name in {"", str(settings.node_id)} else _other_broker(name, settings)


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
OwnConfigs = Callable[[int, str], Mapping[str, str] | None]
"""Returns the configs that a resource has of its own, by type and name."""
ConfigChanges = dict[tuple[int, str], dict[str, str]]


def alter_all(
    request: alter_configs.Request, own_of: OwnConfigs, settings: BrokerSettings, denial: Denial = _allowed
) -> tuple[alter_configs.Response, ConfigChanges]:
    """Return the response, and the new configs of each resource that is altered."""
    results, changes = _judge(
        request.resources, alter_configs.Result, own_of, lambda resource, own: alter(resource, own, settings, denial)
    )
    return alter_configs.Response(responses=results), {} if request.validate_only else changes


def incremental_alter_all(
    request: incremental_alter_configs.Request,
    own_of: OwnConfigs,
    settings: BrokerSettings,
    denial: Denial = _allowed,
) -> tuple[incremental_alter_configs.Response, ConfigChanges]:
    """Return the response, and the new configs of each resource that is altered."""
    results, changes = _judge(
        request.resources,
        incremental_alter_configs.Result,
        own_of,
        lambda resource, own: incremental_alter(resource, own, settings, denial),
    )
    return incremental_alter_configs.Response(responses=results), {} if request.validate_only else changes


def _judge(
    resources: Sequence[R],
    result: Callable[..., T],
    own_of: OwnConfigs,
    rule: Callable[[R, Mapping[str, str] | None], dict[str, str] | Refusal],
) -> tuple[list[T], ConfigChanges]:
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    results, changes = [], {}
    for each in resources:
        found: dict[str, str] | Refusal = Refusal(ErrorCode.INVALID_REQUEST, "a request may name a resource once")
        if counts[each.resource_type, each.resource_name] == 1:
            found = rule(each, own_of(each.resource_type, each.resource_name))
        error, message = (ErrorCode.NONE, None)
        if isinstance(found, Refusal):
            error, message = found.error, found.message or None
        elif each.resource_type == ResourceType.TOPIC or (
            each.resource_type in STORED and found != own_of(each.resource_type, each.resource_name)
        ):
            changes[each.resource_type, each.resource_name] = found
        results.append(
            result(error=error, message=message, resource_type=each.resource_type, resource_name=each.resource_name)
        )
    return results, changes
