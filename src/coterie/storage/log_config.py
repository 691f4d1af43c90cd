"""The settings of one partition's log, named as Kafka names them (dots for underscores), with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from coterie.protocol.batch import TimestampType
from coterie.protocol.records import MAX_DECOMPRESSED

__all__ = ["UNLIMITED", "LogConfig"]

UNLIMITED = -1
_DAY_MS = 24 * 60 * 60 * 1000
_INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1024**3
    segment_ms: int = 7 * _DAY_MS
    segment_index_bytes: int = 10 * 1024**2
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * _DAY_MS
    retention_bytes: int = UNLIMITED
    deletes: bool = True
    """`cleanup.policy` has `delete`: the two limits above hold."""
    compacts: bool = False
    """`cleanup.policy` has `compact`: every record needs a key, and of each key the last one is kept."""
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = _INT64_MAX
    delete_retention_ms: int = _DAY_MS
    roll_dirty_bytes: int = UNLIMITED
    """Ours: a segment with so much is rolled to be compacted, if that is worth it. Kafka fills it, or waits a week."""
    max_message_bytes: int = 1024**2 + 12
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    message_timestamp_before_max_ms: int = _INT64_MAX
    message_timestamp_after_max_ms: int = 60 * 60 * 1000
    producer_id_expiration_ms: int = _DAY_MS
    max_producers: int = 10_000
    """Ours: the producers remembered at most, the least recently used forgotten first. Kafka has expiry alone."""
    max_decompressed_bytes: int = MAX_DECOMPRESSED
    """Ours: the most a batch may decompress to where its records must be looked at."""

    @property
    def max_segment_ms(self) -> int:
        """What is in the segment that is written to cannot be compacted, so it may not be that for too long."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms
