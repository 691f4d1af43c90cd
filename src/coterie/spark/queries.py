"""The planning of a batch query (`batch_spans`), and of a streaming query's batches: alone (`SingleQuery`), or as a
member of a group (`GroupQuery`).

The last two live on the background's event loop, and have the methods that `source.py` calls: `initial`, `latest`,
`spans`, `set_target`, `report`, `end`. Spark's process of the query asks and waits; heartbeats, rebalances and commits
go on meanwhile. `checkpoint.py` says what is promised, and why; `membership.py` has the member.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from coterie.client.network.runtime import clock_ms, within
from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.errors import CommitFailedError, CoterieError, KafkaError, RebalanceInProgressError, RequestTimedOutError
from coterie.spark.batch_commits import BatchCommits, BatchCommitsServer
from coterie.spark.batch_plan import BatchPlan, BatchPlanner, DataLossError, Span, reachable, within_log
from coterie.spark.checkpoint import CheckpointThread, SparkCheckpoint, next_offset, spans_to_repeat
from coterie.spark.log_ends import LogEnds
from coterie.spark.membership import OwnedPartitions, QueryMember
from coterie.spark.offsets import EARLIEST, LATEST, AtOffsets, OffsetReader
from coterie.spark.options import SourceOptions

__all__ = ["GroupQuery", "SingleQuery", "batch_spans"]

log = logging.getLogger("coterie.spark")

NEW_PARTITIONS_MS = 1_000
"""The interval at which a query without a group looks for new partitions."""
NEW_PARTITIONS_PAUSE = 50
"""If that takes long, the interval is so many times as long."""
GROUP_WAIT_MS = 1_000
"""The time that a trigger waits for the group; then it reports that there is nothing new, and Spark asks again."""
CHECKPOINT_WAIT_MS = 100
"""The interval at which the checkpoint is searched for a batch that a rebalance waits for."""
LEAVE_MS = 10_000


async def batch_spans(options: SourceOptions) -> dict[TopicPartition, Span]:
    """Return what a batch query reads.

    With `failOnDataLoss`, tasks wait for records before `endingOffsets` that are not there yet, and fail without them.
    """
    reader = OffsetReader(options)
    try:
        partitions = await reader.existing_partitions()
        starts, ends = await reader.starts(partitions), await reader.ends(partitions)
        if isinstance(options.end, AtOffsets) and not options.fail_on_data_loss:
            ends = within_log(ends, await reader.offsets(dict.fromkeys(partitions, LATEST)), warn=log.warning)
    finally:
        await reader.close()
    return {each: Span(at, max(at, ends[each])) for each, at in starts.items()}


class SingleQuery:
    """A stream without a group: its checkpoint alone says where it is, as with Spark's own Kafka source."""

    def __init__(self, options: SourceOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._reader = OffsetReader(options)
        self._planner = BatchPlanner(options.min_offsets_per_trigger, options.max_trigger_delay)
        self._ends = LogEnds(self._reader)
        self._partitions: set[TopicPartition] = set()
        self._looks_again_at_ms = 0
        self._idle_after: tuple[str, int] | None = None
        """The plan that nothing follows, as long as `log_ends` is the same."""
        self.log_ends: Mapping[TopicPartition, int] = {}

    async def initial(self) -> BatchPlan:
        starts = await self._reader.starts(await self._reader.existing_partitions())
        return BatchPlan(self._query, 0, {each: Span(at, at) for each, at in starts.items()})

    async def latest(self, done: BatchPlan, max_offsets: int | None, *, may_wait: bool) -> BatchPlan:
        """Return the next plan, or `done` itself if there is nothing new."""
        if self._planner.target is None:
            await self._ends.pause()
        await self._look_for_partitions()
        log_ends = await self._ends.look(self._partitions)
        if log_ends is self.log_ends and self._idle_after == (done.query, done.number):
            return done
        self.log_ends = log_ends
        positions = done.ends()
        positions |= await self._new_starts(self._partitions - positions.keys())
        fails = self._options.fail_on_data_loss
        positions = reachable(positions, log_ends, fail_on_data_loss=fails, warn=log.warning)
        plan = self._planner.plan(done, positions, log_ends, clock_ms(), max_offsets=max_offsets, may_wait=may_wait)
        self._idle_after = (done.query, done.number) if plan is done and not self._planner.is_waiting else None
        return plan

    async def _look_for_partitions(self) -> None:
        """Ask for the partitions there are, but not at each look: the answer is long, and seldom new."""
        if clock_ms() < self._looks_again_at_ms:
            return
        began_ms = clock_ms()
        partitions = await self._reader.partitions()
        if partitions != self._partitions:
            self._partitions = partitions
        took_ms = clock_ms() - began_ms
        self._looks_again_at_ms = clock_ms() + max(NEW_PARTITIONS_MS, NEW_PARTITIONS_PAUSE * took_ms)

    async def _new_starts(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        """Read new partitions from their beginning, whatever startingOffsets says: nothing of them was read yet."""
        starts = await self._reader.known_offsets(dict.fromkeys(partitions, EARLIEST))
        late = {each: at for each, at in starts.items() if at > 0}
        if late and self._options.fail_on_data_loss:
            names = ", ".join(f"{each} begins at {at}" for each, at in sorted(late.items()))
            raise DataLossError(
                f"new partitions have lost their first records already: {names}. To go on with what is there, set "
                "failOnDataLoss to false"
            )
        return starts

    async def spans(self, plan: BatchPlan) -> dict[TopicPartition, Span]:
        return plan.to_read()

    async def report(self) -> dict[str, Any]:
        """Return nothing: there is no member."""
        return {}

    async def set_target(self) -> None:
        """Prepare for AvailableNow: read what is there now, and not what is written later."""
        self._planner.target = await self._reader.log_ends()

    async def end(self) -> None:
        await self._reader.close()


class GroupQuery:
    """A stream that is a member of a group: it reads what it owns, and commits what Spark has made durable."""

    def __init__(self, options: SourceOptions, query: str) -> None:
        assert options.group_id is not None
        self._options = options
        self._group_id = options.group_id
        self._query = query
        self._in_transaction = options.transactional_sink is not None
        self._owned = OwnedPartitions(in_transaction=self._in_transaction)
        self._member = QueryMember(options, self._owned, self._revoked)
        self._reader = OffsetReader(options, self._member.engine.cluster)
        location = options.checkpoint_location
        self._checkpoint = CheckpointThread(SparkCheckpoint(location)) if location else None
        self._planner = BatchPlanner(options.min_offsets_per_trigger, options.max_trigger_delay)
        self._commits_server = BatchCommitsServer(self.commits_of_batch)
        self._committing = asyncio.Lock()
        self._known_at_first: set[TopicPartition] | None = None
        self._not_repeated: dict[TopicPartition, int] = {}
        """The first offsets of the spans of a repeated batch that are not read again."""
        self._ends = LogEnds(self._reader)
        self._to_look_at: frozenset[TopicPartition] = frozenset()
        self._idle_after: tuple[str, int, int] | None = None
        """The plan and the assignment that nothing follows, as long as `log_ends` is the same."""
        self.log_ends: Mapping[TopicPartition, int] = {}

    async def listen(self) -> None:
        """Let the sink ask for the offsets of the batch that runs, if it commits them."""
        if self._options.transactional_sink is not None:
            await self._commits_server.listen(self._options.transactional_sink)

    # --- what Spark asks ----------------------------------------------------------------------------------------------

    async def initial(self) -> BatchPlan:
        """Return an empty plan: the group assigns the partitions, and its offsets say where to begin."""
        await self._reader.existing_partitions()
        return BatchPlan(self._query, 0, {})

    async def spans(self, plan: BatchPlan) -> dict[TopicPartition, Span]:
        """Return what to read for a plan that was just made, or that Spark found in its checkpoint, not done."""
        running = self._owned.running
        if running is None or (running.query, running.number) != (plan.query, plan.number):
            committed = await self._committed(plan.to_read())
            spans = spans_to_repeat(plan, committed, in_transaction=self._in_transaction)
            self._not_repeated = {each: at for each, (at, _) in plan.to_read().items() if each not in spans}
            running = BatchPlan(plan.query, plan.number, spans)
            self._owned.batch_planned(running)
        return running.to_read()

    async def latest(self, done: BatchPlan, max_offsets: int | None, *, may_wait: bool) -> BatchPlan:
        """Return the next plan, or `done` itself if there is nothing new or the group is not ready."""
        if self._known_at_first is None:
            self._known_at_first = await self._reader.partitions()
        self._member.join()
        if not self._is_idle_after(done):
            self._owned.batch_done(done)
            self._member.engine.news()
            until_ms = None if self._planner.target is not None else clock_ms() + GROUP_WAIT_MS
            if not await self._is_ready(done, until_ms):
                return done
            self._to_look_at = frozenset(self._owned.to_plan())
        changes = self._owned.changes
        if self._planner.target is None:
            await self._ends.pause()
        log_ends = await self._ends.look(self._to_look_at)
        self._member.raise_failure()
        if log_ends is self.log_ends and self._is_idle_after(done):
            return done
        self.log_ends = log_ends
        positions = {each: at for each, at in self._owned.to_plan().items() if each in self._to_look_at}
        fails = self._options.fail_on_data_loss
        self._owned.skip_to(reachable(positions, log_ends, fail_on_data_loss=fails, warn=log.warning))
        positions = {each: at for each, at in self._owned.to_plan().items() if each in self._to_look_at}
        plan = self._planner.plan(done, positions, log_ends, clock_ms(), max_offsets=max_offsets, may_wait=may_wait)
        if plan is not done:
            self._owned.batch_planned(plan)
        is_idle = plan is done and not self._planner.is_waiting and not self._owned.commits_due()
        self._idle_after = (done.query, done.number, changes) if is_idle else None
        return plan

    def _is_idle_after(self, done: BatchPlan) -> bool:
        """Return whether nothing was to be read or committed at the last look, and the partitions are the same."""
        return self._idle_after == (done.query, done.number, self._owned.changes)

    async def _is_ready(self, done: BatchPlan, until_ms: int | None) -> bool:
        """Wait until everything durable is committed, and the start of every owned partition is known."""
        while True:
            self._member.raise_failure()
            has_joined = self._member.has_joined if self._planner.target is None else self._member.is_settled
            if has_joined and await self._commit(until_ms):
                if not self._owned.without_start():
                    return True
                await self._find_starts(done)
                continue
            if not await self._member.until_news(until_ms):
                return False

    async def _find_starts(self, done: BatchPlan) -> None:
        """Set where owned partitions begin, unless the group has assigned others meanwhile: then it is asked again."""
        partitions, changes = self._owned.without_start(), self._owned.changes
        committed = await self._committed(partitions)
        known = {each: next_offset(each, done, committed, in_transaction=self._in_transaction) for each in partitions}
        if self._in_transaction:  # the group has lost its offsets, and this batch was aborted
            known |= {each: at for each, at in self._not_repeated.items() if each in known.keys() - committed.keys()}
        starts = {each: at for each, at in known.items() if at is not None}
        starts |= await self._first_starts(partitions - starts.keys())
        if self._owned.changes == changes:
            self._owned.start_at(starts)

    async def _committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's offsets. If transactions commit them, wait until the last one has ended."""
        while True:
            try:
                return await self._reader.committed(self._group_id, partitions)
            except RequestTimedOutError as error:
                if not self._in_transaction:
                    raise
                log.warning("%s", error)

    async def _first_starts(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions begin that the group has not read yet: new ones at their first record."""
        if not partitions:
            return {}
        new = set(partitions) - (self._known_at_first or set())
        starts = await self._reader.offsets(dict.fromkeys(new, EARLIEST))
        return starts | await self._reader.starts(set(partitions) - new)

    async def report(self) -> dict[str, Any]:
        """Return what the member is doing, for progress reports."""
        return self._member.report()

    async def set_target(self) -> None:
        """Prepare for AvailableNow, for all partitions: others may be assigned before the end."""
        self._planner.target = await self._reader.log_ends()

    def commits_of_batch(self) -> BatchCommits:
        """Return what the sink commits in its transaction, and in whose name; called when all rows are written."""
        return BatchCommits(self._member.metadata, self._owned.commits_of_batch())

    # --- what the group needs -----------------------------------------------------------------------------------------

    async def _commit(self, until_ms: float | None) -> bool:
        """Commit everything durable; return False if there was no time. Partitions of others are left out."""
        async with self._committing:
            while due := self._owned.commits_due():
                try:
                    await self._member.commit(due)
                except KafkaError as error:
                    if not error.retriable and not isinstance(error, CommitFailedError | RebalanceInProgressError):
                        raise
                    log.info("%s", error)
                    if not await self._member.until_news(until_ms, at_most_ms=100):
                        return False
                else:
                    self._owned.committed(due)
            return True

    async def _revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Give up partitions for a rebalance, but not before the batch that has them is durable and committed."""
        owned, member = self._owned, self._member
        owned.revoke(partitions)
        polling = asyncio.create_task(self._poll_checkpoint())
        try:
            while not owned.is_free(partitions) and member.is_in_group and not member.is_leaving:
                if owned.commits_due():
                    await self._commit(clock_ms() + GROUP_WAIT_MS)
                if not owned.is_free(partitions):
                    await member.until_news(None, at_most_ms=CHECKPOINT_WAIT_MS)
                if polling.done():
                    polling.result()  # its error, if it has one
        finally:
            polling.cancel()
        if owned.is_free(partitions):
            owned.release(partitions)
        else:
            owned.lose(partitions)

    async def _poll_checkpoint(self) -> None:
        """Search the checkpoint for the batch that runs. If its store is slow, Spark may report the batch before."""
        is_done = await self._look_for_batch()
        while not is_done:
            await asyncio.sleep(CHECKPOINT_WAIT_MS / 1000)
            is_done = await self._look_for_batch()
        self._member.engine.news()

    async def _look_for_batch(self) -> bool | None:
        """Return whether the batch that runs is done; None if none runs, or the checkpoint does not say."""
        running = self._owned.running
        if running is None or self._checkpoint is None:
            return None
        is_done = await self._checkpoint.has_done(running)
        if self._owned.running is not running:
            return None  # Spark has reported it meanwhile
        if is_done:
            self._owned.batch_done(running)
        return is_done

    # --- the end ------------------------------------------------------------------------------------------------------

    async def end(self) -> None:
        """Commit what is durable, leave the rest to other members, and leave the group."""
        self._commits_server.close()
        try:
            if self._owned.fenced is None and self._member.is_in_group:
                await within(LEAVE_MS, self._commit_last())
        except CoterieError as error:
            log.warning("leaving group %s: %s", self._group_id, error)
        finally:
            if self._checkpoint is not None:
                self._checkpoint.close()
            await self._member.leave(clock_ms() + LEAVE_MS)

    async def _commit_last(self) -> None:
        await self._commit(None)
        is_done: bool | None = None
        try:
            is_done = await within(LEAVE_MS / 2, self._look_for_batch())
        except RequestTimedOutError:
            where = self._options.checkpoint_location
            log.warning("the checkpoint at %s does not answer: a batch that is done may be read again", where)
        await self._commit(None)
        to_release = self._owned.commits_to_release()
        if is_done is False and to_release and not self._member.is_alone:
            await self._member.commit(to_release)
