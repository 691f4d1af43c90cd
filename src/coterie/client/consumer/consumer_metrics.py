"""The metrics of consumers, under Kafka's names. No I/O; the time comes in."""

from __future__ import annotations

from collections.abc import Mapping

from coterie.client.member import facts
from coterie.client.metrics import CONNECTION_ROWS, DEFAULTS, ClientMetrics, Row, Sensor
from coterie.client.types import TopicPartition
from coterie.facts import Fact
from coterie.settings.client_settings import ClientSettings

__all__ = ["CONSUMER_ROWS", "PARTITION_ROWS", "ConsumerMetrics", "of_partition"]

_BEGAN = (facts.RebalanceBegan, facts.ReconciliationBegan)
_ENDED = (facts.AssignmentTaken, facts.AssignmentReconciled)


class ConsumerMetrics(ClientMetrics):
    def __init__(self, settings: ClientSettings = DEFAULTS) -> None:
        super().__init__(settings)
        self.commits, self.heartbeats, self.joins, self.syncs = (Sensor(settings) for _ in range(4))
        self.rebalances, self.failed_rebalances = Sensor(settings), Sensor(settings)
        self.fetches, self.fetch_sizes = Sensor(settings), Sensor(settings)
        self.records, self.bytes, self.lags = Sensor(settings), Sensor(settings), Sensor(settings)
        self.polls, self.poll_idle = Sensor(settings), Sensor(settings)
        self.assigned_partitions = 0
        self.last_heartbeat_ms: int | None = None
        self.last_rebalance_ms: int | None = None
        self._rebalancing_since_ms: int | None = None
        # A poll that only takes records that are there notes these two, and is recorded with the next full one.
        self.quick_polls = 0
        self.last_poll_ms: int | None = None
        self._full_poll_began_ms = 0
        self._full_poll_ended_ms: int | None = None

    def record_fact(self, fact: Fact) -> None:
        """Record a fact of the member."""
        if isinstance(fact, _BEGAN):
            if self._rebalancing_since_ms is None:
                self._rebalancing_since_ms = fact.at_ms
        elif (
            isinstance(fact, facts.AssignmentTaken | facts.AssignmentReconciled)
            and self._rebalancing_since_ms is not None
        ):
            self.rebalances.record(fact.at_ms - self._rebalancing_since_ms, fact.at_ms)
            self.last_rebalance_ms, self._rebalancing_since_ms = fact.at_ms, None

    def poll_began(self, now_ms: int) -> None:
        if self.last_poll_ms is not None:
            since_ms, count = now_ms - self._full_poll_began_ms, self.quick_polls + 1
            self.polls.record(since_ms, now_ms, count, max(now_ms - self.last_poll_ms, since_ms / count))
        self.quick_polls = 0
        self.last_poll_ms = self._full_poll_began_ms = now_ms

    def poll_ended(self, now_ms: int) -> None:
        if self._full_poll_ended_ms is not None and now_ms > self._full_poll_ended_ms:
            inside_ms = now_ms - self._full_poll_began_ms
            self.poll_idle.record(inside_ms / (now_ms - self._full_poll_ended_ms), now_ms)
        self._full_poll_ended_ms = now_ms

    def taken(self, records: int, bytes_: int, lag: int | None, now_ms: int) -> None:
        """Note how many records and bytes were handed over in all; `lag` is the largest of any partition now."""
        if records > self.records.total:
            self.records.record(records - self.records.total, now_ms)
        if bytes_ > self.bytes.total:
            self.bytes.record(bytes_ - self.bytes.total, now_ms)
        if lag is not None:
            self.lags.record(lag, now_ms)


# --- the names --------------------------------------------------------------------------------------------------------


def _seconds_ago(at_ms: int | None, now_ms: int) -> float | None:
    return None if at_ms is None else (now_ms - at_ms) / 1000


