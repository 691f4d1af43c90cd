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
from typing import Any, ClassVar, Self

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
        "process.roles",
        "controller.quorum.*",
        "controller.quota.*",
        "controller.performance.*",
        "controller.socket.timeout.ms",
        "metadata.*",
        "internal.metadata.*",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "server.max.startup.time.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
    ),
    ignored(
        "there is one copy of each log: nobody copies it, waits for a copy, or asks another machine",
        "replica.*",
        "replication.quota.*",
        "num.replica.fetchers",
        "num.replica.alter.log.dirs.threads",
        "alter.log.dirs.replication.quota.*",
        "auto.leader.rebalance.enable",
        "leader.imbalance.*",
        "unclean.leader.election.interval.ms",
        "offsets.topic.replication.factor",
        "inter.broker.listener.name",
        "broker.rack",
        "follower.fetch.last.tiered.offset.enable",
        "request.timeout.ms",
        "socket.connection.setup.timeout.*",
    ),
    ignored(
        "there are no transactions yet",
        "transaction.*",
        "transactional.id.expiration.ms",
        "add.partitions.to.txn.retry.*",
    ),
    ignored(
        "groups are of the classic protocol",
        "group.consumer.*",
        "group.share.*",
        "group.streams.*",
        "group.coordinator.*",
        "share.coordinator.*",
        "share.fetch.*",
    ),
    ignored("there is no tiered storage", "remote.*", "rlmm.config.*", "rsm.config.*"),
    ignored(
        "nothing but PLAINTEXT is spoken; a listener that should speak more is refused",
        "ssl.*",
        "sasl.*",
        "security.inter.broker.protocol",
        "security.providers",
        "listener.name.*",
        "principal.builder.class",
        "connection.failed.authentication.delay.ms",
        "connections.max.reauth.ms",
        "delegation.token.*",
        "super.users",
        "allow.everyone.if.no.acl.found",
    ),
    ignored(
        "one thread answers, and one flushes",
        "num.network.threads",
        "num.io.threads",
        "background.threads",
        "num.recovery.threads.per.data.dir",
    ),
    ignored("there are no quotas", "quota.*", "client.quota.callback.class", "max.connection.creation.rate"),
    ignored("the cleaner is one thread, which rests after each small step", "log.cleaner.io.*", "log.cleaner.threads"),
    ignored(
        "coterie.flush says when a write is on the disk",
        "log.flush.offset.checkpoint.interval.ms",
        "log.flush.start.offset.checkpoint.interval.ms",
    ),
    ignored("there is one data directory", "log.dir.failure.timeout.ms", "cordoned.log.dirs"),
    ignored(
        "there is no JVM to load a class into",
        "alter.config.policy.class.name",
        "create.topic.policy.class.name",
        "config.providers",
        "config.providers.*",
    ),
    ignored(
        "there is no JVM to report metrics of",
        "metric.reporters",
        "metrics.*",
        "kafka.metrics.*",
        "auto.include.jmx.reporter",
        "telemetry.max.bytes",
    ),
    ignored(
        "the work behind it is done in another way",
        "offsets.topic.compression.codec",
        "offsets.load.buffer.size",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "producer.purgatory.purge.interval.requests",
        "producer.id.expiration.check.interval.ms",
        "log.initial.task.delay.ms",
        "controlled.shutdown.enable",
        "early.start.listeners",
        "max.request.partition.size.limit",
        "socket.listen.backlog.size",
        "socket.receive.buffer.bytes",
    ),
    ignored(
        "Kafka 4 does not have it any more",
        "zookeeper.*",
        "broker.id.generation.enable",
        "reserved.broker.max.id",
        "control.plane.listener.name",
        "inter.broker.protocol.version",
        "log.message.format.version",
        "log.message.downconversion.enable",
        "log.message.timestamp.difference.max.ms",
        "offsets.commit.required.acks",
        "password.encoder.*",
    ),
    ignored("it is Confluent's own", "confluent.*"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCoordinatorSettings(Settings):
    """The part of the table that the group coordinator uses."""

    group_min_session_timeout_ms: int = setting(GROUPS, 6_000, int32(0), "The shortest session a member may ask for.")
    group_max_session_timeout_ms: int = setting(
        GROUPS, 1_800_000, int32(0), "The longest session a member may ask for."
    )
    group_max_size: int = setting(GROUPS, 2**31 - 1, int32(1), "The members a group may have.")
    group_initial_rebalance_delay_ms: int = setting(
        GROUPS, 3_000, int32(0), "How long the first rebalance of an empty group waits for more members."
    )
    offset_metadata_max_bytes: int = setting(GROUPS, 4_096, int32(0), "The longest note a commit may carry.")
    offsets_retention_minutes: int = setting(
        GROUPS, 10_080, int32(1), "How long offsets outlive the last member, or the last subscription to their topic."
    )
    offsets_retention_check_interval_ms: int = setting(
        GROUPS, 600_000, int64(1), "How often offsets are looked at for having outlived that."
    )
    offsets_commit_timeout_ms: int = setting(
        GROUPS, 5_000, int32(1), "How long a commit may wait for the disk before its client is told to try again."
    )
    offsets_topic_num_partitions: int = setting(
        GROUPS, 50, int32(1), "Partitions of __consumer_offsets; not to be changed once the topic is there."
    )
    offsets_topic_segment_bytes: int = setting(
        GROUPS,
        104_857_600,
        int32(SMALLEST_SEGMENT),
        "Segment size of __consumer_offsets.",
    )
    coterie_offsets_roll_bytes: int = setting(
        GROUPS,
        1_048_576,
        int32(1),
        "The size of a segment of __consumer_offsets that is rolled to be compacted, if that is worth it.",
    )
    coterie_max_record_bytes: int = setting(
        GROUPS, 104_857_600, int32(1024), "The largest record of a group. Kafka's 1 MiB stops groups of 5 000 members."
    )
    coterie_group_member_max_bytes: int = setting(
        GROUPS,
        4_194_304,
        int32(1024),
        "The metadata of all protocols of a member, in bytes. A join with more is refused with GROUP_MAX_SIZE_REACHED.",
    )
    coterie_group_max_bytes: int = setting(
        GROUPS,
        268_435_456,
        int64(1024),
        "What the members of a group may make us hold: metadata, ids, assignments. More is refused likewise.",
    )
    coterie_groups_max_bytes: int = setting(
        GROUPS, 536_870_912, int64(1024), "What the members of all groups together may make us hold; likewise."
    )
    coterie_facts_enable: bool = setting(
        GROUPS,
        True,
        Flag(),
        "What happens to groups is kept as the topic __coterie_facts, so that it can be explained.",
    )
    coterie_facts_retention_bytes: int = setting(
        GROUPS,
        268_435_456,
        int64(-1),
        "The size __coterie_facts is cut back to, beside log.retention; -1 is no limit. The topic's retention.bytes "
        "goes first.",
    )
    coterie_max_append_bytes: int = setting(
        GROUPS, 1_048_576, int32(1024), "Records of groups are joined into one write up to this size."
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

    num_partitions: int = setting(TOPICS, 1, int32(1), "Partitions of a topic that is created without a number.")
    default_replication_factor: int = setting(
        TOPICS, 1, int32(1, 1), "Replicas of a topic that is created without a number.", why=_ONE_REPLICA
    )
    coterie_replicas_as_one: bool = setting(
        TOPICS, False, Flag(), "A topic that is asked for with several replicas is created with the one there is."
    )
    min_insync_replicas: int = setting(TOPICS, 1, int32(1, 1), "Replicas an acks=all write needs.", why=_ONE_REPLICA)
    auto_create_topics_enable: bool = setting(
        TOPICS, True, Flag(), "A topic that is asked for and not there is created."
    )
    coterie_max_partitions: int = setting(
        TOPICS,
        20_000,
        int32(1),
        "Partitions of all topics together; to create more is refused with POLICY_VIOLATION. Kafka has no such limit.",
    )
    delete_topic_enable: bool = setting(TOPICS, True, Flag(), "Topics may be deleted.")
    unclean_leader_election_enable: bool = setting(
        TOPICS, False, Flag(), "A replica that is behind may lead.", unused=_ONE_REPLICA
    )

    message_max_bytes: int = setting(LOG, 1_048_588, int32(0), "The largest record batch, as it is stored.")
    compression_type: str = setting(
        LOG, "producer", Word(_COMPRESSIONS), "What batches are stored with.", unused=_AS_PRODUCED
    )
    compression_gzip_level: int = setting(LOG, -1, int32(1, 9, (-1,)), "Level of gzip.", unused=_AS_PRODUCED)
    compression_lz4_level: int = setting(LOG, 9, int32(1, 17), "Level of lz4.", unused=_AS_PRODUCED)
    compression_zstd_level: int = setting(LOG, 3, int32(-131_072, 22), "Level of zstd.", unused=_AS_PRODUCED)
    log_segment_bytes: int = setting(LOG, 1_073_741_824, int32(SMALLEST_SEGMENT), "The size a segment is rolled at.")
    log_roll_ms: int | None = setting(LOG, None, int64(1), "The age a segment is rolled at.")
    log_roll_hours: int = setting(LOG, 168, int32(1), "The same in hours, where log.roll.ms is not given.")
    log_roll_jitter_ms: int | None = setting(
        LOG, None, int64(0), "The most by which a segment is rolled early.", unused="segments are rolled on time"
    )
    log_roll_jitter_hours: int = setting(LOG, 0, int32(0), "The same in hours.", unused="segments are rolled on time")
    log_index_interval_bytes: int = setting(LOG, 4_096, int32(0), "Bytes of a segment between entries of its index.")
    log_index_size_max_bytes: int = setting(LOG, 10_485_760, int32(4), "The size of an index its segment is rolled at.")
    log_retention_ms: int | None = setting(LOG, None, int64(), "How long records are kept; -1 is for ever.")
    log_retention_minutes: int | None = setting(
        LOG, None, int32(), "The same in minutes, where log.retention.ms is not."
    )
    log_retention_hours: int = setting(LOG, 168, int32(), "The same in hours, where neither is given.")
    log_retention_bytes: int = setting(LOG, -1, int64(), "The size a partition is cut back to; -1 is no limit.")
    log_retention_check_interval_ms: int = setting(
        LOG, 300_000, int64(1), "How often logs are looked at for old segments."
    )
    log_segment_delete_delay_ms: int = setting(
        LOG, 60_000, int64(0), "How long the files of a deleted segment stay.", unused="they go at once"
    )
    log_cleanup_policy: tuple[str, ...] = setting(
        LOG,
        ("delete",),
        Words(("compact", "delete")),
        "Old records are deleted, or of each key the last one is kept: then every record needs a key.",
    )
    log_cleaner_enable: bool = setting(LOG, True, Flag(), "Logs whose cleanup.policy has compact are compacted.")
    log_cleaner_backoff_ms: int = setting(
        LOG, 15_000, int64(0), "How long the cleaner rests when no log is worth compacting."
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        LOG,
        134_217_728,
        int64(),
        "Memory for the keys of a log that is compacted, 256 bytes each; if they are more, it takes several rounds.",
    )
    log_cleaner_delete_retention_ms: int = setting(
        LOG, 86_400_000, int64(0), "How long a deletion is kept in a compacted topic, from its first compaction on."
    )
    log_cleaner_min_compaction_lag_ms: int = setting(LOG, 0, int64(0), "The age of the youngest record compacted.")
    log_cleaner_max_compaction_lag_ms: int = setting(
        LOG, _FOREVER, int64(1), "The age at which a record is to be compacted, however little else there is to do."
    )
    log_cleaner_min_cleanable_ratio: float = setting(
        LOG, 0.5, Ratio(), "A log is compacted when a larger share of it than this never was."
    )
    log_message_timestamp_type: str = setting(
        LOG, "CreateTime", Word(("CreateTime", "LogAppendTime")), "Whose clock stamps a record."
    )
    log_message_timestamp_before_max_ms: int = setting(LOG, _FOREVER, int64(0), "How far in the past a stamp may be.")
    log_message_timestamp_after_max_ms: int = setting(LOG, 3_600_000, int64(0), "How far in the future it may be.")
    log_flush_interval_messages: int = setting(LOG, _FOREVER, int64(1), "Records between flushes.", unused=_OUR_FLUSH)
    log_flush_interval_ms: int | None = setting(LOG, None, int64(0), "Time between flushes.", unused=_OUR_FLUSH)
    log_flush_scheduler_interval_ms: int = setting(
        LOG, _FOREVER, int64(), "How often it is looked at.", unused=_OUR_FLUSH
    )
    log_preallocate: bool = setting(LOG, False, Flag(), "Segments get their size at once.", unused="they grow")
    log_local_retention_ms: int = setting(LOG, -2, int64(-2), "How long records stay on this disk.", unused=_NO_TIERS)
    log_local_retention_bytes: int = setting(LOG, -2, int64(-2), "How many stay on this disk.", unused=_NO_TIERS)
    producer_id_expiration_ms: int = setting(
        LOG, 86_400_000, int32(1), "How long an idempotent producer is remembered."
    )
    coterie_max_producers: int = setting(LOG, 10_000, int32(1), "The producers a partition remembers at most.")
    coterie_max_decompressed_bytes: int = setting(
        LOG,
        134_217_728,
        int32(1_048_576),
        "The most a batch that must be read may unpack to; 16 MiB at most where a producer or a search waits for it.",
    )
    coterie_flush: str = setting(
        LOG, "sync", Word(("sync", "os")), "A write counts once it is on the disk, or once the system has it."
    )

    socket_request_max_bytes: int = setting(REQUESTS, 104_857_600, int32(1), "The largest request.")
    socket_send_buffer_bytes: int = setting(
        REQUESTS, 102_400, int32(), "What the system may hold of answers for each connection; negative: as it likes."
    )
    max_connections: int = setting(REQUESTS, 2**31 - 1, int32(0), "Connections at a time.")
    max_connections_per_ip: int = setting(REQUESTS, 2**31 - 1, int32(0), "Connections from one address at a time.")
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        REQUESTS, (), Words(code=2), "The same for some addresses, as address:count, with commas between."
    )
    connections_max_idle_ms: int = setting(
        REQUESTS,
        600_000,
        int64(),
        "A connection that is silent so long, or takes so long to send one request, is closed; negative: never.",
    )
    queued_max_requests: int = setting(
        REQUESTS, 500, int32(1), "Requests of one connection that may wait. Kafka counts those of all connections."
    )
    queued_max_request_bytes: int = setting(
        REQUESTS,
        -1,
        int64(),
        "What all connections together may make us hold: requests that arrive or wait, answers that are not taken. "
        "Who has done so for the longest time is sent away. Negative: 512 MiB, and at least five of the largest "
        "requests. Kafka counts requests alone, has no limit by default, and stops reading.",
    )
    fetch_max_bytes: int = setting(REQUESTS, 57_671_680, int32(1024), "The most one fetch is answered with.")
    max_incremental_fetch_session_cache_slots: int = setting(
        REQUESTS, 1_000, int32(0), "Fetch sessions at a time.", unused="there are no fetch sessions"
    )

    node_id: int = setting(NODE, 1, int32(0), "The number clients know this broker by.", also=("broker.id",))
    coterie_cluster_id: str = setting(
        NODE, "", Word(), "The cluster's id; empty: what the data directory says, or a new one."
    )
    listeners: tuple[str, ...] = setting(NODE, ("PLAINTEXT://127.0.0.1:9092",), Words(), "Where to listen.")
    advertised_listeners: tuple[str, ...] = setting(NODE, (), Words(), "Where clients are told to come; empty: there.")
    listener_security_protocol_map: tuple[str, ...] = setting(
        NODE,
        ("SASL_SSL:SASL_SSL", "PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT"),
        Words(code=2),
        "What is spoken on which listener; on ours it is PLAINTEXT.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        NODE, (), Words(), "Listeners that are for controllers, which there are none of; they are not opened."
    )
    log_dirs: tuple[str, ...] = setting(NODE, (), Words(), "The data directory, one.", also=("log.dir",))
    authorizer_class_name: str = setting(
        NODE,
        "",
        Word(("",)),
        "Who judges what clients may do.",
        why="there are no ACLs: whoever can connect may do everything. Take it out, and let only friends connect",
    )

    @classmethod
    def load(
        cls,
        properties: str = "",
        environ: Mapping[str, str] = MappingProxyType({}),
        sets: Sequence[str] = (),
        **more: Any,
    ) -> Self:
        """From a file's text, then the environment, then `--set name=value`, then keywords: the later one counts."""
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
        """From Python: names with dots or underscores, values of any type that says what is meant."""
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
        """What `queued.max.request.bytes` comes to."""
        if self.queued_max_request_bytes >= 0:
            return self.queued_max_request_bytes
        return max(_MOST_HELD, 5 * self.socket_request_max_bytes)

    @property
    def connections_of_ips(self) -> dict[str, int]:
        """`max.connections.per.ip.overrides`, taken apart."""
        return dict(map(_connections_of_ip, self.max_connections_per_ip_overrides))

    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where to listen for clients."""
        return client_endpoints(self.listeners, self.listener_security_protocol_map, self.controller_listener_names)

    def advertised(self) -> tuple[Endpoint, ...]:
        """What clients that came by a listener are told, by its name; none for those that are told where they came."""
        return advertised_endpoints(self.advertised_listeners, self.endpoints(), self.controller_listener_names)


def _connections_of_ip(entry: str) -> tuple[str, int]:
    host, colon, count = entry.rpartition(":")
    if not colon or not host or not count.isdecimal():
        raise SettingsError(f"max.connections.per.ip.overrides has {entry!r}; must be address:count")
    return host.strip("[]"), int(count)
