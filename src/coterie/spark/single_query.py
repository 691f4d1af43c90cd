"""A stream without a group: where it is, is in its checkpoint and nowhere else. As Spark's own Kafka source."""

from __future__ import annotations

import logging

from coterie.client.network.clock import clock_ms
from coterie.client.types import TopicPartition
from coterie.spark.errors import DataLossError
from coterie.spark.offset_limits import EARLIEST, LATEST
from coterie.spark.offset_reader import OffsetReader
from coterie.spark.options import SourceOptions
from coterie.spark.plan import Plan, Span
from coterie.spark.planning import Budget, next_plan, within_reach

__all__ = ["SingleQuery"]

log = logging.getLogger("coterie.spark")

NEW_PARTITIONS_MS = 1_000
"""How long a partition that has appeared may go unnoticed."""


class SingleQuery:
    """Lives on the background's event loop."""

    def __init__(self, options: SourceOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._look: OffsetReader | None = None
        self._budget = Budget(options.min_offsets_per_trigger, options.max_trigger_delay)
        self._target: dict[TopicPartition, int] | None = None
        self._partitions: set[TopicPartition] = set()
        self._looks_again_at_ms = 0
        self.log_ends: dict[TopicPartition, int] = {}

    @property
    def look(self) -> OffsetReader:
        if self._look is None:
            self._look = OffsetReader(self._options)
        return self._look

    async def initial(self) -> Plan:
        partitions = await self.look.existing_partitions()
        starts = await self.look.starts(partitions)
        return Plan(self._query, 0, {each: Span(at, at) for each, at in starts.items()})

    async def latest(self, done: Plan, at_most: int | None, *, may_wait: bool) -> Plan:
        """The next plan; `done` itself if there is nothing new."""
        positions = done.ends()
        if clock_ms() >= self._looks_again_at_ms:  # an idle query asks a hundred times a second
            self._partitions = await self.look.partitions()
            self._looks_again_at_ms = clock_ms() + NEW_PARTITIONS_MS
        positions |= await self._appeared(self._partitions - positions.keys())
        self.log_ends = await self.look.known_offsets(dict.fromkeys(self._partitions, LATEST))
        positions = within_reach(positions, self.log_ends, fails=self._options.fail_on_data_loss, warn=log.warning)
        latest = self.log_ends
        if self._target is not None:
            latest = {each: min(latest[each], end) for each, end in self._target.items() if each in latest}
        may_wait = may_wait and self._target is None
        ends = self._budget.ends(positions, latest, clock_ms(), at_most=at_most, may_wait=may_wait)
        plan = next_plan(done.query, done.number + 1, positions, ends)
        return plan if plan.to_read() else done

    async def _appeared(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        """New ones are read from their beginning, whatever startingOffsets says: nobody has read them yet."""
        starts = await self.look.known_offsets(dict.fromkeys(partitions, EARLIEST))
        late = {each: at for each, at in starts.items() if at > 0}
        if late and self._options.fail_on_data_loss:
            names = ", ".join(f"{each} begins at {at}" for each, at in sorted(late.items()))
            raise DataLossError(
                f"partitions have appeared of which the beginning is gone already: {names}. To go on with what is "
                "there, set failOnDataLoss to false"
            )
        return starts

    async def spans(self, plan: Plan) -> dict[TopicPartition, Span]:
        return plan.to_read()

    async def set_target(self) -> None:
        """AvailableNow: what is there now is read, and what comes later is not."""
        partitions = await self.look.partitions()
        self._target = await self.look.known_offsets(dict.fromkeys(partitions, LATEST))

    async def end(self) -> None:
        if self._look is not None:
            await self._look.close()
