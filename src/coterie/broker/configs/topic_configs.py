"""The configs a topic can have of its own, as Kafka 4.3.1 lists them, and the broker's settings behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from coterie.protocol.batch import TimestampType
from coterie.settings.kinds import Flag, Kind, Ratio, Word, Words, int32, int64
from coterie.storage import UNLIMITED, LogConfig

__all__ = ["COMPRESSIONS", "TOPIC_CONFIGS", "BrokerValues", "TopicConfig", "effective", "log_config"]

COMPRESSIONS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_STAMPS = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}


class BrokerValues(Protocol):
    """`Settings`, of which no more is needed here."""

    def __getitem__(self, name: str) -> Any: ...


@dataclass(frozen=True, slots=True)
class TopicConfig:
    name: str
    kind: Kind
    doc: str
    behind: Mapping[str, int] = field(default_factory=dict)
    """The broker's settings it takes its default from, the first that has a value, and what to multiply it with."""
    default: Any = None
    """Of those that no setting is behind, and of all of them for APPEND and SUBTRACT."""


TOPIC_CONFIGS: Mapping[str, TopicConfig] = {
    config.name: config
    for config in (
        TopicConfig(
            "cleanup.policy",
            Words(("compact", "delete")),
            "Old records are deleted, or of each key the last one is kept: then every record needs a key.",
            {"log.cleanup.policy": 1},
            default=("delete",),
        ),
        TopicConfig(
            "compression.gzip.level",
            int32(1, 9, (-1,)),
            "Level of gzip. Changes nothing: batches stay as their producer compressed them.",
            {"compression.gzip.level": 1},
        ),
        TopicConfig(
            "compression.lz4.level",
            int32(1, 17),
            "Level of lz4. Changes nothing: batches stay as their producer compressed them.",
            {"compression.lz4.level": 1},
        ),
        TopicConfig(
            "compression.type",
            Word(COMPRESSIONS),
            "What batches are stored with. Changes nothing: batches stay as their producer compressed them.",
            {"compression.type": 1},
        ),
        TopicConfig(
            "compression.zstd.level",
            int32(-131_072, 22),
            "Level of zstd. Changes nothing: batches stay as their producer compressed them.",
            {"compression.zstd.level": 1},
        ),
        TopicConfig(
            "delete.retention.ms",
            int64(0),
            "How long a deletion is kept in a compacted topic, from its first compaction on.",
            {"log.cleaner.delete.retention.ms": 1},
        ),
        TopicConfig(
            "file.delete.delay.ms",
            int64(0),
            "How long the files of a deleted segment stay. Changes nothing: they go at once.",
            {"log.segment.delete.delay.ms": 1},
        ),
        TopicConfig(
            "flush.messages",
            int64(1),
            "Records between flushes. Changes nothing: coterie.flush says when a write is on the disk.",
            {"log.flush.interval.messages": 1},
        ),
        TopicConfig(
            "flush.ms",
            int64(0),
            "Time between flushes. Changes nothing: coterie.flush says when a write is on the disk.",
            {"log.flush.interval.ms": 1, "log.flush.scheduler.interval.ms": 1},
        ),
        TopicConfig(
            "follower.replication.throttled.replicas",
            Words(replicas=True),
            "Replicas that copy slowly. Changes nothing: there is one replica.",
            default=(),
        ),
        TopicConfig(
            "index.interval.bytes",
            int32(0),
            "Bytes of a segment between entries of its index.",
            {"log.index.interval.bytes": 1},
        ),
        TopicConfig(
            "leader.replication.throttled.replicas",
            Words(replicas=True),
            "Replicas that are copied from slowly. Changes nothing: there is one replica.",
            default=(),
        ),
        TopicConfig(
            "local.retention.bytes",
            int64(-2),
            "How much stays on this disk. Changes nothing: there is no tiered storage.",
            {"log.local.retention.bytes": 1},
        ),
        TopicConfig(
            "local.retention.ms",
            int64(-2),
            "How long records stay on this disk. Changes nothing: there is no tiered storage.",
            {"log.local.retention.ms": 1},
        ),
        TopicConfig(
            "max.compaction.lag.ms",
            int64(1),
            "The age at which a record is to be compacted, however little else there is to do.",
            {"log.cleaner.max.compaction.lag.ms": 1},
        ),
        TopicConfig(
            "max.message.bytes", int32(0), "The largest record batch, as it is stored.", {"message.max.bytes": 1}
        ),
        TopicConfig(
            "message.timestamp.after.max.ms",
            int64(0),
            "How far in the future a producer's timestamp may be.",
            {"log.message.timestamp.after.max.ms": 1},
        ),
        TopicConfig(
            "message.timestamp.before.max.ms",
            int64(0),
            "How far in the past a producer's timestamp may be.",
            {"log.message.timestamp.before.max.ms": 1},
        ),
        TopicConfig(
            "message.timestamp.type",
            Word(tuple(_STAMPS)),
            "Whose clock stamps a record: its producer's or the broker's.",
            {"log.message.timestamp.type": 1},
        ),
        TopicConfig(
            "min.cleanable.dirty.ratio",
            Ratio(),
            "A log is compacted when a larger share of it than this never was.",
            {"log.cleaner.min.cleanable.ratio": 1},
        ),
        TopicConfig(
            "min.compaction.lag.ms",
            int64(0),
            "The age of the youngest record compacted.",
            {"log.cleaner.min.compaction.lag.ms": 1},
        ),
        TopicConfig(
            "min.insync.replicas",
            int32(1),
            "Replicas an acks=all write needs. There is one: with more than 1 every such write is refused.",
            {"min.insync.replicas": 1},
        ),
        TopicConfig(
            "preallocate",
            Flag(),
            "Segments get their size at once. Changes nothing: they grow.",
            {"log.preallocate": 1},
        ),
        TopicConfig(
            "remote.log.copy.disable",
            Flag(),
            "Nothing more goes to tiered storage. Changes nothing: there is none.",
            default=False,
        ),
        TopicConfig(
            "remote.log.delete.on.disable",
            Flag(),
            "Tiered storage is emptied when it is switched off. Changes nothing: there is none.",
            default=False,
        ),
        TopicConfig(
            "remote.storage.enable",
            Flag(),
            "Tiered storage. There is none, so it cannot be true.",
            default=False,
        ),
        TopicConfig(
            "retention.bytes",
            int64(),
            "The size a partition is cut back to, by whole segments; negative is no limit.",
            {"log.retention.bytes": 1},
        ),
        TopicConfig(
            "retention.ms",
            int64(-1),
            "How long records are kept; -1 is for ever.",
            {"log.retention.ms": 1, "log.retention.minutes": _MINUTE_MS, "log.retention.hours": _HOUR_MS},
        ),
        TopicConfig("segment.bytes", int32(1_048_576), "The size a segment is rolled at.", {"log.segment.bytes": 1}),
        TopicConfig(
            "segment.index.bytes",
            int32(4),
            "The size of an index its segment is rolled at.",
            {"log.index.size.max.bytes": 1},
        ),
        TopicConfig(
            "segment.jitter.ms",
            int64(0),
            "The most by which a segment is rolled early. Changes nothing: segments are rolled on time.",
            {"log.roll.jitter.ms": 1, "log.roll.jitter.hours": _HOUR_MS},
        ),
        TopicConfig(
            "segment.ms",
            int64(1),
            "The age a segment is rolled at.",
            {"log.roll.ms": 1, "log.roll.hours": _HOUR_MS},
        ),
        TopicConfig(
            "unclean.leader.election.enable",
            Flag(),
            "A replica that is behind may lead. Changes nothing: there is one replica.",
            {"unclean.leader.election.enable": 1},
        ),
    )
}


