"""The metrics of clients, under Kafka's names; those of consumers are in `consumer/consumer_metrics.py`.

There is no I/O here; the time comes in.

`metrics()` of a client returns `{group: {name: value}}`. A value that was not measured yet is None, never 0:
for instance an average without samples, or the time since the last rebalance if there was none. A count starts at 0.

Averages, maxima and rates are of the last samples (metrics.num.samples, metrics.sample.window.ms); a total is of the
client's life. Times are in milliseconds unless the name says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from coterie.settings.client_settings import ClientSettings

__all__ = [
    "ADMIN_ROWS",
    "CONNECTION_ROWS",
    "DEFAULTS",
    "LATENCY_ROWS",
    "PRODUCER_ROWS",
    "ClientMetrics",
    "Metrics",
    "ProducerMetrics",
    "Row",
    "Sensor",
    "snapshot",
]

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


def snapshot(rows: Mapping[str, tuple[Row, ...]], measured: ClientMetrics, now_ms: int) -> Metrics:
    return {group: {row.name: row.value(measured, now_ms) for row in its} for group, its in rows.items()}
