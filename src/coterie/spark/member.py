"""A member of a group that reads elsewhere: the consumer's engine, with rebalances and commits alone.

What it is given and what is taken from it goes to `holdings.py`; nobody polls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from coterie.assignors import assignor
from coterie.client.consumer.engine import Engine
from coterie.client.member import effects, events
from coterie.client.member.effects import Listened
from coterie.client.member.states import Stage
from coterie.client.network.clock import clock_ms
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import RebalanceInProgressError
from coterie.protocol.apis import offset_commit
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetsCommitted
from coterie.spark.holdings import Holdings
from coterie.spark.options import SourceOptions

__all__ = ["QueryMember"]

COMMIT_LANE = "commits"
"""A commit while a join is parked on the coordinator's own connection goes past it."""


class QueryMember(Engine):
    LOGGER = "coterie.spark"

    def __init__(
        self,
        options: SourceOptions,
        holdings: Holdings,
        revoked: Callable[[Collection[TopicPartition]], Awaitable[None]],
    ) -> None:
        """`revoked` returns when what a rebalance takes may go."""
        super().__init__(options.client, [assignor(name) for name in options.client.partition_assignment_strategy])
        self._options = options
        self._holdings = holdings
        self._revoked = revoked
        self._wrong: Exception | None = None
        self._has_asked = False
        self.has_joined = False
        """It has had an assignment; what it owns of it is read on in every rebalance."""
        self.is_alone = True

    @property
    def is_in_group(self) -> bool:
        return self.member is not None and self.member.has_generation

    @property
    def is_settled(self) -> bool:
        return self.member is not None and self.member.stage is Stage.STABLE

    @property
    def is_leaving(self) -> bool:
        return self.member is not None and self.member.ending is not None

    def join(self) -> None:
        """Lazily, once. From then on the member is inside poll, since its events are handled as they come."""
        if not self._has_asked:
            self._has_asked = True
            self.tell(events.Subscribed(self._options.topics, self._options.pattern))
            self.tell(events.PollBegan())

    def raise_what_is_wrong(self) -> None:
        if self._holdings.broken is not None:
            raise self._holdings.broken
        if self._wrong is not None:
            raise self._wrong

    async def until_news(self, until_ms: float | None, *, at_most_ms: int = 1_000) -> bool:
        """Whether there is time left, after something has happened or a while."""
        now_ms = clock_ms()
        if until_ms is not None and now_ms >= until_ms:
            return False
        await super().until_news(now_ms + at_most_ms if until_ms is None else min(now_ms + at_most_ms, until_ms))
        return True

    async def commit_now(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        member = self.member
        assert member is not None
        if member.stage is Stage.JOINING and member.has_generation and member.coordinator is not None:
            await self._commit_while_joining(offsets)
        else:
            await self.commit(offsets, clock_ms() + self.settings.request_timeout_ms)

    async def _commit_while_joining(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The old generation lives until the last member has joined; what we keep is read on meanwhile (KIP-429)."""
        member = self.member
        assert member is not None
        partitions = [
            CommitPartition(each.topic, each.partition, at.offset, at.leader_epoch, at.metadata)
            for each, at in sorted(offsets.items())
        ]
        settings = member.settings
        request = OffsetCommit(
            None, settings.group_id, member.member_id, settings.group_instance_id, member.generation_id, partitions
        )
        reply: OffsetsCommitted = await self.cluster.send(
            member.coordinator.id, offset_commit, request, lane=COMMIT_LANE, at_most=offset_commit.API.last_by_name
        )
        wrong = [error for error in reply.errors if error]
        if wrong:
            raise RebalanceInProgressError(f"the commit came too late for its generation: {wrong[0].name}", wrong[0])

    # --- what the member wants done -----------------------------------------------------------------------------------

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        holdings = self._holdings
        holdings.released(holdings.owned.difference(partitions))
        holdings.assigned([each for each in partitions if each not in holdings.owned])
        self.has_joined = True

    def hold(self, effect: effects.HoldPartitions) -> None:
        """Of an eager member, before a rebalance: nothing more is planned of these."""
        self._holdings.going_away(effect.partitions)

    def answer_positions(self, effect: effects.AskPositions) -> None:
        self.answer(effect.then, {})

    def call_listener(self, effect: effects.CallListener) -> None:
        self.tasks.start(self._listen(effect))

    async def _listen(self, effect: effects.CallListener) -> None:
        if effect.kind is Listened.REVOKED and not self.is_leaving:
            await self._revoked(effect.partitions)
        elif effect.kind is not Listened.ASSIGNED:
            self._holdings.lost(effect.partitions)
        self.answer(effect.then)
        if self._holdings.broken is not None and not self.is_leaving and not self.tasks.is_closed:
            self.tell(events.UnsubscribeAsked())  # the query will fail; until then it must not keep others from reading

    def answer(self, then: Any, reply: Any = None, error: Exception | None = None) -> None:
        if isinstance(then, events.JoinAnswered) and reply is not None and not reply.error:
            self.is_alone = reply.leader_id == reply.member_id and len(reply.members) <= 1
        super().answer(then, reply, error)

    def fail(self, error: Exception) -> None:
        self._wrong = error
        self.news()

    async def leave(self, until_ms: int) -> None:
        try:
            if self._has_asked:
                await self.ask_to_end(events.CloseAsked(until_ms))
        finally:
            await self.close()
