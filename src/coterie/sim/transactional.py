"""Processes with transactions: one that reads, processes and writes, and one that reads what was committed.

The first has the shipped `AsyncConsumer` and the shipped `AsyncProducer` with a `transactional.id`. For each poll with
records it writes an output record for each input record, adds the group's offsets to the transaction, and commits it or
aborts it. The second has an `AsyncConsumer` with `isolation.level=read_committed`, outside of a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import IntEnum, StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from coterie.client.consumer.async_consumer import AsyncConsumer
from coterie.client.producer.delivery import RecordMetadata
from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.producer.producer import AsyncProducer
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, ErrorCode, KafkaError, RequestTimedOutError, TransactionAbortableError
from coterie.sim.clients import Client
from coterie.sim.consumer import AFTER_AN_ERROR_S, ConsumerProcess, Habits, User
from coterie.sim.schedule import HostClock

if TYPE_CHECKING:
    from coterie.sim.world import World

COMMIT_TAKES_MS = 80
"""A process that dies during a commit dies within so many milliseconds after the call."""
AGAIN_SHARE = 0.1
"""The share of polls after which the reader goes back and reads a partition again."""
AGAIN_OFFSETS = 30
"""The reader goes back by so many offsets at most."""
AFTER_A_PAUSE_S = 0.3
"""A process that wakes up within a transaction goes on with it so much later: its member has heard of its group."""
POLL_S = 2.0


class Moment(StrEnum):
    """A moment of a transaction at which a process can be made to die or to pause."""

    BEGUN = "after begin"
    SOME_SENT = "after some sends"
    OFFSETS_SENT = "after send_offsets"
    COMMITTING = "during the commit"


class Stage(IntEnum):
    """The last step of a transaction that its process has asked for, or has got an answer to."""

    BEGUN = 0
    OFFSETS = 1
    COMMITTING = 2
    COMMITTED = 3
    ABORTING = 4
    ABORTED = 5


class SimTransaction:
    """One transaction as its process sees it."""

    __slots__ = ("group_id", "inputs", "name", "offsets", "outputs", "stage")

    def __init__(self, name: str, group_id: str) -> None:
        self.name = name
        """The name of the process and a number: no other transaction has it."""
        self.group_id = group_id
        self.stage = Stage.BEGUN
        self.inputs: list[str] = []
        self.outputs: list[bytes] = []
        """The values of the records that it has sent."""
        self.offsets: dict[TopicPartition, OffsetAndMetadata] = {}

    @property
    def may_be_committed(self) -> bool:
        return self.stage in {Stage.COMMITTING, Stage.COMMITTED}


def input_name(topic: str, partition: int, offset: int) -> str:
    return f"{topic}-{partition}@{offset}"


def named_in(value: bytes) -> tuple[str, str]:
    """Return the transaction and the input record that an output record names."""
    transaction, _, source = value.decode().partition(" ")
    return transaction, source


class _ShippedTransactionalProducer(AsyncProducer):
    """The shipped producer with the world's clock, random numbers and connections."""

    def __init__(self, process: Client, settings: dict[str, object]) -> None:
        self._runtime = process.runtime
        super().__init__(settings)

    @property
    def identity(self) -> ProducerIdAndEpoch:
        transactions = self._sender.transactions
        assert transactions is not None
        return transactions.manager.identity

    def __del__(self) -> None:
        """A process that ends without closing its producer is what is simulated: nobody is to be warned of it."""