def effective(name: str, own: Mapping[str, str], broker: BrokerValues) -> Any:
    """The value a topic has: its own, or the broker's."""
    config = TOPIC_CONFIGS[name]
    if name in own:
        return config.kind.read(own[name])
    for behind, factor in config.behind.items():
        value = broker[behind]
        if value is not None:
            if name == "retention.ms" and value < 0:
                return UNLIMITED  # as many hours below zero as you like
            return value * factor if factor != 1 else value
    return config.default


def log_config(own: Mapping[str, str], broker: BrokerValues) -> LogConfig:
    def of(name: str) -> Any:
        return effective(name, own, broker)

    policy = of("cleanup.policy")
    return LogConfig(
        segment_bytes=of("segment.bytes"),
        segment_ms=of("segment.ms"),
        segment_index_bytes=of("segment.index.bytes"),
        index_interval_bytes=of("index.interval.bytes"),
        retention_ms=of("retention.ms"),
        retention_bytes=max(UNLIMITED, of("retention.bytes")),
        deletes="delete" in policy,
        compacts="compact" in policy,
        min_cleanable_dirty_ratio=of("min.cleanable.dirty.ratio"),
        min_compaction_lag_ms=of("min.compaction.lag.ms"),
        max_compaction_lag_ms=of("max.compaction.lag.ms"),
        delete_retention_ms=of("delete.retention.ms"),
        max_message_bytes=of("max.message.bytes"),
        message_timestamp_type=_STAMPS[of("message.timestamp.type")],
        message_timestamp_before_max_ms=of("message.timestamp.before.max.ms"),
        message_timestamp_after_max_ms=of("message.timestamp.after.max.ms"),
        producer_id_expiration_ms=broker["producer.id.expiration.ms"],
        max_producers=broker["coterie.max.producers"],
        max_decompressed_bytes=broker["coterie.max.decompressed.bytes"],
    )
