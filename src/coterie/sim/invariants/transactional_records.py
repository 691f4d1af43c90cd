"""Invariants of the records of transactions, as readers with isolation.level=read_committed see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.types import TopicPartition
from coterie.sim.invariants.transaction_logs import OutputLogs
from coterie.sim.transactional import CommittedReader, SimTransaction, TransactionalProcess, named_in
from coterie.sim.world import Observer, World

Place = tuple[TopicPartition, int]


class AbortedIsNeverRead(Observer):
    """A reader of committed records gets no record of a transaction that nobody asked to commit (TL4)."""

    name = "aborted is never read"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._transactions: dict[str, SimTransaction] = {}

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        self._transactions[transaction.name] = transaction

    def read_committed(self, reader: CommittedReader, records: Sequence[Any]) -> None:
        for record in records:
            transaction = self._transactions[named_in(record.value)[0]]
            if not transaction.may_be_committed:
                self.fails(
                    f"{reader.name} has {record.value!r} at {record.topic}-{record.partition}@{record.offset}, and its "
                    f"transaction is {transaction.stage.name}"
                )


class NothingIsReadBeforeItsMarker(Observer):
    """A reader of committed records gets a record when the commit marker of its transaction is durable (TL3)."""

    name = "nothing is read before its marker"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._logs = OutputLogs(world)
        self._unchecked: list[Place] = []
        self.count = 0

    def read_committed(self, _reader: CommittedReader, records: Sequence[Any]) -> None:
        self._unchecked += [(TopicPartition(one.topic, one.partition), one.offset) for one in records]
        self.sample()

    def sample(self) -> None:
        if self._unchecked:
            unchecked, self._unchecked = self._unchecked, []
            readable = {where: self._logs.of(where).read_on() is not None for where, _ in unchecked}
            for where, offset in unchecked:
                if readable[where]:
                    self._check(where, offset)
                else:
                    self._unchecked.append((where, offset))

    def ended(self) -> None:
        self.sample()

    def _check(self, where: TopicPartition, offset: int) -> None:
        self.count += 1
        decision = self._logs.of(where).decisions.get(offset)
        if decision is None:
            self.fails(f"{where} was read at {offset}, and its transaction has no durable marker")
        elif not decision.committed:
            self.fails(f"{where} was read at {offset}, and the marker at {decision.marker} aborts its transaction")


class TransactionsAreWhole(Observer):
    """Readers of committed records see a transaction as a whole or not at all, also if they read it twice.

    Its records become visible partition by partition, so that this holds in the end. What was skipped once is never
    read later.
    """

    name = "transactions are whole"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._logs = OutputLogs(world)
        self._seen: dict[Place, bytes] = {}
        self._last: dict[TopicPartition, int] = {}
        self.count = 0

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        self._logs.add(transaction)

    def read_committed(self, reader: CommittedReader, records: Sequence[Any]) -> None:
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            before = self._seen.get((where, record.offset))
            if record.offset <= self._last.get(where, -1) and before is None:
                self.fails(f"{reader.name} has {where} at {record.offset}, which it skipped before")
            if before is not None and before != record.value:
                self.fails(f"{reader.name} has {record.value!r} for {where} at {record.offset}, and had {before!r}")
            self._seen[where, record.offset] = record.value
            self._last[where] = max(record.offset, self._last.get(where, -1))

    def missing(self) -> str:
        """The reader has to have read all that is committed, and nothing may be undecided."""
        if not self._logs.transactions:
            return ""
        for where, view in self._logs.views():
            if view.read_on() is None:
                return f"{where} cannot be read"
            for offset, transaction, _, decision in view:
                if decision is None and not self._logs.transactions[transaction].may_be_committed:
                    continue  # `TransactionsEnd` has the bound of those that are left open
                if decision is None or (decision.committed and (where, offset) not in self._seen):
                    return f"{transaction} at {where}@{offset} is not read"
        return ""

    def ended(self) -> None:
        seen: dict[str, list[bytes]] = {}
        for value in self._seen.values():
            seen.setdefault(named_in(value)[0], []).append(value)
        for name, values in seen.items():
            self.count += 1
            sent = self._logs.transactions[name].outputs
            if sorted(values) != sorted(sent):
                missing = sorted(set(sent) - set(values))
                self.fails(f"{len(values)} of the {len(sent)} records of {name} are read; {missing} are not")
