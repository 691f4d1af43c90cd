"""The cleaner: has logs compacted whose topic says so, the dirtiest first, one at a time.

What takes long, reading and writing segments, is a `BackgroundTask`: small steps, on a thread of its own. What changes
the log, the new segment taking the place of others, is one of the cluster's `changes`, so it meets no deletion, no
repairing and no stop halfway. Readers never wait: they read the old segments until they read the new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

from coterie.broker.broker_effects import BackgroundTask, BackgroundTaskEnded
from coterie.broker.maintenance.directory_changes import Step
from coterie.errors import MalformedError
from coterie.storage import (
    Change,
    Compactable,
    Compaction,
    DeletedSegment,
    LogError,
    PartitionLog,
    Segment,
    offer,
    remove_files,
    swap,
    withdraw,
    writing,
)

if TYPE_CHECKING:
    from coterie.broker.cluster import Cluster

__all__ = ["CleanDue", "Cleaner"]

ROLLED_MS = 100
"""After a segment was rolled to be compacted it has to be flushed, which does not take long."""


@dataclass(slots=True)
class CleanDue:
    pass


@dataclass(slots=True)
class _Round:
    """The compaction of one log."""

    key: tuple[str, int]
    log: PartitionLog
    plan: Compactable
    work: Compaction
    waiting: deque[list[Segment]] = field(default_factory=deque)
    group: list[Segment] = field(default_factory=list)
    is_offered: bool = False
    """The group's new segment is read already, and its files are to get their names."""

    @property
    def cleaned(self) -> Segment:
        assert self.work.cleaned is not None, "this group stays as it is"
        return self.work.cleaned


