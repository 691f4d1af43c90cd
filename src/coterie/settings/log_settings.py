"""The broker's settings of topics and logs. Most are the defaults of a topic's own configs (`topic_configs.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from coterie.settings.config_def import MAX_DECOMPRESSED, Flag, Ratio, Settings, Word, Words, int32, int64, setting
from coterie.settings.group_coordinator_settings import SMALLEST_SEGMENT

TOPICS = "Topics"
LOG = "Logs, and the default of a topic's own config"

_FOREVER = 2**63 - 1
_COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_ONE_REPLICA = "there is one copy of each log, also with several nodes. For more, run Apache Kafka"
_AS_PRODUCED = "batches are stored as their producer compressed them"
_OUR_FLUSH = "coterie.flush says when a write is on the disk"
_NO_TIERS = "there is no tiered storage"


@dataclass(frozen=True, kw_only=True)
class LogSettings(Settings):
    """The settings of topics and logs."""

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
        MAX_DECOMPRESSED,
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

    def contradictions(self) -> list[str]:
        problems = super().contradictions()
        retention = (self.log_retention_ms, self.log_retention_minutes, self.log_retention_hours)
        if next(time for time in retention if time is not None) == 0:
            problems.append(
                "log.retention is 0: records would be gone at once. Allowed is -1, for ever, or more than 0"
            )
        if self.log_cleaner_min_compaction_lag_ms > self.log_cleaner_max_compaction_lag_ms:
            problems.append("log.cleaner.min.compaction.lag.ms is above log.cleaner.max.compaction.lag.ms")
        return problems
