"""What AlterConfigs and IncrementalAlterConfigs do: pure rules on a topic's own configs, which are kept as tidy text.

`own` is what the topic has now, None if it is not there. The codes and the order of the checks are Kafka 4.3.1's; a
topic is all that can be altered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Protocol, TypeVar

from coterie.broker.handlers.refusals import Refusal, illegal_name, no_such_topic, unknown_type
from coterie.errors import ErrorCode
from coterie.protocol.api_values import ResourceType
from coterie.protocol.apis import alter_configs, incremental_alter_configs
from coterie.protocol.apis.incremental_alter_configs import AlterConfigOp
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Words
from coterie.settings.topic_configs import TOPIC_CONFIGS, effective
from coterie.storage.metadata_files import is_legal_name

__all__ = ["Changes", "Topics", "alter", "alter_all", "incremental_alter", "incremental_alter_all", "tidy"]

LONGEST = 10_000
"""Of a list, so that every version of DescribeConfigs can say it: old ones count a string's bytes in 16 bits."""

NOT_ALTERED: Mapping[int, str] = {
    ResourceType.BROKER: "the broker reads its settings when it starts: put them into its properties file, its "
    "environment or --set, and start it again",
    ResourceType.BROKER_LOGGER: "there are no loggers to set here",
    ResourceType.CLIENT_METRICS: "metrics of clients are not collected here",
    ResourceType.GROUP: "groups of the classic protocol have no configs: their members bring them",
}


def tidy(configs: Mapping[str, str | None], settings: BrokerSettings) -> dict[str, str] | Refusal:
    """A topic's configs as they are kept, or why they cannot be: of CreateTopics and of both ways to alter."""
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
    """All configs a topic has from now on: those not named go back to their defaults."""
    refusal = _refuse(resource.resource_type, [(config.name, config.value is None) for config in resource.configs])
    if refusal:
        return refusal
    wanted = {config.name: config.value for config in resource.configs}
    return _of_topic(resource.resource_name, wanted, own, settings)


def incremental_alter(
    resource: incremental_alter_configs.Resource, own: Mapping[str, str] | None, settings: BrokerSettings
) -> dict[str, str] | Refusal:
    """All configs a topic has from now on: those not named stay (KIP-339)."""
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
    """Lists start from Kafka's default, whatever the broker's is; each word is there once."""
    values, others = [part for part in present.split(",") if part], operand.split(",")
    if operation == AlterConfigOp.APPEND:
        return ",".join(dict.fromkeys([*values, *others]))
    return ",".join(value for value in values if value not in others)


def _refuse(resource_type: int, names: Sequence[tuple[str, bool]]) -> Refusal | None:
    """What is wrong with a request before anything is looked up: repeated names, names without a value, types."""
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
    """Cut, so that old versions can carry the message whatever a client calls things."""
    return ", ".join(name[:100] for name in names[:10])


def _of_topic(
    name: str, wanted: Mapping[str, str | None], own: Mapping[str, str] | None, settings: BrokerSettings
) -> dict[str, str] | Refusal:
    """Kafka's order: the topic's name, the configs, and only then whether there is such a topic."""
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
Topics = Mapping[str, Mapping[str, str]]
Changes = dict[str, dict[str, str]]


def alter_all(
    request: alter_configs.Request, topics: Topics, settings: BrokerSettings
) -> tuple[alter_configs.Response, Changes]:
    """The answer, and the new configs of each topic that gets any."""
    results, changes = _judge(
        request.resources, alter_configs.Result, topics, lambda resource, own: alter(resource, own, settings)
    )
    return alter_configs.Response(responses=results), {} if request.validate_only else changes


def incremental_alter_all(
    request: incremental_alter_configs.Request, topics: Topics, settings: BrokerSettings
) -> tuple[incremental_alter_configs.Response, Changes]:
    """The answer, and the new configs of each topic that gets any."""
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
    topics: Topics,
    rule: Callable[[R, Mapping[str, str] | None], dict[str, str] | Refusal],
) -> tuple[list[T], Changes]:
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
