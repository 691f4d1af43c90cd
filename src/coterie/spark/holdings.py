"""What a query holds of its group: which partitions, how far it is in each, and what has to be committed; pure.

    assigned -> start known -> planned -> durable -> committed
                                  `-> going: not planned any more; released when nothing of it is under way

`commits` are owed for partitions that are ours only. What goes may go when `is_free`: no batch under way has it, and
nothing durable of it is uncommitted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.commit_metadata import Note
from coterie.spark.errors import FencedQueryError
from coterie.spark.plan import Plan

__all__ = ["Holdings"]


class Holdings:
    def __init__(self) -> None:
        self.query = ""
        self.owned: set[TopicPartition] = set()
        self.going: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        """Of those whose start is known: what is before is durable, or in the batch under way."""
        self.under_way: Plan | None = None
        self.number = 0
        """Of the last plan known to be durable."""
        self.broken: FencedQueryError | None = None
        self._durable: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    # --- what the group does ------------------------------------------------------------------------------------------

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """New ones: their start is not known yet."""
        for each in partitions:
            self._forget(each)
            self.owned.add(each)

    def going_away(self, partitions: Iterable[TopicPartition]) -> None:
        self.going |= self.owned.intersection(partitions)

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            self._forget(each)

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """They were taken from us. If a batch has some of them, two may read the same, and the query must know."""
        torn = sorted(self._in_batch().intersection(partitions))
        if torn and self.broken is None:
            names = ", ".join(map(str, torn[:5])) + (f" and {len(torn) - 5} more" if len(torn) > 5 else "")
            assert self.under_way is not None
            self.broken = FencedQueryError(
                f"the query was put out of its group while batch plan {self.under_way.number} ran with {names}: "
                "other members may be reading the same records. A member is put out when a rebalance waits for its "
                "batch longer than kafka.max.poll.interval.ms, when its heartbeats fail for kafka.session.timeout.ms, "
                "or when another takes its kafka.group.instance.id. Nothing is lost: start the query again from its "
                "checkpoint. To keep it from happening, make batches smaller with maxOffsetsPerTrigger, or raise "
                "kafka.max.poll.interval.ms above the time of the longest batch"
            )
        self.released(partitions)

    def _forget(self, partition: TopicPartition) -> None:
        self.owned.discard(partition)
        self.going.discard(partition)
        for known in (self.positions, self._durable, self._committed):
            known.pop(partition, None)

    # --- where to begin -----------------------------------------------------------------------------------------------

    def without_start(self) -> set[TopicPartition]:
        return self.owned - self.positions.keys()

    def starts_at(self, starts: Mapping[TopicPartition, int]) -> None:
        """Claimed at once: the first commit of an owner says whose the partition is, and where it began."""
        for each, offset in starts.items():
            if each in self.owned:
                self.positions[each] = offset
                self._durable[each] = offset

    # --- what Spark does ----------------------------------------------------------------------------------------------

    def to_plan(self) -> dict[TopicPartition, int]:
        return {each: at for each, at in self.positions.items() if each not in self.going}

    def moved(self, positions: Mapping[TopicPartition, int]) -> None:
        """Records are gone, and the query goes on without them."""
        for each, at in positions.items():
            if each in self.positions and self.positions[each] != at:
                self.positions[each] = self._durable[each] = at

    def planned(self, plan: Plan) -> None:
        """Take the plan of a batch. Partitions that we no longer own, or own again since, are left as they are."""
        self.under_way = plan
        self.positions |= {each: end for each, end in plan.ends().items() if each in self.positions}

    def durable(self, plan: Plan) -> None:
        """Spark has this plan in its log of batches that are done. A later one it was given, it did not take."""
        self.query, self.number = plan.query, plan.number
        if self.under_way is None:
            return
        is_done = self.under_way.number == plan.number
        reached = {each: span[is_done] for each, span in self.under_way.spans.items() if each in self.positions}
        self.positions |= reached
        self._durable |= reached
        self.under_way = None

    def given_up(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit when we leave a batch that is not done to others."""
        if self.under_way is None:
            return {}
        note = str(Note(self.query, self.number, is_released=True))
        return {
            each: OffsetAndMetadata(span.from_offset, metadata=note)
            for each, span in self.under_way.to_read().items()
            if each in self.positions
        }

    # --- what is owed to the group ------------------------------------------------------------------------------------

    def commits(self) -> dict[TopicPartition, OffsetAndMetadata]:
        note = str(Note(self.query, self.number))
        return {
            each: OffsetAndMetadata(offset, metadata=note)
            for each, offset in self._durable.items()
            if (known := self._committed.get(each)) is None or known.offset != offset
        }

    def committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        self._committed |= {each: offset for each, offset in offsets.items() if each in self.owned}

    def is_free(self, partitions: Collection[TopicPartition]) -> bool:
        return not self._in_batch().intersection(partitions) and not self.commits().keys() & set(partitions)

    def _in_batch(self) -> set[TopicPartition]:
        return set(self.under_way.to_read()) if self.under_way else set()
