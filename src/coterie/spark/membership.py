"""A query as a member of its group: the partitions that it owns, and the member that joins, commits and leaves.

`OwnedPartitions` is pure: it follows each partition from its assignment to its revocation. `QueryMember` is a user of
the consumer's engine, as `AsyncConsumer` is, but fetches nothing: Spark's tasks read the records.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any

from coterie.assignors import assignor
from coterie.client.consumer.engine import Engine
from coterie.client.consumer.rebalance_listener import listener_of
from coterie.client.member import ConsumerMembership, Membership, events
from coterie.client.member.states import MemberState
from coterie.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from coterie.errors import CoterieError, RebalanceInProgressError
from coterie.protocol.apis import offset_commit
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetsCommitted
from coterie.spark.batch_plan import BatchPlan
from coterie.spark.checkpoint import CommitNote
from coterie.spark.options import SourceOptions

__all__ = ["FencedQueryError", "OwnedPartitions", "QueryMember"]

COMMIT_LANE = "commits"
"""The connection for commits while a join is parked on the coordinator's own connection."""
REPORTED_METRICS = (
    "assigned-partitions",
    "rebalance-total",
    "rebalance-latency-total",
    "last-rebalance-seconds-ago",
    "failed-rebalance-total",
)
"""The metrics of a consumer that are in the progress of a query."""
LISTENER_CHECK_MS = 60_000
"""The time that the listener's task waits at a time; a call or an error ends the wait at once."""


class FencedQueryError(CoterieError):
    """The group revoked partitions while a batch of them ran: another member may have read the same records."""


