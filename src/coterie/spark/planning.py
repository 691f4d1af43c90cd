"""What a batch reads: how much of what is there, cut into how many tasks; pure. As Spark's Kafka source does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from coterie.client.types import TopicPartition
from coterie.spark.errors import DataLossError
from coterie.spark.plan import Plan, Span

__all__ = ["Budget", "Slice", "ends_within", "next_plan", "slices", "within_reach"]


@dataclass(frozen=True, slots=True)
class Slice:
    """All a task needs to know: these records of this partition."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


def next_plan(
    query: str, number: int, positions: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Plan:
    """From where we are to `ends`; a partition with nothing new is in it too, so that its place is kept."""
    spans = {each: Span(at, max(at, ends.get(each, at))) for each, at in positions.items()}
    return Plan(query, number, spans)


def ends_within(
    limit: int | None, positions: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """`maxOffsetsPerTrigger`: each partition gets its share by what waits in it; at least one record of each."""
    sizes = {each: latest[each] - at for each, at in positions.items() if latest.get(each, at) > at}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return {each: positions[each] + size for each, size in sizes.items()}
    return {each: positions[each] + max(1, limit * size // total) for each, size in sizes.items()}


class Budget:
    """How much the next batch may have, and whether it is worth one.

    `minOffsetsPerTrigger`: a batch waits until there is so much, or it has waited for `maxTriggerDelay`.
    """

    def __init__(self, least: int | None, delay_ms: int) -> None:
        self._least = least or 0
        self._delay_ms = delay_ms
        self._since_ms: int | None = None
        """When the last batch was planned, or when we first looked."""

    def ends(
        self,
        positions: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        now_ms: int,
        *,
        at_most: int | None,
        may_wait: bool,
    ) -> dict[TopicPartition, int]:
        waiting = sum(max(latest.get(each, at) - at, 0) for each, at in positions.items())
        if may_wait and not self.is_worth(waiting, now_ms):
            return {}
        return ends_within(at_most, positions, latest)

    def is_worth(self, waiting: int, now_ms: int) -> bool:
        if self._since_ms is None:
            self._since_ms = now_ms
        if waiting < self._least and now_ms - self._since_ms < self._delay_ms:
            return False
        if waiting:
            self._since_ms = now_ms
        return True


def within_reach(
    positions: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    fails: bool,
    warn: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """Positions that a partition has. One that is gone, or ends before, has lost what we were to read next."""
    gone = {each: at for each, at in positions.items() if latest.get(each, -1) < at}
    if not gone:
        return dict(positions)
    said = ", ".join(
        f"{each} was read up to {at} and " + (f"now ends at {latest[each]}" if each in latest else "is gone")
        for each, at in sorted(gone.items())
    )
    if fails:
        raise DataLossError(
            f"{said}: the topic was deleted, created again, or cut off. To go on with what is there, set "
            "failOnDataLoss to false; to read a new topic from its beginning, start a new query"
        )
    warn(f"{said}. failOnDataLoss is false: going on with what is there")
    return {each: min(at, latest[each]) for each, at in positions.items() if each in latest}


def slices(
    spans: Mapping[TopicPartition, Span], *, least: int | None = None, most_records: int | None = None
) -> list[Slice]:
    """`maxRecordsPerPartition`, then `minPartitions`: the more there is in a partition, the more tasks read it."""
    parts = {each: ceil(span.size / most_records) if most_records else 1 for each, span in spans.items() if span.size}
    missing = (least or 0) - sum(parts.values())
    if missing > 0:
        parts = _with_more(parts, {each: spans[each].size for each in parts}, missing)
    return [piece for each, count in sorted(parts.items()) for piece in _cut(each, spans[each], count)]


def _with_more(
    parts: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, int], missing: int
) -> dict[TopicPartition, int]:
    """By size, the fractions to those with the largest; nobody gets more parts than it has offsets."""
    total = sum(sizes.values())
    wanted = {each: sizes[each] * missing / total for each in parts}
    more = {each: min(int(wanted[each]), sizes[each] - parts[each]) for each in parts}
    by_fraction = sorted(parts, key=lambda each: (int(wanted[each]) - wanted[each], each))
    left = missing - sum(more.values())
    while left > 0:
        able = [each for each in by_fraction if parts[each] + more[each] < sizes[each]]
        if not able:
            break
        for each in able[:left]:
            more[each] += 1
        left -= len(able[:left])
    return {each: parts[each] + more[each] for each in parts}


def _cut(partition: TopicPartition, span: Span, count: int) -> Iterable[Slice]:
    bounds = [span.from_offset + span.size * at // count for at in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield Slice(partition.topic, partition.partition, begin, end)
