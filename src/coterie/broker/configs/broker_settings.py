"""Every setting of the broker, under Kafka's own names, with the defaults of Kafka 4.3.1: this class is the table.

    Settings.load(properties=text, environ=os.environ, sets=["num.partitions=4"])
    Settings.of({"group.initial.rebalance.delay.ms": 0, "num_partitions": 4})

Where Kafka has no name for what can be set here, ours begins with `coterie.`. What Kafka has and we do not is in
`ignored_settings.py`; docs/settings.md is printed from both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any, Self

from coterie.broker.configs.ignored_settings import IGNORED
from coterie.broker.configs.listeners import Endpoint, advertised_endpoints, client_endpoints
from coterie.broker.configs.topic_configs import COMPRESSIONS, log_config
from coterie.coordinator.classic import GroupSettings
from coterie.coordinator.runtime import CoordinatorSettings
from coterie.protocol.records import MAX_DECOMPRESSED
from coterie.settings.kinds import Flag, Ratio, Word, Words, int32, int64, text_of
from coterie.settings.setting import Setting, SettingsError, rows_of, setting
from coterie.settings.sources import Given, Ignored, Table, from_properties, from_sets, settle
from coterie.storage import LogConfig

__all__ = ["ALIASES", "SETTINGS", "Part", "Settings", "SettingsError", "from_environ"]


# What the broker takes besides its table: second names, and variables of the environment.

ALIASES = {"broker.id": "node.id", "log.dir": "log.dirs"}
"""Kafka's second names: the first one counts where both are given."""

_PREFIXES = ("KAFKA_", "COTERIE_")
_NOT_SETTINGS = re.compile(
    r"KAFKA_(VERSION|HOME|USER|DEBUG|MODE|CLUSTERS|(.*_)?OPTS|(TOOLS_)?LOG4J_.*|JMX_.*|CLASSPATH|CFG_.*)"
    r"|KAFKA_(.*_)?SERVICE_(HOST|PORT(_.*)?)|KAFKA_(.*_)?PORT(_[0-9]+_(TCP|UDP)(_.*)?)?"
    r"|COTERIE_(BOOTSTRAP|KAFKA_LIBS|TEST_CLOCK)"
)
"""Variables that are no settings: those of Kafka's images, of a Kubernetes service called kafka, of our commands."""


def from_environ(environ: Mapping[str, str], settings: Iterable[str], problems: list[str]) -> list[Given]:
    """`KAFKA_` as Kafka's image takes them, `COTERIE_` above them; `COTERIE_FLUSH` is `coterie.flush`."""
    ours = {name.removeprefix("coterie.") for name in settings if name.startswith("coterie.")}
    given = []
    for prefix in _PREFIXES:
        for variable in sorted(environ):
            if not variable.startswith(prefix) or _NOT_SETTINGS.fullmatch(variable):
                continue
            name = _name_in(variable.removeprefix(prefix))
            if not name:
                problems.append(f"{variable}: no setting is named")
                continue
            if prefix == "COTERIE_" and name in ours:
                name = f"coterie.{name}"
            given.append(Given(name, environ[variable], variable, is_certain=prefix == "COTERIE_"))
    return given


def _name_in(variable: str) -> str:
    """Kafka's image: one underscore is a dot, two are an underscore, three a dash."""
    return variable.lower().replace("_", ".").replace("...", "-").replace("..", "_")


class Part(Enum):
    """Who takes a setting."""

    GROUPS = "Groups and their offsets"
    TOPICS = "Topics"
    LOG = "Logs, and the default of a topic's own config"
    REQUESTS = "Connections and requests"
    NODE = "The node"


