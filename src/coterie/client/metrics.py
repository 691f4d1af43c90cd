"""The metrics of clients, under Kafka's names. No I/O; the time comes in.

`metrics()` of a client returns `{group: {name: value}}`. A value that was not measured yet is None, never 0:
for instance an average without samples, or the time since the last rebalance if there was none. A count starts at 0.

Averages, maxima and rates are of the last samples (metrics.num.samples, metrics.sample.window.ms); a total is of the
client's life. Times are in milliseconds unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from coterie.client.types import TopicPartition
from coterie.settings.client_settings import ClientSettings

Metrics = dict[str, dict[str, float | None]]
"""The values by group and name."""

_NOTHING = float("-inf")


DEFAULTS = ClientSettings()


class _Sample:
    __slots__ = ("count", "highest", "start_ms", "total")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.count = 0
        self.total: float = 0
        self.highest = _NOTHING


class Sensor:
    """Values that were recorded: how many and their sum, of all time; and both with the maximum, of the last samples.

    It may be read while another thread records.
    """

    __slots__ = ("_last", "_number", "_samples", "_window_ms", "count", "total")

    def __init__(self, settings: ClientSettings = DEFAULTS) -> None:
        self.count = 0
        self.total: float = 0
        self._number = settings.metrics_num_samples
        self._window_ms = max(settings.metrics_sample_window_ms, 1)
        self._samples: tuple[_Sample, ...] = ()
        self._last = _Sample(-self._window_ms)

    def record(self, value: float, now_ms: int, count: int = 1, highest: float | None = None) -> None:
        """Record a value, or `count` of them whose sum is `value` and whose maximum is `highest`."""
        self.count += count
        self.total += value
        sample = self._last
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._last = _Sample(now_ms)
            self._samples = (*self._samples, sample)[-self._number :]
        sample.count += count
        sample.total += value
        if highest is None:
            highest = value
        if highest > sample.highest:  # noqa: PLR1730  quicker than max()
            sample.highest = highest

    def _live(self, now_ms: int) -> list[_Sample]:
        oldest_ms = now_ms - self._number * self._window_ms
        return [sample for sample in self._samples if sample.start_ms > oldest_ms and sample.count]

    def avg(self, now_ms: int) -> float | None:
        samples = self._live(now_ms)
        count = sum(sample.count for sample in samples)
        return sum(sample.total for sample in samples) / count if count else None

    def max(self, now_ms: int) -> float | None:
        return max((sample.highest for sample in self._live(now_ms)), default=None)

    def rate(self, now_ms: int) -> float:
        """Return how many values there were a second."""
        samples = self._live(now_ms)
        return sum(sample.count for sample in samples) / self._elapsed_s(samples, now_ms)

    def total_rate(self, now_ms: int) -> float:
        """Return the sum of the values, a second."""
        samples = self._live(now_ms)
        return sum(sample.total for sample in samples) / self._elapsed_s(samples, now_ms)

    def _elapsed_s(self, samples: list[_Sample], now_ms: int) -> float:
        """Return the length of the window as Kafka counts it: every sample but the last one is a full window."""
        elapsed_ms = now_ms - samples[0].start_ms if samples else 0
        missing = self._number - 1 - elapsed_ms // self._window_ms
        return max(elapsed_ms + max(missing, 0) * self._window_ms, 1) / 1000


class ClientMetrics:
    """The metrics of every client: connections and requests."""

    def __init__(self, settings: ClientSettings = DEFAULTS) -> None:
        self.settings = settings
        self.requests = Sensor(settings)
        self.responses = Sensor(settings)
        """Their latency."""
        self.connections = Sensor(settings)
        self.connection_count = 0


class ProducerMetrics(ClientMetrics):
    def __init__(self, settings: ClientSettings = DEFAULTS) -> None:
        super().__init__(settings)
        self.sent, self.failed, self.retried = (Sensor(settings) for _ in range(3))
        self.request_latency, self.batch_sizes, self.queue_times, self.per_request = (
            Sensor(settings) for _ in range(4)
        )
        self.buffer_total_bytes = self.buffer_available_bytes = 0
        self.requests_in_flight = 0


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

    def rebalance_began(self, at_ms: int) -> None:
        if self._rebalancing_since_ms is None:
            self._rebalancing_since_ms = at_ms

    def rebalance_ended(self, at_ms: int) -> None:
        """Note that partitions were assigned."""
        if self._rebalancing_since_ms is not None:
            self.rebalances.record(at_ms - self._rebalancing_since_ms, at_ms)
            self.last_rebalance_ms, self._rebalancing_since_ms = at_ms, None

    def poll_began(self, now_ms: int) -> None:
        if self.last_poll_ms is not None:
            since_ms, count = now_ms - self._full_poll_began_ms, self.quick_polls + 1
            self.polls.record(since_ms, now_ms, count, max(now_ms - self.last_poll_ms, since_ms / count))
        self.quick_polls = 0
        self.last_poll_ms = self._full_poll_began_ms = now_ms

    def note_quick_polls(self) -> None:
        """Record the polls since the last full one, for a reader of the metrics."""
        if self.quick_polls and self.last_poll_ms is not None:
            since_ms, count = self.last_poll_ms - self._full_poll_began_ms, self.quick_polls
            self.polls.record(since_ms, self.last_poll_ms, count, since_ms / count)
            self.quick_polls, self._full_poll_began_ms = 0, self.last_poll_ms

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


class Row(NamedTuple):
    name: str
    help: str
    value: Callable[[Any, int], float | None]


CONNECTION_ROWS = (
    Row("connection-count", "open connections", lambda m, _: m.connection_count),
    Row("connection-creation-total", "connections opened", lambda m, _: m.connections.count),
    Row("connection-creation-rate", "connections opened per second", lambda m, now: m.connections.rate(now)),
    Row("request-total", "requests sent", lambda m, _: m.requests.count),
    Row("request-rate", "requests sent per second", lambda m, now: m.requests.rate(now)),
    Row("response-total", "requests answered", lambda m, _: m.responses.count),
    Row("response-rate", "requests answered per second", lambda m, now: m.responses.rate(now)),
)
LATENCY_ROWS = (
    Row("request-latency-avg", "time from a request to its answer, average", lambda m, now: m.responses.avg(now)),
    Row("request-latency-max", "time from a request to its answer, maximum", lambda m, now: m.responses.max(now)),
)

PRODUCER_ROWS: Mapping[str, tuple[Row, ...]] = {
    "producer-metrics": (
        *CONNECTION_ROWS,
        Row(
            "request-latency-avg",
            "time from a request to its answer, average",
            lambda m, now: m.request_latency.avg(now),
        ),
        Row(
            "request-latency-max",
            "time from a request to its answer, maximum",
            lambda m, now: m.request_latency.max(now),
        ),
        Row(
            "record-send-total",
            "records that were sent; one that is sent again counts again",
            lambda m, _: m.sent.total,
        ),
        Row("record-send-rate", "records sent per second", lambda m, now: m.sent.total_rate(now)),
        Row("record-error-total", "records that were not delivered", lambda m, _: m.failed.total),
        Row("record-error-rate", "records not delivered per second", lambda m, now: m.failed.total_rate(now)),
        Row("record-retry-total", "records that had to be sent again", lambda m, _: m.retried.total),
        Row("record-retry-rate", "records sent again per second", lambda m, now: m.retried.total_rate(now)),
        Row("batch-size-avg", "bytes of a batch as sent, average", lambda m, now: m.batch_sizes.avg(now)),
        Row("batch-size-max", "bytes of a batch as sent, maximum", lambda m, now: m.batch_sizes.max(now)),
        Row("records-per-request-avg", "records in a request, average", lambda m, now: m.per_request.avg(now)),
        Row(
            "record-queue-time-avg",
            "time from the first record of a batch to its sending, average",
            lambda m, now: m.queue_times.avg(now),
        ),
        Row(
            "record-queue-time-max",
            "time from the first record of a batch to its sending, maximum",
            lambda m, now: m.queue_times.max(now),
        ),
        Row("buffer-total-bytes", "size of the buffer (buffer.memory)", lambda m, _: m.buffer_total_bytes),
        Row("buffer-available-bytes", "free bytes of the buffer", lambda m, _: m.buffer_available_bytes),
        Row("requests-in-flight", "requests without an answer yet", lambda m, _: m.requests_in_flight),
    ),
}

ADMIN_ROWS: Mapping[str, tuple[Row, ...]] = {"admin-client-metrics": (*CONNECTION_ROWS, *LATENCY_ROWS)}


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


def snapshot(rows: Mapping[str, tuple[Row, ...]], measured: ClientMetrics, now_ms: int) -> Metrics:
    return {group: {row.name: row.value(measured, now_ms) for row in its} for group, its in rows.items()}