CONSUMER_ROWS: Mapping[str, tuple[Row, ...]] = {
    "consumer-metrics": (
        *CONNECTION_ROWS,
        Row("time-between-poll-avg", "time between two polls, average", lambda m, now: m.polls.avg(now)),
        Row("time-between-poll-max", "time between two polls, maximum", lambda m, now: m.polls.max(now)),
        Row("last-poll-seconds-ago", "seconds since the last poll", lambda m, now: _seconds_ago(m.last_poll_ms, now)),
        Row(
            "poll-idle-ratio-avg",
            "the share of the time spent inside poll: near 1, the consumer waits for records; near 0, records wait",
            lambda m, now: m.poll_idle.avg(now),
        ),
    ),
    "consumer-coordinator-metrics": (
        Row("assigned-partitions", "partitions assigned", lambda m, _: m.assigned_partitions),
        Row("commit-latency-avg", "time from a commit to its answer, average", lambda m, now: m.commits.avg(now)),
        Row("commit-latency-max", "time from a commit to its answer, maximum", lambda m, now: m.commits.max(now)),
        Row("commit-total", "commits that were answered", lambda m, _: m.commits.count),
        Row("commit-rate", "commits answered per second", lambda m, now: m.commits.rate(now)),
        Row(
            "heartbeat-response-time-max",
            "time from a heartbeat to its answer, maximum",
            lambda m, now: m.heartbeats.max(now),
        ),
        Row("heartbeat-total", "heartbeats that were answered", lambda m, _: m.heartbeats.count),
        Row("heartbeat-rate", "heartbeats answered per second", lambda m, now: m.heartbeats.rate(now)),
        Row(
            "last-heartbeat-seconds-ago",
            "seconds since the last heartbeat was sent",
            lambda m, now: _seconds_ago(m.last_heartbeat_ms, now),
        ),
        Row("join-time-avg", "time from a join to its answer, average", lambda m, now: m.joins.avg(now)),
        Row("join-time-max", "time from a join to its answer, maximum", lambda m, now: m.joins.max(now)),
        Row("join-total", "joins that succeeded", lambda m, _: m.joins.count),
        Row("join-rate", "joins that succeeded, per second", lambda m, now: m.joins.rate(now)),
        Row("sync-time-avg", "time from a sync to its answer, average", lambda m, now: m.syncs.avg(now)),
        Row("sync-time-max", "time from a sync to its answer, maximum", lambda m, now: m.syncs.max(now)),
        Row("sync-total", "syncs that succeeded", lambda m, _: m.syncs.count),
        Row("sync-rate", "syncs that succeeded, per second", lambda m, now: m.syncs.rate(now)),
        Row(
            "rebalance-latency-avg",
            "time from the start of a rebalance to the assignment, average",
            lambda m, now: m.rebalances.avg(now),
        ),
        Row(
            "rebalance-latency-max",
            "time from the start of a rebalance to the assignment, maximum",
            lambda m, now: m.rebalances.max(now),
        ),
        Row("rebalance-latency-total", "total time spent in rebalances", lambda m, _: m.rebalances.total),
        Row("rebalance-total", "rebalances that ended with an assignment", lambda m, _: m.rebalances.count),
        Row(
            "rebalance-rate-per-hour",
            "rebalances that ended with an assignment, per hour",
            lambda m, now: m.rebalances.rate(now) * 3600,
        ),
        Row("failed-rebalance-total", "joins and syncs that failed", lambda m, _: m.failed_rebalances.count),
        Row(
            "failed-rebalance-rate-per-hour",
            "joins and syncs that failed, per hour",
            lambda m, now: m.failed_rebalances.rate(now) * 3600,
        ),
        Row(
            "last-rebalance-seconds-ago",
            "seconds since partitions were last assigned",
            lambda m, now: _seconds_ago(m.last_rebalance_ms, now),
        ),
    ),
    "consumer-fetch-manager-metrics": (
        Row("records-consumed-total", "records that poll has returned", lambda m, _: m.records.total),
        Row("records-consumed-rate", "records returned per second", lambda m, now: m.records.total_rate(now)),
        Row(
            "bytes-consumed-total",
            "bytes of the batches they were in, as they came (Java counts them decompressed)",
            lambda m, _: m.bytes.total,
        ),
        Row("bytes-consumed-rate", "bytes consumed per second", lambda m, now: m.bytes.total_rate(now)),
        Row("fetch-latency-avg", "time from a fetch to its answer, average", lambda m, now: m.fetches.avg(now)),
        Row("fetch-latency-max", "time from a fetch to its answer, maximum", lambda m, now: m.fetches.max(now)),
        Row("fetch-total", "fetches that were answered", lambda m, _: m.fetches.count),
        Row("fetch-rate", "fetches answered per second", lambda m, now: m.fetches.rate(now)),
        Row("fetch-size-avg", "bytes in the answer to a fetch, average", lambda m, now: m.fetch_sizes.avg(now)),
        Row("fetch-size-max", "bytes in the answer to a fetch, maximum", lambda m, now: m.fetch_sizes.max(now)),
        Row("records-lag-max", "the largest lag of any partition", lambda m, now: m.lags.max(now)),
    ),
}

PARTITION_ROWS: Mapping[str, str] = {
    "records-lag": "records the partition has beyond the consumer's position",
    "records-lead": "records from the beginning of the log to the consumer's position",
}
"""The metrics of one partition. Each has its own group: `consumer-fetch-manager-metrics,topic=orders,partition=0`."""


def of_partition(partition: TopicPartition) -> str:
    """Return the group of a partition's metrics."""
    return f"consumer-fetch-manager-metrics,topic={partition.topic},partition={partition.partition}"
