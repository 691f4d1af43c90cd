"""Reads the durable part of a log for the invariants of transactions: who wrote each record, and how it was decided."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from coterie.client.types import TopicPartition
from coterie.errors import CoterieError
from coterie.protocol.batch import BatchHeader, batches
from coterie.protocol.records import marker_of, records
from coterie.sim.transactional import SimTransaction, named_in
from coterie.sim.world import World


class Decision(NamedTuple):
    committed: bool
    marker: int
    """The offset of the marker."""


class LogView:
    """LogView has what was read of one log. It reads only durable batches, which do not change any more."""

    def __init__(self, world: World, where: TopicPartition) -> None:
        self._world = world
        self._where = where
        self.end = 0
        """The offset up to which it was read."""
        self.values: dict[int, bytes] = {}
        """The records of transactions, by offset."""
        self.decisions: dict[int, Decision] = {}
        """The end of their transaction, by the offset of the record."""
        self._open: dict[int, list[int]] = {}
        self._news: list[int] = []

    def news(self) -> list[tuple[int, str, bool]]:
        """Return the offset and the transaction of records that were decided since the last call, and how."""
        offsets, self._news = self._news, []
        return [(at, named_in(self.values[at])[0], self.decisions[at].committed) for at in offsets]

    def read_on(self) -> list[BatchHeader] | None:
        """Read what has become durable; return the new batches, or None if the log cannot be read now."""
        world = self._world
        log = world.log(self._where)
        if log is None or world.machine.disk.is_failing or not log.is_in_order:
            return None
        found: list[BatchHeader] = []
        try:
            while self.end < log.durable_end:
                data = log.read(self.end, 1 << 20, log.durable_end)
                if not data:
                    return None
                for at, header in batches(data):
                    self._take(data, header, at)
                    found.append(header)
        except (CoterieError, OSError):
            return None  # damage, which the broker has to report itself
        return found

    def _take(self, data: bytes, header: BatchHeader, at: int) -> None:
        if header.is_control:
            marker = marker_of(data, header, at)
            if marker is not None:
                decision = Decision(marker.committed, header.base_offset)
                decided = self._open.pop(header.producer_id, [])
                self.decisions.update(dict.fromkeys(decided, decision))
                self._news += decided
        elif header.is_transactional:
            for record in records(data, header, at):
                self.values[record.offset] = record.value or b""
                self._open.setdefault(header.producer_id, []).append(record.offset)
        self.end = header.next_offset

    def __iter__(self) -> Iterator[tuple[int, str, str, Decision | None]]:
        """Yield of each record the offset, the transaction, the input record, and the decision, if there is one."""
        for offset, value in self.values.items():
            yield offset, *named_in(value), self.decisions.get(offset)


class OutputLogs:
    """The logs that transactions write their output to."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._views: dict[TopicPartition, LogView] = {}
        self.transactions: dict[str, SimTransaction] = {}
        """All transactions by name."""

    def add(self, transaction: SimTransaction) -> None:
        self.transactions[transaction.name] = transaction

    def of(self, where: TopicPartition) -> LogView:
        found = self._views.get(where)
        if found is None:
            found = self._views[where] = LogView(self._world, where)
        return found

    def views(self) -> Iterator[tuple[TopicPartition, LogView]]:
        for where in self.partitions():
            yield where, self.of(where)

    def partitions(self) -> list[TopicPartition]:
        """The partitions that processes with transactions write to; none in other workloads."""
        known = dict.fromkeys(self._views)
        for process in self._world.consumers.values():
            for topic, count in process.habits.outputs:
                known |= dict.fromkeys(TopicPartition(topic, number) for number in range(count))
        return list(known)

    def forget(self) -> None:
        """Read everything again."""
        self._views = {where: LogView(self._world, where) for where in self.partitions()}
