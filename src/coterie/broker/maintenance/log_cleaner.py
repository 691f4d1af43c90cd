"""The log cleaner: it compacts logs whose topic says so, the dirtiest first, one at a time.

What takes long, reading and writing segments, is a `BackgroundTask`: small steps, on a thread of its own. What changes
the log, the new segment taking the place of others, is one of the cluster's `changes`, so it meets no deletion, no
repairing and no stop halfway. Readers never wait: they read the old segments until they read the new one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from weakref import WeakSet

from coterie.broker.broker_effects import BackgroundTask, BackgroundTaskEnded, DeleteFiles, Effects, Work
from coterie.broker.broker_facts import Reporter
from coterie.broker.maintenance.directory_changes import Changes
from coterie.broker.maintenance.flushing import Flusher
from coterie.coordinator.runtime import Timers
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import MalformedError
from coterie.settings.broker_settings import BrokerSettings
from coterie.storage import (
    Compactable,
    Compaction,
    DataDirectory,
    DeletedSegment,
    DiskChange,
    Files,
    LogError,
    PartitionLog,
    Segment,
    offer,
    remove_files,
    swap,
    withdraw,
    writing,
)
from coterie.structs import DataStruct, field

__all__ = ["CleanDue", "Cleaner"]

ROLLED_MS = 100
"""The time that the flush of a segment gets which was rolled to be compacted."""


class CleanDue(DataStruct):
    pass


class _Cleaning(DataStruct):
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
    def __init__(
        self,
        files: Files,
        directory: DataDirectory,
        settings: BrokerSettings,
        changes: Changes,
        flusher: Flusher,
        timers: Timers[object],
        reporter: Reporter,
        wall: WallClock,
    ) -> None:
        self._files = files
        self._directory = directory
        self._settings = settings
        self._changes = changes
        self._flusher = flusher
        self._timers = timers
        self._trouble = reporter.trouble
        self._wall = wall
        self._cleaning: _Cleaning | None = None
        self._background_task: BackgroundTask | None = None
        self._then: Callable[[_Cleaning, int], Effects] = self._looked_through
        self._given_up: WeakSet[PartitionLog] = WeakSet()
        self._is_stopped = False

    def start(self, now_ms: int) -> None:
        if self._settings.log_cleaner_enable:
            self._again(now_ms + self._settings.log_cleaner_backoff_ms)

    def stop(self) -> None:
        """Start no more cleaning. The current one ends with its next step; it can be repeated later."""
        self._is_stopped = True
        if self._background_task is not None:
            self._background_task.is_wanted = False

    def due(self, now_ms: int) -> Effects:
        if self._is_stopped:
            return []
        if self._cleaning is not None:
            assert self._cleaning.is_offered, "a compaction rests only if the disk refused to finish it"
            self._changes.ask(None, partial(self._swap, self._cleaning))
            return []
        return self._clean_dirtiest(now_ms)

    def _again(self, at_ms: int) -> None:
        self._timers.arm("cleaner", at_ms, CleanDue())

    # --- choosing -----------------------------------------------------------------------------------------------------

    def _clean_dirtiest(self, now_ms: int) -> Effects:
        effects: Effects = []
        found: list[tuple[tuple[str, int], PartitionLog, Compactable]] = []
        has_rolled = False
        for key, log in self._directory.logs.items():
            if not log.config.compacts or log in self._given_up:
                continue
            try:
                plan = log.compactable(self._directory.checkpoints.compacted_to(key), self._wall.surely(now_ms))
            except LogError as error:
                effects.append(self._trouble(str(error), now_ms))
                continue
            if log.is_sealing:
                self._flusher.written(log, None)
                has_rolled = True
            if plan is not None and plan.is_worth_it:
                found.append((key, log, plan))
        if not found:
            backoff_ms = self._settings.log_cleaner_backoff_ms
            self._again(now_ms + (min(ROLLED_MS, backoff_ms) if has_rolled else backoff_ms))
            return effects
        return [*effects, self._begin(*max(found, key=lambda each: each[2].dirty_ratio), now_ms)]

    def _begin(self, key: tuple[str, int], log: PartitionLog, plan: Compactable, now_ms: int) -> BackgroundTask:
        buffer_bytes = self._settings.log_cleaner_dedupe_buffer_size
        wall_ms = self._wall.surely(now_ms)
        work = Compaction(self._files, log.path, plan, log.config, log.last_records(), buffer_bytes, wall_ms)
        self._cleaning = _Cleaning(key, log, plan, work)
        return self._in_background(work.read_keys(), self._looked_through)

    # --- the long part ------------------------------------------------------------------------------------------------

    def _in_background(self, steps: Iterator[None], then: Callable[[_Cleaning, int], Effects]) -> BackgroundTask:
        self._then = then
        self._background_task = BackgroundTask(steps, BackgroundTaskEnded())
        return self._background_task

    def ended(self, event: BackgroundTaskEnded, now_ms: int) -> Effects:
        assert self._background_task is not None and self._cleaning is not None, "a task that nobody asked for"
        self._background_task = None
        this = self._cleaning
        if self._is_stopped:
            if this.work.cleaned is not None:
                this.cleaned.close()
            return []
        if event.error is None:
            return self._then(this, now_ms)
        return self._failed(this, event.error, now_ms)

    def _failed(self, this: _Cleaning, error: Exception, now_ms: int) -> Effects:
        """A disk may recover, and a log that was changed meanwhile has other segments; bytes stay as they are."""
        self._end(now_ms)
        if isinstance(error, OSError):
            if self._is_there(this) and this.log.has(this.group or this.plan.segments):
                return [self._trouble(f"{this.log.path} could not be compacted: {error}", now_ms)]
            return []
        self._given_up.add(this.log)
        if not isinstance(error, MalformedError):
            raise error
        return [self._trouble(f"{this.log.path} is not compacted any more, until the next start: {error}", now_ms)]

    def _looked_through(self, this: _Cleaning, now_ms: int) -> Effects:
        this.waiting.extend(this.work.groups)
        return self._next_group(this, now_ms)

    def _next_group(self, this: _Cleaning, now_ms: int) -> Effects:
        if self._is_stopped:
            return []
        if this.waiting:
            this.group = this.waiting.popleft()
            return [self._in_background(this.work.compact(this.group), self._compacted)]
        if self._is_there(this):
            self._changes.ask(None, partial(self._keep, this))
        else:
            self._end(now_ms)
        return []

    def _compacted(self, this: _Cleaning, now_ms: int) -> Effects:
        if this.work.cleaned is None:
            return self._next_group(this, now_ms)
        self._changes.ask(None, partial(self._offer, this))
        return []

    def _is_there(self, this: _Cleaning) -> bool:
        return self._directory.logs.get(this.key) is this.log

    # --- the new segment takes the place of others --------------------------------------------------------------------

    def _offer(self, this: _Cleaning, _now_ms: int) -> Effects:
        kept, log, group, cleaned = self._directory.checkpoints, this.log, this.group, this.cleaned
        if self._is_stopped or not self._is_there(this) or not log.has(group):
            return self._withdraw(this)
        if kept.recovery_point(this.key) < this.plan.bound or not kept.has_gaps(this.key):
            return [Work(kept.write(gaps_in=this.key), partial(self._checkpointed, this))]

        def work() -> None:
            with writing(f"{log.path} could not be compacted"):
                offer(self._files, log.path, cleaned)

        def take(_: None) -> None:
            log.replace(group, cleaned)
            this.is_offered = True

        return [Work(DiskChange(work, take), partial(self._offered, this))]

    def _checkpointed(self, this: _Cleaning, outcome: LogError | None, now_ms: int) -> Effects:
        """Go on when the recovery point is saved: the journal must not restore what is compacted away."""
        if outcome is None and self._directory.checkpoints.recovery_point(this.key) >= this.plan.bound:
            return self._offer(this, now_ms)
        troubles: Effects = [] if outcome is None else [self._trouble(str(outcome), now_ms)]
        return [*troubles, *self._withdraw(this)]

    def _offered(self, this: _Cleaning, outcome: LogError | None, now_ms: int) -> Effects:
        if outcome is None:
            return self._swap(this, now_ms)
        return [self._trouble(str(outcome), now_ms), *self._withdraw(this)]

    def _withdraw(self, this: _Cleaning) -> Effects:
        def work() -> None:
            with writing(f"what is left of compacting {this.log.path} could not be removed"):
                withdraw(self._files, this.log.path, this.cleaned)

        return [Work(DiskChange(work, lambda _: None), self._withdrawn)]

    def _withdrawn(self, outcome: LogError | None, now_ms: int) -> Effects:
        self._end(now_ms)
        return [] if outcome is None else [self._trouble(str(outcome), now_ms)]

    def _swap(self, this: _Cleaning, now_ms: int) -> Effects:
        log, group, cleaned = this.log, this.group, this.cleaned
        if not self._is_there(this) or not log.has([cleaned]):  # repaired, or deleted, which has finished it
            cleaned.close()
            self._end(now_ms)
            return []

        def work() -> list[DeletedSegment]:
            with writing(f"{log.path} was compacted, but its files could not be renamed"):
                return swap(self._files, log.path, group, cleaned)

        def take(deleted: list[DeletedSegment]) -> list[DeletedSegment]:
            cleaned.let_go()
            return deleted

        return [Work(DiskChange(work, take), partial(self._swapped, this))]

    def _swapped(self, this: _Cleaning, outcome: list[DeletedSegment] | LogError, now_ms: int) -> Effects:
        if isinstance(outcome, LogError):
            self._again(now_ms + self._settings.log_cleaner_backoff_ms)
            return [self._trouble(str(outcome), now_ms)]
        this.is_offered = False
        removal = DeleteFiles("compacted segments", partial(remove_files, self._files, outcome))
        return [removal, *self._next_group(this, now_ms)]

    # --- the end of a compaction --------------------------------------------------------------------------------------

    def _keep(self, this: _Cleaning, now_ms: int) -> Effects:
        if not self._is_there(this):
            self._end(now_ms)
            return []
        return [
            Work(
                self._directory.checkpoints.keep_compacted(this.key, this.work.compacted_to), partial(self._kept, this)
            )
        ]

    def _kept(self, this: _Cleaning, outcome: LogError | None, now_ms: int) -> Effects:
        self._end(now_ms, has_advanced=outcome is None and this.work.compacted_to > this.plan.first_dirty)
        return [] if outcome is None else [self._trouble(str(outcome), now_ms)]

    def _end(self, now_ms: int, *, has_advanced: bool = False) -> None:
        """End the cleaning of a log. As in Kafka the next log follows at once, unless there was nothing to do."""
        self._cleaning = None
        self._again(now_ms if has_advanced else now_ms + self._settings.log_cleaner_backoff_ms)
