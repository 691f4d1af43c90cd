"""AsyncAdmin, and Admin for those without an event loop."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from coterie.client.admin.acl_admin import EVERYTHING, AclsAdmin
from coterie.client.admin.admin_types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ElectionType,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirectory,
    MemberToRemove,
    NewTopic,
    PartitionReassignment,
    ProducerState,
    QuorumInfo,
    ResourceType,
    TopicCreated,
    TopicDescription,
    TopicListing,
    TopicPartitionReplica,
    TransactionDescription,
    TransactionListing,
)
from coterie.client.admin.cluster_admin import ClusterAdmin
from coterie.client.admin.group_admin import REMOVED, GroupsAdmin
from coterie.client.admin.topic_admin import TopicsAdmin
from coterie.client.admin.transaction_admin import TransactionsAdmin
from coterie.client.admin.user_admin import ScramCredentialInfo, ScramDeletion, ScramUpsertion, UsersAdmin
from coterie.client.arguments import ByPartition, Offsets, PartitionLike
from coterie.client.event_log import EventLog
from coterie.client.metrics import ADMIN_ROWS, ClientMetrics, Metrics, snapshot
from coterie.client.network.network_client import NetworkClient
from coterie.client.network.runtime import background, clock_ms, documented_by
from coterie.client.settings_kwargs import AdminKwargs
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError
from coterie.protocol.acls import AclBinding, AclBindingFilter
from coterie.settings.client_settings import AdminSettings

T = TypeVar("T")
Settings = Mapping[str, object] | AdminSettings


class AsyncAdmin(TopicsAdmin, GroupsAdmin, ClusterAdmin, TransactionsAdmin, UsersAdmin, AclsAdmin):
    """Describe and change topics, configs, groups, offsets, transactions and ACLs, with asyncio.

    Example::

        async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("orders", partitions=6)])

    What asks for several things at once returns a result for each: a value, or the `KafkaError` it met. `checked`
    raises the first of those errors. Each is tried again until `default.api.timeout.ms`. A result may be a
    `RequestTimedOutError`, and methods without results for each raise it. An argument that cannot be right raises
    `IllegalArgumentError` before anything is sent, and a closed admin `ClientClosedError`.

    Args:
        settings: Settings under Kafka's names, in a mapping or as `AdminSettings`.
        **more: Settings as keywords, with underscores for dots. They count more than `settings`.

    Raises:
        SettingsError: A setting is unknown, its value is not allowed, or `bootstrap.servers` is missing.
    """

    def __init__(self, settings: Settings | None = None, /, **more: Unpack[AdminKwargs]) -> None:
        self.settings = AdminSettings.of_arguments(settings, more)
        self._log = EventLog("admin", self.settings)
        self._measured = ClientMetrics(self.settings)
        self._cluster = NetworkClient(self.settings, self._log, self._measured)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._described()})"

    def metrics(self) -> Metrics:
        """Return the metrics under Kafka's names; can be called from any thread.

        Returns:
            For each group of metrics a mapping of names to values; None is what was not measured yet.
        """
        self._measured.connection_count = len(self._cluster.addresses)
        return snapshot(ADMIN_ROWS, self._measured, clock_ms())

    def _described(self) -> str:
        """Return where the cluster is, for a repr."""
        return ",".join(map(str, self.settings.addresses)) + (", closed" if self._cluster.is_closed else "")

    async def connect(self, *, within_ms: float | None = None) -> None:
        """Connect to the cluster now; without it the first call does.

        Args:
            within_ms: The longest time to try, in milliseconds; `default.api.timeout.ms` if it is not given.

        Raises:
            KafkaError: The cluster cannot be reached.
        """
        await self._cluster.refresh(timeout_ms=within_ms)

    async def close(self) -> None:
        """Close the connections. A second close does nothing."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()


