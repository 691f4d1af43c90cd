"""What can be set about groups, under Kafka's names, with Kafka's defaults."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GroupSettings"]


@dataclass(frozen=True, slots=True)
class GroupSettings:
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2**31 - 1
    group_initial_rebalance_delay_ms: int = 3_000
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    max_member_bytes: int = 4 << 20
    """Ours: what a member's protocols may have of metadata."""
    max_group_bytes: int = 256 << 20
    """Ours: what the members of a group may make us hold."""
    max_bytes_of_groups: int = 512 << 20
    """Ours: what all groups together may."""
    new_member_join_timeout_ms: int = 300_000
    """Not a setting in Kafka either: how long a newcomer's join may stay parked (KAFKA-7610)."""

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000
