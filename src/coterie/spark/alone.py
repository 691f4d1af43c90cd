"""A stream without a group: where it is, is in its checkpoint and nowhere else. As Spark's own Kafka source."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from coterie.client.clock import clock_ms
from coterie.client.words import TopicPartition
from coterie.spark.errors import DataLossError
from coterie.spark.looking import Looking
from coterie.spark.options import SourceOptions
from coterie.spark.places import EARLIEST, LATEST
from coterie.spark.plan import Plan, Span
from coterie.spark.planning import Trickle, ends_within, next_plan

__all__ = ["Alone", "Budget", "within_reach"]

log = logging.getLogger("coterie.spark")


NEW_PARTITIONS_MS = 1_000
"""How long a partition that has appeared may go unnoticed."""


class Budget:
    """How much the next batch may have, and whether it is worth one."""

    def __init__(self, options: SourceOptions) -> None:
        self.trickle: Trickle | None = None
        if options.min_offsets_per_trigger is not None:
            self.trickle = Trickle(options.min_offsets_per_trigger, options.max_trigger_delay)

    def ends(
        self,
        positions: Mapping[TopicPartition, int],
        latest: Mapping[TopicPartition, int],
        *,
        at_most: int | None,
        may_wait: bool,
    ) -> dict[TopicPartition, int]:
        waiting = sum(max(latest.get(each, at) - at, 0) for each, at in positions.items())
        if self.trickle is not None and may_wait and not self.trickle.is_worth(waiting, clock_ms()):
            return {}
        return ends_within(at_most, positions, latest)


def within_reach(
    positions: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], options: SourceOptions
) -> dict[TopicPartition, int]:
    """Positions that a partition has. One that is gone, or ends before, has lost what we were to read next."""
    gone = {each: at for each, at in positions.items() if latest.get(each, -1) < at}
    if not gone:
        return dict(positions)
    said = ", ".join(
        f"{each} was read up to {at} and " + (f"now ends at {latest[each]}" if each in latest else "is gone")
        for each, at in sorted(gone.items())
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{said}: the topic was deleted, made anew, or cut off. To go on with what is there, set failOnDataLoss "
            "to false; to read a new topic from its beginning, start a new query"
        )
    log.warning("%s. failOnDataLoss is false: going on with what is there", said)
    return {each: min(at, latest[each]) for each, at in positions.items() if each in latest}


class Alone:
    """Lives on the background's event loop."""

    def __init__(self, options: SourceOptions, query: str) -> None:
        self._options = options
        self._query = query
        self._look: Looking | None = None
        self._budget = Budget(options)
        self._target: dict[TopicPartition, int] | None = None
        self._partitions: set[TopicPartition] = set()
        self._looks_again_at_ms = 0
        self.log_ends: dict[TopicPartition, int] = {}

    @property
    def look(self) -> Looking:
        if self._look is None:
            self._look = Looking(self._options)
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
        positions = within_reach(positions, self.log_ends, self._options)
        latest = self.log_ends
        if self._target is not None:
            latest = {each: min(latest[each], end) for each, end in self._target.items() if each in latest}
        ends = self._budget.ends(positions, latest, at_most=at_most, may_wait=may_wait and self._target is None)
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