class Cleaner:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._round: _Round | None = None
        self._background_task: BackgroundTask | None = None
        self._then: Callable[[_Round, int], None] = self._looked_through
        self._given_up: WeakSet[PartitionLog] = WeakSet()
        self._is_stopped = False

    def start(self, now_ms: int) -> None:
        if self._cluster.settings.log_cleaner_enable:
            self._again(now_ms + self._cluster.settings.log_cleaner_backoff_ms)

    def stop(self) -> None:
        """What is under way ends with its next step, and nothing more is begun; all can be taken up again later."""
        self._is_stopped = True
        if self._background_task is not None:
            self._background_task.is_wanted = False

    def due(self, now_ms: int) -> None:
        if self._is_stopped:
            return
        if self._round is not None:
            assert self._round.is_offered, "a round rests only if the disk refused to finish it"
            self._cluster.changes.ask(None, partial(self._swap, self._round))
            return
        found = self._dirtiest(now_ms)
        if found is not None:
            self._begin(*found, now_ms)

    def _again(self, at_ms: int) -> None:
        self._cluster.timers.arm("cleaner", at_ms, CleanDue())

    # --- choosing -----------------------------------------------------------------------------------------------------

    def _dirtiest(self, now_ms: int) -> tuple[tuple[str, int], PartitionLog, Compactable] | None:
        cluster = self._cluster
        found: list[tuple[tuple[str, int], PartitionLog, Compactable]] = []
        has_rolled = False
        for key, log in cluster.directory.logs.items():
            if not log.config.compacts or log in self._given_up:
                continue
            try:
                plan = log.compactable(cluster.directory.compacted_to(key), cluster.wall.surely(now_ms))
            except LogError as error:
                cluster.tell_trouble(str(error), now_ms)
                continue
            if log.is_sealing:
                cluster.flusher.written(log, None)
                has_rolled = True
            if plan is not None and plan.is_worth_it:
                found.append((key, log, plan))
        if not found:
            backoff_ms = cluster.settings.log_cleaner_backoff_ms
            self._again(now_ms + (min(ROLLED_MS, backoff_ms) if has_rolled else backoff_ms))
            return None
        return max(found, key=lambda each: each[2].dirty_ratio)

    def _begin(self, key: tuple[str, int], log: PartitionLog, plan: Compactable, now_ms: int) -> None:
        cluster = self._cluster
        buffer_bytes = cluster.settings.log_cleaner_dedupe_buffer_size
        wall_ms = cluster.wall.surely(now_ms)
        work = Compaction(cluster.files, log.path, plan, log.config, log.last_of_producers(), buffer_bytes, wall_ms)
        self._round = _Round(key, log, plan, work)
        self._start(work.look_through(), self._looked_through)

    # --- the long part ------------------------------------------------------------------------------------------------

    def _start(self, steps: Iterator[None], then: Callable[[_Round, int], None]) -> None:
        self._then = then
        self._background_task = BackgroundTask(steps, BackgroundTaskEnded())
        self._cluster.background_task(self._background_task)

    def ended(self, event: BackgroundTaskEnded, now_ms: int) -> None:
        assert self._background_task is not None and self._round is not None, "a background_task that nobody asked for"
        self._background_task = None
        this = self._round
        if self._is_stopped:
            if this.work.cleaned is not None:
                this.cleaned.close()
        elif event.error is None:
            self._then(this, now_ms)
        else:
            self._failed(this, event.error, now_ms)

    def _failed(self, this: _Round, error: Exception, now_ms: int) -> None:
        """A disk may recover, and a log that was changed meanwhile has other segments; bytes stay as they are."""
        self._end(now_ms)
        if isinstance(error, OSError):
            if self._is_there(this) and this.log.has(this.group or this.plan.segments):
                self._cluster.tell_trouble(f"{this.log.path} could not be compacted: {error}", now_ms)
            return
        self._given_up.add(this.log)
        if not isinstance(error, MalformedError):
            raise error
        self._cluster.tell_trouble(f"{this.log.path} is not compacted any more, until the next start: {error}", now_ms)

    def _looked_through(self, this: _Round, now_ms: int) -> None:
        this.waiting.extend(this.work.groups)
        self._next_group(this, now_ms)

    def _next_group(self, this: _Round, now_ms: int) -> None:
        if self._is_stopped:
            return
        if this.waiting:
            this.group = this.waiting.popleft()
            self._start(this.work.compact(this.group), self._compacted)
        elif self._is_there(this):
            self._cluster.changes.ask(None, partial(self._keep, this))
        else:
            self._end(now_ms)

    def _compacted(self, this: _Round, now_ms: int) -> None:
        if this.work.cleaned is None:
            self._next_group(this, now_ms)
        else:
            self._cluster.changes.ask(None, partial(self._offer, this))

    def _is_there(self, this: _Round) -> bool:
        return self._cluster.directory.logs.get(this.key) is this.log

    # --- the new segment takes the place of others --------------------------------------------------------------------

    def _offer(self, this: _Round, _now_ms: int) -> Step:
        cluster, log, group, cleaned = self._cluster, this.log, this.group, this.cleaned
        if self._is_stopped or not self._is_there(this) or not log.has(group):
            return self._withdraw(this)
        if cluster.directory.recovery_point(this.key) < this.plan.bound or not cluster.directory.has_gaps(this.key):
            return Step(cluster.directory.checkpoint(gaps_in=this.key), partial(self._checkpointed, this))

        def work() -> None:
            with writing(f"{log.path} could not be compacted"):
                offer(cluster.files, log.path, cleaned)

        def take(_: None) -> None:
            log.replace(group, cleaned)
            this.is_offered = True

        return Step(Change(work, take), partial(self._offered, this))

    def _checkpointed(self, this: _Round, outcome: LogError | None, now_ms: int) -> Step:
        """What is compacted must not get back from the journal what it had before."""
        if outcome is None and self._cluster.directory.recovery_point(this.key) >= this.plan.bound:
            return self._offer(this, now_ms)
        if outcome is not None:
            self._cluster.tell_trouble(str(outcome), now_ms)
        return self._withdraw(this)

    def _offered(self, this: _Round, outcome: LogError | None, now_ms: int) -> Step | None:
        if outcome is None:
            return self._swap(this, now_ms)
        self._cluster.tell_trouble(str(outcome), now_ms)
        return self._withdraw(this)

    def _withdraw(self, this: _Round) -> Step:
        def work() -> None:
            with writing(f"what is left of compacting {this.log.path} could not be removed"):
                withdraw(self._cluster.files, this.log.path, this.cleaned)

        return Step(Change(work, lambda _: None), self._withdrawn)

    def _withdrawn(self, outcome: LogError | None, now_ms: int) -> None:
        if outcome is not None:
            self._cluster.tell_trouble(str(outcome), now_ms)
        self._end(now_ms)

    def _swap(self, this: _Round, now_ms: int) -> Step | None:
        cluster, log, group, cleaned = self._cluster, this.log, this.group, this.cleaned
        if not self._is_there(this) or not log.has([cleaned]):  # repaired, or deleted, which has finished it
            cleaned.close()
            self._end(now_ms)
            return None

        def work() -> list[DeletedSegment]:
            with writing(f"{log.path} was compacted, but its files could not be renamed"):
                return swap(cluster.files, log.path, group, cleaned)

        def take(deleted: list[DeletedSegment]) -> list[DeletedSegment]:
            cleaned.let_go()
            return deleted

        return Step(Change(work, take), partial(self._swapped, this))

    def _swapped(self, this: _Round, outcome: list[DeletedSegment] | LogError, now_ms: int) -> None:
        cluster = self._cluster
        if isinstance(outcome, LogError):
            cluster.tell_trouble(str(outcome), now_ms)
            self._again(now_ms + cluster.settings.log_cleaner_backoff_ms)
            return
        this.is_offered = False
        cluster.do_later("compacted segments", partial(remove_files, cluster.files, outcome))
        self._next_group(this, now_ms)

    # --- the end of a round -------------------------------------------------------------------------------------------

    def _keep(self, this: _Round, now_ms: int) -> Step | None:
        if not self._is_there(this):
            self._end(now_ms)
            return None
        return Step(self._cluster.directory.keep_compacted(this.key, this.work.compacted_to), partial(self._kept, this))

    def _kept(self, this: _Round, outcome: LogError | None, now_ms: int) -> None:
        if outcome is not None:
            self._cluster.tell_trouble(str(outcome), now_ms)
        self._end(now_ms, has_advanced=outcome is None and this.work.compacted_to > this.plan.first_dirty)

    def _end(self, now_ms: int, *, has_advanced: bool = False) -> None:
        """As in Kafka the next log has its turn at once, unless there was nothing to do."""
        self._round = None
        self._again(now_ms if has_advanced else now_ms + self._cluster.settings.log_cleaner_backoff_ms)
