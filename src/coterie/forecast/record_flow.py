"""The records of a group, counted and not sent: how many were produced, read, processed, committed, and how late.

Each partition gets records at a steady rate, times a factor while there is a surge. An owner takes what is there, up to
`max.poll.records`, and works on it. A new owner begins at the committed offset, so what was processed and not committed
is processed again. Times are those of the world, in ms; offsets are real numbers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Surge:
    """A time in which more records are produced."""

    from_ms: int
    to_ms: int
    factor: float


class Rate(NamedTuple):
    """The rate of a partition from a time on, and its end offset then. The time counts a surge more."""

    since: float
    end: float
    per_ms: float


@dataclass(slots=True)
class PartitionFlow:
    rates: list[Rate]
    """There is more than one if its topic got partitions."""
    owner: str | None = None
    """The running process that reads it."""
    free_since_ms: int = 0
    position: float = 0.0
    """The offset that the owner takes next."""
    processed: float = 0.0
    """The offset up to which the owner has processed."""
    committed: float = 0.0
    done: float = 0.0
    """The offset up to which anybody has processed."""


@dataclass(slots=True)
class PolledRecords:
    """The records that one poll returned: parts of partitions, in the order in which they are processed."""

    owner: str
    began_ms: int
    record_ms: float
    parts: list[tuple[Partition, float, float]] = field(default_factory=list)

    @property
    def records(self) -> float:
        return sum(last - first for _, first, last in self.parts)

    @property
    def work_ms(self) -> float:
        return self.records * self.record_ms


@dataclass(slots=True)
class FlowTotals:
    """The figures that were counted since the change began."""

    unread_ms: float = 0.0
    """The partition-time in which no running process had a partition."""
    delayed: float = 0.0
    """The records that were produced in it."""
    duplicates: float = 0.0
    worst_delay_ms: float = 0.0
    """The longest time from the production of a record to the end of its processing."""
    processed: float = 0.0


class RecordFlow:
    def __init__(self) -> None:
        self.partitions: dict[Partition, PartitionFlow] = {}
        self.totals = FlowTotals()
        self._surge: Surge | None = None
        self._turn: dict[str, int] = {}
        """The number of polls of each process, since each begins with another partition."""
        self._owned: dict[str, list[tuple[Partition, PartitionFlow]]] = {}
        """The partitions that each process reads, until an owner changes: each poll needs them."""

    def add(self, topic: str, numbers: Iterable[int], records_per_s: float, now_ms: int) -> None:
        """Add partitions; all of them together get that many records."""
        numbers = list(numbers)
        for number in numbers:
            self.partitions[topic, number] = self._new(records_per_s / len(numbers) / 1_000, now_ms)
        self._owned.clear()

    def grow(self, topic: str, numbers: Iterable[int], records_per_s: float, now_ms: int) -> None:
        """Add partitions to a topic, which has as many records as before: the others get less from now on."""
        new = list(numbers)
        before = [one for (name, _), one in self.partitions.items() if name == topic]
        per_ms = records_per_s / (len(before) + len(new)) / 1_000
        for one in before:
            one.rates.append(Rate(self._weighted(now_ms), self._produced(one, now_ms), per_ms))
        for number in new:
            self.partitions[topic, number] = self._new(per_ms, now_ms)

    def _new(self, per_ms: float, now_ms: int) -> PartitionFlow:
        return PartitionFlow([Rate(self._weighted(now_ms), 0.0, per_ms)], free_since_ms=now_ms)

    def surge(self, surge: Surge) -> None:
        self._surge = surge

    def counts_from(self, now_ms: int) -> None:
        """Begin to count."""
        self.totals = FlowTotals()
        for one in self.partitions.values():
            one.free_since_ms = max(one.free_since_ms, now_ms)

    # --- production

    def _weighted(self, at_ms: float) -> float:
        """Return the time, in which a second of a surge counts more."""
        surge = self._surge
        if surge is None:
            return at_ms
        within = min(max(at_ms - surge.from_ms, 0), surge.to_ms - surge.from_ms)
        return at_ms + (surge.factor - 1) * within

    def _time_of(self, weighted: float) -> float:
        """Return the time of a weighted time."""
        surge = self._surge
        if surge is None or weighted <= surge.from_ms:
            return weighted
        within = (weighted - surge.from_ms) / surge.factor if surge.factor else inf
        if within <= surge.to_ms - surge.from_ms:
            return surge.from_ms + within
        return weighted - (surge.factor - 1) * (surge.to_ms - surge.from_ms)

    def _produced(self, one: PartitionFlow, at_ms: float) -> float:
        """Return the end offset at a time; it is negative before the first record."""
        if self._surge is None and len(one.rates) == 1:  # almost always, and it is called for each partition and poll
            since, end, per_ms = one.rates[0]
            return end + per_ms * (at_ms - since)
        at = self._weighted(at_ms)
        rate = next((rate for rate in reversed(one.rates) if rate.since <= at), one.rates[0])
        return rate.end + rate.per_ms * (at - rate.since)

    def _produced_at_ms(self, one: PartitionFlow, offset: float) -> float:
        """Return when the record at an offset was produced."""
        if self._surge is None and len(one.rates) == 1:
            since, end, per_ms = one.rates[0]
            return since + (offset - end) / per_ms if per_ms else inf
        rate = next((rate for rate in reversed(one.rates) if rate.end <= offset), one.rates[0])
        return self._time_of(rate.since + (offset - rate.end) / rate.per_ms) if rate.per_ms else inf

    # --- owners

    def assigned(self, owner: str, partitions: Collection[Partition], now_ms: int) -> None:
        self._owned.clear()
        for partition in partitions:
            one = self.partitions.get(partition)
            if one is None:
                continue
            if one.owner is None:
                self._was_unread(one, now_ms)
            one.owner = owner
            one.position = one.processed = one.committed

    def released(self, owner: str, partitions: Collection[Partition], now_ms: int, *, commits: bool) -> None:
        """A process gives partitions up, in order, or it has lost them."""
        self._owned.clear()
        for partition in partitions:
            one = self.partitions.get(partition)
            if one is None or one.owner != owner:
                continue
            if commits:
                one.committed = one.processed
            one.owner, one.free_since_ms = None, now_ms

    def gone(self, owner: str, now_ms: int) -> None:
        """A process has ended."""
        self.released(owner, self.owned(owner), now_ms, commits=False)

    def ended(self, now_ms: int) -> None:
        """Count what is unread at the end."""
        for one in self.partitions.values():
            if one.owner is None:
                self._was_unread(one, now_ms)
                one.free_since_ms = now_ms

    def _was_unread(self, one: PartitionFlow, now_ms: int) -> None:
        self.totals.unread_ms += now_ms - one.free_since_ms
        self.totals.delayed += self._produced(one, now_ms) - self._produced(one, one.free_since_ms)

    def owned(self, owner: str) -> list[Partition]:
        return [partition for partition, _ in self._flows_of(owner)]

    def _flows_of(self, owner: str) -> list[tuple[Partition, PartitionFlow]]:
        found = self._owned.get(owner)
        if found is None:
            found = self._owned[owner] = [about for about in self.partitions.items() if about[1].owner == owner]
        return found

    # --- reading

    def backlog(self, owner: str, now_ms: int) -> float:
        """Return how many records a process could take now."""
        produced = self._produced
        return sum(max(produced(one, now_ms) - one.position, 0.0) for _, one in self._flows_of(owner))

    def take(self, owner: str, now_ms: int, record_ms: float, most: int) -> PolledRecords:
        """Return the next records of a process, each poll from another partition on."""
        batch = PolledRecords(owner, now_ms, record_ms)
        owned = self._flows_of(owner)
        turn = self._turn[owner] = self._turn.get(owner, -1) + 1
        left = float(most)
        for at in range(len(owned)):
            partition, one = owned[(turn + at) % len(owned)]
            there = self._produced(one, now_ms) - one.position
            count = min(left, there)
            if count > 0:
                batch.parts.append((partition, one.position, one.position + count))
                one.position += count
                left -= count
            if left <= 0:
                break
        return batch

    def processed(self, batch: PolledRecords, until_ms: int, *, is_whole: bool) -> None:
        """Count the records of a batch that were processed until then."""
        spent, totals, record_ms = 0.0, self.totals, batch.record_ms
        budget = until_ms - batch.began_ms
        for partition, first, last in batch.parts:
            one = self.partitions[partition]
            count = last - first
            if not is_whole and record_ms:
                count = min(count, max((budget - spent) / record_ms, 0.0))
            if count <= 0:
                break
            end = first + count
            if one.done > first:
                totals.duplicates += min(end, one.done) - first
            totals.processed += count
            for offset in (first, end):  # the delay changes steadily in between
                done_ms = batch.began_ms + spent + (offset - first) * record_ms
                delay_ms = done_ms - self._produced_at_ms(one, offset)
                totals.worst_delay_ms = max(totals.worst_delay_ms, delay_ms)
            one.done = max(one.done, end)
            if one.owner == batch.owner and end > one.processed:
                one.processed = end
            spent += count * record_ms

    def commit(self, owner: str) -> None:
        for _, one in self._flows_of(owner):
            one.committed = one.processed

    # --- lag

    def lags(self, now_ms: int) -> Iterator[tuple[float, float]]:
        """Return for each partition how many records are not processed, and the age of the oldest, in ms."""
        for one in self.partitions.values():
            records = max(self._produced(one, now_ms) - one.processed, 0.0)
            age_ms = now_ms - self._produced_at_ms(one, one.done)
            yield records, max(age_ms, 0.0)
