"""The member of a query: it joins the group, commits and leaves. It fetches nothing: Spark's tasks read the records.

It is a user of the consumer's engine, as `AsyncConsumer` is: instead of poll, a task of its own makes the calls of the
rebalance listener. A revoked partition is given up when the `revoked` callback returns.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from coterie.assignors import assignor
from coterie.client.consumer.engine import Engine
from coterie.client.consumer.rebalance_listener import listener_of
from coterie.client.member import events
from coterie.client.member.membership import Membership
from coterie.client.member.states import Stage
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import RebalanceInProgressError
from coterie.protocol.apis import offset_commit
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetsCommitted
from coterie.spark.holdings import Holdings
from coterie.spark.options import SourceOptions

__all__ = ["QueryMember"]

COMMIT_LANE = "commits"
"""The connection for commits while a join is parked on the coordinator's own connection."""
LISTENER_CHECK_MS = 60_000
"""How long the listener's task waits at a time; a call or an error ends the wait at once."""


class QueryMember:
    """What it is assigned and what is revoked goes to `holdings`, on the event loop of the engine."""

    def __init__(
        self,
        options: SourceOptions,
        holdings: Holdings,
        revoked: Callable[[Collection[TopicPartition]], Awaitable[None]],
    ) -> None:
        """Create the member; it joins with the first `join`.

        Args:
            options: The options of the source, with a group id.
            holdings: What the query holds of the group.
            revoked: Called with partitions that a rebalance takes; they are given up when it returns.
        """
        assignors = [assignor(name) for name in options.client.partition_assignment_strategy]
        self.engine = Engine(options.client, assignors, fetches=False, logger="coterie.spark")
        self.engine.listener = listener_of(None, self._assigned, self._give_up, self._lost)
        self._options = options
        self._holdings = holdings
        self._revoked = revoked
        self._failure: Exception | None = None
        self._has_asked = False
        self.has_joined = False
        """It has had an assignment; what it owns of it is read on in every rebalance."""

    @property
    def _member(self) -> Membership:
        member = self.engine.member
        assert member is not None
        return member

    @property
    def is_in_group(self) -> bool:
        return self._member.has_generation

    @property
    def is_alone(self) -> bool:
        """Whether it leads a generation that has no other member."""
        return len(self._member.subscribers) == 1

    @property
    def is_settled(self) -> bool:
        return self._member.stage is Stage.STABLE

    @property
    def is_leaving(self) -> bool:
        return self._member.ending is not None

    def join(self) -> None:
        """Join the group, once. From then on the member is inside poll, since its events are handled as they come."""
        if not self._has_asked:
            self._has_asked = True
            self.engine.tell(events.Subscribed(self._options.topics, self._options.pattern))
            self.engine.tell(events.PollBegan())
            self.engine.tasks.start(self._call_listener())

    def raise_failure(self) -> None:
        """Raise what the query must fail with, if there is anything."""
        if self._holdings.broken is not None:
            raise self._holdings.broken
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

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        member = self._member
        if member.stage is Stage.JOINING and member.has_generation and member.coordinator is not None:
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
            if self._holdings.broken is not None and not self.is_leaving:
                # The query will fail; until then it must not keep others from reading.
                self.engine.tell(events.UnsubscribeAsked())

    def _failed(self, error: Exception) -> None:
        self._failure = error
        self.engine.news()

    async def _assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._holdings.assigned(partitions)
        self.has_joined = True

    async def _give_up(self, partitions: Collection[TopicPartition]) -> None:
        if self.is_leaving:
            self._holdings.lost(partitions)
        else:
            await self._revoked(partitions)

    async def _lost(self, partitions: Collection[TopicPartition]) -> None:
        self._holdings.lost(partitions)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def leave(self, until_ms: int) -> None:
        """Leave the group and close all connections, at `until_ms` at the latest."""
        try:
            if self._has_asked:
                await self.engine.ask_to_end(events.CloseAsked(until_ms))
        finally:
            await self.engine.close()
