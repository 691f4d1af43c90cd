"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs. The rules are in `broker/config_manager.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.config_manager import ConfigChanges, ConfigsByTopic, alter_all, describe, incremental_alter_all
from coterie.broker.maintenance.directory_changes import Changes
from coterie.coordinator.classic.wall_clock import WallClock
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import alter_configs, describe_configs, incremental_alter_configs
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DataDirectory, LogError

__all__ = ["ConfigApis"]


@dataclass(frozen=True, slots=True, eq=False)
class ConfigApis:
    responses: Responses
    directory: DataDirectory
    changes: Changes
    settings: BrokerSettings
    reporter: Reporter
    wall: WallClock

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_configs.API.key: self._describe_configs,
            alter_configs.API.key: self._alter_configs,
            incremental_alter_configs.API.key: self._incremental_alter_configs,
        }

    def _describe_configs(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_configs.read_request(frame, at, call.version)
        results = []
        # Asked for twice is answered once: the answer is hundreds of times the size of the question.
        asked = {(one.resource_type, one.resource_name): one for one in request.resources}
        for resource in asked.values():
            is_topic = resource.resource_type == ResourceType.TOPIC
            topic = self.directory.topics.get(resource.resource_name) if is_topic else None
            results.append(
                describe(
                    resource,
                    None if topic is None else topic.configs,
                    self.settings,
                    synonyms=request.include_synonyms,
                    documentation=request.include_documentation,
                )
            )
        return self.responses.answer(call, describe_configs.Response(results=results), now_ms)

    def _alter_configs(self, call: Call, frame: bytes, at: int, _now_ms: int) -> Effects:
        request = alter_configs.read_request(frame, at, call.version)
        return self._alter(call, lambda own: alter_all(request, own, self.settings))

    def _incremental_alter_configs(self, call: Call, frame: bytes, at: int, _now_ms: int) -> Effects:
        request = incremental_alter_configs.read_request(frame, at, call.version)
        return self._alter(call, lambda own: incremental_alter_all(request, own, self.settings))

    def _alter(self, call: Call, rule: Callable[[ConfigsByTopic], tuple[Any, ConfigChanges]]) -> Effects:
        """Judge the change in its turn. A topic's configs are in force when the disk has them, then the next topic."""

        def judge(now_ms: int) -> Effects:
            response, changes = rule({name: topic.configs for name, topic in self.directory.topics.items()})
            return self._next(call, response, list(changes.items()), now_ms)

        self.changes.ask(call, judge)
        return []

    def _next(self, call: Call, response: Any, changes: list[tuple[str, dict[str, str]]], now_ms: int) -> Effects:
        if not changes:
            return self.responses.answer(call, response, now_ms)
        (name, configs), *others = changes

        def then(outcome: LogError | None, at_ms: int) -> Effects:
            effects: Effects = []
            if outcome is not None:
                effects.append(self.reporter.trouble(str(outcome), at_ms))
                for result in response.responses:
                    if result.resource_name == name:
                        result.error, result.message = outcome.code, str(outcome)
            return [*effects, *self._next(call, response, others, at_ms)]

        return [Work(self.directory.set_configs(name, configs, self.wall.at(now_ms)), then)]
