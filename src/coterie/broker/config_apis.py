"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs: the rules are in `configs.py` and `alter_configs.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.apis import alter_configs, describe_configs, incremental_alter_configs
from coterie.broker.alter_configs import alter_all, incremental_alter_all
from coterie.broker.calls import Call
from coterie.broker.configs import TOPIC, describe
from coterie.log import LogError

if TYPE_CHECKING:
    from coterie.broker.node import Node

__all__ = ["HANDLERS"]


def _describe_configs(node: Node, call: Call, frame: bytes, at: int, _now_ms: int) -> None:
    request = describe_configs.read_request(frame, at, call.version)
    results = []
    for resource in request.resources:
        topic = node.directory.topics.get(resource.resource_name) if resource.resource_type == TOPIC else None
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


def _alter_configs(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = alter_configs.read_request(frame, at, call.version)
    response, changes = alter_all(request, _own_configs(node), node.settings)
    _apply(node, response.responses, changes, now_ms)
    node.answer(call, response)


def _incremental_alter_configs(node: Node, call: Call, frame: bytes, at: int, now_ms: int) -> None:
    request = incremental_alter_configs.read_request(frame, at, call.version)
    response, changes = incremental_alter_all(request, _own_configs(node), node.settings)
    _apply(node, response.responses, changes, now_ms)
    node.answer(call, response)


def _own_configs(node: Node) -> dict[str, dict[str, str]]:
    return {name: topic.configs for name, topic in node.directory.topics.items()}


def _apply(node: Node, results: Any, changes: dict[str, dict[str, str]], now_ms: int) -> None:
    """In force at once, and kept."""
    for name, configs in changes.items():
        try:
            node.directory.set_configs(name, configs)
        except LogError as error:
            node.tell_trouble(str(error), now_ms)
            for result in results:
                if result.resource_name == name:
                    result.error, result.message = error.code, str(error)


HANDLERS = {
    describe_configs.API.key: _describe_configs,
    alter_configs.API.key: _alter_configs,
    incremental_alter_configs.API.key: _incremental_alter_configs,
}
