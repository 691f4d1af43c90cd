"""The plan of a micro-batch: which offsets of which partitions it reads, and how they are cut into tasks; pure.

A plan is the offset that Spark keeps in the checkpoint. It says where the batch ends, in the JSON of Spark's own Kafka
source, and what else is needed under a name that no topic can have:

    {"orders": {"0": 250, "1": 7}, "#plan": {"query": "5f0c…", "number": 7, "from": {"orders": {"0": 100}}}}

`from` has the partitions that do not begin where the plan before ends: others may have read there, or records were
deleted. Spark's log has both plans of a batch, so a batch can be read again, the same, whichever query owns the
partitions today. The first plan has all of `from`: the one before it is not in the log. `query` is drawn once and stays
with the checkpoint, so that a commit to the group can name its query. `number` counts, so that no two plans of a query
are the same text and Spark sees that a batch is new.

Version 0.1.0 wrote `{"query": "5f0c…", "plan": 7, "topics": {"orders": {"0": {"from": 100, "until": 250}}}}`, which is
read as well.

The limits are those of Spark's Kafka source: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay` for
a batch, `minPartitions` and `maxRecordsPerPartition` for its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any, NamedTuple

from coterie.client.types import TopicPartition
from coterie.errors import CoterieError, MalformedError

__all__ = [
    "BatchPlan",
    "BatchPlanner",
    "DataLossError",
    "OffsetRange",
    "Span",
    "by_topic",
    "ends_within",
    "name_of_plan",
    "offset_ranges",
    "reachable",
    "within_log",
]


PLAN = "#plan"


class DataLossError(CoterieError):
    """Records that were to be read are gone, and `failOnDataLoss` is true."""


class Span(NamedTuple):
    """The offsets that a batch reads of one partition."""

    from_offset: int
    until_offset: int

    @property
    def size(self) -> int:
        return self.until_offset - self.from_offset


@dataclass(frozen=True, slots=True)
class BatchPlan:
    query: str
    number: int
    spans: Mapping[TopicPartition, Span]
    """Partitions with nothing new are in it too, with an empty span, so that their positions are kept."""

    def to_json(self, before: BatchPlan | None = None) -> dict[str, Any]:
        """Return the plan as JSON, sorted, since Spark compares the text. `before`: the plan that it follows."""
        ends = before.ends() if before is not None and before.number else {}
        begins = {each: at for each, (at, until) in self.spans.items() if at != ends.get(each, until)}
        described = {"query": self.query, "number": self.number, "from": by_topic(begins)}
        return {**by_topic(self.ends()), PLAN: described}

    @classmethod
    def from_json(cls, data: Any, before: BatchPlan | None = None) -> BatchPlan:
        """Read a plan. Without the plan before it, all that counts is where it ends; after itself it is empty."""
        try:
            if _is_old(data):
                plan = _old_plan(data)
            else:
                query, number, begins = (data[PLAN][name] for name in ("query", "number", "from"))
                starts = before.ends() if before is not None else {}
                if before is None or before.number != number:
                    starts |= _numbers(begins)
                ends = _numbers({topic: offsets for topic, offsets in data.items() if topic != PLAN})
                plan = cls(str(query), int(number), {each: Span(starts.get(each, at), at) for each, at in ends.items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise _foreign(data, error) from None
        if before is not None and before.number not in {plan.number, plan.number - 1}:
            raise _foreign(data, ValueError(f"it follows plan {before.number}"))
        if any(not 0 <= span.from_offset <= span.until_offset for span in plan.spans.values()):
            raise _foreign(data, ValueError("an end before its beginning"))
        return plan

    def ends(self) -> dict[TopicPartition, int]:
        """Return the positions from which the next batch reads on."""
        return {partition: span.until_offset for partition, span in self.spans.items()}

    def to_read(self) -> dict[TopicPartition, Span]:
        """Return the spans that are not empty."""
        return {partition: span for partition, span in self.spans.items() if span.size}


def name_of_plan(data: Any) -> tuple[str, int] | None:
    """Return the query and the number of a plan, from its JSON; None if it is the offset of another source."""
    if not isinstance(data, dict):
        return None
    if _is_old(data):
        return data["query"], data["plan"]
    return (data[PLAN]["query"], data[PLAN]["number"]) if PLAN in data else None


def _is_old(data: Any) -> bool:
    return isinstance(data, dict) and data.keys() == {"query", "plan", "topics"}


def _old_plan(data: Any) -> BatchPlan:
    spans = {
        TopicPartition(topic, int(partition)): Span(int(span["from"]), int(span["until"]))
        for topic, partitions in data["topics"].items()
        for partition, span in partitions.items()
    }
    return BatchPlan(str(data["query"]), int(data["plan"]), spans)


def by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets in the JSON of Spark's Kafka source, sorted."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(partition)] = offset
    return topics


def _numbers(topics: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): int(offset)
        for topic, offsets in topics.items()
        for partition, offset in offsets.items()
    }


def _foreign(data: Any, error: Exception) -> MalformedError:
    return MalformedError(
        f"the checkpoint has an offset this source did not write: {str(data)[:200]} ({type(error).__name__}: {error}). "
        'A query that comes from format("kafka") needs a checkpoint of its own: give it a new checkpointLocation, and '
        "startingOffsets, or a groupId whose committed offsets say where to go on"
    )


class BatchPlanner:
    """Decides how much the next batch reads, and whether there is enough for one.

    With `minOffsetsPerTrigger` a batch waits until so many records are there, or `maxTriggerDelay` is over.
    """

    def __init__(self, min_offsets: int | None, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets or 0
        self._max_delay_ms = max_delay_ms
        self._since_ms: int | None = None
        """The time at which the last batch was planned, or this was first asked."""
        self.target: Mapping[TopicPartition, int] | None = None
        """The end of each partition at the start, with AvailableNow: records behind it are not read."""
        self.is_waiting = False
        """True if there are records to read, and the last plan left them for `minOffsetsPerTrigger`."""

    def plan(
        self,
        done: BatchPlan,
        positions: Mapping[TopicPartition, int],
        log_ends: Mapping[TopicPartition, int],
        now_ms: int,
        *,
        max_offsets: int | None,
        may_wait: bool,
    ) -> BatchPlan:
        """Return the plan that follows `done`, or `done` itself if there is nothing to read yet."""
        if self.target is not None:
            log_ends = {each: min(log_ends[each], end) for each, end in self.target.items() if each in log_ends}
        waiting = sum(max(log_ends.get(each, at) - at, 0) for each, at in positions.items())
        is_early = may_wait and self.target is None and not self.is_enough(waiting, now_ms)
        self.is_waiting = is_early and waiting > 0
        if is_early:
            return done
        ends = ends_within(max_offsets, positions, log_ends)
        spans = {each: Span(at, max(at, ends.get(each, at))) for each, at in positions.items()}
        plan = BatchPlan(done.query, done.number + 1, spans)
        return plan if plan.to_read() else done

    def is_enough(self, waiting: int, now_ms: int) -> bool:
        """Return whether a batch is planned now, with this many records waiting."""
        if self._since_ms is None:
            self._since_ms = now_ms
        if waiting < self._min_offsets and now_ms - self._since_ms < self._max_delay_ms:
            return False
        if waiting:
            self._since_ms = now_ms
        return True


def ends_within(
    limit: int | None, positions: Mapping[TopicPartition, int], log_ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Share `maxOffsetsPerTrigger` by what waits in each partition; each gets at least one record."""
    sizes = {each: log_ends[each] - at for each, at in positions.items() if log_ends.get(each, at) > at}
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return {each: positions[each] + size for each, size in sizes.items()}
    return {each: positions[each] + max(1, limit * size // total) for each, size in sizes.items()}


def reachable(
    positions: Mapping[TopicPartition, int],
    log_ends: Mapping[TopicPartition, int],
    *,
    fail_on_data_loss: bool,
    warn: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """Return positions that exist. A partition that is gone, or ends before its position, has lost records."""
    lost = {each: at for each, at in positions.items() if log_ends.get(each, -1) < at}
    if not lost:
        return dict(positions)
    what = ", ".join(
        f"{each} was read up to {at} and " + (f"now ends at {log_ends[each]}" if each in log_ends else "is gone")
        for each, at in sorted(lost.items())
    )
    if fail_on_data_loss:
        raise DataLossError(
            f"{what}: the topic was deleted, created again, or cut off. To go on with what is there, set "
            "failOnDataLoss to false; to read a new topic from its beginning, start a new query"
        )
    warn(f"{what}. failOnDataLoss is false: going on with what is there")
    return {each: min(at, log_ends[each]) for each, at in positions.items() if each in log_ends}


def within_log(
    ends: Mapping[TopicPartition, int], log_ends: Mapping[TopicPartition, int], warn: Callable[[str], None]
) -> dict[TopicPartition, int]:
    """Return the ends of a batch query, none of them behind the end of its partition."""
    beyond = {each: at for each, at in ends.items() if at > log_ends[each]}
    if beyond:
        what = ", ".join(f"{each} ends at {log_ends[each]}, not at {at}" for each, at in sorted(beyond.items()))
        warn(f"endingOffsets: {what}. failOnDataLoss is false: reading what is there")
    return dict(ends) | {each: log_ends[each] for each in beyond}


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets that one task reads."""

    topic: str
    partition: int
    from_offset: int
    until_offset: int


def offset_ranges(
    spans: Mapping[TopicPartition, Span], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut spans into tasks of at most `max_records`; if they are fewer than `min_partitions`, cut large ones again."""
    parts = {each: ceil(span.size / max_records) if max_records else 1 for each, span in spans.items() if span.size}
    missing = (min_partitions or 0) - sum(parts.values())
    if missing > 0:
        parts = _with_more(parts, {each: spans[each].size for each in parts}, missing)
    return [piece for each, count in sorted(parts.items()) for piece in _cut(each, spans[each], count)]


def _with_more(
    parts: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, int], missing: int
) -> dict[TopicPartition, int]:
    """Share the missing parts by size, the rest to the largest fractions; none gets more parts than it has offsets."""
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


def _cut(partition: TopicPartition, span: Span, count: int) -> Iterable[OffsetRange]:
    bounds = [span.from_offset + span.size * at // count for at in range(count + 1)]
    for begin, end in pairwise(bounds):
        yield OffsetRange(partition.topic, partition.partition, begin, end)
