"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources.

The rules of the first three are in `broker/config_manager.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from coterie.broker.broker_effects import Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.calls import Call, Handler, Responses
from coterie.broker.config_manager import ConfigChanges, OwnConfigs, alter_all, describe, incremental_alter_all
from coterie.broker.handlers.refusals import CLUSTER_DENIED, Refusal
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.stored_configs import ClientMetricsConfigs, GroupConfigs, StoredConfigs
from coterie.broker.metadata_cache import MetadataCache
from coterie.broker.security.auth_helper import AuthHelper
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.acls import AclOperation, AclResourceType
from coterie.protocol.api import ResourceType
from coterie.protocol.apis import alter_configs, describe_configs, incremental_alter_configs, list_config_resources
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import DataDirectory, LogError
from coterie.structs import DataStruct, replace

__all__ = ["ConfigApis"]


class ConfigApis(DataStruct, frozen=True, eq=False):
    responses: Responses
    auth: AuthHelper
    directory: DataDirectory
    metadata: MetadataCache
    changes: Changes
    settings: BrokerSettings
    reporter: Reporter
    wall: WallClock
    data_path: Callable[[], str]
    group_configs: GroupConfigs
    client_metrics_configs: ClientMetricsConfigs

    def handlers(self) -> Mapping[int, Handler]:
        return {
            describe_configs.API.key: self._describe_configs,
            alter_configs.API.key: self._alter_configs,
            incremental_alter_configs.API.key: self._incremental_alter_configs,
            list_config_resources.API.key: self._list_config_resources,
        }

    def _describe_configs(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        request = describe_configs.read_request(frame, at, call.version)
        results = []
        # Asked for twice is answered once: the answer is hundreds of times the size of the question.
        asked = {(one.resource_type, one.resource_name): one for one in request.resources}
        for resource in asked.values():
            refusal = self._denial(call, AclOperation.DESCRIBE_CONFIGS, resource.resource_type, resource.resource_name)
            if refusal is not None:
                results.append(
                    describe_configs.Result(
                        error=refusal.error,
                        message=refusal.message,
                        resource_type=resource.resource_type,
                        resource_name=resource.resource_name,
                    )
                )
                continue
            is_topic = resource.resource_type == ResourceType.TOPIC
            results.append(
                describe(
                    resource,
                    self._own(resource.resource_type, resource.resource_name),
                    self.settings if is_topic else self._settings_in_effect(),
                    synonyms=request.include_synonyms,
                    documentation=request.include_documentation,
                )
            )
        return self.responses.answer(call, describe_configs.Response(results=results), now_ms)

    def _own(self, resource_type: int, name: str) -> Mapping[str, str] | None:
        """Return the configs that a resource has of its own; None if there can be none."""
        stored = self._stored.get(resource_type)
        if stored is not None:
            return stored.by_name.get(name, {})
        topic = self.directory.topics.get(name) if resource_type == ResourceType.TOPIC else None
        return None if topic is None else topic.configs

    @property
    def _stored(self) -> Mapping[int, StoredConfigs]:
        """The configs that are stored for other types of resources than topics."""
        return {ResourceType.GROUP: self.group_configs, ResourceType.CLIENT_METRICS: self.client_metrics_configs}

    def _settings_in_effect(self) -> BrokerSettings:
        """Return the settings of this node with its own id, addresses and directory, which options may have given."""
        node_id, metadata = self.settings.node_id, self.metadata
        advertised = [
            f"{name}://{host}:{port}" for name, nodes in metadata.endpoints.items() for host, port in [nodes[node_id]]
        ]
        own = {
            "node.id": node_id,
            "log.dirs": (self.data_path(),),
            "listeners": tuple(metadata.listeners.get(node_id, self.settings.listeners)),
            "advertised.listeners": tuple(advertised),
        }
        values: dict[str, Any] = {name.replace(".", "_"): value for name, value in own.items()}
        return replace(self.settings, **values, given={**self.settings.given, **dict.fromkeys(own, "the start")})

    def _alter_configs(self, call: Call, frame: bytes, at: int, _now_ms: int) -> Effects:
        request = alter_configs.read_request(frame, at, call.version)
        denial = partial(self._denial, call, AclOperation.ALTER_CONFIGS)
        return self._alter(call, lambda own: alter_all(request, own, self.settings, denial))

    def _incremental_alter_configs(self, call: Call, frame: bytes, at: int, _now_ms: int) -> Effects:
        request = incremental_alter_configs.read_request(frame, at, call.version)
        denial = partial(self._denial, call, AclOperation.ALTER_CONFIGS)
        return self._alter(call, lambda own: incremental_alter_all(request, own, self.settings, denial))

    def _denial(self, call: Call, operation: AclOperation, resource_type: int, name: str) -> Refusal | None:
        """Return the refusal if the client may not do this to the configs of a resource."""
        if resource_type == ResourceType.TOPIC:
            is_allowed = self.auth.authorize(call, operation, AclResourceType.TOPIC, name)
            refusal = Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed.")
        elif resource_type == ResourceType.GROUP:
            is_allowed = self.auth.authorize(call, operation, AclResourceType.GROUP, name)
            refusal = Refusal(ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed.")
        else:
            is_allowed = self.auth.authorize(call, operation, AclResourceType.CLUSTER)
            is_mute = resource_type == ResourceType.BROKER_LOGGER and operation is AclOperation.ALTER_CONFIGS
            refusal = CLUSTER_DENIED._replace(message="") if is_mute else CLUSTER_DENIED
        return None if is_allowed else refusal

    def _alter(self, call: Call, rule: Callable[[OwnConfigs], tuple[Any, ConfigChanges]]) -> Effects:
        """Judge the change in its turn. Configs are in force when the disk has them, then the next resource follows."""

        def judge(now_ms: int) -> Effects:
            response, changes = rule(self._own)
            return self._next(call, response, list(changes.items()), now_ms)

        self.changes.ask(call, judge)
        return []

    def _next(
        self, call: Call, response: Any, changes: list[tuple[tuple[int, str], dict[str, str]]], now_ms: int
    ) -> Effects:
        if not changes:
            return self.responses.answer(call, response, now_ms)
        (resource, configs), *others = changes

        def then(outcome: LogError | None, at_ms: int) -> Effects:
            effects: Effects = []
            if outcome is not None:
                effects.append(self.reporter.trouble(str(outcome), at_ms))
                for result in response.responses:
                    if (result.resource_type, result.resource_name) == resource:
                        result.error, result.message = outcome.code, str(outcome)
            return [*effects, *self._next(call, response, others, at_ms)]

        kind, name = resource
        stored = self._stored.get(kind)
        if stored is not None:
            return [Work(stored.replace(name, configs), then)]
        return [Work(self.directory.set_configs(name, configs, self.wall.at(now_ms)), then)]

    # --- ListConfigResources ------------------------------------------------------------------------------------------

    def _list_config_resources(self, call: Call, frame: bytes, at: int, now_ms: int) -> Effects:
        """List names in Kafka's order of types."""
        request = list_config_resources.read_request(frame, at, call.version)
        if not self.auth.authorize(call, AclOperation.DESCRIBE_CONFIGS, AclResourceType.CLUSTER):
            return self.responses.answer(call, list_config_resources.Response(error=CLUSTER_DENIED.error), now_ms)
        nodes = [str(number) for number in sorted(self.metadata.nodes_up)]
        names: Mapping[int, Iterable[str]] = {
            ResourceType.GROUP: sorted(self.group_configs.by_name),
            ResourceType.CLIENT_METRICS: sorted(self.client_metrics_configs.by_name),
            ResourceType.BROKER_LOGGER: nodes,
            ResourceType.BROKER: nodes,
            ResourceType.TOPIC: self.directory.topics,
        }
        # Version 0 asks for the client metrics alone.
        asked = set(request.resource_types or names) if call.version else {int(ResourceType.CLIENT_METRICS)}
        if not asked <= names.keys():
            response = list_config_resources.Response(error=ErrorCode.UNSUPPORTED_VERSION)
        else:
            response = list_config_resources.Response(
                config_resources=[
                    list_config_resources.ConfigResource(resource_name=name, resource_type=kind)
                    for kind, some in names.items()
                    if kind in asked
                    for name in some
                ]
            )
        return self.responses.answer(call, response, now_ms)
