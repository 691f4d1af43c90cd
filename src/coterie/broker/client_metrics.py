"""The configs of client metrics (KIP-714), without I/O: which clients shall push which metrics, and how often.

A resource of type client-metrics is a subscription: the prefixes of the metrics (`metrics`), the push interval
(`interval.ms`), and patterns that a client must match (`match`). Names, defaults, bounds and error codes are those of
Kafka 4.3.1. A pattern is a regular expression of RE2, so that the time that it takes is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from coterie.broker.handlers.refusals import NAMELESS, Refusal
from coterie.coordinator.consumer.regex import matcher, why_invalid
from coterie.errors import ErrorCode
from coterie.protocol.java_hash import map_order
from coterie.settings.config_def import Number, Words, int32
from coterie.settings.topic_configs import LONGEST

METRICS, INTERVAL_MS, MATCH = "metrics", "interval.ms", "match"
DEFAULT_INTERVAL_MS = 300_000
LEAST_INTERVAL_MS, MOST_INTERVAL_MS = 100, 3_600_000
ALL_METRICS = "*"
"""A subscription with this prefix asks for all metrics."""

CLIENT_ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""The attributes of a client that the patterns of a subscription can match."""


class ClientMetricsConfig(NamedTuple):
    kind: Number | Words
    default: str
    help: str


CLIENT_METRICS: Mapping[str, ClientMetricsConfig] = {
    INTERVAL_MS: ClientMetricsConfig(
        int32(),
        str(DEFAULT_INTERVAL_MS),
        f"How often a client pushes, in ms: {LEAST_INTERVAL_MS} to {MOST_INTERVAL_MS}.",
    ),
    MATCH: ClientMetricsConfig(
        Words(), "", "What a client must match, as attribute=pattern; every client does if there is none."
    ),
    METRICS: ClientMetricsConfig(Words(), "", "The prefixes of the metrics that clients push; * is all metrics."),
}
"""The configs of a subscription, in the order of DescribeConfigs."""


class MetricsSubscription(NamedTuple):
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]
    """A pattern for each attribute that must match."""

    def matches(self, client: Mapping[str, str | None]) -> bool:
        return all(_matches(pattern, client.get(attribute)) for attribute, pattern in self.match.items())


class MetricsSubscribed(NamedTuple):
    """The metrics that one client is asked to push, and how often."""

    metrics: tuple[str, ...] = ()
    interval_ms: int = DEFAULT_INTERVAL_MS


def _matches(pattern: str, value: str | None) -> bool:
    return value is not None and matcher(pattern)(value)


def tidy_client_metrics(name: str, configs: Mapping[str, str | None]) -> dict[str, str] | Refusal:
    """Return the configs of a subscription as they are stored, or why they are refused, in Kafka's order of checks."""
    if not name:
        return NAMELESS
    unknown = next((config for config in configs if config not in CLIENT_METRICS), None)
    if unknown is not None:
        known = ", ".join(CLIENT_METRICS)
        return Refusal(ErrorCode.INVALID_REQUEST, f"client metrics have no config {unknown[:100]!r}: they have {known}")
    kept = {}
    for config, text in configs.items():
        kind = CLIENT_METRICS[config].kind
        try:
            kept[config] = _normal(kind, text or "")
        except ValueError:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{config} cannot be {(text or '')[:100]!r}: it is {kind.allowed}")
        if len(kept[config]) > LONGEST:
            return Refusal(ErrorCode.INVALID_CONFIG, f"{config} has {len(kept[config])} letters; allowed are {LONGEST}")
    interval_ms = int(kept.get(INTERVAL_MS, DEFAULT_INTERVAL_MS))
    if not LEAST_INTERVAL_MS <= interval_ms <= MOST_INTERVAL_MS:
        allowed = f"it must be {LEAST_INTERVAL_MS} to {MOST_INTERVAL_MS}"
        return Refusal(ErrorCode.INVALID_REQUEST, f"{INTERVAL_MS} cannot be {interval_ms}: {allowed}")
    for entry in _entries(kept.get(MATCH, "")):
        if _pattern(entry) is None:
            allowed = f"it is an attribute, =, and a regular expression; attributes are {', '.join(CLIENT_ATTRIBUTES)}"
            return Refusal(ErrorCode.INVALID_CONFIG, f"{MATCH} cannot have {entry[:100]!r}: {allowed}")
    return kept


def _normal(kind: Number | Words, text: str) -> str:
    if isinstance(kind, Number):
        return kind.write(kind.read(text))
    return kind.write(kind.read(text))


def _entries(text: str) -> tuple[str, ...]:
    return Words().read(text)


def _pattern(entry: str) -> tuple[str, str] | None:
    """Return the attribute and the pattern; None if it is not both. As in Kafka, `=` at the end is ignored."""
    attribute, *patterns = entry.rstrip("=").split("=")
    if attribute.strip() not in CLIENT_ATTRIBUTES or len(patterns) != 1:
        return None
    pattern = patterns[0].strip()
    return None if why_invalid(pattern) is not None else (attribute.strip(), pattern)


def subscription_of(configs: Mapping[str, str]) -> MetricsSubscription:
    """Return the subscription that has these configs, which were found to be right."""
    patterns = map(_pattern, _entries(configs.get(MATCH, "")))
    return MetricsSubscription(
        _entries(configs.get(METRICS, "")),
        int(configs.get(INTERVAL_MS, DEFAULT_INTERVAL_MS)),
        dict(pattern for pattern in patterns if pattern is not None),
    )


def subscribed(subscriptions: Iterable[MetricsSubscription], client: Mapping[str, str | None]) -> MetricsSubscribed:
    """Return what a client shall push: the metrics of all subscriptions that it matches, at the shortest interval."""
    matching = [one for one in subscriptions if one.matches(client)]
    metrics = list(dict.fromkeys(prefix for one in matching for prefix in one.metrics))
    if ALL_METRICS in metrics:
        metrics = [ALL_METRICS]
    return MetricsSubscribed(
        tuple(map_order(metrics)), min([DEFAULT_INTERVAL_MS, *(one.interval_ms for one in matching)])
    )
