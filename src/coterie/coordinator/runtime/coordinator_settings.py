"""What can be set about a coordinator, under Kafka's names, with Kafka's defaults unless said otherwise."""

from __future__ import annotations

from dataclasses import dataclass, field

from coterie.coordinator.classic import GroupSettings

__all__ = ["CoordinatorSettings"]


@dataclass(frozen=True, slots=True)
class CoordinatorSettings:
    group: GroupSettings = field(default_factory=GroupSettings)
    offsets_topic_num_partitions: int = 50
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    max_record_bytes: int = 100 * 1024 * 1024
    """Kafka's is 1 MiB, which a group of some 5 000 members outgrows; then its rebalances never end."""
    max_append_bytes: int = 1024 * 1024
    """Records are joined into one append up to this size; a larger one goes alone."""
