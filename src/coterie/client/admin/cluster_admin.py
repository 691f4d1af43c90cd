"""The cluster: its brokers, their log directories, who leads what, and its controllers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from coterie.client.admin.admin_types import (
    ClusterDescription,
    ConfigResource,
    ElectionType,
    LogDirectory,
    PartitionReassignment,
    QuorumInfo,
    QuorumReplica,
    ResourceType,
    TopicPartitionReplica,
)
from coterie.client.admin.results import FOR_PARTITIONS, FOR_TOPICS, ask_controller, by_node, by_topic, each, failure
from coterie.client.arguments import (
    ByPartition,
    PartitionLike,
    all_of,
    by_partition,
    nodes_of,
    partition_of,
    partitions_of,
)
from coterie.client.network.metadata import Node
from coterie.client.network.network_client import NetworkClient
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode, IllegalArgumentError, KafkaError
from coterie.protocol.apis import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_config_resources,
    list_partition_reassignments,
)


class ClusterAdmin:
    _cluster: NetworkClient

    # --- brokers and log directories ----------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        """Describe the cluster: its id, its controller and its brokers.

        Returns:
            The description.

        Raises:
            KafkaError: The cluster could not be reached in time.
        """

        async def attempt() -> ClusterDescription:
            response: describe_cluster.Response = await self._cluster.send(
                None, describe_cluster, describe_cluster.Request()
            )
            if response.error:
                raise KafkaError.of(response.error, "describing the cluster", response.message)
            nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
            ordered = tuple(node for _, node in sorted(nodes.items()))
            return ClusterDescription(response.cluster_id, nodes.get(response.controller_id), ordered)

        return await self._cluster.retry(attempt, what="describing the cluster")

    async def describe_log_dirs(
        self, node_ids: Collection[int] | None = None
    ) -> dict[int, list[LogDirectory] | KafkaError]:
        """Describe the log directories of brokers, with the size of each replica.

        Args:
            node_ids: The ids of the brokers; all of them if they are not given.

        Returns:
            The log directories of each broker, or the error it met.
        """
        wanted = nodes_of(node_ids, "[1, 2]") if node_ids is not None else [*(await self._cluster.refresh()).nodes]

        async def ask_one(node_id: int, _: Sequence[int]) -> dict[int, list[LogDirectory] | KafkaError]:
            response: describe_log_dirs.Response = await self._cluster.send(
                node_id, describe_log_dirs, describe_log_dirs.Request()
            )
            error = response.error or next((found.error for found in response.results if found.error), ErrorCode.NONE)
            if error:
                return {node_id: KafkaError.of(error, f"log directories of node {node_id}")}
            return {node_id: [_log_directory(found) for found in response.results]}

        async def itself(node_id: int) -> int:
            return node_id

        return await each(
            self._cluster,
            wanted,
            lambda left: by_node(left, itself, ask_one),
            what=lambda node_id: f"log directories of node {node_id}",
            again=FOR_PARTITIONS,
        )

    async def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str] | Mapping[tuple[str, int, int], str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Move replicas to other log directories of their brokers.

        Args:
            paths: For each replica the path of a log directory that its broker has.

        Returns:
            None for each replica that is or will be there, or the error it met.
        """
        example = '{TopicPartitionReplica("orders", 0, node_id=1): "/data/2"}'
        if not isinstance(paths, Mapping) or not all(isinstance(path, str) for path in paths.values()):
            raise IllegalArgumentError(f"{paths!r} does not say which replica goes where: give {example}")
        wanted = {_replica(one): path for one, path in paths.items()}

        async def ask(
            node_id: int, left: Sequence[TopicPartitionReplica]
        ) -> dict[TopicPartitionReplica, KafkaError | None]:
            directories: dict[str, list[TopicPartition]] = {}
            for topic, partition, _ in left:
                directories.setdefault(wanted[TopicPartitionReplica(topic, partition, node_id)], []).append(
                    TopicPartition(topic, partition)
                )
            request = alter_replica_log_dirs.Request(
                dirs=[
                    alter_replica_log_dirs.LogDir(
                        path=path,
                        topics=[
                            alter_replica_log_dirs.Topic(name=name, partitions=[one.partition for one in its])
                            for name, its in by_topic(partitions)
                        ],
                    )
                    for path, partitions in directories.items()
                ]
            )
            response: alter_replica_log_dirs.Response = await self._cluster.send(
                node_id, alter_replica_log_dirs, request
            )
            return {
                (one := TopicPartitionReplica(topic.topic, answer.partition, node_id)): failure(
                    answer.error, f"moving {one}"
                )
                for topic in response.results
                for answer in topic.partitions
            }

        async def its_node(replica: TopicPartitionReplica) -> int:
            return replica.node_id

        return await each(
            self._cluster,
            wanted,
            lambda left: by_node(left, its_node, ask),
            what=lambda replica: f"moving {replica}",
            again=FOR_TOPICS,
        )

    # --- who has and leads what ---------------------------------------------------------------------------------------

    async def alter_partition_reassignments(
        self,
        reassignments: ByPartition[Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Give partitions replicas on other brokers.

        Kafka copies them in the background: `list_partition_reassignments` has those that are under way. The nodes of
        a Coterie broker share the log, so a partition has moved when this returns.

        Args:
            reassignments: For each partition the ids of the brokers, the preferred leader first; None cancels the
                reassignment that is under way.
            allow_replication_factor_change: Whether there may be more or fewer replicas than before.

        Returns:
            None for each partition whose reassignment has begun, or the error it met.
        """
        wanted = by_partition(reassignments, "list of brokers")
        for tp, replicas in wanted.items():
            if replicas is not None:
                nodes_of(replicas, f'{{("{tp.topic}", {tp.partition}): [1, 2]}}')

        async def ask(left: Sequence[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
            request = alter_partition_reassignments.Request(
                timeout_ms=self._cluster.settings.request_timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=[
                    alter_partition_reassignments.Topic(
                        name=name,
                        partitions=[
                            alter_partition_reassignments.Partition(partition=one.partition, replicas=wanted[one])
                            for one in its
                        ],
                    )
                    for name, its in by_topic(left)
                ],
            )
            response: alter_partition_reassignments.Response = await ask_controller(
                self._cluster, alter_partition_reassignments, request
            )
            if response.error:
                raise KafkaError.of(response.error, "reassigning partitions", response.message)
            return {
                (one := TopicPartition(topic.name, answer.partition)): failure(
                    answer.error, f"reassigning {one}", answer.message
                )
                for topic in response.responses
                for answer in topic.partitions
            }

        return await each(self._cluster, wanted, ask, what=lambda tp: f"reassigning {tp}", again=FOR_TOPICS)

    async def list_partition_reassignments(
        self, partitions: Collection[PartitionLike] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """List the reassignments that are under way.

        Args:
            partitions: Of these partitions; of all if they are not given.

        Returns:
            The reassignments by partition. A partition that stays where it is has none.

        Raises:
            KafkaError: The cluster could not be reached in time, or refused.
        """
        wanted = None if partitions is None else by_topic(partitions_of(partitions))
        topics = (
            None
            if wanted is None
            else [
                list_partition_reassignments.Topic(name=name, partitions=[one.partition for one in its])
                for name, its in wanted
            ]
        )

        async def attempt() -> dict[TopicPartition, PartitionReassignment]:
            request = list_partition_reassignments.Request(
                timeout_ms=self._cluster.settings.request_timeout_ms, topics=topics
            )
            response: list_partition_reassignments.Response = await ask_controller(
                self._cluster, list_partition_reassignments, request
            )
            if response.error:
                raise KafkaError.of(response.error, "listing reassignments", response.message)
            return {
                TopicPartition(topic.name, one.partition): PartitionReassignment(
                    tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
                )
                for topic in response.topics
                for one in topic.partitions
            }

        return await self._cluster.retry(attempt, what="listing reassignments")

    async def elect_leaders(
        self,
        partitions: Collection[PartitionLike] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of partitions.

        Args:
            partitions: Of these partitions; of all that need it if they are not given.
            election_type: PREFERRED makes the first replica the leader; UNCLEAN elects a leader where there is none,
                of the replicas that are not in sync, so that records may be lost.

        Returns:
            None for each partition that has a new leader, or the error it met, which is ELECTION_NOT_NEEDED if it
            has the right one.

        Raises:
            KafkaError: All partitions were asked for, and the cluster could not be reached in time, or refused.
        """
        if election_type not in set(ElectionType):
            raise IllegalArgumentError(f"{election_type!r} is not a type of elections: give ElectionType.PREFERRED")

        async def ask(left: Sequence[TopicPartition] | None) -> dict[TopicPartition, KafkaError | None]:
            request = elect_leaders.Request(
                election_type=election_type,
                topic_partitions=None
                if left is None
                else [
                    elect_leaders.Topic(topic=name, partitions=[one.partition for one in its])
                    for name, its in by_topic(left)
                ],
                timeout_ms=self._cluster.settings.request_timeout_ms,
            )
            response: elect_leaders.Response = await ask_controller(self._cluster, elect_leaders, request)
            if response.error:
                raise KafkaError.of(response.error, "electing leaders")
            return {
                (one := TopicPartition(topic.topic, answer.partition)): failure(
                    answer.error, f"electing the leader of {one}", answer.message
                )
                for topic in response.results
                for answer in topic.partitions
            }

        if partitions is None:
            return await self._cluster.retry(lambda: ask(None), what="electing leaders")
        return await each(
            self._cluster,
            partitions_of(partitions),
            ask,
            what=lambda tp: f"electing the leader of {tp}",
            again=FOR_TOPICS,
        )

    # --- controllers and configs --------------------------------------------------------------------------------------

    async def describe_metadata_quorum(self) -> QuorumInfo:
        """Describe the controllers of the cluster, and how far each has read the log of its metadata.

        Returns:
            The leader, the voters and the observers.

        Raises:
            KafkaError: The cluster could not be reached in time, or refused.
        """
        the_one = describe_quorum.Topic(
            topic=describe_quorum.METADATA_TOPIC, partitions=[describe_quorum.Partition(partition=0)]
        )

        async def attempt() -> QuorumInfo:
            response: describe_quorum.Response = await self._cluster.send(
                None, describe_quorum, describe_quorum.Request(topics=[the_one])
            )
            found = [one for topic in response.topics for one in topic.partitions]
            error, message = response.error, response.message
            if not error and found:
                error, message = found[0].error, found[0].message
            if error or not found:
                raise KafkaError.of(error or ErrorCode.UNKNOWN_SERVER_ERROR, "describing the quorum", message)
            return QuorumInfo(
                found[0].leader_id,
                found[0].leader_epoch,
                found[0].high_watermark,
                _quorum_replicas(found[0].current_voters),
                _quorum_replicas(found[0].observers),
            )

        return await self._cluster.retry(attempt, what="describing the quorum")

    async def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """List the resources that have configs.

        Args:
            types: What kinds of resources; all kinds if none is given.

        Returns:
            All topics and brokers, and the groups and client metrics that have configs of their own.

        Raises:
            KafkaError: The cluster could not be reached in time, or refused.
        """
        wanted = [int(kind) for kind in all_of(types, ResourceType, "[ResourceType.TOPIC]")]

        async def attempt() -> list[ConfigResource]:
            response: list_config_resources.Response = await self._cluster.send(
                None, list_config_resources, list_config_resources.Request(resource_types=wanted)
            )
            if response.error:
                raise KafkaError.of(response.error, "listing config resources")
            return [
                ConfigResource(ResourceType(found.resource_type), found.resource_name)
                for found in response.config_resources
            ]

        return await self._cluster.retry(attempt, what="listing config resources")


def _log_directory(found: describe_log_dirs.LogDir) -> LogDirectory:
    sizes = {TopicPartition(topic.name, p.partition): p.size for topic in found.topics for p in topic.partitions}
    return LogDirectory(found.path, sizes, found.total_bytes, found.usable_bytes)


def _replica(one: TopicPartitionReplica | tuple[str, int, int]) -> TopicPartitionReplica:
    match one:
        case (_, _, int(node_id)):
            return TopicPartitionReplica(*partition_of((one[0], one[1])), node_id)
    raise IllegalArgumentError(f'{one!r} is not a replica: give TopicPartitionReplica("orders", 0, node_id=1)')


def _quorum_replicas(found: Iterable[describe_quorum.Replica]) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(one.replica_id, one.log_end_offset, one.last_fetch_timestamp, one.last_caught_up_timestamp)
        for one in found
    )
