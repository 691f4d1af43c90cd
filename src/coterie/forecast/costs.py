"""The costs of a change: of one simulated world, and their distribution over seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import ceil, inf

from coterie.structs import DataStruct, field


class WorldCost(DataStruct, frozen=True):
    """The cost of a change in the world of one seed. None: it did not happen, or is not known."""

    seed: int
    rebalances: int
    unassigned_s: float
    """Unassigned partition-seconds, as the ledger counts them (`coterie groups why`)."""
    unread_s: float
    """Partition-seconds in which no running process had a partition; also while a crashed member is not yet removed."""
    records_delayed: float | None
    """Records that were produced to partitions which were unread. None without a rate of records."""
    worst_lag_s: float | None
    """The age of the oldest record that is not processed, at its worst."""
    worst_lag_records: float | None
    catch_up_s: float | None
    """From the end of the change until the lag is as before; inf if it is not within the simulated time."""
    duplicates: float | None
    """Records that were processed twice."""
    took_s: float
    """The duration of the change itself."""
    detection_s: float | None
    """The longest time from a crash until the coordinator removed the member."""
    longest_rebalance_s: float | None
    evictions: int
    """Members that were removed, or left, though their process was alive: too slow, or paused for too long."""
    is_stable: bool
    """Whether all partitions had an owner at the end."""
    lag_s: list[float] = field(default_factory=list)
    """The lag in each second, for a picture."""


class CostColumn(DataStruct, frozen=True):
    """A cost that is shown."""

    name: str
    title: str
    of: Callable[[WorldCost], float | None]
    what: str


COSTS: Mapping[str, CostColumn] = {
    one.name: one
    for one in (
        CostColumn("rebalances", "rebalances", lambda cost: cost.rebalances, "rebalances during the change and after"),
        CostColumn(
            "unassigned_s",
            "unassigned (partition-s)",
            lambda cost: cost.unassigned_s,
            "partition-seconds without an owner, as coterie groups why counts them",
        ),
        CostColumn(
            "unread_s",
            "unread (partition-s)",
            lambda cost: cost.unread_s,
            "partition-seconds without a running owner, also before a crash is detected",
        ),
        CostColumn(
            "records_delayed",
            "records delayed",
            lambda cost: cost.records_delayed,
            "records produced to unread partitions",
        ),
        CostColumn(
            "worst_lag_s", "worst lag (s)", lambda cost: cost.worst_lag_s, "age of the oldest record not yet processed"
        ),
        CostColumn(
            "worst_lag_records",
            "worst lag (records)",
            lambda cost: cost.worst_lag_records,
            "records not yet processed, of all partitions",
        ),
        CostColumn(
            "catch_up_s",
            "catch-up (s)",
            lambda cost: cost.catch_up_s,
            "from the end of the change until the lag is as before",
        ),
        CostColumn("duplicates", "duplicates", lambda cost: cost.duplicates, "records processed twice"),
        CostColumn(
            "detection_s",
            "detection (s)",
            lambda cost: cost.detection_s,
            "from a crash until the coordinator has removed the member",
        ),
        CostColumn(
            "longest_rebalance_s",
            "longest rebalance (s)",
            lambda cost: cost.longest_rebalance_s,
            "from its begin to its end, as the coordinator sees it",
        ),
        CostColumn(
            "evictions",
            "evictions",
            lambda cost: cost.evictions,
            "members that were removed although they were running",
        ),
        CostColumn("took_s", "change takes (s)", lambda cost: cost.took_s, "from the begin to the end of the change"),
    )
}


class Spread(DataStruct, frozen=True):
    """The distribution of a cost over seeds."""

    values: tuple[float, ...]
    """Sorted. Worlds in which it did not happen are left out."""

    def at(self, percentile: float) -> float | None:
        """Return a percentile, by nearest rank: one of the values; None if there is none."""
        if not self.values:
            return None
        rank = max(ceil(percentile / 100 * len(self.values)), 1)
        return self.values[rank - 1]

    @property
    def median(self) -> float | None:
        return self.at(50)

    @property
    def text(self) -> str:
        """Return median, p10 and p90 as text."""
        if not self.values:
            return "-"
        low, middle, high = (self.at(percentile) for percentile in (10, 50, 90))
        if low == high:
            return figure(middle)
        return f"{figure(middle)} ({figure(low)}-{figure(high)})"


def figure(value: float | None) -> str:
    if value is None:
        return "-"
    if value == inf:
        return "never"
    if value >= 1_000:
        return f"{value:,.0f}".replace(",", " ")
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"


def spread_of(costs: Iterable[WorldCost], name: str) -> Spread:
    found = (COSTS[name].of(one) for one in costs)
    return Spread(tuple(sorted(value for value in found if value is not None)))


def percentile_name(text: str) -> float:
    """Return the number of p10, p50, p99 or max."""
    if text == "max":
        return 100.0
    if text.startswith("p"):
        try:
            value = float(text[1:])
        except ValueError:
            value = -1.0
        if 0 < value <= 100:
            return value
    raise ValueError(f"{text!r} is not a percentile: give p50, p90, p99 or max")


def lag_over_time(costs: Sequence[WorldCost], percentile: float) -> list[float]:
    """Return a percentile of the lag in each second over all worlds."""
    length = max((len(one.lag_s) for one in costs), default=0)
    seconds = ([one.lag_s[at] for one in costs if at < len(one.lag_s)] for at in range(length))
    return [Spread(tuple(sorted(values))).at(percentile) or 0.0 for values in seconds]
