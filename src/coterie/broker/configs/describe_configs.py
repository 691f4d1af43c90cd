"""What DescribeConfigs answers: the configs of topics, the settings of the broker, and where each comes from.

The codes, names, types and sources are those of Kafka 4.3.1; the sentences are ours. How a topic's configs change is in
`alter_configs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import dropwhile
from typing import NamedTuple

from coterie.broker.handlers.refusals import Refusal, illegal_name, no_such_topic, unknown_type
from coterie.errors import ErrorCode
from coterie.protocol.api_values import ConfigSource, ResourceType
from coterie.protocol.apis import describe_configs
from coterie.protocol.apis.describe_configs import Config, Synonym
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.topic_configs import TOPIC_CONFIGS, effective
from coterie.storage.metadata_files import is_legal_name

__all__ = ["describe"]


# What Kafka 4.3.1 says of a group and of a client metrics subscription nobody has configured.
#
# None of it means anything here: groups are of the classic protocol, and metrics of clients are not collected. It is
# said because tools ask for it and show what they get.

_STRING, _INT, _BOOLEAN, _LIST = 2, 3, 1, 7


class OtherConfig(NamedTuple):
    name: str
    value: str
    code: int
    behind: str
    doc: str


def _group(name: str, value: str, code: int = _INT, behind: str | None = None) -> OtherConfig:
    protocol = name.partition(".")[0]
    return OtherConfig(name, value, code, behind or f"group.{name}", f"For {protocol} groups, which are not here yet.")


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
    """`own` are the configs a topic has of its own, None if it is not there; other resources have none."""
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
    """Kafka's order, and its habit: what comes before the name itself is left out.

    So a topic's retention.ms that comes from log.retention.hours has no synonyms, and says it is a default.
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
