"""What Kafka 4.3.1 says of a group and of a client metrics subscription nobody has configured.

None of it means anything here: groups are of the classic protocol, and metrics of clients are not collected. It is
said because tools ask for it and show what they get.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CLIENT_METRICS_CONFIGS", "GROUP_CONFIGS", "OtherConfig"]

_STRING, _INT, _BOOLEAN, _LIST = 2, 3, 1, 7


class OtherConfig(NamedTuple):
    name: str
    value: str
    code: int
    behind: str
    doc: str


def _group(name: str, value: str, code: int = _INT, behind: str | None = None) -> OtherConfig:
    protocol = name.partition(".")[0]
    return OtherConfig(name, value, code, behind or f"group.{name}", f"For {protocol} groups, which are not here yet.")


def _metrics(name: str, value: str, code: int) -> OtherConfig:
    return OtherConfig(name, value, code, "", "Metrics of clients are not collected here.")


GROUP_CONFIGS = (
    _group("consumer.assignment.interval.ms", "1000"),
    _group("consumer.heartbeat.interval.ms", "5000"),
    _group("consumer.session.timeout.ms", "45000"),
    _group("share.assignment.interval.ms", "1000"),
    _group("share.auto.offset.reset", "latest", _STRING, behind="share.auto.offset.reset"),
    _group("share.delivery.count.limit", "5"),
    _group("share.heartbeat.interval.ms", "5000"),
    _group("share.isolation.level", "read_uncommitted", _STRING, behind="share.isolation.level"),
    _group("share.partition.max.record.locks", "2000"),
    _group("share.record.lock.duration.ms", "30000"),
    _group("share.renew.acknowledge.enable", "true", _BOOLEAN, behind="share.renew.acknowledge.enable"),
    _group("share.session.timeout.ms", "45000"),
    _group("streams.assignment.interval.ms", "1000"),
    _group("streams.heartbeat.interval.ms", "5000"),
    _group("streams.initial.rebalance.delay.ms", "3000"),
    _group("streams.num.standby.replicas", "0"),
    _group("streams.session.timeout.ms", "45000"),
)

CLIENT_METRICS_CONFIGS = (
    _metrics("interval.ms", "300000", _INT),
    _metrics("match", "", _LIST),
    _metrics("metrics", "", _LIST),
)
