"""The two clusters of a migration: their clients, their topics and their progress."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from re import Pattern
from typing import TypeVar

from coterie.client.admin import (
    EARLIEST,
    LATEST,
    Admin,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewTopic,
    TopicDescription,
    checked,
)
from coterie.client.consumer.consumer import Consumer
from coterie.client.producer.producer import Producer
from coterie.client.types import OffsetAndMetadata, Record, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError
from coterie.migration.groups import Committed, GroupView, translated, view_of
from coterie.migration.migration_plan import LOG_APPEND_TIME, TIMESTAMP_TYPE, SourceTopic, TargetTopic
from coterie.migration.progress import Progress, read_progress
from coterie.protocol.acls import AclBinding
from coterie.settings.client_settings import AdminSettings
from coterie.settings.consumer_settings import ConsumerSettings
from coterie.settings.producer_settings import ProducerSettings

K = TypeVar("K")
T = TypeVar("T")

POLL_S = 0.2
POLL_RECORDS = 5_000
FETCH_BYTES = 16 << 20
"""The most that a fetch returns. A consumer keeps the answer of one fetch for each broker."""
BATCH_BYTES = 256 << 10
REQUEST_BYTES = 32 << 20
"""Records of the source may be as large as its brokers allow. The target has its own limit."""
CLIENT = {"client.id": "coterie-migrate"}
READING = {
    **CLIENT,
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "none",
    "max.poll.records": POLL_RECORDS,
    "fetch.max.bytes": FETCH_BYTES,
    "fetch.max.wait.ms": 100,  # a fetch that waits holds up the next partition that is read
}
WRITING = {**CLIENT, "batch.size": BATCH_BYTES, "linger.ms": 5, "max.request.size": REQUEST_BYTES}
CLEANUP_POLICY, COMPACT, MIN_IN_SYNC = "cleanup.policy", "compact", "min.insync.replicas"
CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of groups that have offsets; "" is a group that never had a member."""


@dataclass(frozen=True)
class Side:
    """The source or the target: where it is, and the properties that its clients share."""

    bootstrap: str
    properties: str = field(default="", repr=False)  # it may have passwords

    def admin(self) -> Admin:
        return Admin(AdminSettings.load(self.properties, (), CLIENT, bootstrap_servers=self.bootstrap))

    def consumer(self) -> Consumer:
        return Consumer(self.consumer_settings())

    def consumer_settings(self) -> ConsumerSettings:
        """Return the settings of a consumer that reads committed records and belongs to no group."""
        return ConsumerSettings.load(self.properties, (), READING, bootstrap_servers=self.bootstrap)

    def producer(self, transactional_id: str, compression: str) -> Producer:
        return Producer(self.producer_settings(transactional_id, compression))

    def producer_settings(self, transactional_id: str, compression: str) -> ProducerSettings:
        more = {"transactional_id": transactional_id, "compression_type": compression}
        return ProducerSettings.load(self.properties, (), WRITING, bootstrap_servers=self.bootstrap, **more)


@dataclass(frozen=True)
class Selection:
    """The topics and groups to migrate, by patterns of whole names."""

    topics: tuple[Pattern[str], ...] = ()
    """Empty means all."""
    exclude: tuple[Pattern[str], ...] = ()
    groups: tuple[Pattern[str], ...] = ()

    def has_topic(self, name: str) -> bool:
        """Return whether to copy it. Names that begin with two underscores are internal topics, of any broker."""
        if name.startswith("__") or any(one.fullmatch(name) for one in self.exclude):
            return False
        return not self.topics or any(one.fullmatch(name) for one in self.topics)

    def has_group(self, name: str) -> bool:
        return not self.groups or any(one.fullmatch(name) for one in self.groups)


def check_clusters(source: Admin, target: Admin) -> str:
    """Return the id of the source, which must not be the target."""
    here, there = source.describe_cluster().cluster_id, target.describe_cluster().cluster_id
    if here == there:
        raise CoterieError(f"--from and --to are the same cluster, {here}: give two clusters")
    return here or ""


# --- topics -----------------------------------------------------------------------------------------------------------


def source_topics(admin: Admin, wanted: Callable[[str], bool]) -> dict[str, SourceTopic]:
    """Describe the topics to copy. One that is deleted meanwhile is left out."""
    described = _described(admin, [one.name for one in admin.list_topics() if wanted(one.name)])
    return {
        name: SourceTopic(
            str(topic.id),
            len(topic.partitions),
            {one.name: one.value for one in configs.values() if _is_copied(one) and one.value is not None},
            COMPACT in (configs[CLEANUP_POLICY].value or "") if CLEANUP_POLICY in configs else False,
        )
        for name, (topic, configs) in described.items()
    }


def _is_copied(config: ConfigEntry) -> bool:
    """Return whether a config is the topic's own, or the brokers' own: the target's brokers may have another.

    How many replicas must be in sync depends on how many brokers there are, so only the topic's own is copied.
    """
    if config.source is ConfigSource.DYNAMIC_TOPIC:
        return True
    return config.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN) and config.name != MIN_IN_SYNC


