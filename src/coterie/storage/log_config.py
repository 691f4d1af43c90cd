"""The config of a log, made from the configs of its topic and the settings of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from coterie.protocol.batch import TimestampType
from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.group_coordinator_settings import SMALLEST_SEGMENT
from coterie.settings.topic_configs import TOPIC_CONFIGS, effective
from coterie.structs import DataStruct, replace

UNLIMITED = -1
_TIMESTAMP_TYPES = {"CreateTime": TimestampType.CREATE_TIME, "LogAppendTime": TimestampType.LOG_APPEND_TIME}
_BATCH_OVERHEAD = 1024
_BROKER = BrokerSettings()


def _default(config: str) -> Any:
    return TOPIC_CONFIGS[config].default


class LogConfig(DataStruct, frozen=True):
    """The configs of a topic that its log needs, by name, and the broker's settings that it needs."""

    segment_bytes: int = _default("segment.bytes")
    segment_ms: int = _default("segment.ms")
    segment_index_bytes: int = _default("segment.index.bytes")
    index_interval_bytes: int = _default("index.interval.bytes")
    retention_ms: int = _default("retention.ms")
    retention_bytes: int = _default("retention.bytes")
    deletes: bool = "delete" in _default("cleanup.policy")
    """`cleanup.policy` has `delete`: the two limits above hold."""
    compacts: bool = "compact" in _default("cleanup.policy")
    """`cleanup.policy` has `compact`: every record needs a key, and of each key the last one is kept."""
    min_cleanable_dirty_ratio: float = _default("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _default("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _default("max.compaction.lag.ms")
    delete_retention_ms: int = _default("delete.retention.ms")
    roll_dirty_bytes: int = UNLIMITED
    """A segment of this size is rolled to be compacted, if that is worth it. Kafka fills it, or waits a week."""
    max_message_bytes: int = _default("max.message.bytes")
    message_timestamp_type: TimestampType = _TIMESTAMP_TYPES[_default("message.timestamp.type")]
    message_timestamp_before_max_ms: int = _default("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _default("message.timestamp.after.max.ms")
    producer_id_expiration_ms: int = _BROKER.producer_id_expiration_ms
    max_producers: int = _BROKER.coterie_max_producers
    """The number of producers that are remembered. The least recently used is forgotten first; Kafka only expires."""
    max_decompressed_bytes: int = _BROKER.coterie_max_decompressed_bytes
    """The most that a batch may decompress to where its records must be looked at."""

    @classmethod
    def of(cls, topic_configs: Mapping[str, str], settings: BrokerSettings) -> Self:
        """Return the config of a log whose topic has these configs of its own."""

        def value(name: str) -> Any:
            return effective(name, topic_configs, settings)

        policy = value("cleanup.policy")
        return cls(
            segment_bytes=value("segment.bytes"),
            segment_ms=value("segment.ms"),
            segment_index_bytes=value("segment.index.bytes"),
            index_interval_bytes=value("index.interval.bytes"),
            retention_ms=value("retention.ms"),
            retention_bytes=max(UNLIMITED, value("retention.bytes")),
            deletes="delete" in policy,
            compacts="compact" in policy,
            min_cleanable_dirty_ratio=value("min.cleanable.dirty.ratio"),
            min_compaction_lag_ms=value("min.compaction.lag.ms"),
            max_compaction_lag_ms=value("max.compaction.lag.ms"),
            delete_retention_ms=value("delete.retention.ms"),
            max_message_bytes=value("max.message.bytes"),
            message_timestamp_type=_TIMESTAMP_TYPES[value("message.timestamp.type")],
            message_timestamp_before_max_ms=value("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=value("message.timestamp.after.max.ms"),
            producer_id_expiration_ms=settings.producer_id_expiration_ms,
            max_producers=settings.coterie_max_producers,
            max_decompressed_bytes=settings.coterie_max_decompressed_bytes,
        )

    @property
    def max_segment_ms(self) -> int:
        """The time after which the active segment is rolled: the active segment cannot be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms


def offsets_topic_configs(settings: BrokerSettings) -> dict[str, str]:
    """Return the configs that __consumer_offsets is created with."""
    segment = str(settings.offsets_topic_segment_bytes)
    return {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": segment}


def offsets_log_config(topic_configs: Mapping[str, str], settings: BrokerSettings) -> LogConfig:
    """Return the config of __consumer_offsets, and of __transaction_state.

    The largest record of a group must fit into a batch, and the batch into a segment. All of it is read at a start, and
    most of what commits write is soon out of date: so a segment need not be full to be compacted.
    """
    config = LogConfig.of(topic_configs, settings)
    largest = settings.coterie_max_record_bytes + _BATCH_OVERHEAD
    return replace(
        config,
        max_message_bytes=max(config.max_message_bytes, largest),
        segment_bytes=max(config.segment_bytes, largest),
        roll_dirty_bytes=settings.coterie_offsets_roll_bytes,
    )


def transaction_state_topic_configs(settings: BrokerSettings) -> dict[str, str]:
    """Return the configs that __transaction_state is created with (TF2)."""
    return {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": str(settings.transaction_state_log_segment_bytes),
        "unclean.leader.election.enable": "false",
    }


def facts_log_config(topic_configs: Mapping[str, str], settings: BrokerSettings) -> LogConfig:
    """Return the config of __coterie_facts. Small segments let retention keep it within its size."""
    config = offsets_log_config(topic_configs, settings)
    most = settings.coterie_facts_retention_bytes
    if most < 0 or "retention.bytes" in topic_configs:
        return config
    segment_bytes = max(most // 8, SMALLEST_SEGMENT)
    return replace(
        config,
        deletes=True,
        retention_bytes=most,
        segment_bytes=min(config.segment_bytes, segment_bytes),
        max_message_bytes=min(config.max_message_bytes, segment_bytes),
    )