@documented_by(AsyncAdmin)
class Admin:
    """Describe and change topics, configs, groups, offsets, transactions and ACLs.

    Example::

        with Admin(bootstrap_servers="localhost:9092") as admin:
            admin.create_topics([NewTopic("orders", partitions=6)])

    What asks for several things at once returns a result for each: a value, or the `KafkaError` it met. `checked`
    raises the first of those errors. Each is tried again until `default.api.timeout.ms`. A result may be a
    `RequestTimedOutError`, and methods without results for each raise it. An argument that cannot be right raises
    `IllegalArgumentError` before anything is sent, and a closed admin `ClientClosedError`.

    Args:
        settings: Settings under Kafka's names, in a mapping or as `AdminSettings`.
        **more: Settings as keywords, with underscores for dots. They count more than `settings`.

    Raises:
        SettingsError: A setting is unknown, its value is not allowed, or `bootstrap.servers` is missing.
    """

    def __init__(self, settings: Settings | None = None, /, **more: Unpack[AdminKwargs]) -> None:
        self._admin = AsyncAdmin(settings, **more)
        self._background = background()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._admin._described()})"  # noqa: SLF001  two clients of one kind

    @property
    def settings(self) -> AdminSettings:
        """The settings that the admin was made with, and the defaults of the others."""
        return self._admin.settings

    def metrics(self) -> Metrics:
        """Return the metrics under Kafka's names; can be called from any thread."""
        return self._admin.metrics()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._background.run(coroutine)

    def connect(self, *, within_ms: float | None = None) -> None:
        """Connect to the cluster now; without it the first call does."""
        self._run(self._admin.connect(within_ms=within_ms))

    def close(self) -> None:
        """Close the connections. A second close does nothing."""
        self._run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # --- topics, configs, the cluster ---------------------------------------------------------------------------------

    def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        """List all topics by name."""
        return self._run(self._admin.list_topics(include_internal=include_internal))

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription | KafkaError]:
        """Describe topics: their partitions, leaders and replicas."""
        return self._run(self._admin.describe_topics(names))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicCreated | KafkaError]:
        """Create topics."""
        return self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError | None]:
        """Delete topics and all their records."""
        return self._run(self._admin.delete_topics(names))

    def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        """Add partitions to topics."""
        return self._run(self._admin.create_partitions(totals, validate_only=validate_only))

    def delete_records(self, before: ByPartition[int]) -> dict[TopicPartition, int | KafkaError]:
        """Delete the records below an offset."""
        return self._run(self._admin.delete_records(before))

    def list_offsets(
        self, wanted: ByPartition[int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        """Look up offsets by time."""
        return self._run(self._admin.list_offsets(wanted, read_committed=read_committed))

    def describe_configs(
        self, resources: Collection[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Describe the configs of topics and brokers."""
        return self._run(self._admin.describe_configs(resources))

    def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        """Change configs; those that are not named stay as they are (KIP-339)."""
        return self._run(self._admin.alter_configs(changes, validate_only=validate_only))

    def describe_cluster(self) -> ClusterDescription:
        """Describe the cluster: its id, its controller and its brokers."""
        return self._run(self._admin.describe_cluster())

    def describe_log_dirs(self, node_ids: Collection[int] | None = None) -> dict[int, list[LogDirectory] | KafkaError]:
        """Describe the log directories of brokers, with the size of each replica."""
        return self._run(self._admin.describe_log_dirs(node_ids))

    def alter_replica_log_dirs(
        self, paths: Mapping[TopicPartitionReplica, str] | Mapping[tuple[str, int, int], str]
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Move replicas to other log directories of their brokers."""
        return self._run(self._admin.alter_replica_log_dirs(paths))

    def alter_partition_reassignments(
        self,
        reassignments: ByPartition[Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Give partitions replicas on other brokers."""
        return self._run(
            self._admin.alter_partition_reassignments(
                reassignments, allow_replication_factor_change=allow_replication_factor_change
            )
        )

    def list_partition_reassignments(
        self, partitions: Collection[PartitionLike] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """List the reassignments that are under way."""
        return self._run(self._admin.list_partition_reassignments(partitions))

    def elect_leaders(
        self,
        partitions: Collection[PartitionLike] | None = None,
        *,
        election_type: ElectionType = ElectionType.PREFERRED,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of partitions."""
        return self._run(self._admin.elect_leaders(partitions, election_type=election_type))

    def describe_metadata_quorum(self) -> QuorumInfo:
        """Describe the controllers of the cluster, and how far each has read the log of its metadata."""
        return self._run(self._admin.describe_metadata_quorum())

    def list_config_resources(self, types: Collection[ResourceType] = ()) -> list[ConfigResource]:
        """List the resources that have configs."""
        return self._run(self._admin.list_config_resources(types))

    # --- groups -------------------------------------------------------------------------------------------------------

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """List the groups of all brokers by id."""
        return self._run(self._admin.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription | KafkaError]:
        """Describe groups: their state, members and assignments."""
        return self._run(self._admin.describe_groups(group_ids))

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Delete groups without members, and all their offsets."""
        return self._run(self._admin.delete_groups(group_ids))

    def remove_members(
        self, group_id: str, members: Collection[MemberToRemove | str] | None = None, *, reason: str = REMOVED
    ) -> dict[MemberToRemove, KafkaError | None]:
        """Remove members from a group, which rebalances."""
        return self._run(self._admin.remove_members(group_id, members, reason=reason))

    def list_group_offsets(
        self, group_id: str, partitions: Collection[PartitionLike] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        """List the offsets that a group has committed."""
        return self._run(self._admin.list_group_offsets(group_id, partitions, require_stable=require_stable))

    def alter_group_offsets(self, group_id: str, offsets: Offsets) -> dict[TopicPartition, KafkaError | None]:
        """Set the offsets of a group without members."""
        return self._run(self._admin.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(
        self, group_id: str, partitions: Collection[PartitionLike]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete offsets of a group, of topics that no member is subscribed to."""
        return self._run(self._admin.delete_group_offsets(group_id, partitions))

    # --- transactions -------------------------------------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        running_longer_than_ms: int | None = None,
        transactional_id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """List the transactional ids of all brokers."""
        return self._run(
            self._admin.list_transactions(
                states=states,
                producer_ids=producer_ids,
                running_longer_than_ms=running_longer_than_ms,
                transactional_id_pattern=transactional_id_pattern,
            )
        )

    def describe_transactions(
        self, transactional_ids: Collection[str]
    ) -> dict[str, TransactionDescription | KafkaError]:
        """Describe transactional ids: state, producer, timeout, and the partitions of an open transaction."""
        return self._run(self._admin.describe_transactions(transactional_ids))

    def describe_producers(
        self, partitions: Collection[PartitionLike]
    ) -> dict[TopicPartition, list[ProducerState] | KafkaError]:
        """Describe the idempotent and transactional producers that partitions remember."""
        return self._run(self._admin.describe_producers(partitions))

    def fence_producers(self, transactional_ids: Collection[str]) -> dict[str, KafkaError | None]:
        """Fence the producers of transactional ids, as a new producer would: an open transaction is aborted."""
        return self._run(self._admin.fence_producers(transactional_ids))

    def abort_transaction(
        self, partition: PartitionLike, *, producer_id: int, producer_epoch: int, coordinator_epoch: int = 0
    ) -> None:
        """Write the marker of an abort into one partition, for a transaction whose coordinator has forgotten it."""
        self._run(
            self._admin.abort_transaction(
                partition,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )
        )

    # --- users --------------------------------------------------------------------------------------------------------

    def describe_user_scram_credentials(
        self, users: Collection[str] | None = None
    ) -> dict[str, list[ScramCredentialInfo] | KafkaError]:
        """Describe by which SCRAM mechanisms users can log in."""
        return self._run(self._admin.describe_user_scram_credentials(users))

    def alter_user_scram_credentials(
        self, alterations: Collection[ScramUpsertion | ScramDeletion]
    ) -> dict[str, KafkaError | None]:
        """Give users passwords for SCRAM, or take them away."""
        return self._run(self._admin.alter_user_scram_credentials(alterations))

    # --- ACLs ---------------------------------------------------------------------------------------------------------

    def describe_acls(self, wanted: AclBindingFilter = EVERYTHING) -> list[AclBinding]:
        """List the ACLs that a filter finds."""
        return self._run(self._admin.describe_acls(wanted))

    def create_acls(self, acls: Collection[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        """Create ACLs. One that exists already is no error."""
        return self._run(self._admin.create_acls(acls))

    def delete_acls(
        self, filters: Collection[AclBindingFilter]
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
        """Delete all ACLs that filters find."""
        return self._run(self._admin.delete_acls(filters))
