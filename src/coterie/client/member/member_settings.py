"""What can be set about a member, under Kafka's names, with the defaults of Kafka's consumer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from coterie.assignors import Assignor, CooperativeSticky, Range
from coterie.errors import CoterieError

__all__ = ["MemberSettings"]


@dataclass(frozen=True, slots=True)
class MemberSettings:
    group_id: str
    assignors: Sequence[Assignor] = field(default_factory=lambda: (Range(), CooperativeSticky()))
    """partition.assignment.strategy, in order of preference. Cooperative only if every one of them is (KIP-429)."""
    group_instance_id: str | None = None
    client_id: str = ""
    client_rack: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """Also the rebalance timeout the coordinator is told."""
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    rng: float = 0.5
    """Between 0 and 1, thrown once outside: back-offs are 20 % shorter to 20 % longer, so that members spread out."""

    def __post_init__(self) -> None:
        names = [assignor.name for assignor in self.assignors]
        if not names:
            raise CoterieError("partition.assignment.strategy is empty: a member needs at least one assignor")
        if len(set(names)) != len(names):
            raise CoterieError(f"partition.assignment.strategy names an assignor twice: {', '.join(names)}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise CoterieError(
                f"heartbeat.interval.ms {self.heartbeat_interval_ms} must be less than session.timeout.ms "
                f"{self.session_timeout_ms}, or the member expires between two heartbeats; a third of it is usual"
            )

    @property
    def is_cooperative(self) -> bool:
        """Java's default list (range, cooperative-sticky) is not: range cannot."""
        return all(assignor.cooperative for assignor in self.assignors)