GROUPS, TOPICS, LOG, REQUESTS, NODE = Part
_FOREVER = 2**63 - 1
_MOST_HELD = 512 << 20
_BATCH_OVERHEAD = 1024
_SMALLEST_SEGMENT = 1_048_576
_ONE_REPLICA = "there is one copy of each log, also with several nodes. For more, run Apache Kafka"
_AS_PRODUCED = "batches are stored as their producer compressed them"
_OUR_FLUSH = "coterie.flush says when a write is on the disk"
_NO_TIERS = "there is no tiered storage"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
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
        # Kafka takes less, and then never finds a coordinator: no topic may have smaller segments.
        GROUPS,
        104_857_600,
        int32(1_048_576),
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
        LOG, "producer", Word(COMPRESSIONS), "What batches are stored with.", unused=_AS_PRODUCED
    )
    compression_gzip_level: int = setting(LOG, -1, int32(1, 9, (-1,)), "Level of gzip.", unused=_AS_PRODUCED)
    compression_lz4_level: int = setting(LOG, 9, int32(1, 17), "Level of lz4.", unused=_AS_PRODUCED)
    compression_zstd_level: int = setting(LOG, 3, int32(-131_072, 22), "Level of zstd.", unused=_AS_PRODUCED)
    log_segment_bytes: int = setting(LOG, 1_073_741_824, int32(1_048_576), "The size a segment is rolled at.")
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
        MAX_DECOMPRESSED,
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

    node_id: int = setting(NODE, 1, int32(0), "The number clients know this broker by; broker.id is the same.")
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
    log_dirs: tuple[str, ...] = setting(NODE, (), Words(), "The data directory, one; log.dir is the same.")
    authorizer_class_name: str = setting(
        NODE,
        "",
        Word(("",)),
        "Who judges what clients may do.",
        why="there are no ACLs: whoever can connect may do everything. Take it out, and let only friends connect",
    )

    given: Mapping[str, str] = field(default_factory=dict)
    """Where those that were given came from, by name; all others have their default."""
    ignored: Sequence[Ignored] = ()
    """What was given and changes nothing, with the reason: for the log."""

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
            *from_environ(environ, SETTINGS, problems),
            *from_sets(sets, problems),
            *(Given(name, text_of(value), f"{name}=") for name, value in more.items()),
        ]
        return cls._settled(given, problems)

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """From Python: names with dots or underscores, values of any type that says what is meant."""
        return cls._settled([Given(name, text_of(value), "settings") for name, value in values.items()], [])

    @classmethod
    def _settled(cls, given: Sequence[Given], problems: list[str]) -> Self:
        values, origins, ignored = settle(given, TABLE, problems)
        settings = cls(**values, given=origins, ignored=tuple(ignored))
        if not problems:
            problems += settings._contradictions()
        if problems:
            raise SettingsError("\n".join(problems))
        return settings

    def _contradictions(self) -> list[str]:
        """What is allowed alone and not together."""
        problems = []
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            problems.append(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms}, group.max.session.timeout.ms "
                f"{self.group_max_session_timeout_ms}: no member could join. Lower the one or raise the other"
            )
        if self.log_config({}).retention_ms == 0:
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

    def __getitem__(self, name: str) -> Any:
        return getattr(self, SETTINGS[name].field_name)

    @property
    def coordinator(self) -> CoordinatorSettings:
        group = GroupSettings(
            group_min_session_timeout_ms=self.group_min_session_timeout_ms,
            group_max_session_timeout_ms=self.group_max_session_timeout_ms,
            group_max_size=self.group_max_size,
            group_initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            offset_metadata_max_bytes=self.offset_metadata_max_bytes,
            max_member_bytes=self.coterie_group_member_max_bytes,
            max_group_bytes=self.coterie_group_max_bytes,
            max_bytes_of_groups=self.coterie_groups_max_bytes,
            offsets_retention_minutes=self.offsets_retention_minutes,
        )
        return CoordinatorSettings(
            group=group,
            offsets_topic_num_partitions=self.offsets_topic_num_partitions,
            offsets_retention_check_interval_ms=self.offsets_retention_check_interval_ms,
            offsets_commit_timeout_ms=self.offsets_commit_timeout_ms,
            max_record_bytes=self.coterie_max_record_bytes,
            max_append_bytes=self.coterie_max_append_bytes,
        )

    def log_config(self, topic_configs: Mapping[str, str]) -> LogConfig:
        """Of a topic with these configs of its own, which have been checked when they were given."""
        return log_config(topic_configs, self)

    @property
    def offsets_topic_configs(self) -> dict[str, str]:
        """What __consumer_offsets is created with."""
        segment = str(self.offsets_topic_segment_bytes)
        return {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment}

    def offsets_log_config(self, topic_configs: Mapping[str, str]) -> LogConfig:
        """Of __consumer_offsets: the largest record of a group must fit into a batch, and the batch into a segment.

        All of it is read at a start, and most of what commits write is soon out of date: so a segment need not be full
        to be compacted.
        """
        config = self.log_config(topic_configs)
        largest = self.coterie_max_record_bytes + _BATCH_OVERHEAD
        return replace(
            config,
            max_message_bytes=max(config.max_message_bytes, largest),
            segment_bytes=max(config.segment_bytes, largest),
            roll_dirty_bytes=self.coterie_offsets_roll_bytes,
        )

    def facts_log_config(self, topic_configs: Mapping[str, str]) -> LogConfig:
        """Return the log config of __coterie_facts. Small segments let retention keep it within its size."""
        config = self.offsets_log_config(topic_configs)
        most = self.coterie_facts_retention_bytes
        if most < 0 or "retention.bytes" in topic_configs:
            return config
        segment_bytes = max(most // 8, _SMALLEST_SEGMENT)
        return replace(
            config,
            deletes=True,
            retention_bytes=most,
            segment_bytes=min(config.segment_bytes, segment_bytes),
            max_message_bytes=min(config.max_message_bytes, segment_bytes),
        )

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


SETTINGS: Mapping[str, Setting] = rows_of(Settings)
TABLE = Table(SETTINGS, "docs/settings.md", "a broker", ALIASES, IGNORED)