class OwnedPartitions:
    """The partitions of a query: how far it is in each, and what has to be committed.

        assigned -> start known -> planned -> durable -> committed
                                      `-> revoking: not planned any more; released when no batch has it

    Commits are due for owned partitions only. Revoked partitions can be released when `is_free`: no batch that runs
    has them, and nothing durable of them is uncommitted.
    """

    def __init__(self, *, in_transaction: bool = False) -> None:
        """`in_transaction`: a `TransactionalSink` commits the offsets of batches, with their rows."""
        self._in_transaction = in_transaction
        self._handed_over: int | None = None
        """The number of the plan whose offsets the sink has."""
        self.query = ""
        self.owned: set[TopicPartition] = set()
        self.revoking: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        """The start of partitions where it is known: records before it are durable, or in the batch that runs."""
        self.running: BatchPlan | None = None
        """The plan of the batch that runs."""
        self.number = 0
        """The number of the last plan that is known to be durable."""
        self.changes = 0
        """How often a partition was assigned or released."""
        self.fenced: FencedQueryError | None = None
        self._durable: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    # --- what the group does ------------------------------------------------------------------------------------------

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Add new partitions; their start is not known yet."""
        for each in partitions:
            self._forget(each)
            self.owned.add(each)

    def revoke(self, partitions: Iterable[TopicPartition]) -> None:
        """Plan no more of these: a rebalance takes them."""
        self.revoking |= self.owned.intersection(partitions)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._forget(each)

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Release partitions that are another member's already. If the batch that runs has some, the query fails."""
        torn = sorted(self._in_batch().intersection(partitions))
        if torn and self.fenced is None:
            names = ", ".join(map(str, torn[:5])) + (f" and {len(torn) - 5} more" if len(torn) > 5 else "")
            assert self.running is not None
            self.fenced = FencedQueryError(
                f"the query was removed from its group while batch plan {self.running.number} ran with {names}: "
                "other members may be reading the same records. A member is removed when a rebalance waits for its "
                "batch longer than kafka.max.poll.interval.ms, when its heartbeats fail for kafka.session.timeout.ms, "
                "or when another consumer uses its kafka.group.instance.id. Nothing is lost: start the query again "
                "from its checkpoint. To prevent it, make batches smaller with maxOffsetsPerTrigger, or raise "
                "kafka.max.poll.interval.ms above the time of the longest batch"
            )
        self.release(partitions)

    def _forget(self, partition: TopicPartition) -> None:
        self.changes += 1
        self.owned.discard(partition)
        self.revoking.discard(partition)
        for known in (self.positions, self._durable, self._committed):
            known.pop(partition, None)

    # --- what Spark does ----------------------------------------------------------------------------------------------

    def without_start(self) -> set[TopicPartition]:
        return self.owned - self.positions.keys()

    def start_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Set where owned partitions begin. This is due for commit at once: it says whose the partition is."""
        for each, offset in starts.items():
            if each in self.owned:
                self.positions[each] = offset
                self._durable[each] = offset

    def to_plan(self) -> dict[TopicPartition, int]:
        """Return the positions from which the next batch reads."""
        return {each: at for each, at in self.positions.items() if each not in self.revoking}

    def skip_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on at other positions, since records were deleted."""
        for each, at in positions.items():
            if each in self.positions and self.positions[each] != at:
                self.positions[each] = self._durable[each] = at

    def batch_planned(self, plan: BatchPlan) -> None:
        """Take the plan of a batch. Partitions that are not owned any more, or are owned again, stay as they are."""
        self.running = plan
        self.positions |= {each: end for each, end in plan.ends().items() if each in self.positions}

    def batch_done(self, plan: BatchPlan) -> None:
        """Spark has this plan in its log of done batches. If a later plan was made, Spark did not take it."""
        self.query, self.number = plan.query, plan.number
        if self.running is None:
            return
        is_done = self.running.number == plan.number
        reached = {each: span[is_done] for each, span in self.running.spans.items() if each in self.positions}
        self.positions |= reached
        self._durable |= reached
        if is_done and self._handed_over == plan.number:
            self._committed |= {each: OffsetAndMetadata(offset) for each, offset in reached.items()}
        self.running = None

    # --- commits ------------------------------------------------------------------------------------------------------

    def commits_due(self) -> dict[TopicPartition, OffsetAndMetadata]:
        note = str(CommitNote(self.query, self.number, in_transaction=self._in_transaction))
        return {
            each: OffsetAndMetadata(offset, metadata=note)
            for each, offset in self._durable.items()
            if (known := self._committed.get(each)) is None or known.offset != offset
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed |= {each: offset for each, offset in offsets.items() if each in self.owned}

    def commits_of_batch(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets of the batch that runs, for the sink, which commits them in its transaction.

        Raises:
            FencedQueryError: The member does not own all of its partitions.
        """
        if self.fenced is not None:
            raise self.fenced
        if self.running is None:
            return {}
        spans = self.running.to_read()
        lacking = sorted(spans.keys() - self.owned)
        if lacking:
            raise FencedQueryError(
                f"the offsets of batch plan {self.running.number} cannot be committed: {', '.join(map(str, lacking))} "
                "is not assigned to this query. The rows were committed by an earlier run with another "
                "transactional_id: start the query again with that one"
            )
        self._handed_over = self.running.number
        note = str(CommitNote(self.running.query, self.running.number, in_transaction=True))
        return {each: OffsetAndMetadata(span.until_offset, metadata=note) for each, span in spans.items()}

    def commits_to_release(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what to commit in order to leave the batch that runs to other members.

        In a transaction nothing is: the group is right anyway, and the sink may be about to commit the batch.
        """
        if self.running is None or self._in_transaction:
            return {}
        note = str(CommitNote(self.query, self.number, is_released=True))
        return {
            each: OffsetAndMetadata(span.from_offset, metadata=note)
            for each, span in self.running.to_read().items()
            if each in self.positions
        }

    def is_free(self, partitions: Collection[TopicPartition]) -> bool:
        return not self._in_batch().intersection(partitions) and not self.commits_due().keys() & set(partitions)

    def _in_batch(self) -> set[TopicPartition]:
        return set(self.running.to_read()) if self.running else set()


class QueryMember:
    """The member, on the event loop of its engine. Instead of poll, a task of its own calls the rebalance listener."""

    def __init__(
        self,
        options: SourceOptions,
        owned: OwnedPartitions,
        revoked: Callable[[Collection[TopicPartition]], Awaitable[None]],
    ) -> None:
        """Create the member; it joins with the first `join`.

        Args:
            options: The options of the source, with a group id.
            owned: What the member is assigned and what is revoked is recorded here.
            revoked: Called with partitions that a rebalance takes; they are given up when it returns.
        """
        assignors = [assignor(name) for name in options.client.partition_assignment_strategy]
        self.engine = Engine(options.client, assignors, fetches=False, logger="coterie.spark")
        self.engine.listener = listener_of(None, self._assigned, self._give_up, self._lost)
        self._options = options
        self._owned = owned
        self._revoked = revoked
        self._failure: Exception | None = None
        self._has_asked = False
        self.has_joined = False
        """It has had an assignment; what it owns of it is read on in every rebalance."""

    @property
    def _member(self) -> Membership | ConsumerMembership:
        member = self.engine.member
        assert member is not None
        return member

    @property
    def is_in_group(self) -> bool:
        return self._member.has_generation

    @property
    def is_alone(self) -> bool:
        """True if it leads a generation that has no other member. In the protocol of KIP-848 no member knows that."""
        return isinstance(self._member, Membership) and len(self._member.subscribers) == 1

    @property
    def is_settled(self) -> bool:
        return self._member.is_stable

    @property
    def is_leaving(self) -> bool:
        return self._member.ending is not None

    def join(self) -> None:
        """Join the group, once. From then on the member is inside poll, since its events are handled as they come."""
        if not self._has_asked:
            self._has_asked = True
            self.engine.subscribe(self._options.topics, self._options.pattern)
            self.engine.handle(events.PollBegan())
            self.engine.tasks.start(self._call_listener())

    def report(self) -> dict[str, Any]:
        """Return what the member is doing, and its rebalances, under Kafka's names of metrics."""
        metrics = self.engine.metrics()["consumer-coordinator-metrics"]
        return {
            "member": self._member.explain(self.engine.clock_ms()),
            "metrics": {name: metrics[name] for name in REPORTED_METRICS},
        }

    def raise_failure(self) -> None:
        """Raise what the query must fail with, if there is anything."""
        if self._owned.fenced is not None:
            raise self._owned.fenced
        if self._failure is not None:
            raise self._failure

    async def until_news(self, until_ms: float | None, *, at_most_ms: int = 1_000) -> bool:
        """Wait until something has happened or `at_most_ms` are over; return whether there is time left."""
        now_ms = self.engine.clock_ms()
        if until_ms is not None and now_ms >= until_ms:
            return False
        await self.engine.until_news(now_ms + at_most_ms if until_ms is None else min(now_ms + at_most_ms, until_ms))
        return True

    # --- commits ------------------------------------------------------------------------------------------------------

    @property
    def metadata(self) -> GroupMetadata:
        """The member's identity in its group, which refuses offsets in the name of a member that was removed."""
        member_id, generation_id = self._member.identity
        settings = self._member.settings
        return GroupMetadata(settings.group_id, generation_id, member_id, settings.group_instance_id)

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        member = self._member
        is_classic = isinstance(member, Membership)
        if is_classic and member.state is MemberState.JOINING and member.has_generation and member.coordinator:
            await self._commit_while_joining(member, offsets)
        else:
            await self.engine.commit(offsets, self.engine.clock_ms() + self._options.client.request_timeout_ms)

    async def _commit_while_joining(
        self, member: Membership, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit in the old generation: it lives until the last member has joined, and what is kept is read on
        meanwhile (KIP-429). A consumer does not do this, as it does not return records while it joins.
        """
        partitions = [
            CommitPartition(each.topic, each.partition, at.offset, at.leader_epoch, at.metadata)
            for each, at in sorted(offsets.items())
        ]
        settings = member.settings
        request = OffsetCommit(
            None, settings.group_id, member.member_id, settings.group_instance_id, member.generation_id, partitions
        )
        reply: OffsetsCommitted = await self.engine.cluster.send(
            member.coordinator.id, offset_commit, request, lane=COMMIT_LANE, at_most=offset_commit.API.last_by_name
        )
        wrong = [error for error in reply.errors if error]
        if wrong:
            raise RebalanceInProgressError(f"the commit came too late for its generation: {wrong[0].name}", wrong[0])

    # --- the rebalance listener ---------------------------------------------------------------------------------------

    async def _call_listener(self) -> None:
        """Make the listener's calls, one after the other; what poll would raise is kept for the query."""
        while True:
            try:
                call = await self.engine.until_something(self.engine.clock_ms() + LISTENER_CHECK_MS)
            except Exception as error:  # noqa: BLE001  whatever it is, the query fails with it
                self._failed(error)
                continue
            if call is None:
                continue
            try:
                await self.engine.listener.call(call.kind, call.partitions)
            except Exception as error:  # noqa: BLE001  the call stays unanswered: what it was about is not given up
                self._failed(error)
                return
            self.engine.listener_done(call, None)
            if self._owned.fenced is not None and not self.is_leaving:
                # The query will fail; until then it must not keep others from reading.
                self.engine.handle(events.UnsubscribeAsked())

    def _failed(self, error: Exception) -> None:
        self._failure = error
        self.engine.news()

    async def _assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._owned.assigned(partitions)
        self.has_joined = True

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        if self.is_leaving:
            self._owned.lose(partitions)
        else:
            await self._revoked(partitions)

    async def _lost(self, partitions: Collection[TopicPartition]) -> None:
        self._owned.lose(partitions)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def leave(self, until_ms: int) -> None:
        """Leave the group and close all connections, at `until_ms` at the latest."""
        try:
            if self._has_asked:
                await self.engine.ask_to_end(events.CloseAsked(until_ms))
        finally:
            await self.engine.close()
