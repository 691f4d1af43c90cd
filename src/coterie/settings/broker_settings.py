"""The table of the broker's settings: Kafka's names, types, bounds and defaults (4.3.1).

    BrokerSettings.load(properties=text, environ=os.environ, sets=["num.partitions=4"])
    BrokerSettings.of({"group.initial.rebalance.delay.ms": 0, "num_partitions": 4})

Settings that Kafka does not have begin with `coterie.`. `UNSUPPORTED` has the rows of those that only Kafka has. The
configs of topics, which take their defaults from this table, are in `topic_configs.py`. docs/settings.md is generated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from coterie.settings.config_def import (
    OF_LISTENER,
    Flag,
    Given,
    Ignored,
    Password,
    Ratio,
    Secret,
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
from coterie.settings.jaas import parse_jaas
from coterie.settings.listeners import Endpoint, advertised_endpoints, client_endpoints, listener_names
from coterie.settings.sources import from_environ, from_properties, from_sets

__all__ = ["SMALLEST_SEGMENT", "BrokerSettings", "GroupCoordinatorSettings"]

GROUPS = "Groups and their offsets"
TOPICS = "Topics"
LOG = "Logs, and the default of a topic's own config"
REQUESTS = "Connections and requests"
TLS = "TLS"
SASL = "SASL"
NODE = "The node"
ACLS = "ACLs"

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"

OF_LISTENERS = (TLS, SASL)
"""The sections whose settings a listener may have of its own: `listener.name.NAME.ssl.client.auth`."""
_UNSECURED = (
    "org.apache.kafka.common.security.oauthbearer.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
)
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_STORES = ("PEM", "PKCS12", "JKS")

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
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
        "alter.log.dirs.replication.quota.* leader.imbalance.* "
        "unclean.leader.election.interval.ms offsets.topic.replication.factor inter.broker.listener.name "
        "broker.rack follower.fetch.last.tiered.offset.enable request.timeout.ms "
        "socket.connection.setup.timeout.*",
    ),
    ignored(
        "there are no transactions yet", "transaction.* transactional.id.expiration.ms add.partitions.to.txn.retry.*"
    ),
    ignored(
        "groups are of the protocols classic and consumer",
        "group.share.* group.streams.* group.coordinator.* share.coordinator.* share.fetch.*",
    ),
    ignored("there is no tiered storage", "remote.* rlmm.config.* rsm.config.*"),
    ignored(
        "OpenSSL chooses it",
        "ssl.cipher.suites ssl.protocol ssl.provider ssl.secure.random.implementation ssl.keymanager.algorithm "
        "ssl.trustmanager.algorithm ssl.allow.dn.changes ssl.allow.san.changes security.providers",
    ),
    ignored(
        "the broker does not connect to others",
        "ssl.endpoint.identification.algorithm security.inter.broker.protocol sasl.mechanism.inter.broker.protocol "
        "sasl.mechanism.controller.protocol sasl.client.callback.handler.class sasl.login.* "
        "sasl.oauthbearer.assertion.* sasl.oauthbearer.client.credentials.* sasl.oauthbearer.jwt.retriever.class "
        "sasl.oauthbearer.scope sasl.oauthbearer.token.endpoint.url",
    ),
    ignored(
        "there is no JVM to load a class into; principals are named as Kafka's own class names them",
        "ssl.engine.factory.class principal.builder.class sasl.oauthbearer.jwt.validator.class",
    ),
    ignored("GSSAPI is not supported", "sasl.kerberos.*"),
    ignored("scopes of tokens are not used", "sasl.oauthbearer.scope.claim.name"),
    ignored(
        "an endpoint that fails is asked again at the next refresh", "sasl.oauthbearer.jwks.endpoint.retry.backoff.*"
    ),
    ignored("there are no delegation tokens", "delegation.token.*"),
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
        "max.request.partition.size.limit socket.listen.backlog.size",
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
    group_consumer_assignors: tuple[str, ...] = setting(
        GROUPS,
        ("uniform", "range"),
        Words(),
        "The assignors of consumer groups: uniform, range, and assignors of your own, by the names of their entry "
        "points. The first is used if no member names one.",
    )
    coterie_assignor_timeout_ms: int = setting(
        GROUPS,
        10_000,
        int32(1),
        "How long an assignor of your own may take. Then the group keeps its last target assignment.",
    )
    group_consumer_session_timeout_ms: int = setting(
        GROUPS, 45_000, int32(1), "How long a member of a consumer group may be silent before it is removed."
    )
    group_consumer_min_session_timeout_ms: int = setting(
        GROUPS, 45_000, int32(1), "The shortest session timeout that a consumer group may be given."
    )
    group_consumer_max_session_timeout_ms: int = setting(
        GROUPS, 60_000, int32(1), "The longest session timeout that a consumer group may be given."
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        GROUPS, 5_000, int32(1), "How often the members of a consumer group send a heartbeat."
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        GROUPS, 5_000, int32(1), "The shortest heartbeat interval that a consumer group may be given."
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        GROUPS, 15_000, int32(1), "The longest heartbeat interval that a consumer group may be given."
    )
    group_consumer_assignment_interval_ms: int = setting(
        GROUPS,
        1_000,
        int32(0),
        "How long a consumer group waits after it has computed its target assignment before it does so again.",
    )
    group_consumer_min_assignment_interval_ms: int = setting(
        GROUPS, 0, int32(0), "The shortest assignment interval that a consumer group may be given."
    )
    group_consumer_max_assignment_interval_ms: int = setting(
        GROUPS, 15_000, int32(0), "The longest assignment interval that a consumer group may be given."
    )
    group_consumer_max_size: int = setting(GROUPS, 2**31 - 1, int32(1), "How many members a consumer group may have.")
    group_consumer_migration_policy: str = setting(
        GROUPS,
        "bidirectional",
        Word(("bidirectional", "upgrade", "downgrade", "disabled"), any_case=True),
        "Whether a classic group becomes a consumer group when a consumer member joins it (upgrade), and a classic "
        "group again when the last consumer member has left (downgrade).",
    )
    group_consumer_regex_refresh_interval_ms: int = setting(
        GROUPS,
        600_000,
        int32(10_000),
        "How often a consumer group matches its regular expressions with all topics, if no topic is new.",
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
    auto_leader_rebalance_enable: bool = setting(
        TOPICS,
        True,
        Flag(),
        "Whether a node that starts again leads its partitions at once; else an election of leaders gives them back.",
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
    socket_receive_buffer_bytes: int = setting(
        REQUESTS,
        102_400,
        int32(),
        "The receive buffer of a connection's socket; a negative size is the system's default. What a client has sent "
        "and the broker has not read yet waits there.",
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

    ssl_keystore_location: str | None = setting(
        TLS, None, Word(), "The file with the broker's certificate, the chain to its CA, and its key."
    )
    ssl_keystore_type: str = setting(
        TLS,
        "JKS",
        Word(_STORES, any_case=True),
        "The format of the file. PEM and PKCS12 are read, whatever is given here; JKS is not.",
    )
    ssl_keystore_password: Password | None = setting(TLS, None, Secret(), "The password of a PKCS12 file.")
    ssl_keystore_key: Password | None = setting(TLS, None, Secret(), "The key as PEM text, in place of a file.")
    ssl_keystore_certificate_chain: Password | None = setting(
        TLS, None, Secret(), "The certificate and its chain as PEM text, in place of a file."
    )
    ssl_key_password: Password | None = setting(TLS, None, Secret(), "The password of an encrypted key.")
    ssl_truststore_location: str | None = setting(
        TLS, None, Word(), "The file with the CAs that certificates of clients are verified with."
    )
    ssl_truststore_type: str = setting(
        TLS,
        "JKS",
        Word(_STORES, any_case=True),
        "The format of the file. PEM and PKCS12 are read, whatever is given here; JKS is not.",
    )
    ssl_truststore_password: Password | None = setting(TLS, None, Secret(), "The password of a PKCS12 file.")
    ssl_truststore_certificates: Password | None = setting(
        TLS, None, Secret(), "The CAs as PEM text, in place of a file."
    )
    ssl_client_auth: str = setting(
        TLS,
        "none",
        Word(("required", "requested", "none")),
        "Whether a client must have a certificate, may have one, or is not asked. On a SASL_SSL listener only "
        "`listener.name.NAME.ssl.client.auth` counts.",
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        TLS, ("TLSv1.2", "TLSv1.3"), Words(("TLSv1.2", "TLSv1.3")), "The versions of TLS that a client may use."
    )
    ssl_principal_mapping_rules: str = setting(
        TLS,
        "DEFAULT",
        Word(),
        "How the name in a certificate becomes a principal: a list of RULE:pattern/replacement/[LU] and DEFAULT, "
        "of which the first that matches counts.",
    )

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        SASL,
        ("GSSAPI",),
        Words(),
        "The SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's default, "
        "GSSAPI, is not supported.",
    )
    sasl_jaas_config: Password | None = setting(
        SASL,
        None,
        Secret(),
        "The users of PLAIN, as options user_NAME of PlainLoginModule. It is given for a listener and a mechanism: "
        "`listener.name.NAME.plain.sasl.jaas.config`.",
    )
    coterie_users_file: str | None = setting(
        SASL,
        None,
        Word(),
        "A properties file with users and their passwords, name=password, for PLAIN and SCRAM. It is read again when "
        "it changes.",
    )
    sasl_server_callback_handler_class: str | None = setting(
        SASL,
        None,
        Word((_VALIDATOR, _UNSECURED), code=8),
        "Which tokens OAUTHBEARER takes: those that a key of sasl.oauthbearer.jwks.endpoint.url has signed, or "
        "unsecured ones, for tests. Without it, an endpoint means the first.",
        why="there is no JVM to load another class into",
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        SASL, None, Word(), "Where the keys are that tokens are verified with: an http, https or file URL of a JWKS."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        SASL, 3_600_000, int64(), "How often the keys are fetched again."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = setting(
        SASL, (), Words(), "The audiences of which a token must name one."
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(SASL, None, Word(), "The issuer that a token must be from.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        SASL, 30, int32(), "By how much the clock of a token's issuer may be wrong."
    )
    sasl_oauthbearer_sub_claim_name: str = setting(SASL, "sub", Word(), "The claim that has the user's name.")
    sasl_server_max_receive_size: int = setting(
        SASL, 524_288, int32(), "The largest request of a client that has not authenticated yet."
    )
    connections_max_reauth_ms: int = setting(
        SASL,
        0,
        int64(),
        "How long a connection may be used before its client must authenticate again; 0 is no limit.",
    )
    connection_failed_authentication_delay_ms: int = setting(
        REQUESTS, 100, int32(0), "How long the answer to a failed authentication is held back."
    )
    coterie_authentication_timeout_ms: int = setting(
        REQUESTS,
        60_000,
        int32(1),
        "How long a client may take for the TLS handshake and SASL. Kafka has no such limit.",
    )
    coterie_max_unauthenticated_connections: int = setting(
        REQUESTS,
        1_000,
        int32(1),
        "How many connections may be within the TLS handshake or SASL at a time. If there are more, the oldest of them "
        "is closed. Kafka has no such limit.",
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
        "The security protocol of each listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listener_names: tuple[str, ...] = setting(
        NODE, (), Words(), "The listeners for controllers. They are not opened, as there are no controllers."
    )
    log_dirs: tuple[str, ...] = setting(NODE, (), Words(), "The data directory. There can be one.", also=("log.dir",))
    # --- ACLs
    authorizer_class_name: str = setting(
        ACLS,
        "",
        Word(("", STANDARD_AUTHORIZER, STANDARD_AUTHORIZER.rpartition(".")[2])),
        "What decides what clients may do: StandardAuthorizer decides by ACLs. If it is empty, every client that can "
        "connect may do everything.",
        why="there is no JVM to load a class into; StandardAuthorizer is built in",
    )
    super_users: str = setting(
        ACLS,
        "",
        Word(),
        "Principals that may do everything, whatever the ACLs say, with semicolons between them: User:admin;User:ops.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        ACLS,
        False,
        Flag(),
        "Whether everybody may do everything with a resource that no ACL applies to.",
    )

    of_listeners: Mapping[tuple[str, str, str], Any] = field(default_factory=dict)
    """The settings of single listeners, by listener, mechanism (empty is all) and field."""

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

    @classmethod
    def _take_others(
        cls, latest: dict[str, Given], problems: list[str], without_effect: list[Ignored]
    ) -> dict[str, Any]:
        """Take `listener.name.NAME.…` and `listener.name.NAME.MECHANISM.…`."""
        listeners = latest["listeners"].text.split(",") if "listeners" in latest else cls.rows()["listeners"].default
        names = sorted(listener_names([text.strip() for text in listeners]), key=len, reverse=True)
        values = {}
        for each in [each for name, each in latest.items() if name.lower().startswith(OF_LISTENER)]:
            del latest[each.name]
            rest = each.name[len(OF_LISTENER) :]
            listener = next((name for name in names if rest.upper().startswith(f"{name}.")), None)
            if listener is None:
                without_effect.append(Ignored(each.name, each.where, "listeners has no listener of this name"))
                continue
            rest = rest[len(listener) + 1 :]
            mechanism = next((name for name in MECHANISMS if rest.upper().startswith(f"{name}.")), "")
            row = cls.rows().get(rest[len(mechanism) + 1 :] if mechanism else rest)
            if row is None or row.section not in OF_LISTENERS:
                without_effect.append(Ignored(each.name, each.where, "a listener has no such setting of its own"))
                continue
            try:
                values[listener, mechanism, row.field_name] = row.kind.read(each.text)
            except ValueError:
                problems.append(f"{each.name} ({each.where}): must be {row.kind.allowed}")
        return {"of_listeners": values}

    def of_listener(self, endpoint: Endpoint, mechanism: str = "") -> Self:
        """Return the settings that hold for a listener, and there for a mechanism."""
        own = {
            name: value
            for level in dict.fromkeys(("", mechanism))
            for (listener, of_mechanism, name), value in self.of_listeners.items()
            if listener == endpoint.name and of_mechanism == level
        }
        if endpoint.has_sasl and "ssl_client_auth" not in own:
            own["ssl_client_auth"] = "none"  # S24
        return replace(self, **own)

    @property
    def has_signed_tokens(self) -> bool:
        """Return whether OAUTHBEARER takes tokens that are signed; otherwise unsecured ones, for tests."""
        handler = self.sasl_server_callback_handler_class
        return handler == _VALIDATOR or (handler is None and bool(self.sasl_oauthbearer_jwks_endpoint_url))

    def contradictions(self) -> list[str]:
        problems = []
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            problems.append(
                f"group.min.session.timeout.ms is {self.group_min_session_timeout_ms}, group.max.session.timeout.ms "
                f"{self.group_max_session_timeout_ms}: no member could join. Lower the one or raise the other"
            )
        for what in ("session_timeout", "heartbeat_interval", "assignment_interval"):
            least, own, most = (getattr(self, f"group_consumer_{bound}{what}_ms") for bound in ("min_", "", "max_"))
            if not least <= own <= most:
                dotted = what.replace("_", ".")
                problems.append(
                    f"group.consumer.{dotted}.ms is {own}; it must be within group.consumer.min.{dotted}.ms and "
                    f"group.consumer.max.{dotted}.ms, which are {least} and {most}"
                )
        if self.group_consumer_heartbeat_interval_ms >= self.group_consumer_session_timeout_ms:
            problems.append("group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms")
        if not self.group_consumer_assignors:
            problems.append("group.consumer.assignors is empty; give uniform, range, or both, or assignors of your own")
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
            self.advertised()
            for endpoint in self.endpoints():
                self._check_listener(endpoint)
        except SettingsError as error:
            problems.append(str(error))
        return problems

    def _check_listener(self, endpoint: Endpoint) -> None:
        settings = self.of_listener(endpoint)
        if endpoint.has_sasl:
            unknown = [name for name in settings.sasl_enabled_mechanisms if name not in MECHANISMS]
            if unknown or not settings.sasl_enabled_mechanisms:
                raise SettingsError(
                    f"listener {endpoint.name} needs sasl.enabled.mechanisms, which is "
                    f"{','.join(settings.sasl_enabled_mechanisms)!r}; supported are {', '.join(MECHANISMS)}"
                )
            for mechanism in settings.sasl_enabled_mechanisms:
                of_mechanism = self.of_listener(endpoint, mechanism)
                if of_mechanism.sasl_jaas_config:
                    parse_jaas(of_mechanism.sasl_jaas_config.value)
                if of_mechanism.has_signed_tokens and not of_mechanism.sasl_oauthbearer_jwks_endpoint_url:
                    raise SettingsError(
                        f"listener {endpoint.name} must verify tokens (sasl.server.callback.handler.class), and has no "
                        "keys: give sasl.oauthbearer.jwks.endpoint.url"
                    )
        if endpoint.has_tls:
            has_text = settings.ssl_keystore_key and settings.ssl_keystore_certificate_chain
            if not settings.ssl_keystore_location and not has_text:
                raise SettingsError(
                    f"listener {endpoint.name} needs a certificate: give ssl.keystore.location, a PEM file with the "
                    "key and the certificate, or ssl.keystore.key and ssl.keystore.certificate.chain"
                )
            has_authorities = settings.ssl_truststore_location or settings.ssl_truststore_certificates
            if settings.ssl_client_auth != "none" and not has_authorities:
                raise SettingsError(
                    f"listener {endpoint.name} asks for certificates of clients (ssl.client.auth) and cannot verify "
                    "them: give ssl.truststore.location, a PEM file with their CA"
                )

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