def target_topics(admin: Admin, names: Collection[str]) -> dict[str, TargetTopic]:
    """Describe the topics of these names that the target has."""
    described = _described(admin, [one.name for one in admin.list_topics() if one.name in names])
    places = [TopicPartition(name, one.partition) for name, (topic, _) in described.items() for one in topic.partitions]
    ends = checked(admin.list_offsets(dict.fromkeys(places, LATEST))) if places else {}
    used = {one.topic for one, end in ends.items() if end.offset > 0}
    return {
        name: TargetTopic(
            len(topic.partitions),
            is_empty=name not in used,
            keeps_timestamps=TIMESTAMP_TYPE not in configs or configs[TIMESTAMP_TYPE].value != LOG_APPEND_TIME,
            id=str(topic.id),
        )
        for name, (topic, configs) in described.items()
    }


def _described(admin: Admin, names: Collection[str]) -> dict[str, tuple[TopicDescription, dict[str, ConfigEntry]]]:
    if not names:
        return {}
    topics = _without_deleted(admin.describe_topics(names))
    configs = _without_deleted(admin.describe_configs([ConfigResource.topic(one) for one in topics]))
    by_name = {resource.name: some for resource, some in configs.items()}
    return {name: (topic, by_name[name]) for name, topic in topics.items() if name in by_name}


def _without_deleted(results: Mapping[K, T | KafkaError]) -> dict[K, T]:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    there = {key: one for key, one in results.items() if not (isinstance(one, KafkaError) and one.code is unknown)}
    return checked(there)


# --- groups and ACLs --------------------------------------------------------------------------------------------------


def group_states(admin: Admin) -> dict[str, str]:
    """Return the state of each group that can have committed offsets."""
    return {one.group_id: one.state for one in admin.list_groups() if one.protocol_type in CONSUMER_PROTOCOLS}


def committed(admin: Admin, group_id: str) -> Committed:
    """Return the offsets that a group has committed; none if there is no such group."""
    found = admin.list_group_offsets(group_id)
    return {one: at for one, at in found.items() if isinstance(at, OffsetAndMetadata)}


def group_views(
    source: Admin,
    target: Admin,
    progress: Progress,
    selection: Selection,
    reached: Callable[[TopicPartition], int | None],
) -> list[GroupView]:
    """Look at all groups that have committed offsets of copied topics."""
    here, there = group_states(source), group_states(target)
    found = []
    for group_id in sorted(filter(selection.has_group, here)):
        wanted = translated(committed(source, group_id), progress, reached)
        if wanted.offsets:
            states = here[group_id], there.get(group_id, "")
            now = committed(target, group_id) if group_id in there else {}
            found.append(view_of(group_id, states, wanted, now, progress.groups.get(group_id, {})))
    return found


def acls(admin: Admin) -> set[AclBinding] | None:
    """Return all ACLs; None if the cluster has no authorizer."""
    try:
        return set(admin.describe_acls())
    except KafkaError as error:
        if error.code is ErrorCode.SECURITY_DISABLED:
            return None
        raise


# --- progress ---------------------------------------------------------------------------------------------------------


def create_progress_topic(admin: Admin, name: str, replication_factor: int) -> None:
    """Create the topic of a migration's progress, if it is not there. Retention must not delete progress."""
    topic = NewTopic(name, 1, replication_factor, {CLEANUP_POLICY: COMPACT})
    created = admin.create_topics([topic])[name]
    if not isinstance(created, KafkaError):
        return
    if created.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
        raise created
    (configs,) = checked(admin.describe_configs([ConfigResource.topic(name)])).values()
    policy = configs[CLEANUP_POLICY].value
    if policy != COMPACT:
        raise CoterieError(
            f"the topic {name} in the target has {CLEANUP_POLICY}={policy}, so the progress of the copy would be "
            f"deleted some day, and everything copied again: coterie topics alter {name} --topic-config "
            f"{CLEANUP_POLICY}={COMPACT}"
        )


def stored_progress(side: Side, name: str) -> Progress:
    """Read the progress of a migration."""
    return progress_and_end(side, name)[0]


def progress_and_end(side: Side, name: str) -> tuple[Progress, int]:
    """Read the progress of a migration. Return the offset behind what was read, too."""
    with side.admin() as admin:
        if name not in {one.name for one in admin.list_topics()}:
            raise CoterieError(f"the target has no topic {name}: no migration of that --name has begun")
    with side.consumer() as consumer:
        place = TopicPartition(name, 0)
        begin = consumer.beginning_offsets([place])[place]
        progress = read_progress((one.key, one.value) for one in records_since(consumer, place, begin))
        return progress, consumer.position(place)


def records_since(
    consumer: Consumer, partition: TopicPartition, begin: int, until: int | None = None
) -> Iterator[Record]:
    """Return the records of a partition from an offset to the end that it has now.

    With `until`, only those before that offset are certain to be returned.
    """
    consumer.assign([partition])
    consumer.seek(partition, begin)
    end = consumer.end_offsets([partition])[partition]
    if until is not None:
        end = min(end, until)
    while consumer.position(partition) < end:
        yield from consumer.poll(POLL_S)


def log_starts(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the offset of the first record of each partition."""
    wanted = dict.fromkeys(partitions, EARLIEST)
    return {one: found.offset for one, found in checked(admin.list_offsets(wanted)).items()} if wanted else {}
