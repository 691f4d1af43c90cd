"""The invariant of the offsets of transactions: offsets and output go together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.types import TopicPartition
from coterie.facts import Fact, OffsetsStored
from coterie.sim.invariants.committed_offsets import Key, is_pending
from coterie.sim.machine import Machine
from coterie.sim.transactional import CommittedReader, SimTransaction, TransactionalProcess, input_name, named_in
from coterie.sim.world import Observer, World


class OffsetsGoWithOutput(Observer):
    """Each input record is processed exactly once: offsets and output of a transaction go together (TO4, KIP-447).

    A committed offset never goes back by a transaction, and no input has two visible outputs. In the end exactly the
    input records before the committed offsets have one, which are all of them if a process is left to read them.
    """

    name = "offsets go with output"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._seen: dict[str, str] = {}
        """The transaction of the visible output of each input record."""
        self._committed: dict[Key, int] = {}
        self._inputs: dict[str, dict[TopicPartition, None]] = {}
        """The partitions that each group reads, as far as they are known."""
        self.count = 0

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        self._inputs.setdefault(transaction.group_id, {}).update(dict.fromkeys(transaction.offsets))

    def read_committed(self, _reader: CommittedReader, records: Sequence[Any]) -> None:
        for record in records:
            transaction, source = named_in(record.value)
            before = self._seen.setdefault(source, transaction)
            if before != transaction:
                self.fails(f"{source} was processed twice, by {before} and by {transaction}")

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if not isinstance(fact, OffsetsStored) or not fact.transactional or is_pending(fact):
            return
        for topic, partition, offset in fact.offsets:
            key = (fact.group_id, topic, partition)
            before = self._committed.get(key, 0)
            if offset <= before:
                self.fails(f"a transaction sets the offset of {key} to {offset}; it was {before}")
            self._committed[key] = offset

    def missing(self) -> str:
        for group_id in {one.group_id: None for one in self.world.consumers.values()}:
            for where in self._inputs.get(group_id, {}):
                log, offset = self.world.log(where), self._offset(group_id, where)
                if log is None or offset != log.log_end_offset:
                    return f"{group_id} has committed {offset} of {where}"
        return ""

    def _offset(self, group_id: str, where: TopicPartition) -> int | None:
        group = self.world.any_group(group_id)
        stored = group.offsets.get(where.topic, {}).get(where.partition) if group is not None else None
        return stored.offset if stored is not None else None

    def ended(self) -> None:
        expected = {
            input_name(*where, offset)
            for group_id, partitions in self._inputs.items()
            for where in partitions
            for offset in range(self._offset(group_id, where) or 0)
        }
        self.count += len(expected)
        lost, early = sorted(expected - self._seen.keys()), sorted(self._seen.keys() - expected)
        if lost:
            self.fails(f"the offsets of {lost} are committed, and no output of them is visible")
        if early:
            self.fails(f"the output of {early} is visible, and their offsets are not committed")
