"""The driver of `TransactionManager`: it performs the effects with asyncio and passes their ends back as events.

Everything happens in the event loop of the producer's `Sender`, which has the batches. Init, commit and abort go on if
the caller stops waiting for them; the same call again waits for the same end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import TYPE_CHECKING, Any

from coterie.client.event_log import ProducerIdObtained, TransactionFailed
from coterie.client.network.network_client import NetworkClient
from coterie.client.producer import transaction_events as events
from coterie.client.producer.accumulator_events import PartitionsAdded, ProducerIdGiven, TransactionBegun
from coterie.client.producer.partition_queue import NO_PRODUCER, ProducerIdAndEpoch
from coterie.client.producer.transaction_manager import TransactionManager
from coterie.client.producer.transaction_states import (
    ABORTABLE_ERROR,
    FATAL_ERROR,
    IN_TRANSACTION,
    UNINITIALIZED,
    TransactionCall,
)
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import (
    CoterieError,
    ErrorCode,
    IllegalStateError,
    KafkaError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from coterie.protocol.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    find_coordinator,
    init_producer_id,
    txn_offset_commit,
)
from coterie.protocol.messages import CommitPartition, OffsetCommit

if TYPE_CHECKING:
    from coterie.client.producer.sender import Sender

TRANSACTION_VERSION = "transaction.version"
_EXPLICIT = {add_partitions_to_txn: 3, end_txn: 4, txn_offset_commit: 4}
"""The highest version of a request where partitions are added explicitly; from the next one on a broker adds them."""
_IMPLICIT = {end_txn: 5, txn_offset_commit: 5}
_WITH_GROUP_METADATA = 3
"""The first version of TxnOffsetCommit that has the generation and the member."""
_ASKED: Mapping[TransactionCall, Callable[[int], events.Event]] = {
    TransactionCall.INIT: events.InitAsked,
    TransactionCall.COMMIT: events.CommitAsked,
    TransactionCall.ABORT: events.AbortAsked,
}
_WITH_PRODUCER_ID = 3
"""The first version of InitProducerId that takes the present epoch (KIP-360)."""


class TransactionDriver:
    def __init__(self, manager: TransactionManager, sender: Sender, cluster: NetworkClient) -> None:
        self.manager = manager
        self._sender = sender
        self._cluster = cluster
        self._tokens = count()
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._unfinished: tuple[TransactionCall, asyncio.Future[None]] | None = None
        """The init, commit or abort whose end nobody has heard of yet."""
        self._timer: asyncio.TimerHandle | None = None
        self._logged_producer_id = NO_PRODUCER.producer_id

    # --- calls --------------------------------------------------------------------------------------------------------

    @property
    def is_uninitialized(self) -> bool:
        return self.manager.state is UNINITIALIZED

    async def init(self, timeout_s: float | None) -> None:
        await self._until_ended(TransactionCall.INIT, timeout_s)

    async def begin(self) -> None:
        self._check_nothing_is_unfinished(TransactionCall.BEGIN)
        self.handle(events.BeginAsked())

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: GroupMetadata, timeout_s: float | None
    ) -> None:
        self.manager.check(TransactionCall.SEND_OFFSETS)
        if not offsets:
            return
        token, ended = self._new_call()
        self.handle(events.SendOffsetsAsked(token, offsets, group))
        await self._wait(TransactionCall.SEND_OFFSETS, ended, timeout_s)

    async def commit(self, timeout_s: float | None) -> None:
        await self._until_ended(TransactionCall.COMMIT, timeout_s)

    async def abort(self, timeout_s: float | None) -> None:
        await self._until_ended(TransactionCall.ABORT, timeout_s)

    async def share(self) -> ProducerIdAndEpoch:
        """Return the identity with which other processes can write to the transaction (`transaction_worker.py`)."""
        self.manager.check(TransactionCall.SEND)
        if not self.manager.adds_implicitly:
            raise UnsupportedVersionError(
                "a transaction can be shared if the cluster has the feature transaction.version 2: Kafka 4.0 or newer"
            )
        self.manager.note_sent_elsewhere()
        return self.manager.identity

    async def abort_what_is_open(self) -> None:
        """End the transaction before the producer is closed, as Java does."""
        try:
            if self._unfinished is not None:
                await asyncio.shield(self._unfinished[1])
            elif self.manager.state in {IN_TRANSACTION, ABORTABLE_ERROR}:
                await self.abort(None)
        except CoterieError:
            pass  # the broker aborts it when a new producer comes, or after transaction.timeout.ms

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _new_call(self) -> tuple[int, asyncio.Future[None]]:
        token = next(self._tokens)
        ended = self._waiting[token] = asyncio.get_running_loop().create_future()
        ended.add_done_callback(lambda done: done.cancelled() or done.exception())  # also if nobody waits any more
        return token, ended

    async def _until_ended(self, call: TransactionCall, timeout_s: float | None) -> None:
        if self._unfinished is None:
            self.manager.check(call)
            token, ended = self._new_call()
            self._unfinished = call, ended
            self.handle(_ASKED[call](token))
        else:
            self._check_nothing_is_unfinished(call)
        _, ended = self._unfinished
        await self._wait(call, ended, timeout_s)

    def _check_nothing_is_unfinished(self, call: TransactionCall) -> None:
        if self._unfinished is not None and self._unfinished[0] is not call:
            raise IllegalStateError(
                f"{call} is not possible now: {self._unfinished[0]} has not ended. Call that again to wait for its end"
            )

    async def _wait(self, call: TransactionCall, ended: asyncio.Future[None], timeout_s: float | None) -> None:
        within_s = self._sender.settings.max_block_ms / 1000 if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(within_s):
                await asyncio.shield(ended)
        except TimeoutError:
            more = "" if call is TransactionCall.SEND_OFFSETS else ". It goes on: call it again to wait for its end"
            raise RequestTimedOutError(f"{call} has not ended within {within_s:g} s{more}") from None
        finally:
            if ended.done() and self._unfinished is not None and self._unfinished[1] is ended:
                self._unfinished = None

    # --- driving ------------------------------------------------------------------------------------------------------

    def handle(self, event: events.Event) -> None:
        before = self.manager.state
        with self._sender.lock:
            effects = self.manager.handle(event, self._sender.clock_ms())
        after = self.manager.state
        if after is not before and after in {ABORTABLE_ERROR, FATAL_ERROR}:
            self._sender.log.write(TransactionFailed(self.manager.transactional_id, str(self.manager.error)))
        for effect in effects:
            self._perform(effect)

    def _perform(self, effect: events.Effect) -> None:
        sender = self._sender
        match effect:
            case events.Ask(request, node_id):
                sender.begin(self._ask(request, node_id))
            case events.WakeAt(at_ms):
                self._arm(at_ms)
            case events.BeginBatches(adds_partitions):
                sender.handle(TransactionBegun(adds_partitions))
            case events.TakePartitions(partitions):
                sender.handle(PartitionsAdded(partitions))
            case events.UseIdentity(identity):
                if identity.producer_id != self._logged_producer_id:  # the epoch changes with each transaction
                    self._logged_producer_id = identity.producer_id
                    sender.log.write(ProducerIdObtained(*identity))
                sender.handle(ProducerIdGiven(identity))
            case events.FlushBatches(number):
                sender.begin(self._flush(number))
            case events.DropBatches(number, error):
                sender.begin(self._drop(number, error))
            case events.FailProducer(error):
                sender.fail_for_good(error)
            case events.CallEnded(token, failure):
                self._end(token, failure)

    def _end(self, token: int, error: KafkaError | None) -> None:
        ended = self._waiting.pop(token)
        if not ended.done():
            ended.set_result(None) if error is None else ended.set_exception(type(error)(str(error), error.code))

    def _arm(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0, at_ms - self._sender.clock_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self.handle, events.Woke())

    async def _flush(self, number: int) -> None:
        await self._sender.flush()
        self.handle(events.Flushed(number, self._sender.accumulator.has_sent))

    async def _drop(self, number: int, error: KafkaError) -> None:
        await self._sender.drop(error)
        self.handle(events.Flushed(number, self._sender.accumulator.has_sent))

    # --- asking the cluster -------------------------------------------------------------------------------------------

    async def _ask(self, request: events.Request, node_id: int | None) -> None:
        try:
            answer = await self._answer(request, node_id)
        except KafkaError as error:
            self.handle(events.Refused(request, error))
        except CoterieError as error:  # the cluster was closed under it
            self.handle(events.Refused(request, KafkaError(str(error), ErrorCode.NETWORK_EXCEPTION)))
        except Exception as error:
            self.handle(events.Refused(request, KafkaError(f"a request could not be made or understood: {error!r}")))
            raise
        else:
            self.handle(answer)

    async def _answer(self, request: events.Request, node_id: int | None) -> events.Answered:
        if isinstance(request, events.FindCoordinator):
            key, kind = self.manager.transactional_id, find_coordinator.TRANSACTION
            if request.group_id is not None:
                key, kind = request.group_id, find_coordinator.GROUP
            node = await self._cluster.find_coordinator(key, kind)
            return events.Answered(request, node_id=node.id)
        assert node_id is not None, "the coordinator is known"
        level = (await self._cluster.connection(node_id)).feature(TRANSACTION_VERSION)
        identity = self.manager.identity
        match request:
            case events.InitProducerId(present):
                identity = await self._init_producer_id(node_id, present)
            case events.AddPartitions(partitions):
                await self._add_partitions(node_id, partitions)
            case events.AddOffsets(group_id):
                adding = add_offsets_to_txn.Request(**self._named(), group_id=group_id)
                added: add_offsets_to_txn.Response = await self._send(node_id, add_offsets_to_txn, adding)
                self._check(added.error, f'adding the offsets of group "{group_id}"')
            case events.CommitOffsets():
                await self._commit_offsets(node_id, request)
            case events.EndTxn(committed):
                ending = end_txn.Request(**self._named(), committed=committed)
                ended: end_txn.Response = await self._send(node_id, end_txn, ending)
                self._check(ended.error, "committing" if committed else "aborting")
                identity = ProducerIdAndEpoch(ended.producer_id, ended.producer_epoch)
        return events.Answered(request, identity=identity, transaction_version=level)

    async def _init_producer_id(self, node_id: int, present: ProducerIdAndEpoch) -> ProducerIdAndEpoch:
        request = init_producer_id.Request(
            transactional_id=self.manager.transactional_id,
            transaction_timeout_ms=self._sender.settings.transaction_timeout_ms,
            producer_id=present.producer_id,
            producer_epoch=present.epoch,
        )
        at_least = _WITH_PRODUCER_ID if present.is_valid else 0
        given: init_producer_id.Response = await self._cluster.send(
            node_id, init_producer_id, request, at_least=at_least
        )
        self._check(given.error, "asking for a producer id")
        return ProducerIdAndEpoch(given.producer_id, given.producer_epoch)

    async def _add_partitions(self, node_id: int, partitions: tuple[TopicPartition, ...]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        one = add_partitions_to_txn.Transaction(
            **self._named(),
            topics=[add_partitions_to_txn.Topic(name=name, partitions=found) for name, found in by_topic.items()],
        )
        request = add_partitions_to_txn.Request(transactions=[one])
        response: add_partitions_to_txn.Response = await self._send(node_id, add_partitions_to_txn, request)
        answered = {
            TopicPartition(topic.name, each.partition): each.error
            for result in response.transactions
            for topic in result.topics
            for each in topic.partitions
        }
        self._check_all(answered, partitions, "adding a partition")

    async def _commit_offsets(self, node_id: int, request: events.CommitOffsets) -> None:
        group = request.group
        partitions = [
            CommitPartition(*where, offset.offset, offset.leader_epoch, offset.metadata)
            for where, offset in sorted(request.offsets.items())
        ]
        commit = OffsetCommit(
            None,
            group.group_id,
            group.member_id,
            group.group_instance_id,
            group.generation_id,
            partitions,
            producer_id=self.manager.identity.producer_id,
            producer_epoch=self.manager.identity.epoch,
        )
        names_member = bool(group.member_id or group.generation_id >= 0 or group.group_instance_id)
        named = (self.manager.transactional_id, commit)
        response = await self._send(node_id, txn_offset_commit, named, _WITH_GROUP_METADATA if names_member else 0)
        answered = {
            TopicPartition(one.topic, one.partition): error
            for one, error in zip(response.partitions, response.errors, strict=True)
        }
        self._check_all(answered, tuple(request.offsets), f'committing offsets of group "{group.group_id}"')

    def _named(self) -> dict[str, Any]:
        identity = self.manager.identity
        return {
            "transactional_id": self.manager.transactional_id,
            "producer_id": identity.producer_id,
            "producer_epoch": identity.epoch,
        }

    async def _send(self, node_id: int, api: Any, request: object, at_least: int = 0) -> Any:
        """Send a request in a version of the way that this transaction takes."""
        if self.manager.adds_implicitly:
            return await self._cluster.send(node_id, api, request, at_least=_IMPLICIT.get(api, at_least))
        return await self._cluster.send(node_id, api, request, at_least=at_least, at_most=_EXPLICIT.get(api))

    def _check(self, code: ErrorCode, what: str) -> None:
        if code:
            raise KafkaError.of(code, f'{what}, in a transaction of "{self.manager.transactional_id}"')

    def _check_all(
        self, answered: Mapping[TopicPartition, ErrorCode], asked: tuple[TopicPartition, ...], what: str
    ) -> None:
        """Raise the first error that says something about its partition."""
        refused = {where: answered.get(where, ErrorCode.UNKNOWN_SERVER_ERROR) for where in asked}
        refused = {where: code for where, code in refused.items() if code}
        says_most = sorted(refused, key=lambda where: refused[where] is ErrorCode.OPERATION_NOT_ATTEMPTED)
        for where in says_most:
            self._check(refused[where], f"{what} ({where})")
