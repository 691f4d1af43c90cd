"""The table of the broker's settings: Kafka's names, types, bounds and defaults (4.3.1).

    BrokerSettings.load(properties=text, environ=os.environ, sets=["num.partitions=4"])
    BrokerSettings.of({"group.initial.rebalance.delay.ms": 0, "num_partitions": 4})

Settings that Kafka does not have begin with `coterie.`. `UNSUPPORTED` has the rows of those that only Kafka has. The
configs of topics, which take their defaults from this table, are in `topic_configs.py`. docs/settings.md is generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from coterie.settings.config_def import (
    Flag,
    Given,
    Ratio,
    Settings,
    SettingsError,
    Unsupported,
    Word,
    Words,
    ignored,
    int32,
    int64,
    setting,
    text_of,
)
from coterie.settings.listeners import Endpoint, advertised_endpoints, client_endpoints
from coterie.settings.sources import from_environ, from_properties, from_sets

__all__ = ["SMALLEST_SEGMENT", "BrokerSettings", "GroupCoordinatorSettings"]

GROUPS = "Groups and their offsets"
TOPICS = "Topics"
LOG = "Logs, and the default of a topic's own config"
REQUESTS = "Connections and requests"
NODE = "The node"

SMALLEST_SEGMENT = 1_048_576
"""Kafka accepts less for __consumer_offsets, and then never finds a coordinator: no topic may have less."""
_FOREVER = 2**63 - 1
_MOST_HELD = 512 << 20
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_ONE_REPLICA = "there is one copy of each log, also with several nodes. For more, run Apache Kafka"
_AS_PRODUCED = "batches are stored as their producer compressed them"
_OUR_FLUSH = "coterie.flush says when a write is on the disk"
_NO_TIERS = "there is no tiered storage"


UNSUPPORTED = (
    ignored(
        "the process is its own controller",
        "process.roles controller.quorum.* controller.quota.* controller.performance.* "
        "controller.socket.timeout.ms metadata.* internal.metadata.* broker.heartbeat.interval.ms "
        "broker.session.timeout.ms initial.broker.registration.timeout.ms server.max.startup.time.ms "
        "unstable.api.versions.enable unstable.feature.versions.enable",
    ),
    ignored(
        "there is one copy of each log, and nothing is replicated",
        "replica.* replication.quota.* num.replica.fetchers num.replica.alter.log.dirs.threads "
        "alter.log.dirs.replication.quota.* auto.leader.rebalance.enable leader.imbalance.* "
        "unclean.leader.election.interval.ms offsets.topic.replication.factor inter.broker.listener.name "
        "broker.rack follower.fetch.last.tiered.offset.enable request.timeout.ms "
        "socket.connection.setup.timeout.*",
    ),
    ignored(
        "there are no transactions yet", "transaction.* transactional.id.expiration.ms add.partitions.to.txn.retry.*"
    ),
    ignored(
        "groups are of the classic protocol",
        "group.consumer.* group.share.* group.streams.* group.coordinator.* share.coordinator.* share.fetch.*",
    ),
    ignored("there is no tiered storage", "remote.* rlmm.config.* rsm.config.*"),
    ignored(
        "only PLAINTEXT is supported; a listener with another protocol is refused",
        "ssl.* sasl.* security.inter.broker.protocol security.providers listener.name.* "
        "principal.builder.class connection.failed.authentication.delay.ms connections.max.reauth.ms "
        "delegation.token.* super.users allow.everyone.if.no.acl.found",
    ),
    ignored(
        "one thread answers requests, and one flushes",
        "num.network.threads num.io.threads background.threads num.recovery.threads.per.data.dir",
    ),
    ignored("there are no quotas", "quota.* client.quota.callback.class max.connection.creation.rate"),
    ignored("the cleaner is one thread, which pauses after each step", "log.cleaner.io.* log.cleaner.threads"),
    ignored(
        "coterie.flush says when a write is on the disk",
        "log.flush.offset.checkpoint.interval.ms log.flush.start.offset.checkpoint.interval.ms",
    ),
    ignored("there is one data directory", "log.dir.failure.timeout.ms cordoned.log.dirs"),
    ignored(
        "there is no JVM to load a class into",
        "alter.config.policy.class.name create.topic.policy.class.name config.providers config.providers.*",
    ),
    ignored(
        "there is no JVM to report metrics of",
        "metric.reporters metrics.* kafka.metrics.* auto.include.jmx.reporter telemetry.max.bytes",
    ),
    ignored(
        "Coterie does this in another way",
        "offsets.topic.compression.codec offsets.load.buffer.size "
        "delete.records.purgatory.purge.interval.requests fetch.purgatory.purge.interval.requests "
        "producer.purgatory.purge.interval.requests producer.id.expiration.check.interval.ms "
        "log.initial.task.delay.ms controlled.shutdown.enable early.start.listeners "
        "max.request.partition.size.limit socket.listen.backlog.size socket.receive.buffer.bytes",
    ),
    ignored(
        "Kafka 4 does not have it any more",
        "zookeeper.* broker.id.generation.enable reserved.broker.max.id control.plane.listener.name "
        "inter.broker.protocol.version log.message.format.version log.message.downconversion.enable "
        "log.message.timestamp.difference.max.ms offsets.commit.required.acks password.encoder.*",
    ),
    ignored("it is a setting of Confluent's", "confluent.*"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorSettings(Settings):
    """The part of the table that the group coordinator uses."""

    group_min_session_timeout_ms: int = setting(
        GROUPS, 6_000, int32(0), "The shortest session timeout that a member may ask for."
    )
    group_max_session_timeout_ms: int = setting(
        GROUPS, 1_800_000, int32(0), "The longest session timeout that a member may ask for."
    )
    group_max_size: int = setting(GROUPS, 2**31 - 1, int32(1), "How many members a group may have.")
    group_initial_rebalance_delay_ms: int = setting(
        GROUPS, 3_000, int32(0), "How long the first rebalance of an empty group waits for more members to join."
    )
    offset_metadata_max_bytes: int = setting(
        GROUPS, 4_096, int32(0), "The longest metadata that a commit may have for a partition."
    )
    offsets_retention_minutes: int = setting(
        GROUPS,
        10_080,
        int32(1),
        "How long committed offsets are kept after the last member left, or after the group stopped "
        "subscribing to their topic.",
    )
    offsets_retention_check_interval_ms: int = setting(
        GROUPS, 600_000, int64(1), "How often the broker looks for committed offsets that have expired."
    )
    offsets_commit_timeout_ms: int = setting(
        GROUPS,
        5_000,
        int32(1),
        "How long a commit may wait for the disk before it is answered with an error that the client can retry.",
    )
    offsets_topic_num_partitions: int = setting(
        GROUPS, 50, int32(1), "How many partitions __consumer_offsets has. It cannot be changed once the topic exists."
    )
    offsets_topic_segment_bytes: int = setting(
        GROUPS, 104_857_600, int32(SMALLEST_SEGMENT), "The size of a segment of __consumer_offsets."
    )
    coterie_offsets_roll_bytes: int = setting(
        GROUPS,
        1_048_576,
        int32(1),
        "The size at which a segment of __consumer_offsets is closed so that it can be compacted, if that "
        "saves enough.",
    )
    coterie_max_record_bytes: int = setting(
        GROUPS,
        104_857_600,
        int32(1024),
        "The largest record of a group. Kafka's limit, 1 MiB, is too small for groups of 5 000 members.",
    )
    coterie_group_member_max_bytes: int = setting(
        GROUPS,
        4_194_304,
        int32(1024),
        "The most metadata that the protocols of a member may have. A join with more is refused with "
        "GROUP_MAX_SIZE_REACHED.",
    )
    coterie_group_max_bytes: int = setting(
        GROUPS,
        268_435_456,
        int64(1024),
        "The most memory that the members of a group may take: metadata, ids and assignments. A join that "
        "needs more is refused with GROUP_MAX_SIZE_REACHED.",
    )
    coterie_groups_max_bytes: int = setting(
        GROUPS,
        536_870_912,
        int64(1024),
        "The most memory that the members of all groups together may take. A join that needs more is "
        "refused with GROUP_MAX_SIZE_REACHED.",
    )
    coterie_facts_enable: bool = setting(
        GROUPS,
        True,
        Flag(),
        "Whether group events are kept in the topic __coterie_facts, which explains rebalances later.",
    )
    coterie_facts_retention_bytes: int = setting(
        GROUPS,
        268_435_456,
        int64(-1),
        "The size that __coterie_facts is cut back to, besides log.retention; -1 is no limit. The topic's "
        "own retention.bytes takes precedence.",
    )
    coterie_max_append_bytes: int = setting(
        GROUPS, 1_048_576, int32(1024), "The size up to which records of groups are joined into one write."
    )

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings(GroupCoordinatorSettings):
    """The settings of a broker."""

    whose: ClassVar[str] = "a broker"
    page: ClassVar[str] = "docs/settings.md"
    unsupported: ClassVar[Sequence[Unsupported]] = UNSUPPORTED

    num_partitions: int = setting(TOPICS, 1, int32(1), "How many partitions a topic gets if its creator does not say.")
    default_replication_factor: int = setting(
        TOPICS, 1, int32(1, 1), "How many replicas a topic gets if its creator does not say.", why=_ONE_REPLICA
    )
    coterie_replicas_as_one: bool = setting(
        TOPICS, False, Flag(), "Whether a topic with several replicas is created with one; otherwise it is refused."
    )
    min_insync_replicas: int = setting(
        TOPICS, 1, int32(1, 1), "How many replicas an acks=all write needs.", why=_ONE_REPLICA
    )
    auto_create_topics_enable: bool = setting(
        TOPICS, True, Flag(), "Whether a topic is created when a client asks for it."
    )
    coterie_max_partitions: int = setting(
        TOPICS,
        20_000,
        int32(1),
        "How many partitions all topics together may have. To create more is refused with POLICY_VIOLATION. "
        "Kafka has no such limit.",
    )
    delete_topic_enable: bool = setting(TOPICS, True, Flag(), "Whether topics may be deleted.")
    unclean_leader_election_enable: bool = setting(
        TOPICS, False, Flag(), "Whether a replica that is not in sync may become leader.", unused=_ONE_REPLICA
    )

    message_max_bytes: int = setting(LOG, 1_048_588, int32(0), "The largest record batch, as it is stored.")
    compression_type: str = setting(
        LOG, "producer", Word(_COMPRESSIONS), "The codec that batches are stored with.", unused=_AS_PRODUCED
    )
    compression_gzip_level: int = setting(
        LOG, -1, int32(1, 9, (-1,)), "The compression level of gzip.", unused=_AS_PRODUCED
    )
    compression_lz4_level: int = setting(LOG, 9, int32(1, 17), "The compression level of lz4.", unused=_AS_PRODUCED)
    compression_zstd_level: int = setting(
        LOG, 3, int32(-131_072, 22), "The compression level of zstd.", unused=_AS_PRODUCED
    )
    log_segment_bytes: int = setting(
        LOG, 1_073_741_824, int32(SMALLEST_SEGMENT), "The size at which a new segment begins."
    )
    log_roll_ms: int | None = setting(LOG, None, int64(1), "The age at which a new segment begins.")
    log_roll_hours: int = setting(
        LOG, 168, int32(1), "The age in hours at which a new segment begins, if log.roll.ms is not given."
    )
    log_roll_jitter_ms: int | None = setting(
        LOG, None, int64(0), "The longest time by which a new segment begins early.", unused="segments begin on time"
    )
    log_roll_jitter_hours: int = setting(
        LOG,
        0,
        int32(0),
        "The longest time in hours by which a new segment begins early, if log.roll.jitter.ms is not given.",
        unused="segments begin on time",
    )
    log_index_interval_bytes: int = setting(
        LOG, 4_096, int32(0), "How many bytes of a segment are between two entries of its index."
    )
    log_index_size_max_bytes: int = setting(
        LOG, 10_485_760, int32(4), "The size of the index at which a new segment begins."
    )
    log_retention_ms: int | None = setting(LOG, None, int64(), "How long records are kept; -1 is for ever.")
    log_retention_minutes: int | None = setting(
        LOG, None, int32(), "How many minutes records are kept, if log.retention.ms is not given."
    )
    log_retention_hours: int = setting(
        LOG,
        168,
        int32(),
        "How many hours records are kept, if neither log.retention.ms nor log.retention.minutes is given.",
    )
    log_retention_bytes: int = setting(
        LOG, -1, int64(), "The size that a partition is cut back to, by whole segments; a negative size is no limit."
    )
    log_retention_check_interval_ms: int = setting(
        LOG, 300_000, int64(1), "How often the broker looks for segments to delete."
    )
    log_segment_delete_delay_ms: int = setting(
        LOG,
        60_000,
        int64(0),
        "How long the files of a deleted segment are kept.",
        unused="the files are deleted at once",
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        LOG,
        ("delete",),
        Words(("compact", "delete")),
        "What happens to old records. delete: they are deleted. compact: the last record of each key is "
        "kept, and every record needs a key.",
    )
    log_cleaner_enable: bool = setting(
        LOG, True, Flag(), "Whether logs whose cleanup.policy has compact are compacted."
    )
    log_cleaner_backoff_ms: int = setting(
        LOG, 15_000, int64(0), "How long the cleaner sleeps when no log needs compaction."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        LOG,
        134_217_728,
        int64(),
        "The memory for the keys of a log that is compacted, 256 bytes for each. If there are more keys, "
        "compaction takes several passes.",
    )
    log_cleaner_delete_retention_ms: int = setting(
        LOG, 86_400_000, int64(0), "How long a tombstone is kept in a compacted topic after it was first compacted."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(LOG, 0, int64(0), "How old a record must be to be compacted.")
    log_cleaner_max_compaction_lag_ms: int = setting(
        LOG, _FOREVER, int64(1), "The age after which a record must be compacted, even if little of the log is dirty."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        LOG, 0.5, Ratio(), "The share of a log that must be dirty, that is not compacted yet, before it is compacted."
    )
    log_message_timestamp_type: str = setting(
        LOG,
        "CreateTime",
        Word(("CreateTime", "LogAppendTime")),
        "Whose time a record has: that of its producer (CreateTime) or of the broker (LogAppendTime).",
    )
    log_message_timestamp_before_max_ms: int = setting(
        LOG, _FOREVER, int64(0), "How far in the past the timestamp of a producer may be."
    )
    log_message_timestamp_after_max_ms: int = setting(
        LOG, 3_600_000, int64(0), "How far in the future the timestamp of a producer may be."
    )
    log_flush_interval_messages: int = setting(
        LOG, _FOREVER, int64(1), "How many records are written between two flushes.", unused=_OUR_FLUSH
    )
    log_flush_interval_ms: int | None = setting(
        LOG, None, int64(0), "How long a record may wait for a flush.", unused=_OUR_FLUSH
    )
    log_flush_scheduler_interval_ms: int = setting(
        LOG, _FOREVER, int64(), "How often the broker looks for logs to flush.", unused=_OUR_FLUSH
    )
    log_preallocate: bool = setting(
        LOG,
        False,
        Flag(),
        "Whether a new segment file gets its full size at once.",
        unused="segment files grow as they are written",
    )
    log_local_retention_ms: int = setting(
        LOG, -2, int64(-2), "How long records are kept on the local disk.", unused=_NO_TIERS
    )
    log_local_retention_bytes: int = setting(
        LOG, -2, int64(-2), "How much of a partition is kept on the local disk.", unused=_NO_TIERS
    )
    producer_id_expiration_ms: int = setting(
        LOG, 86_400_000, int32(1), "How long an idempotent producer is remembered."
    )
    coterie_max_producers: int = setting(LOG, 10_000, int32(1), "How many idempotent producers a partition remembers.")
    coterie_max_decompressed_bytes: int = setting(
        LOG,
        134_217_728,
        int32(1_048_576),
        "The largest size that a batch may have when it is decompressed. Where a producer or a search waits "
        "for it, 16 MiB is the limit.",
    )
    coterie_flush: Literal["sync", "os"] = setting(
        LOG,
        "sync",
        Word(("sync", "os")),
        "When a write is answered: after fsync (sync), or when it is in the page cache, as in Kafka (os).",
    )

    socket_request_max_bytes: int = setting(REQUESTS, 104_857_600, int32(1), "The largest request.")
    socket_send_buffer_bytes: int = setting(
        REQUESTS, 102_400, int32(), "The send buffer of a connection's socket; a negative size is the system's default."
    )
    max_connections: int = setting(REQUESTS, 2**31 - 1, int32(0), "How many connections may be open at a time.")
    max_connections_per_ip: int = setting(
        REQUESTS, 2**31 - 1, int32(0), "How many connections from one address may be open at a time."
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        REQUESTS,
        (),
        Words(code=2),
        "How many connections from single addresses may be open at a time, as address:count.",
    )
    connections_max_idle_ms: int = setting(
        REQUESTS,
        600_000,
        int64(),
        "How long a connection may be silent, or take to send one request, before it is closed; a negative "
        "time is no limit.",
    )
    queued_max_requests: int = setting(
        REQUESTS, 500, int32(1), "How many requests of one connection may wait. Kafka counts those of all connections."
    )
    queued_max_request_bytes: int = setting(
        REQUESTS,
        -1,
        int64(),
        "The most memory for requests and responses of all connections: requests that arrive or wait, and "
        "responses that are not read. Above it, the connection that has used memory for the longest time is "
        "closed. A negative size is 512 MiB, and at least five of the largest requests. Kafka counts "
        "requests alone, has no limit by default, and stops reading.",
    )
    fetch_max_bytes: int = setting(REQUESTS, 57_671_680, int32(1024), "The largest response to a fetch.")
    max_incremental_fetch_session_cache_slots: int = setting(
        REQUESTS,
        1_000,
        int32(0),
        "How many fetch sessions may be open at a time.",
        unused="there are no fetch sessions",
    )

    node_id: int = setting(NODE, 1, int32(0), "The id that clients know this broker by.", also=("broker.id",))
    coterie_cluster_id: str = setting(
        NODE, "", Word(), "The id of the cluster. If it is empty, the data directory's is used, or a new one."
    )
    listeners: tuple[str, ...] = setting(
        NODE, ("PLAINTEXT://127.0.0.1:9092",), Words(), "The addresses to listen on, as NAME://host:port."
    )
    advertised_listeners: tuple[str, ...] = setting(
        NODE,
        (),
        Words(),
        "The addresses that clients are told to connect to. If there are none, it is the address that they "
        "connected to.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        NODE,
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        Words(code=2),
        "The security protocol of each listener. It must be PLAINTEXT for those that are opened.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        NODE, (), Words(), "The listeners for controllers. They are not opened, as there are no controllers."
    )
    log_dirs: tuple[str, ...] = setting(NODE, (), Words(), "The data directory. There can be one.", also=("log.dir",))
    authorizer_class_name: str = setting(
        NODE,
        "",
        Word(("",)),
        "The class that decides what clients may do.",
        why="there are no ACLs: every client that can connect may do everything. Leave it out, and restrict who can "
        "connect",
    )

    @classmethod
    def load(
        cls,
        properties: str = "",
        environ: Mapping[str, str] = MappingProxyType({}),
        sets: Sequence[str] = (),
        **more: Any,
    ) -> Self:
        """Make settings from a file, then the environment, `--set name=value` and keywords: the last one counts."""
        problems: list[str] = []
        given = [
            *from_properties(properties, problems),
            *from_environ(environ, cls.rows(), problems),
            *from_sets(sets, problems),
            *(Given(name, text_of(value), f"{name}=") for name, value in more.items()),
        ]
        return cls.settled(given, problems)

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """Make settings from values in Python. Names have dots or underscores; values may also be text."""
        return cls.settled([Given(name, text_of(value), "settings") for name, value in values.items()], [])

    def contradictions(self) -> list[str]:
        problems = []
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            problems.append(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms}, group.max.session.timeout.ms "
                f"{self.group_max_session_timeout_ms}: no member could join. Lower the one or raise the other"
            )
        retention = (self.log_retention_ms, self.log_retention_minutes, self.log_retention_hours)
        if next(time for time in retention if time is not None) == 0:
            problems.append(
                "log.retention is 0: records would be gone at once. Allowed is -1, for ever, or more than 0"
            )
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            problems.append("log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms")
        if 0 <= self.queued_max_request_bytes < self.socket_request_max_bytes:
            problems.append(
                f"queued.max.request.bytes is {self.queued_max_request_bytes}, socket.request.max.bytes "
                f"{self.socket_request_max_bytes}: the largest request could never be taken. Raise it, or give -1"
            )
        try:
            _ = self.connections_of_ips
        except SettingsError as error:
            problems.append(str(error))
        if len(self.log_dirs) > 1:
            problems.append(f"log.dirs has {len(self.log_dirs)} directories; only one is supported")
        try:
            self.endpoints()
            self.advertised()
        except SettingsError as error:
            problems.append(str(error))
        return problems

    @property
    def most_held_bytes(self) -> int:
        """Return the limit that `queued.max.request.bytes` sets."""
        if self.queued_max_request_bytes >= 0:
            return self.queued_max_request_bytes
        return max(_MOST_HELD, 5 * self.socket_request_max_bytes)

    @property
    def connections_of_ips(self) -> dict[str, int]:
        """Return `max.connections.per.ip.overrides` as a count for each address."""
        return dict(map(_connections_of_ip, self.max_connections_per_ip_overrides))

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Return the addresses to listen on for clients."""
        return client_endpoints(self.listeners, self.listener_security_protocol_map, self.controller_listener_names)

    def advertised(self) -> tuple[Endpoint, ...]:
        """Return the addresses to advertise, each with the name of its listener. Others advertise where they listen."""
        return advertised_endpoints(self.advertised_listeners, self.endpoints(), self.controller_listener_names)


def _connections_of_ip(entry: str) -> tuple[str, int]:
    host, colon, count = entry.rpartition(":")
    if not colon or not host or not count.isdecimal():
        raise SettingsError(f"max.connections.per.ip.overrides has {entry!r}; must be address:count")
    return host.strip("[]"), int(count)
