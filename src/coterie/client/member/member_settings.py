"""The settings of a consumer that its membership uses, under their names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from coterie.assignors import Assignor, assignor
from coterie.errors import CoterieError
from coterie.settings.client_settings import ConsumerSettings, heartbeat_problem

__all__ = ["MemberSettings"]

_DEFAULTS = ConsumerSettings()


def _default_assignors() -> Sequence[Assignor]:
    return [assignor(name) for name in _DEFAULTS.partition_assignment_strategy]


@dataclass(frozen=True, slots=True)
class MemberSettings:
    group_id: str
    assignors: Sequence[Assignor] = field(default_factory=_default_assignors)
    """partition.assignment.strategy, in order of preference. Cooperative only if every one of them is (KIP-429)."""
    group_instance_id: str | None = _DEFAULTS.group_instance_id
    client_id: str = _DEFAULTS.client_id
    client_rack: str | None = None
    session_timeout_ms: int = _DEFAULTS.session_timeout_ms
    heartbeat_interval_ms: int = _DEFAULTS.heartbeat_interval_ms
    max_poll_interval_ms: int = _DEFAULTS.max_poll_interval_ms
    """It is also the rebalance timeout that the coordinator gets."""
    request_timeout_ms: int = _DEFAULTS.request_timeout_ms
    retry_backoff_ms: int = _DEFAULTS.retry_backoff_ms
    retry_backoff_max_ms: int = _DEFAULTS.retry_backoff_max_ms
    enable_auto_commit: bool = _DEFAULTS.enable_auto_commit
    auto_commit_interval_ms: int = _DEFAULTS.auto_commit_interval_ms
    rng: float = 0.5
    """A random number between 0 and 1. Back-offs are up to 20 % shorter or longer by it, so that members spread out."""

    def __post_init__(self) -> None:
        names = [assignor.name for assignor in self.assignors]
        if not names:
            raise CoterieError("partition.assignment.strategy is empty: a member needs at least one assignor")
        if len(set(names)) != len(names):
            raise CoterieError(f"partition.assignment.strategy names an assignor twice: {', '.join(names)}")
        problem = heartbeat_problem(self.heartbeat_interval_ms, self.session_timeout_ms)
        if problem:
            raise CoterieError(problem)

    @classmethod
    def of(cls, settings: ConsumerSettings, group_id: str, assignors: Sequence[Assignor], rng: float) -> Self:
        """Return the settings of a consumer's membership."""
        return cls(
            group_id=group_id,
            assignors=assignors,
            group_instance_id=settings.group_instance_id,
            client_id=settings.client_id,
            client_rack=settings.client_rack or None,
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            max_poll_interval_ms=settings.max_poll_interval_ms,
            request_timeout_ms=settings.request_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            retry_backoff_max_ms=settings.retry_backoff_max_ms,
            enable_auto_commit=settings.commits_automatically,
            auto_commit_interval_ms=settings.auto_commit_interval_ms,
            rng=rng,
        )

    @property
    def is_cooperative(self) -> bool:
        """Whether all assignors are cooperative. The default list (range, cooperative-sticky) is not: range cannot."""
        return all(assignor.cooperative for assignor in self.assignors)
