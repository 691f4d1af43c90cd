"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs. The rules are in `broker/configs/`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from coterie.broker.calls import Call
from coterie.broker.configs.alter_configs import Changes, Topics, alter_all, incremental_alter_all
from coterie.broker.configs.describe_configs import describe
from coterie.broker.maintenance.directory_changes import Step
from coterie.protocol.api_values import ResourceType
from coterie.protocol.apis import alter_configs, describe_configs, incremental_alter_configs
from coterie.storage import LogError

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS"]


def _describe_configs(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = describe_configs.read_request(frame, at, call.version)
    results = []
    # Asked for twice is answered once: the answer is hundreds of times the size of the question.
    asked = {(one.resource_type, one.resource_name): one for one in request.resources}
    for resource in asked.values():
        topic = (
            node.directory.topics.get(resource.resource_name) if resource.resource_type == ResourceType.TOPIC else None
        )
        results.append(
            describe(
                resource,
                None if topic is None else topic.configs,
                node.settings,
                synonyms=request.include_synonyms,
                documentation=request.include_documentation,
            )
        )
    node.answer(call, describe_configs.Response(results=results))


def _alter_configs(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = alter_configs.read_request(frame, at, call.version)
    _alter(node, call, lambda own: alter_all(request, own, node.settings))


def _incremental_alter_configs(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = incremental_alter_configs.read_request(frame, at, call.version)
    _alter(node, call, lambda own: incremental_alter_all(request, own, node.settings))


def _alter(node: Node, call: Call, rule: Callable[[Topics], tuple[Any, Changes]]) -> None:
    """Judged in its turn, topic by topic in force when the disk has it, answered when the last of them is."""

    def judge(now_ms: int) -> Step | None:
        response, changes = rule({name: topic.configs for name, topic in node.directory.topics.items()})
        return _next(node, call, response, list(changes.items()), now_ms)

    node.changes.ask(call, judge)


def _next(node: Node, call: Call, response: Any, changes: list[tuple[str, dict[str, str]]], now_ms: int) -> Step | None:
    if not changes:
        node.answer(call, response)
        return None
    (name, configs), *others = changes

    def then(outcome: LogError | None, at_ms: int) -> Step | None:
        if outcome is not None:
            node.tell_trouble(str(outcome), at_ms)
            for result in response.responses:
                if result.resource_name == name:
                    result.error, result.message = outcome.code, str(outcome)
        return _next(node, call, response, others, at_ms)

    return Step(node.directory.set_configs(name, configs, node.cluster.wall.at(now_ms)), then)


HANDLERS = {
    describe_configs.API.key: _describe_configs,
    alter_configs.API.key: _alter_configs,
    incremental_alter_configs.API.key: _incremental_alter_configs,
}
