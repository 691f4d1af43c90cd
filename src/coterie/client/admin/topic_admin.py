"""Topics, their configs and records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

from coterie.client.admin.admin_types import (
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ListedOffset,
    NewTopic,
    PartitionDescription,
    ResourceType,
    TopicCreated,
    TopicDescription,
    TopicListing,
)
from coterie.client.admin.results import FOR_PARTITIONS, FOR_TOPICS, ask_controller, by_node, by_topic, each, failure
from coterie.client.arguments import (
    ByPartition,
    all_of,
    by_partition,
    config_text_of,
    configs_of,
    name_of,
    names_of,
    nodes_of,
    number_of,
    offsets_of,
    time_of,
    topic_of,
)
from coterie.client.network.metadata import Node, TopicMetadata
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import TopicPartition
from coterie.errors import IllegalArgumentError, KafkaError
from coterie.protocol.api import READ_COMMITTED, READ_UNCOMMITTED
from coterie.protocol.apis import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_offsets,
)

T = TypeVar("T")
ALL_RECORDS = -1
MAX_REPLICATION_FACTOR = 2**15 - 1
SPECIAL_TIMES = frozenset(range(-6, 0))
"""Earliest, latest and others, which a broker may know or not."""


class TopicsAdmin:
    _cluster: NetworkClient

    # --- topics -------------------------------------------------------------------------------------------------------

    async def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        """List all topics by name.

        Args:
            include_internal: Also list internal topics, such as `__consumer_offsets`.

        Returns:
            The topics.

        Raises:
            KafkaError: The cluster could not be reached in time.
        """
        known = await self._cluster.refresh(None)
        return [
            TopicListing(topic.name, topic.id, topic.is_internal)
            for _, topic in sorted(known.topics.items())
            if include_internal or not topic.is_internal
        ]

    async def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription | KafkaError]:
        """Describe topics: their partitions, leaders and replicas.

        Args:
            names: The names of the topics.

        Returns:
            A description of each topic, or the error it met.
        """
        names = names_of(names, "topic")

        async def ask(left: Sequence[str]) -> dict[str, TopicDescription | KafkaError]:
            known = await self._cluster.refresh(left)
            return {name: _described(known.topics[name], known.nodes) for name in left if name in known.topics}

        return await each(self._cluster, names, ask, what=lambda name: f'topic "{name}"', again=FOR_PARTITIONS)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicCreated | KafkaError]:
        """Create topics.

        Args:
            topics: The topics to create.
            validate_only: Only check whether it would work.

        Returns:
            The created topic for each name, or its error.

        Raises:
            InvalidTopicError: No topic can have such a name; none is created.
        """
        wanted = {topic_of(topic.name): _new_topic(topic) for topic in all_of(topics, NewTopic, '[NewTopic("orders")]')}

        async def ask(left: Sequence[str]) -> dict[str, TopicCreated | KafkaError]:
            request = create_topics.Request(
                topics=[wanted[name] for name in left],
                timeout_ms=self._cluster.settings.request_timeout_ms,
                validate_only=validate_only,
            )
            response: create_topics.Response = await ask_controller(self._cluster, create_topics, request)
            return {
                made.name: KafkaError.of(made.error, f'creating topic "{made.name}"', made.message)
                if made.error
                else TopicCreated(made.name, made.topic_id, made.num_partitions, made.replication_factor)
                for made in response.topics
            }

        return await each(self._cluster, wanted, ask, what=lambda name: f'creating topic "{name}"', again=FOR_TOPICS)

    async def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError | None]:
        """Delete topics and all their records.

        Args:
            names: The names of the topics.

        Returns:
            None for each topic that is deleted, or the error it met.
        """
        names = names_of(names, "topic")

        async def ask(left: Sequence[str]) -> dict[str, KafkaError | None]:
            request = delete_topics.Request(
                topics=[delete_topics.Topic(name=name) for name in left],
                timeout_ms=self._cluster.settings.request_timeout_ms,
            )
            response: delete_topics.Response = await ask_controller(self._cluster, delete_topics, request)
            return {
                gone.name: failure(gone.error, f'deleting topic "{gone.name}"', gone.message)
                for gone in response.responses
                if gone.name is not None
            }

        return await each(self._cluster, names, ask, what=lambda name: f'deleting topic "{name}"', again=FOR_TOPICS)

    async def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Add partitions to topics.

        Args:
            totals: For each topic how many partitions it is to have then. There can only be more.
            validate_only: Only check whether it would work.

        Returns:
            None for each topic that has them, or the error it met.
        """
        if not isinstance(totals, Mapping) or not all(isinstance(total, int) for total in totals.values()):
            raise IllegalArgumentError(
                f'{totals!r} does not say how many partitions a topic gets: give {{"orders": 6}}'
            )
        for name in names_of(totals, "topic"):
            number_of(totals[name], f'the number of partitions of topic "{name}"')

        async def ask(left: Sequence[str]) -> dict[str, KafkaError | None]:
            request = create_partitions.Request(
                topics=[create_partitions.Topic(name=name, count=totals[name]) for name in left],
                timeout_ms=self._cluster.settings.request_timeout_ms,
                validate_only=validate_only,
            )
            response: create_partitions.Response = await ask_controller(self._cluster, create_partitions, request)
            return {
                grown.name: failure(grown.error, f'adding partitions to topic "{grown.name}"', grown.message)
                for grown in response.results
            }

        return await each(
            self._cluster, totals, ask, what=lambda name: f'adding partitions to topic "{name}"', again=FOR_TOPICS
        )

    # --- records ------------------------------------------------------------------------------------------------------

    async def delete_records(self, before: ByPartition[int]) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records below an offset.

        Args:
            before: For each partition the first offset to keep; -1 deletes all records.

        Returns:
            The first offset that is left in each partition, or the error it met.
        """
        ends = by_partition(before, "offset")
        offsets_of({one: offset for one, offset in ends.items() if offset != ALL_RECORDS})

        async def ask(node_id: int, left: Sequence[TopicPartition]) -> dict[TopicPartition, int | KafkaError]:
            topics = [
                delete_records.Topic(
                    name=name,
                    partitions=[delete_records.Partition(partition=p.partition, offset=ends[p]) for p in its],
                )
                for name, its in by_topic(left)
            ]
            request = delete_records.Request(topics=topics, timeout_ms=self._cluster.settings.request_timeout_ms)
            response: delete_records.Response = await self._cluster.send(node_id, delete_records, request)
            return {
                TopicPartition(topic.name, p.partition): KafkaError.of(
                    p.error, f"deleting records of {topic.name}-{p.partition}"
                )
                if p.error
                else p.low_watermark
                for topic in response.topics
                for p in topic.partitions
            }

        return await each(
            self._cluster,
            ends,
            lambda left: self._at_leaders(left, ask),
            what=lambda tp: f"deleting records of {tp}",
            again=FOR_PARTITIONS,
        )

    async def list_offsets(
        self, wanted: ByPartition[int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Look up offsets by time.

        Args:
            wanted: For each partition `EARLIEST`, `LATEST`, `MAX_TIMESTAMP`, or a time in milliseconds since 1970,
                which finds the first record that is not older.
            read_committed: `LATEST` is where the first open transaction begins.

        Returns:
            Offset, time and leader epoch for each partition, or the error it met.
        """
        times = by_partition(wanted, "time")
        for one, timestamp in times.items():
            if timestamp not in SPECIAL_TIMES:
                time_of(timestamp, one)

        async def ask(node_id: int, left: Sequence[TopicPartition]) -> dict[TopicPartition, ListedOffset | KafkaError]:
            topics = [
                list_offsets.Topic(
                    name=name,
                    partitions=[list_offsets.Partition(partition=p.partition, timestamp=times[p]) for p in its],
                )
                for name, its in by_topic(left)
            ]
            level = READ_COMMITTED if read_committed else READ_UNCOMMITTED
            timeout_ms = self._cluster.settings.request_timeout_ms
            request = list_offsets.Request(isolation_level=level, topics=topics, timeout_ms=timeout_ms)
            response: list_offsets.Response = await self._cluster.send(node_id, list_offsets, request)
            return {
                TopicPartition(topic.name, p.partition): KafkaError.of(
                    p.error, f"asking for offsets of {topic.name}-{p.partition}"
                )
                if p.error
                else ListedOffset(p.offset, p.timestamp, p.leader_epoch)
                for topic in response.topics
                for p in topic.partitions
            }

        return await each(
            self._cluster,
            times,
            lambda left: self._at_leaders(left, ask),
            what=lambda tp: f"asking for offsets of {tp}",
            again=FOR_PARTITIONS,
        )

    async def _at_leaders(
        self,
        partitions: Sequence[TopicPartition],
        ask: Callable[[int, Sequence[TopicPartition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]],
    ) -> dict[TopicPartition, T | KafkaError]:
        """Ask the leader of each partition, after one request for the metadata of unknown topics."""
        unknown = {tp.topic for tp in partitions if not self._cluster.knows(tp.topic)}
        if unknown:
            await self._cluster.refresh(unknown)
        return await by_node(partitions, lambda tp: self._cluster.leader(*tp), ask)

    # --- configs ------------------------------------------------------------------------------------------------------

    async def describe_configs(
        self, resources: Collection[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Describe the configs of topics and brokers.

        Args:
            resources: Whose configs, as `ConfigResource.topic("orders")`.

        Returns:
            The configs of each resource by name, or the error it met.
        """
        wanted = _resources_of(resources, '[ConfigResource.topic("orders")]')

        async def ask(
            node_id: int, left: Sequence[ConfigResource]
        ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
            request = describe_configs.Request(
                resources=[describe_configs.Resource(resource_type=kind, resource_name=name) for kind, name in left]
            )
            response: describe_configs.Response = await self._cluster.send(node_id, describe_configs, request)
            return {
                _resource(found): KafkaError.of(found.error, f"configs of {_resource(found)}", found.message)
                if found.error
                else {config.name: _config(config) for config in found.configs}
                for found in response.results
            }

        return await each(
            self._cluster,
            wanted,
            lambda left: by_node(left, self._keeper, ask),
            what=lambda resource: f"configs of {resource}",
            again=FOR_PARTITIONS,
        )

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change configs; those that are not named stay as they are (KIP-339).

        Args:
            changes: For each resource what to change.
            validate_only: Only check whether it would work.

        Returns:
            None for each resource that is changed, or the error it met.
        """
        example = '{ConfigResource.topic("orders"): [ConfigChange("retention.ms", "1000")]}'
        if not isinstance(changes, Mapping):
            raise IllegalArgumentError(f"{changes!r} does not say what changes where: give {example}")
        for resource in _resources_of(changes, example):
            for change in all_of(changes[resource], ConfigChange, example):
                config_text_of(change.name, "name", str(resource))
                if change.value is not None:
                    config_text_of(change.value, f"value of {change.name}", str(resource))

        async def ask(node_id: int, left: Sequence[ConfigResource]) -> dict[ConfigResource, KafkaError | None]:
            resources = [
                incremental_alter_configs.Resource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        incremental_alter_configs.Config(
                            name=change.name, operation=change.operation, value=change.value
                        )
                        for change in changes[resource]
                    ],
                )
                for resource in left
            ]
            request = incremental_alter_configs.Request(resources=resources, validate_only=validate_only)
            response: incremental_alter_configs.Response = await self._cluster.send(
                node_id, incremental_alter_configs, request
            )
            return {
                _resource(one): failure(one.error, f"changing configs of {_resource(one)}", one.message)
                for one in response.responses
            }

        return await each(
            self._cluster,
            changes,
            lambda left: by_node(left, self._keeper, ask),
            what=lambda resource: f"changing configs of {resource}",
            again=FOR_TOPICS,
        )

    async def _keeper(self, resource: ConfigResource) -> int:
        """A broker knows its own configs; those of the others any broker does, the controller for one."""
        if resource.type in {ResourceType.BROKER, ResourceType.BROKER_LOGGER} and resource.name.isdigit():
            return int(resource.name)
        return await self._cluster.controller()


def _resources_of(many: Collection[ConfigResource], example: str) -> list[ConfigResource]:
    found = all_of(many, ConfigResource, example)
    for one in found:
        name_of(one.name, "resource")
    return found


def _new_topic(topic: NewTopic) -> create_topics.NewTopic:
    what = f'topic "{topic.name}"'
    return create_topics.NewTopic(
        name=topic.name,
        num_partitions=number_of(topic.partitions, f"the number of partitions of {what}"),
        replication_factor=number_of(
            topic.replication_factor, f"the replication factor of {what}", least=-(2**15), most=MAX_REPLICATION_FACTOR
        ),
        assignments=_assignments(topic.replicas or {}, what),
        configs=[
            create_topics.Config(name=name, value=value) for name, value in configs_of(topic.configs, what).items()
        ],
    )


def _assignments(replicas: Mapping[int, Sequence[int]], what: str) -> list[create_topics.Assignment]:
    example = "{0: [1, 2], 1: [2, 1]}"
    if not isinstance(replicas, Mapping):
        raise IllegalArgumentError(f"{what} has the replicas {replicas!r}: give {example}")
    return [
        create_topics.Assignment(
            partition=number_of(partition, f"a partition of {what}"), broker_ids=nodes_of(nodes, example)
        )
        for partition, nodes in replicas.items()
    ]


def _described(topic: TopicMetadata, nodes: Mapping[int, Node]) -> TopicDescription | KafkaError:
    if topic.error:
        return KafkaError.of(topic.error, f'topic "{topic.name}"')
    partitions = [
        PartitionDescription(
            number, nodes.get(p.leader), p.leader_epoch, tuple(p.replicas), tuple(p.isr), tuple(p.offline)
        )
        for number, p in topic.partitions.items()
    ]
    return TopicDescription(topic.name, topic.id, topic.is_internal, tuple(partitions))


def _resource(found: describe_configs.Result | incremental_alter_configs.Result) -> ConfigResource:
    return ConfigResource(ResourceType(found.resource_type), found.resource_name)


def _config(config: describe_configs.Config) -> ConfigEntry:
    source = ConfigSource(config.config_source)
    return ConfigEntry(config.name, config.value, source, config.read_only, config.is_sensitive)
