"""AsyncAdmin, and Admin for those without an event loop."""

from __future__ import annotations

from collections.abc import Collection, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from coterie.client.admin.admin_types import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    GroupDescription,
    GroupListing,
    ListedOffset,
    LogDirectory,
    MemberToRemove,
    NewTopic,
    TopicCreated,
    TopicDescription,
    TopicListing,
)
from coterie.client.admin.group_admin import REMOVED, GroupsAdmin
from coterie.client.admin.topic_admin import TopicsAdmin
from coterie.client.arguments import ByPartition, Offsets, PartitionLike
from coterie.client.client_settings import AdminSettings
from coterie.client.event_log import EventLog
from coterie.client.metrics import ADMIN_ROWS, ClientMetrics, Metrics, TelemetrySettings, snapshot
from coterie.client.network.background import background
from coterie.client.network.clock import clock_ms
from coterie.client.network.cluster import Cluster
from coterie.client.settings_kwargs import AdminKwargs
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import KafkaError

__all__ = ["Admin", "AsyncAdmin"]

T = TypeVar("T")
Settings = Mapping[str, object] | AdminSettings


class AsyncAdmin(TopicsAdmin, GroupsAdmin):
    """async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin: await admin.list_groups()"""

    def __init__(self, settings: Settings | None = None, /, **more: Unpack[AdminKwargs]) -> None:
        self.settings = AdminSettings.of_arguments(settings, more)
        self._log = EventLog("admin", self.settings)
        self._measured = ClientMetrics(
            TelemetrySettings(self.settings.metrics_num_samples, self.settings.metrics_sample_window_ms)
        )
        self._cluster = Cluster(self.settings, self._log, self._measured)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._described()})"

    def metrics(self) -> Metrics:
        """Return `{group: {name: value}}` under Kafka's names; None is what was not measured yet. From any thread."""
        self._measured.connection_count = len(self._cluster.addresses)
        return snapshot(ADMIN_ROWS, self._measured, clock_ms())

    def _described(self) -> str:
        """Return where the cluster is, for a repr."""
        return ",".join(map(str, self.settings.addresses)) + (", closed" if self._cluster.is_closed else "")

    async def connect(self, *, within_ms: float | None = None) -> None:
        """Not needed, but says early, and how early, that a cluster cannot be reached."""
        await self._cluster.refresh(timeout_ms=within_ms)

    async def close(self) -> None:
        """A second close does nothing."""
        await self._cluster.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self.close()


class Admin:
    """with Admin(bootstrap_servers="localhost:9092") as admin: admin.list_groups()

    Each method is that of AsyncAdmin, where it is described.
    """

    def __init__(self, settings: Settings | None = None, /, **more: Unpack[AdminKwargs]) -> None:
        self._admin = AsyncAdmin(settings, **more)
        self._background = background()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._admin._described()})"  # noqa: SLF001  two clients of one kind

    @property
    def settings(self) -> AdminSettings:
        """The settings that this admin was made with, and the defaults of the others."""
        return self._admin.settings

    def metrics(self) -> Metrics:
        return self._admin.metrics()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._background.run(coroutine)

    def connect(self, *, within_ms: float | None = None) -> None:
        self._run(self._admin.connect(within_ms=within_ms))

    def close(self) -> None:
        self._run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    # --- topics, configs, the cluster ---------------------------------------------------------------------------------

    def list_topics(self, *, include_internal: bool = False) -> list[TopicListing]:
        return self._run(self._admin.list_topics(include_internal=include_internal))

    def describe_topics(self, names: Collection[str]) -> dict[str, TopicDescription | KafkaError]:
        return self._run(self._admin.describe_topics(names))

    def create_topics(
        self, topics: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, TopicCreated | KafkaError]:
        return self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topics(self, names: Collection[str]) -> dict[str, KafkaError | None]:
        return self._run(self._admin.delete_topics(names))

    def create_partitions(
        self, totals: Mapping[str, int], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        return self._run(self._admin.create_partitions(totals, validate_only=validate_only))

    def delete_records(self, before: ByPartition[int]) -> dict[TopicPartition, int | KafkaError]:
        return self._run(self._admin.delete_records(before))

    def list_offsets(
        self, wanted: ByPartition[int], *, read_committed: bool = False
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        return self._run(self._admin.list_offsets(wanted, read_committed=read_committed))

    def describe_configs(
        self, resources: Collection[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        return self._run(self._admin.describe_configs(resources))

    def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> dict[ConfigResource, KafkaError | None]:
        return self._run(self._admin.alter_configs(changes, validate_only=validate_only))

    def describe_cluster(self) -> ClusterDescription:
        return self._run(self._admin.describe_cluster())

    def describe_log_dirs(self, node_ids: Collection[int] | None = None) -> dict[int, list[LogDirectory] | KafkaError]:
        return self._run(self._admin.describe_log_dirs(node_ids))

    # --- groups -------------------------------------------------------------------------------------------------------

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        return self._run(self._admin.list_groups(states=states, types=types))

    def describe_groups(self, group_ids: Collection[str]) -> dict[str, GroupDescription | KafkaError]:
        return self._run(self._admin.describe_groups(group_ids))

    def delete_groups(self, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
        return self._run(self._admin.delete_groups(group_ids))

    def remove_members(
        self, group_id: str, members: Collection[MemberToRemove | str] | None = None, *, reason: str = REMOVED
    ) -> dict[MemberToRemove, KafkaError | None]:
        return self._run(self._admin.remove_members(group_id, members, reason=reason))

    def list_group_offsets(
        self, group_id: str, places: Collection[PartitionLike] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError | None]:
        return self._run(self._admin.list_group_offsets(group_id, places, require_stable=require_stable))

    def alter_group_offsets(self, group_id: str, offsets: Offsets) -> dict[TopicPartition, KafkaError | None]:
        return self._run(self._admin.alter_group_offsets(group_id, offsets))

    def delete_group_offsets(
        self, group_id: str, places: Collection[PartitionLike]
    ) -> dict[TopicPartition, KafkaError | None]:
        return self._run(self._admin.delete_group_offsets(group_id, places))
