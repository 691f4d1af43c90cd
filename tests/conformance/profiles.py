"""The brokers that cases are played on: settings of both, Kafka's and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.asking import METADATA_LIMIT

__all__ = ["PROFILES", "TOPICS", "Profile"]

TOPICS = {"t": 2, "u": 1}
"""There from the start, and how many partitions they have."""

ALL = 1_000_000
"""Whoever restarts waits for all others to be there."""

_COMMON = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "offset.metadata.max.bytes": str(METADATA_LIMIT),
    "offsets.topic.num.partitions": "4",
    "auto.create.topics.enable": "false",
}


@dataclass(frozen=True)
class Profile:
    own: Mapping[str, str] = field(default_factory=dict)
    after_restart: Mapping[str, str] = field(default_factory=dict)
    kill: bool = False
    """A restart is by kill -9, not in order."""
    at_once: int = 4
    """How many cases are played side by side when Kafka is recorded: many, where they mostly wait."""

    @property
    def settings(self) -> dict[str, str]:
        return {**_COMMON, **self.own}

    @property
    def settings_after_restart(self) -> dict[str, str]:
        return {**self.settings, **self.after_restart}


PROFILES: Mapping[str, Profile] = {
    "plain": Profile(),
    "timers": Profile(at_once=12),
    "delayed": Profile({"group.initial.rebalance.delay.ms": "1500"}, at_once=12),
    "small": Profile({"group.max.size": "2"}),
    "forgetful": Profile({"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"}, at_once=40),
    "stopped": Profile(after_restart={"group.max.size": "2"}, at_once=ALL),
    "killed": Profile(kill=True, at_once=ALL),
}