class TransactionalProcess(ConsumerProcess):
    """A process that reads, processes and writes in transactions (KIP-447)."""

    def __init__(self, world: World, name: str, clock: HostClock, habits: Habits) -> None:
        self.ambush: tuple[Moment, Callable[[object], None]] | None = None
        """The moment at which something happens to it, and what."""
        self._count = 0
        super().__init__(world, name, clock, habits)

    def _make(self) -> None:
        super()._make()
        habits = self.habits
        self._producer = _ShippedTransactionalProducer(
            self,
            self.settings(
                transactional_id=habits.transactional_id,
                transaction_timeout_ms=habits.transaction_timeout_ms,
                delivery_timeout_ms=30_000,
                request_timeout_ms=10_000,
                max_block_ms=20_000,
                metadata_max_age_ms=habits.metadata_max_age_ms,
            ),
        )

    @property
    def transactional_id(self) -> str:
        assert self.habits.transactional_id is not None
        return self.habits.transactional_id

    # --- the user -----------------------------------------------------------------------------------------------------

    async def live(self) -> None:
        try:
            await self._until_ended(self._producer.init_transactions)
        except CoterieError as error:
            await self._give_up(error)
        self.world.initialized(self, self._producer.identity)
        await super().live()

    async def _process(self, records: Any) -> None:
        self.user = User.WORKING
        self.world.took(self, records)
        self._work = asyncio.ensure_future(asyncio.sleep(self.habits.work_ms / 1000))
        await asyncio.wait([self._work])
        if self._work.cancelled():
            self.fetcher.rewind()
            return
        self.user = User.COMMITTING
        try:
            await self._transact(records)
        except CoterieError as error:
            await self._give_up(error)
        self.user = User.AWAY

    async def _give_up(self, error: CoterieError) -> None:
        """The producer is done: the process ends, and its supervisor starts another."""
        self.later(0, self._fails, error)
        await asyncio.get_running_loop().create_future()

    async def _transact(self, records: Any) -> None:
        producer = self._producer
        self._count += 1
        transaction = SimTransaction(f"{self.name}/{self._count}", self.group_id)
        await producer.begin_transaction()
        self._enter(transaction, Stage.BEGUN)
        await self._reach(Moment.BEGUN)
        try:
            await self._write(transaction, records)
            if self._rng.random() >= self.habits.abort_share:
                self._enter(transaction, Stage.COMMITTING)
                await self._reach(Moment.COMMITTING)
                await self._until_ended(producer.commit_transaction)
                self._enter(transaction, Stage.COMMITTED)
                return
        except TransactionAbortableError as error:
            self.errors.append(error)
        except KafkaError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
            self.errors.append(error)
        self._enter(transaction, Stage.ABORTING)
        await self._until_ended(producer.abort_transaction)
        self._enter(transaction, Stage.ABORTED)
        self._client.seek_to_committed()
        self.world.rewound(self)

    async def _write(self, transaction: SimTransaction, records: Any) -> None:
        for at, record in enumerate(records):
            await self._send(transaction, record)
            if at == (len(records) - 1) // 2:
                await self._reach(Moment.SOME_SENT)
        if self._rng.random() < self.habits.slow_share:
            await asyncio.sleep(1.5 * self.habits.transaction_timeout_ms / 1000)
        self.world.processed(self, records)
        transaction.offsets = records.next_offsets()
        self._enter(transaction, Stage.OFFSETS)
        await self._producer.send_offsets(transaction.offsets, self._client.group_metadata())
        await self._reach(Moment.OFFSETS_SENT)

    async def _send(self, transaction: SimTransaction, record: Any) -> None:
        source = input_name(record.topic, record.partition, record.offset)
        value = f"{transaction.name} {source}".encode()
        topic, partitions = self._rng.choice(self.habits.outputs)
        transaction.inputs.append(source)
        transaction.outputs.append(value)
        await self._producer.send(
            topic, value, partition=self._rng.randrange(partitions), on_delivery=partial(self._delivered, value)
        )

    def _delivered(self, value: bytes, where: RecordMetadata | None, _error: KafkaError | None) -> None:
        if where is not None and where.offset >= 0 and self.is_alive:
            self.world.acknowledged(TopicPartition(where.topic, where.partition), where.offset, value)

    def _enter(self, transaction: SimTransaction, stage: Stage) -> None:
        transaction.stage = stage
        self.world.transaction_changed(self, transaction)

    async def _reach(self, moment: Moment) -> None:
        """Let happen what is planned for this moment."""
        if self.ambush is None or self.ambush[0] is not moment:
            return
        (_, strike), self.ambush = self.ambush, None
        if moment is Moment.COMMITTING:
            self.later(self._rng.randint(1, COMMIT_TAKES_MS), strike, None)
        else:
            self.later(0, strike, None)
            await asyncio.sleep(AFTER_A_PAUSE_S)

    @staticmethod
    async def _until_ended(call: Callable[[], Awaitable[None]]) -> None:
        """Call it again as long as it has not ended in time."""
        while True:
            with suppress(RequestTimedOutError):
                return await call()

    async def _close(self, within_ms: int, leave: bool | None) -> None:
        self.user = User.CLOSING
        with suppress(CoterieError):
            await self._producer.close(within_ms / 2000)
        await super()._close(within_ms // 2, leave)


class _ShippedReader(AsyncConsumer):
    """The shipped consumer with the world's clock, random numbers and connections."""

    def __init__(self, process: Client, settings: dict[str, object]) -> None:
        self._runtime = process.runtime
        super().__init__(settings)


class CommittedReader(Client):
    """Reads topics with `isolation.level=read_committed`, all partitions, and at times some of it again."""

    def __init__(self, world: World, name: str, clock: HostClock, topics: Sequence[tuple[str, int]]) -> None:
        super().__init__(world, name, clock)
        self._partitions = [TopicPartition(topic, number) for topic, count in topics for number in range(count)]
        self._next: dict[TopicPartition, int] = {}
        self._reads_again = True

    def behave(self) -> None:
        """The run waits until it has read everything: it does not go back any more."""
        self._reads_again = False

    async def live(self) -> None:
        settings = self.settings(
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=5_000,
            max_poll_records=20,
            metadata_max_age_ms=60_000,
            allow_auto_create_topics=False,
        )
        consumer = _ShippedReader(self, settings)
        consumer.assign(self._partitions)
        while True:
            try:
                records = await consumer.poll(POLL_S)
            except CoterieError as error:
                self.world.happened(self.name, f"poll raises: {error}")
                await asyncio.sleep(AFTER_AN_ERROR_S)
                continue
            self.world.read_committed(self, records)
            for record in records:
                self._next[TopicPartition(record.topic, record.partition)] = record.offset + 1
            if self._next and self._reads_again and self._rng.random() < AGAIN_SHARE:
                where = self._rng.choice(list(self._next))
                end = self._next[where]
                consumer.seek(where, self._rng.randrange(max(0, end - AGAIN_OFFSETS), end))
