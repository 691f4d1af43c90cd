"""A query's slot in its group: what it plans, and when it lets go. All on the background's event loop.

Spark's process of the query asks and waits; heartbeats, rebalances and commits go on meanwhile. What is promised and
why is in `commit_metadata.py`; what is held in `holdings.py`; the member is in `member.py`; this file does the asking.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection

from coterie.client.network.background_tasks import within
from coterie.client.network.clock import clock_ms
from coterie.client.types import TopicPartition
from coterie.errors import CommitFailedError, CoterieError, KafkaError, RebalanceInProgressError
from coterie.spark.checkpoint import Checkpoint
from coterie.spark.commit_metadata import goes_on_at, to_repeat
from coterie.spark.holdings import Holdings
from coterie.spark.member import QueryMember
from coterie.spark.offset_limits import EARLIEST, LATEST
from coterie.spark.offset_reader import OffsetReader
from coterie.spark.options import SourceOptions
from coterie.spark.plan import Plan, Span
from coterie.spark.planning import Budget, next_plan, within_reach

__all__ = ["Slot"]

log = logging.getLogger("coterie.spark")

PATIENCE_MS = 1_000
"""So long a trigger waits for the group; then it says that there is nothing new, and Spark asks again."""
LOOK_MS = 100
"""How often a batch that others wait for is looked for in the checkpoint, if we know where that is."""
LEAVE_MS = 10_000


class Slot:
    """Of one query, from its first question to its end."""

    def __init__(self, options: SourceOptions, query: str) -> None:
        assert options.group_id is not None
        self._options = options
        self._group_id = options.group_id
        self._query = query
        self._holdings = Holdings()
        self._member = QueryMember(options, self._holdings, self._revoked)
        self._look = OffsetReader(options, self._member.engine.cluster)
        self._checkpoint = Checkpoint(options.checkpoint_location) if options.checkpoint_location else None
        self._budget = Budget(options.min_offsets_per_trigger, options.max_trigger_delay)
        self._target: dict[TopicPartition, int] | None = None
        self._flushing = asyncio.Lock()
        self._known_at_first: set[TopicPartition] | None = None
        self.log_ends: dict[TopicPartition, int] = {}

    # --- what Spark asks ----------------------------------------------------------------------------------------------

    async def initial(self) -> Plan:
        """A query that has no checkpoint: what it reads, the group says, and where, its offsets."""
        await self._look.existing_partitions()
        return Plan(self._query, 0, {})

    async def spans(self, plan: Plan) -> dict[TopicPartition, Span]:
        """Of the plan made a moment ago; or of one that Spark found in its checkpoint, begun and not done."""
        under_way = self._holdings.under_way
        if under_way is None or (under_way.query, under_way.number) != (plan.query, plan.number):
            committed = await self._look.committed(self._group_id, plan.to_read())
            under_way = Plan(plan.query, plan.number, to_repeat(plan, committed))
            self._holdings.planned(under_way)
        return under_way.to_read()

    async def latest(self, done: Plan, at_most: int | None, *, may_wait: bool) -> Plan:
        """The next plan; `done` itself if there is nothing new, or the group is not ready."""
        if self._known_at_first is None:
            self._known_at_first = await self._look.partitions()
        self._member.join()
        self._holdings.durable(done)
        self._member.engine.news()
        until_ms = None if self._target is not None else clock_ms() + PATIENCE_MS
        if not await self._is_ready(done, until_ms):
            return done
        positions = self._holdings.to_plan()
        self.log_ends = await self._look.known_offsets(dict.fromkeys(positions, LATEST))
        fails = self._options.fail_on_data_loss
        self._holdings.moved(within_reach(positions, self.log_ends, fails=fails, warn=log.warning))
        positions = self._holdings.to_plan()  # some may have gone meanwhile
        latest = self.log_ends
        if self._target is not None:
            latest = {each: min(latest.get(each, end), end) for each, end in self._target.items()}
        may_wait = may_wait and self._target is None
        ends = self._budget.ends(positions, latest, clock_ms(), at_most=at_most, may_wait=may_wait)
        plan = next_plan(done.query, done.number + 1, positions, ends)
        if not plan.to_read():
            return done
        self._holdings.planned(plan)
        return plan

    async def _is_ready(self, done: Plan, until_ms: int | None) -> bool:
        """Everything durable is committed, and of everything we own we know where it begins."""
        while True:
            self._member.raise_failure()
            is_there = self._member.has_joined if self._target is None else self._member.is_settled
            if is_there and await self._flush(until_ms):
                if not self._holdings.without_start():
                    return True
                await self._begin(done)
                continue
            if not await self._member.until_news(until_ms):
                return False

    async def _begin(self, done: Plan) -> None:
        wanted = self._holdings.without_start()
        committed = await self._look.committed(self._group_id, wanted)
        starts: dict[TopicPartition, int] = {}
        new = []
        for each in wanted:
            at = goes_on_at(each, done, committed)
            if at is None:
                new.append(each)
            else:
                starts[each] = at
        starts |= await self._first_starts(new)
        self._holdings.starts_at(starts)

    async def _first_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Nobody of the group was there before. A partition that appeared while we watched has been read by nobody."""
        if not partitions:
            return {}
        appeared = set(partitions) - (self._known_at_first or set())
        starts = await self._look.offsets(dict.fromkeys(appeared, EARLIEST))
        return starts | await self._look.starts(set(partitions) - appeared)

    async def set_target(self) -> None:
        """AvailableNow: of all partitions, since others of them may become ours before we are done."""
        partitions = await self._look.partitions()
        self._target = await self._look.known_offsets(dict.fromkeys(partitions, LATEST))

    # --- what is owed to the group ------------------------------------------------------------------------------------

    async def _flush(self, until_ms: float | None) -> bool:
        """Whether all that is durable is committed; what we do not own any more is not ours to commit."""
        async with self._flushing:
            while owed := self._holdings.commits():
                try:
                    await self._member.commit(owed)
                except KafkaError as error:
                    if not error.retriable and not isinstance(error, CommitFailedError | RebalanceInProgressError):
                        raise
                    log.info("%s", error)
                    if not await self._member.until_news(until_ms, at_most_ms=100):
                        return False
                else:
                    self._holdings.committed(owed)
            return True

    async def _revoked(self, partitions: Collection[TopicPartition]) -> None:
        """A rebalance takes these from us: not before the batch that has them is durable and committed."""
        holdings = self._holdings
        holdings.going_away(partitions)
        member = self._member
        while not holdings.is_free(partitions) and member.is_in_group and not member.is_leaving:
            self._look_for_the_batch()
            if holdings.commits():
                await self._flush(clock_ms() + PATIENCE_MS)
            if not holdings.is_free(partitions):
                await member.until_news(None, at_most_ms=LOOK_MS)
        if holdings.is_free(partitions):
            holdings.released(partitions)
        else:
            holdings.lost(partitions)

    def _look_for_the_batch(self) -> bool | None:
        """Whether the batch under way is done; None if there is none, or nobody knows."""
        under_way = self._holdings.under_way
        if under_way is None or self._checkpoint is None:
            return None
        is_done = self._checkpoint.has_done(under_way)
        if is_done:
            self._holdings.durable(under_way)
        return is_done

    # --- the end ------------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        """In order: commit what is durable, leave what is not to the others, say goodbye."""
        try:
            if self._holdings.broken is None and self._member.is_in_group:
                await within(LEAVE_MS, self._settle_up())
        except CoterieError as error:
            log.warning("leaving group %s: %s", self._group_id, error)
        finally:
            await self._member.leave(clock_ms() + LEAVE_MS)

    async def _settle_up(self) -> None:
        is_done = self._look_for_the_batch()
        await self._flush(None)
        given_up = self._holdings.given_up()
        if is_done is False and given_up and not self._member.is_alone:
            await self._member.commit(given_up)
