"""The transactional methods of both producers.

with Producer(bootstrap_servers="localhost:9092", transactional_id="payments") as producer:
    with producer.transaction():
        producer.send("orders", "one coffee")
        producer.send("bills", "3.50")           # readers with isolation.level=read_committed see both, or neither
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from coterie.client.arguments import Offsets, offsets_of, seconds_of
from coterie.client.network.runtime import Background, documented_by
from coterie.client.producer.partition_queue import ProducerIdAndEpoch
from coterie.client.producer.sender import Sender
from coterie.client.producer.transaction_driver import TransactionDriver
from coterie.client.producer.transaction_states import ABORTABLE_ERROR, IN_TRANSACTION
from coterie.client.types import GroupMetadata
from coterie.errors import IllegalArgumentError, IllegalStateError, KafkaError, TransactionAbortableError
from coterie.settings.producer_settings import ProducerSettings

__all__ = ["AsyncTransactional", "Transactional"]


class _Shared:
    settings: ProducerSettings
    _sender: Sender
    _unusable: str

    def _refusal(self) -> IllegalStateError:
        raise NotImplementedError

    def _transactions(self, timeout: float | None = None) -> TransactionDriver:
        """Return the driver, or say why there are no transactions; check the timeout of a call, too."""
        if self._unusable:
            raise self._refusal()
        if timeout is not None:
            seconds_of(timeout)
        if self._sender.transactions is None:
            raise IllegalStateError("this producer has no transactions: give it a transactional.id")
        return self._sender.transactions

    @property
    def _is_open(self) -> bool:
        """Whether there is a transaction to abort."""
        return self._transactions().manager.state in {IN_TRANSACTION, ABORTABLE_ERROR}


class AsyncTransactional(_Shared):
    async def init_transactions(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  as Producer has it
        """Get a producer id for the `transactional.id`; call it once, before the first transaction.

        It fences older producers with the same `transactional.id`, and aborts a transaction that they left open.

        Args:
            timeout: The longest time to wait, in seconds; without it `max.block.ms` is the limit.

        Raises:
            IllegalStateError: It was called before, or there is no `transactional.id`.
            RequestTimedOutError: It has not ended in time. It goes on; call it again to wait for its end.
            KafkaError: The cluster refused it.
        """
        driver = self._transactions(timeout)
        self._start()
        await driver.init(timeout)

    async def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent from now on belong to it.

        Raises:
            IllegalStateError: A transaction is open, or `init_transactions` was not called.
            KafkaError: The producer has failed.
        """
        await self._transactions().begin()

    async def send_offsets(
        self,
        offsets: Offsets,
        group_metadata: GroupMetadata,
        timeout: float | None = None,  # noqa: ASYNC109  as Producer has it
    ) -> None:
        """Commit a consumer's offsets as a part of the transaction.

        The coordinator of the group refuses them if the consumer is not in the current generation any more: another
        member has its partitions then, and the transaction can only be aborted. Do not commit with the consumer, too.

        Args:
            offsets: The offset of the next record to read for each partition.
            group_metadata: The consumer's `group_metadata()`.
            timeout: The longest time to wait, in seconds; without it `max.block.ms` is the limit.

        Raises:
            TransactionAbortableError: The group or the transaction's coordinator refused them: abort.
            IllegalStateError: No transaction is open.
            RequestTimedOutError: It has not ended in time; a commit waits for its end.
            KafkaError: The producer has failed.
        """
        driver = self._transactions(timeout)
        checked = offsets_of(offsets)
        if not isinstance(group_metadata, GroupMetadata):
            raise IllegalArgumentError(f"{group_metadata!r} is not who a consumer is: give consumer.group_metadata()")
        await driver.send_offsets(checked, group_metadata, timeout)

    async def commit_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  as Producer has it
        """Deliver everything that was sent, and commit the transaction.

        Args:
            timeout: The longest time to wait, in seconds; without it `max.block.ms` is the limit.

        Raises:
            TransactionAbortableError: Something was not delivered. Abort the transaction; the producer can go on.
            ApplicationRecoverableError: The producer is fenced. Close it; a new one can go on.
            RequestTimedOutError: It has not ended in time. It goes on; call it again to wait for its end.
            IllegalStateError: No transaction is open.
            KafkaError: The producer has failed.
        """
        await self._transactions(timeout).commit(timeout)

    async def abort_transaction(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  as Producer has it
        """Abort the transaction. Records that were not sent yet fail with `TransactionAbortedError`.

        Args:
            timeout: The longest time to wait, in seconds; without it `max.block.ms` is the limit.

        Raises:
            ApplicationRecoverableError: The producer is fenced. Close it; a new one can go on.
            RequestTimedOutError: It has not ended in time. It goes on; call it again to wait for its end.
            IllegalStateError: No transaction is open.
            KafkaError: The producer has failed.
        """
        await self._transactions(timeout).abort(timeout)

    async def share_transaction(self) -> ProducerIdAndEpoch:
        """Return the producer id and epoch with which other processes can write to the transaction.

        They use `coterie.client.producer.transaction_worker`. Each partition may have one writer. The transaction is
        committed or aborted here.

        Returns:
            The producer id and its epoch.

        Raises:
            IllegalStateError: No transaction is open.
            UnsupportedVersionError: The cluster has a transaction.version below 2.
        """
        return await self._transactions().share()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction, and commit it at the end of the `with` block; an error in the block aborts it.

        The first one calls `init_transactions`. If the commit is refused, the transaction is aborted and the error is
        raised. If the abort fails too, and the error was Kafka's, the error of the abort is raised: it says whether
        the producer can go on.

        Returns:
            A context manager, for `async with`; for `with` of a `Producer`.

        Raises:
            TransactionAbortableError: The transaction was aborted; the next one may succeed.
            ApplicationRecoverableError: The producer is fenced. Close it; a new one can go on.
            KafkaError: The producer has failed, or the commit has not ended in time.
        """
        if self._transactions().is_uninitialized:
            await self.init_transactions()
        await self.begin_transaction()
        try:
            yield
        except BaseException as error:
            await self._abort_after(error)
            raise
        try:
            await self.commit_transaction()
        except TransactionAbortableError as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        if self._unusable or not self._is_open:  # the block has ended it
            return
        try:
            await self.abort_transaction()
        except KafkaError as failed:
            if isinstance(error, KafkaError):
                raise failed from error
            error.add_note(f"The transaction could not be aborted: {failed}")

    def _start(self) -> None:
        if self._sender.loop is None:
            self._sender.start()


@documented_by(AsyncTransactional)
class Transactional(_Shared):
    _background: Background

    def init_transactions(self, timeout: float | None = None) -> None:
        """Get a producer id for the `transactional.id`; call it once, before the first transaction."""
        self._background.run(self._transactions(timeout).init(timeout))

    def begin_transaction(self) -> None:
        """Begin a transaction. All records that are sent from now on belong to it."""
        self._background.run(self._transactions().begin())

    def send_offsets(self, offsets: Offsets, group_metadata: GroupMetadata, timeout: float | None = None) -> None:
        """Commit a consumer's offsets as a part of the transaction."""
        driver = self._transactions(timeout)
        checked = offsets_of(offsets)
        if not isinstance(group_metadata, GroupMetadata):
            raise IllegalArgumentError(f"{group_metadata!r} is not who a consumer is: give consumer.group_metadata()")
        self._background.run(driver.send_offsets(checked, group_metadata, timeout))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Deliver everything that was sent, and commit the transaction."""
        self._background.run(self._transactions(timeout).commit(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction. Records that were not sent yet fail with `TransactionAbortedError`."""
        self._background.run(self._transactions(timeout).abort(timeout))

    def share_transaction(self) -> ProducerIdAndEpoch:
        """Return the producer id and epoch with which other processes can write to the transaction."""
        return self._background.run(self._transactions().share())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction, and commit it at the end of the `with` block; an error in the block aborts it."""
        if self._transactions().is_uninitialized:
            self.init_transactions()
        self.begin_transaction()
        try:
            yield
        except BaseException as error:
            self._abort_after(error)
            raise
        try:
            self.commit_transaction()
        except TransactionAbortableError as error:
            self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        if self._unusable or not self._is_open:  # the block has ended it
            return
        try:
            self.abort_transaction()
        except KafkaError as failed:
            if isinstance(error, KafkaError):
                raise failed from error
            error.add_note(f"The transaction could not be aborted: {failed}")
