"""Invariants of how transactions end: decisions stand, fenced producers are silent, and nothing stays open."""

from __future__ import annotations

from typing import NamedTuple

from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.types import TopicPartition
from coterie.protocol.batch import BatchHeader
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.sim.invariants.transaction_logs import LogView, OutputLogs
from coterie.sim.machine import Machine
from coterie.sim.transactional import SimTransaction, Stage, TransactionalProcess
from coterie.sim.world import Observer, World

SLACK_MS = 15_000
"""A sample, the drift of the broker's clock, and the time to write decision and markers."""


class DecisionsStand(Observer):
    """A commit that was acknowledged is never undone, and no durable marker is lost or contradicted (TR3, TR5)."""

    name = "decisions stand"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._logs = OutputLogs(world)
        self._outcomes: dict[str, bool] = {}
        """The end of each transaction that has one: whether it was committed."""
        self._decided: dict[tuple[TopicPartition, int], tuple[str, bool]] = {}
        self.count = 0

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        self._logs.add(transaction)
        if transaction.stage is Stage.COMMITTED:
            self.count += 1
            if self._outcomes.get(transaction.name) is False:
                self.fails(f"{transaction.name} was acknowledged as committed, and was aborted before")

    def broker_began(self, _machine: Machine) -> None:
        self._logs.forget()

    def sample(self) -> None:
        if not self._logs.transactions:
            return
        for where, view in self._logs.views():
            view.read_on()
            for offset, name, committed in view.news():
                if self._outcomes.setdefault(name, committed) != committed:
                    self.fails(f"{name} is committed in one partition and aborted in another ({where}@{offset})")
                if not committed and self._logs.transactions[name].stage is Stage.COMMITTED:
                    self.fails(f"{name} was acknowledged as committed, and is aborted in {where}@{offset}")
                before = self._decided.setdefault((where, offset), (name, committed))
                if before != (name, committed):
                    self.fails(f"{where}@{offset} was decided as {before}, and is {(name, committed)}")

    def ended(self) -> None:
        self._logs.forget()
        self.sample()
        kept = {
            value: decision.committed
            for _, view in self._logs.views()
            for offset, value in view.values.items()
            if (decision := view.decisions.get(offset)) is not None
        }
        for transaction in self._logs.transactions.values():
            if transaction.stage is Stage.COMMITTED and not all(map(kept.get, transaction.outputs)):
                self.fails(f"{transaction.name} was acknowledged as committed, and not all of it is")
        for where, offset in self._decided:
            if offset not in self._logs.of(where).decisions:
                self.fails(f"{where}@{offset} was decided, and is not any more")


class _Fence(NamedTuple):
    identity: ProducerIdAndEpoch
    ends: dict[TopicPartition, int]
    """The ends of all logs when the new epoch was given."""


class FencedWritesNothing(Observer):
    """A producer writes nothing after another one with the same transactional id has its id (TI4)."""

    name = "fenced writes nothing"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._fences: dict[int, _Fence] = {}
        """The last epoch that was given, by producer id."""
        self._views: dict[TopicPartition, LogView] = {}
        self.count = 0

    def initialized(self, _process: TransactionalProcess, identity: ProducerIdAndEpoch) -> None:
        known = self._fences.get(identity.producer_id)
        if known is not None and known.identity.epoch > identity.epoch:
            return  # it was fenced before it heard of its epoch
        cluster = self.world.machine.cluster
        if cluster is None:
            return  # it died after the answer; how far its logs went is not known
        self._look()
        ends = {TopicPartition(*key): log.log_end_offset for key, log in cluster.directory.logs.items()}
        self._fences[identity.producer_id] = _Fence(identity, ends)
        self.count += 1

    def sample(self) -> None:
        if self._fences:
            self._look()

    def ended(self) -> None:
        self.sample()

    def _look(self) -> None:
        cluster = self.world.machine.cluster
        if cluster is None:
            return
        for key in cluster.directory.logs:
            where = TopicPartition(*key)
            if where not in self._views:
                self._views[where] = LogView(self.world, where)
            for header in self._views[where].read_on() or ():
                self._check(where, header)

    def _check(self, where: TopicPartition, header: BatchHeader) -> None:
        fence = self._fences.get(header.producer_id)
        if fence is None or header.is_control or header.producer_epoch >= fence.identity.epoch:
            return
        if header.base_offset >= fence.ends.get(where, 0):
            what = "offsets" if where.topic == OFFSETS_TOPIC else "records"
            self.fails(
                f"{what} of producer {header.producer_id}, epoch {header.producer_epoch}, were written to {where} at "
                f"{header.base_offset}, though epoch {fence.identity.epoch} had been given"
            )


class TransactionsEnd(Observer):
    """When all faults are repaired, no last stable offset stays for longer than the timeout and the interval (TT1)."""

    name = "transactions end"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._timeout_ms = 0
        self._healed_ms: int | None = None
        self._open: dict[tuple[TopicPartition, int], int] = {}
        """The first offset of the oldest open transaction of each log, and when it was first seen."""

    def initialized(self, process: TransactionalProcess, _identity: ProducerIdAndEpoch) -> None:
        self._timeout_ms = max(self._timeout_ms, process.habits.transaction_timeout_ms)

    def healed(self) -> None:
        self._healed_ms = self.world.schedule.now_ms

    def sample(self) -> None:
        cluster = self.world.machine.cluster
        if self._healed_ms is None or not self._timeout_ms or cluster is None:
            return
        settings, now_ms = self.world.machine.settings, self.world.schedule.now_ms
        most_ms = self._timeout_ms + settings.transaction_abort_timed_out_transaction_cleanup_interval_ms + SLACK_MS
        before, self._open = self._open, {}
        for key, log in cluster.directory.logs.items():
            stable = log.last_stable_offset(log.durable_end)
            if stable < log.durable_end:
                where = (TopicPartition(*key), stable)
                since_ms = self._open[where] = before.get(where, now_ms)
                if now_ms - since_ms > most_ms:
                    self.fails(f"the last stable offset of {where[0]} stays at {stable} for {now_ms - since_ms} ms")

    def missing(self) -> str:
        """The run goes on until those that were open at the repair have ended."""
        self.sample()
        open_ = [str(where) for where, since_ms in self._open.items() if since_ms <= (self._healed_ms or 0) + SLACK_MS]
        return f"a transaction is open at {open_[0]}" if open_ else ""
