"""The table of the configs that a topic can have, as Kafka 4.3.1 lists them (`TopicConfig`).

Most of them have a setting of the broker behind them, which has the default, the type and the help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.settings.broker_settings import BrokerSettings
from coterie.settings.config_def import Flag, Setting, Words, int32, int64

LONGEST = 10_000
"""The longest text of a list. Old versions of DescribeConfigs count the bytes of a string in 16 bits."""

_MS_IN = {"minutes": 60_000, "hours": 3_600_000}
_ONE_REPLICA = "there is one replica"
_NO_TIERS = "there is no tiered storage"


@dataclass(frozen=True, slots=True)
class TopicConfig(Setting):
    """A row of the table. Its default is the one that a topic has if the broker's settings have theirs."""

    behind: Mapping[str, int] = field(default_factory=dict)
    """The broker's settings it takes its default from, the first that has a value, and what to multiply it with."""


def _broker_default(name: str, *behind: str, **other: Any) -> TopicConfig:
    """Make the row of a config that takes everything but its name from settings of the broker, except for `other`."""
    factors = {each: _MS_IN.get(each.rpartition(".")[2], 1) for each in behind}
    settings = [BrokerSettings.rows()[each] for each in behind]
    like, first = settings[0], next(row for row in settings if row.default is not None)
    default = first.default if factors[first.name] == 1 else first.default * factors[first.name]
    values = {"kind": like.kind, "doc": like.doc, "unused": like.unused, "default": default}
    return _own(name, **{**values, **other}, behind=factors)


def _own(name: str, **row: Any) -> TopicConfig:
    return TopicConfig(name=name, section="Topic configs", **row)


_ROWS = (
    _broker_default("cleanup.policy", "log.cleanup.policy"),
    _broker_default("compression.gzip.level", "compression.gzip.level"),
    _broker_default("compression.lz4.level", "compression.lz4.level"),
    _broker_default("compression.type", "compression.type"),
    _broker_default("compression.zstd.level", "compression.zstd.level"),
    _broker_default("delete.retention.ms", "log.cleaner.delete.retention.ms"),
    _broker_default("file.delete.delay.ms", "log.segment.delete.delay.ms"),
    _broker_default("flush.messages", "log.flush.interval.messages"),
    _broker_default("flush.ms", "log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    _own(
        "follower.replication.throttled.replicas",
        kind=Words(replicas=True),
        default=(),
        doc="The replicas whose copying is slowed down.",
        unused=_ONE_REPLICA,
    ),
    _broker_default("index.interval.bytes", "log.index.interval.bytes"),
    _own(
        "leader.replication.throttled.replicas",
        kind=Words(replicas=True),
        default=(),
        doc="The replicas that are copied from slowly.",
        unused=_ONE_REPLICA,
    ),
    _broker_default("local.retention.bytes", "log.local.retention.bytes"),
    _broker_default("local.retention.ms", "log.local.retention.ms"),
    _broker_default("max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    _broker_default("max.message.bytes", "message.max.bytes"),
    _broker_default("message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms"),
    _broker_default("message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms"),
    _broker_default("message.timestamp.type", "log.message.timestamp.type"),
    _broker_default("min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio"),
    _broker_default("min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms"),
    _broker_default(
        "min.insync.replicas",
        "min.insync.replicas",
        kind=int32(1),
        doc="How many replicas an acks=all write needs. There is one: with more than 1 every such write is refused.",
    ),
    _broker_default("preallocate", "log.preallocate"),
    _own(
        "remote.log.copy.disable",
        kind=Flag(),
        default=False,
        doc="Whether copying to tiered storage is stopped.",
        unused=_NO_TIERS,
    ),
    _own(
        "remote.log.delete.on.disable",
        kind=Flag(),
        default=False,
        doc="Whether tiered storage is emptied when it is switched off.",
        unused=_NO_TIERS,
    ),
    _own(
        "remote.storage.enable",
        kind=Flag(),
        default=False,
        doc="Whether the topic has tiered storage. There is none, so it cannot be true.",
    ),
    _broker_default("retention.bytes", "log.retention.bytes"),
    _broker_default("retention.ms", "log.retention.ms", "log.retention.minutes", "log.retention.hours", kind=int64(-1)),
    _broker_default("segment.bytes", "log.segment.bytes"),
    _broker_default("segment.index.bytes", "log.index.size.max.bytes"),
    _broker_default("segment.jitter.ms", "log.roll.jitter.ms", "log.roll.jitter.hours"),
    _broker_default("segment.ms", "log.roll.ms", "log.roll.hours"),
    _broker_default("unclean.leader.election.enable", "unclean.leader.election.enable"),
)
TOPIC_CONFIGS: Mapping[str, TopicConfig] = {row.name: row for row in _ROWS}


def effective(name: str, own: Mapping[str, str], broker: BrokerSettings) -> Any:
    """Return the value that a topic has: its own, or else the broker's.

    Args:
        name: The name of the config.
        own: The configs that the topic has of its own, which were checked when they were given.
        broker: The settings of the broker.
    """
    config = TOPIC_CONFIGS[name]
    if name in own:
        return config.kind.read(own[name])
    for behind, factor in config.behind.items():
        value = broker[behind]
        if value is not None:
            if name == "retention.ms" and value < 0:
                return -1  # as many hours below zero as you like
            return value * factor if factor != 1 else value
    return config.default
