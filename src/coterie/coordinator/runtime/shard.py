"""A coordinator shard: all groups of one partition of `__consumer_offsets`.

It finds the group, lets its rules decide, and follows the effects: timers are armed, records are joined into appends,
replies and facts go up. One append is under way at a time; what comes meanwhile is joined into the next (group commit).
State changes in the order of the log: records that are durable are applied to the very group that asked for the write.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from traceback import format_exc
from typing import Any, Generic, TypeVar

from coterie.coordinator import classic, consumer
from coterie.coordinator.classic import Group, HeldBytes, listed
from coterie.coordinator.classic.effects import (
    Arm,
    ComputeTarget,
    DeletionWritten,
    Disarm,
    Effects,
    ExpiryDue,
    JoinPhaseDue,
    OffsetsWritten,
    Persist,
    Reply,
    SessionDue,
    SyncPhaseDue,
    TransactionEnded,
    Written,
    error_for_client,
)
from coterie.coordinator.classic.rules import RULES as CLASSIC_RULES
from coterie.coordinator.classic.states import DEAD, STABLE
from coterie.coordinator.consumer import (
    CaughtUp,
    ConsumerGroup,
    ConsumerGroupWritten,
    DowngradeWritten,
    TopicsImage,
    become_consumer,
    downgraded,
    upgrade_failed,
)
from coterie.coordinator.consumer.group import ConsumerSessionDue, RejoinDue, RevocationDue, SyncDue
from coterie.coordinator.consumer.regex_refresh import RegexDue
from coterie.coordinator.consumer.rules import OF_CLASSIC_GROUPS
from coterie.coordinator.consumer.rules import RULES as CONSUMER_RULES
from coterie.coordinator.consumer.target_assignment import TargetLate
from coterie.coordinator.offsets.offset_metadata_manager import offsets_written, quick_rows
from coterie.coordinator.offsets.quick_commit import QuickCommit
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.facts import Emit, Mistake
from coterie.protocol.commit_rows import CommitRows, FetchedRows, OffsetRows
from coterie.protocol.messages import (
    ConsumerGroupHeartbeat,
    GroupsListed,
    Heartbeat,
    JoinGroup,
    ListGroups,
    OffsetsCommitted,
    Record,
    SyncGroup,
    Token,
    TopicsDeleted,
    TransactionMarker,
)
from coterie.protocol.offsets_topic import write_record
from coterie.protocol.records import joined
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings
from coterie.structs import DataStruct

E = TypeVar("E")

RULES: Mapping[type, Mapping[type, Callable[[Any, Any, int], Effects]]] = {
    Group: {**CLASSIC_RULES, **OF_CLASSIC_GROUPS, QuickCommit: offsets_written},
    ConsumerGroup: CONSUMER_RULES,
}
"""The rules of each type of groups."""
_EVENTS = frozenset({*CLASSIC_RULES, *CONSUMER_RULES} - {TopicsDeleted})


def handle(group: Group | ConsumerGroup, event: Any, now_ms: int) -> Effects:
    """Handle an event of a group by the rules of its type. A refused event leaves the group unchanged."""
    return RULES[type(group)][type(event)](group, event, now_ms)


class Timers(Generic[E]):
    """Keyed timers. Arming a key again replaces its time, which costs an assignment and no heap operation.

    The heap has one entry per key, which may fire early. The time in `_armed` counts.
    """

    def __init__(self) -> None:
        self._armed: dict[Hashable, tuple[int, E]] = {}
        self._queued: dict[Hashable, int] = {}  # key -> when its entry in the heap rings
        self._heap: list[tuple[int, int, Hashable]] = []
        self._count = 0  # keeps equal times in the order in which they were armed

    def __len__(self) -> int:
        return len(self._armed)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._armed

    def arm(self, key: Hashable, at_ms: int, event: E) -> None:
        self._armed[key] = (at_ms, event)
        queued = self._queued.get(key)
        if queued is None or at_ms < queued:
            self._push(key, at_ms)

    def disarm(self, key: Hashable) -> None:
        """Cancel the timer. Its entry stays in the heap and has no effect."""
        if self._armed.pop(key, None) is not None:
            self._tidy()

    def next_ms(self) -> int | None:
        """The time of the next check. It may be early, never late."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[E]:
        """Yield the timers that are due, in order of time, also those that are armed meanwhile."""
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, key = heappop(self._heap)
            if self._queued.get(key) != at_ms:
                continue  # an earlier entry has taken its place
            del self._queued[key]
            armed = self._armed.get(key)
            if armed is None:
                continue
            deadline_ms, event = armed
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._armed[key]
            yield event

    def _push(self, key: Hashable, at_ms: int) -> None:
        self._count += 1
        self._queued[key] = at_ms
        heappush(self._heap, (at_ms, self._count, key))
        self._tidy()

    def _tidy(self) -> None:
        """Rebuild the heap when most entries are stale."""
        if len(self._heap) <= 2 * len(self._armed) + 64:
            return
        self._queued = {key: at_ms for key, (at_ms, _) in self._armed.items()}
        self._heap = [(at_ms, index, key) for index, (key, at_ms) in enumerate(self._queued.items())]
        heapify(self._heap)


class Appended(DataStruct):
    """An append has ended. With an error, nothing of it was written."""

    partition: int
    ticket: int
    error: ErrorCode = ErrorCode.NONE
    base_offset: int = -1


class AppendBatch(DataStruct):
    """Write these to the partition together, all or none, durably; then hand `then` back."""

    records: Sequence[tuple[bytes, bytes | None]]
    then: Appended
    producer_id: int | None = None
    producer_epoch: int = -1
    marker: bool | None = None
    """Instead of records: the end of the producer's transaction. True is commit, False is abort."""
    coordinator_epoch: int = 0
    """The epoch of the transaction coordinator that a marker comes from."""
    is_strict: bool = False
    """A marker must have a higher epoch than the producer's last batch (KIP-890)."""


class Append(DataStruct):
    """Records wait to be written to the partition. Only one `Append` is under way at a time.

    What it is, `batch` says once, when it is about to be written: all that comes until then is in it. None: nothing
    any more, since the partition was lost.
    """

    partition: int
    batch: Callable[[], AppendBatch | None]


class WriteLate(DataStruct):
    """`offsets.commit.timeout.ms` has passed since something was given to the log."""

    partition: int


class ExpiryCheckDue(DataStruct):
    partition: int


GROUP_TIMERS: tuple[type, ...] = (
    # of a classic group
    JoinPhaseDue,
    SyncPhaseDue,
    SessionDue,
    # of a consumer group
    ConsumerSessionDue,
    RegexDue,
    RejoinDue,
    RevocationDue,
    SyncDue,
    TargetLate,
    # of a partition of groups
    ExpiryCheckDue,
    WriteLate,
)
"""The events of timers that a coordinator of groups arms."""


@dataclass(slots=True, kw_only=True)
class OffsetsMarkerWritten(Written):
    producer_id: int
    committed: bool
    group_id: str = ""


Outward = Reply | Emit | Append | ComputeTarget | QuickCommit
"""The effects of a shard. A `QuickCommit` is durable: its member is to be answered."""


class _Unwritten:
    """Something to be written, with the group it goes back to (none for a marker)."""

    __slots__ = ("applied", "asked_ms", "group", "mark", "marker", "pairs", "producer", "size", "then")

    def __init__(self, group: Group | ConsumerGroup | None, then: Written, asked_ms: int) -> None:
        self.group = group
        self.then = then
        self.asked_ms = asked_ms
        self.applied: Sequence[Record] = []  # to the group, when they are durable
        self.pairs: Sequence[tuple[bytes, bytes | None]] = []  # the key and value of each of them
        self.size = 0
        self.producer: tuple[int, int] | None = None
        self.marker: bool | None = None
        self.mark: TransactionMarker | None = None


class Shard:
    def __init__(
        self,
        partition: int,
        settings: GroupCoordinatorSettings,
        timers: Timers[Any],
        tickets: Iterator[int] | None = None,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
        image: TopicsImage | None = None,
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`held_in_all` is what all groups of a process make it hold."""
        self.image = image
        self.group_configs = group_configs
        self.held_in_all = HeldBytes() if held_in_all is None else held_in_all
        self.partition = partition
        self.settings = settings
        self.timers = timers
        self.wall = WallClock() if wall is None else wall
        self.groups: dict[str, Group | ConsumerGroup] = {}
        self.open_transactions: dict[int, dict[str, None]] = {}  # producer -> its groups, until the marker
        self._queue: deque[_Unwritten | QuickCommit | CaughtUp] = deque()
        self._under_way: list[_Unwritten | QuickCommit | CaughtUp] = []
        self._is_asked = False  # an append was asked for and has not ended
        self._held: dict[str, list[Any]] = {}  # by group whose deletion is on its way to the log: what has come since
        self._is_unloaded = False
        self._tickets = tickets or count(1)  # never used twice, not even by the next shard of this partition
        self._ticket = 0
        self._watches = False  # the timer for commits that wait too long is armed

    # --- asking -------------------------------------------------------------------------------------------------------

    @property
    def is_writing(self) -> bool:
        """Return whether something is on its way to the log, or waits for its turn."""
        return bool(self._under_way or self._queue)

    def classic_groups(self) -> Iterator[Group]:
        return (group for group in self.groups.values() if isinstance(group, Group))

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        return (group for group in self.groups.values() if isinstance(group, ConsumerGroup))

    def holds_back(self, group_id: str) -> bool:
        """Return whether events of a group, timers too, wait until its deletion or downgrade is durable."""
        return group_id in self._held

    def waiting_tokens(self) -> Iterator[Token]:
        """Return the tokens of all requests that will be answered later."""
        for group in self.groups.values():
            yield from group.parked_tokens()
        held = [event for events in self._held.values() for event in events]
        for waiting in [*(item.then for item in (*self._under_way, *self._queue)), *held]:
            token = getattr(waiting, "token", None)
            if token is not None and not isinstance(waiting, ConsumerGroupWritten):
                yield token

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, event: Any, now_ms: int) -> list[Outward]:
        """Handle an event: of a group, by its rules, or of the whole shard."""
        kind = type(event)
        if kind in _EVENTS:
            if self._held and kind is not Heartbeat and event.group_id in self._held:
                # Whether there is still a group is not known yet; an Empty one and none say the same to a heartbeat.
                self._held[event.group_id].append(event)
                return []
            group = self.groups.get(event.group_id)
            if group is None:
                # Dead, unless the event gives it life
                group = Group(event.group_id, self.settings, self.wall, self.held_in_all)
            if kind is ConsumerGroupHeartbeat and isinstance(group, Group):
                group = become_consumer(group, event, self.image, self.group_configs)
            rule = RULES[type(group)].get(kind)
            if rule is None:
                return []  # a timer of a group that is of the other type now
            effects = rule(group, event, now_ms)
            if not effects and event.group_id in self.groups:
                return []  # a join or a sync that waits for others
            out: list[Outward] = []
            if len(effects) == 1:
                (effect,) = effects
                if type(effect) is Reply:
                    return effects  # type: ignore[return-value]
                if type(effect) is CaughtUp:
                    self._queue.append(effect)
                    self._start_append(out)
                    return out
            self._follow(group, effects, out, now_ms)
            self._start_append(out)
            return out
        out = []
        if kind is Appended:
            self._appended(event, out, now_ms)
        elif kind is WriteLate:
            self._write_late(out, now_ms)
        elif kind is ExpiryCheckDue:
            self._check_expiry(out, now_ms)
        elif kind is TopicsDeleted:
            self._ask_all(event, out, now_ms)
        elif kind is TransactionMarker:
            self._mark(event, now_ms)
        elif kind is ListGroups:
            rows = [listed(group, event.states, event.types) for group in self.groups.values()]
            out.append(Reply(event.token, GroupsListed(ErrorCode.NONE, [row for row in rows if row is not None])))
        else:
            raise TypeError(f"a shard has no rule for {type(event).__name__}")
        self._start_append(out)
        return out

    def quick_heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: int) -> int | None:
        """Handle a heartbeat that says nothing new, if nothing has changed; see `consumer.quick_heartbeat`."""
        group = self.groups.get(request.group_id)
        if type(group) is not ConsumerGroup or (self._held and request.group_id in self._held):
            return None
        return consumer.quick_heartbeat(group, request, now_ms)

    def quick_commit(
        self, group_id: str, generation_id: int, member_id: str, of: CommitRows, token: Token, now_ms: int
    ) -> list[Outward] | None:
        """Handle a commit without an instance id, of partitions that exist; None: `handle` must, nothing has changed.

        See `QuickCommit`. The checks are those of `Group.validate_offset_commit`, for a member of a Stable group.
        """
        group = self.groups.get(group_id)
        if (
            type(group) is not Group
            or group.state is not STABLE
            or generation_id != group.generation_id
            or (self._held and group_id in self._held)
        ):
            return None
        member = group.members.get(member_id)
        if member is None:
            return None
        deadline_ms = now_ms + member.session_timeout_ms
        if deadline_ms < member.alarm_ms:
            return None  # its timer has to be armed again
        records = OffsetRows(group_id, of, group.wall.at(now_ms))
        pairs, size = records.written()
        if size > self.settings.coterie_max_record_bytes:
            return None
        member.deadline_ms = deadline_ms
        item = QuickCommit(group, token, member_id, records, pairs, size, now_ms)
        group.unwritten_commits[id(item)] = item
        self._queue.append(item)
        if not self._watches:
            self._watch(item)
        if self._is_asked:
            return []
        out: list[Outward] = []
        self._start_append(out)
        return out

    def quick_rejoin(self, request: JoinGroup | SyncGroup, now_ms: int) -> list[Outward] | None:
        """Handle a join of a member that is known, or a sync, of a classic group; None: `handle` must."""
        group = self.groups.get(request.group_id)
        if type(group) is not Group or (self._held and request.group_id in self._held):
            return None
        effects = (
            classic.quick_join(group, request, now_ms)
            if isinstance(request, JoinGroup)
            else classic.quick_sync(group, request, now_ms)
        )
        if not effects:
            return effects  # type: ignore[return-value]  # it waits for others, or goes the plain way
        out: list[Outward] = []
        self._follow(group, effects, out, now_ms)
        self._start_append(out)
        return out

    def quick_fetch(
        self, group_id: str, topic: str, partitions: Sequence[int], *, require_stable: bool
    ) -> FetchedRows | None:
        """Return offsets of one topic of a classic group, if all are there without metadata; None: `handle` must."""
        group = self.groups.get(group_id)
        if (
            type(group) is not Group
            or (require_stable and group.pending_offsets)
            or (self._held and group_id in self._held)
        ):
            return None
        return quick_rows(group, topic, partitions)

    def load(self, groups: Iterable[Group | ConsumerGroup], now_ms: int) -> list[Outward]:
        """Take the groups that were read from the log: the sessions of all members start now (C4)."""
        out: list[Outward] = []
        for group in groups:
            self.groups[group.group_id] = group
            for producer_id in group.pending_offsets:
                self.open_transactions.setdefault(producer_id, {})[group.group_id] = None
            started = (
                consumer.consumer_group_loaded(group, now_ms)
                if isinstance(group, ConsumerGroup)
                else classic.loaded(group, now_ms)
            )
            self._follow(group, started, out, now_ms)
        self._arm_expiry(now_ms)
        self._start_append(out)
        return out

    def unload(self, now_ms: int) -> list[Outward]:
        """The partition has another coordinator: answer all requests that wait, and forget its groups (C4)."""
        out: list[Outward] = []
        self._is_unloaded = True
        while self.groups or self._under_way or self._queue:  # what was held back comes to light when its write ends
            for group in list(self.groups.values()):
                for timer in group.timer_keys():
                    self.timers.disarm(timer)
                self._follow(group, self._unloaded(group, now_ms), out, now_ms)
            unwritten = [*self._under_way, *self._queue]
            self._under_way, self._queue = [], deque()
            for item in unwritten:  # may still reach the log; nobody here will know
                item.then.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
                self._ended(item, out, now_ms)
        self.open_transactions.clear()
        for key in (self._late_key(), self._expiry_key()):
            self.timers.disarm(key)
        return out

    def _unloaded(self, group: Group | ConsumerGroup, now_ms: int) -> Effects:
        if isinstance(group, ConsumerGroup):
            return consumer.unload_consumer_group(group, now_ms)
        return classic.unload(group, now_ms)

    # --- effects ------------------------------------------------------------------------------------------------------

    def _follow(self, group: Group | ConsumerGroup, effects: Effects, out: list[Outward], now_ms: int) -> None:
        unwritable: list[_Unwritten] = []
        for effect in effects:
            kind = type(effect)
            if kind is Reply or kind is Emit or kind is ComputeTarget:
                out.append(effect)  # type: ignore[arg-type]
            elif kind is Arm:
                self.timers.arm(effect.key, effect.at_ms, effect.then)  # type: ignore[union-attr]
            elif kind is Disarm:
                self.timers.disarm(effect.key)  # type: ignore[union-attr]
            else:
                item = self._encode(group, effect, now_ms)  # type: ignore[arg-type]
                if item.then.error:
                    unwritable.append(item)
                else:
                    self._queue.append(item)
                    self._watch(item)
                    if isinstance(item.then, DeletionWritten | DowngradeWritten):
                        self._held[group.group_id] = []
        self._keep(group)
        for item in unwritable:
            self._ended(item, out, now_ms)

    def _keep(self, group: Group | ConsumerGroup) -> None:
        """A group is kept while it is not Dead. One whose place another type has taken is Dead."""
        if not group.is_dead:
            self.groups[group.group_id] = group
        elif self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]

    def _encode(self, group: Group | ConsumerGroup, effect: Persist, now_ms: int) -> _Unwritten:
        item = _Unwritten(group, effect.then, now_ms)
        item.applied = effect.records
        try:
            if type(effect.records) is OffsetRows:
                item.pairs, item.size = effect.records.written()
            elif len(effect.records) == 1:
                key, value = pair = write_record(effect.records[0])
                item.pairs, item.size = [pair], len(key) + (len(value) if value else 0)
            else:
                item.pairs = [write_record(record) for record in effect.records]
                item.size = sum([len(key) + (len(value) if value else 0) for key, value in item.pairs])
        except ValueError:  # a name longer than 32 767 bytes, a number too large for its field, half a surrogate pair
            item.then.error = ErrorCode.UNKNOWN_SERVER_ERROR
        if item.size > self.settings.coterie_max_record_bytes:
            item.then.error = ErrorCode.MESSAGE_TOO_LARGE
        if effect.producer_id is not None:
            item.producer = (effect.producer_id, effect.producer_epoch)
        return item

    # --- the log ------------------------------------------------------------------------------------------------------

    def _start_append(self, out: list[Outward]) -> None:
        if self._queue and not self._is_asked and not self._is_unloaded:
            self._is_asked = True
            out.append(Append(self.partition, self._next_batch))

    def _next_batch(self) -> AppendBatch | None:
        if not self._queue:
            return None  # unloaded meanwhile
        first = self._queue.popleft()
        batch, size = [first], first.size
        while self._queue and first.marker is None:
            item = self._queue[0]
            size += item.size
            if (
                item.marker is not None
                or item.producer != first.producer
                or size > self.settings.coterie_max_append_bytes
            ):
                break
            batch.append(self._queue.popleft())
        self._under_way = batch
        self._ticket = next(self._tickets)
        producer_id, producer_epoch = first.producer or (None, -1)
        records = first.pairs if len(batch) == 1 else joined([item.pairs for item in batch])
        then = Appended(self.partition, self._ticket)
        batch_of = AppendBatch(records, then, producer_id, producer_epoch, first.marker)
        if first.mark is not None:
            batch_of.coordinator_epoch, batch_of.is_strict = first.mark.coordinator_epoch, first.mark.is_strict
        return batch_of

    def _appended(self, event: Appended, out: list[Outward], now_ms: int) -> None:
        if event.ticket != self._ticket:
            return  # of an earlier life of this shard
        position = event.base_offset
        for item in self._under_way:
            count = len(item.pairs)
            try:
                if type(item) is QuickCommit and not event.error and item.group.state is not DEAD:
                    item.stored_at(position)
                    out.append(item)
                elif type(item) is CaughtUp and not event.error and item.note_stored():
                    out += [Reply(token, answer) for token, answer, _ in item.replies]
                    out += map(Emit, item.facts)
                else:
                    item.then.error = event.error
                    item.then.position = position
                    self._ended(item, out, now_ms)
            except Exception:  # noqa: BLE001  a mistake of ours must not cost the others their answers
                doing = f"the end of a write, {type(item.then).__name__}"
                out.append(Emit(Mistake(now_ms, item.then.group_id, doing, format_exc())))
            position += count
        self._under_way, self._is_asked = [], False

    def _ended(self, item: _Unwritten | QuickCommit | CaughtUp, out: list[Outward], now_ms: int) -> None:
        then = item.then
        if item.group is None:
            assert isinstance(then, OffsetsMarkerWritten)
            self._marked(then, out, now_ms)
            return
        if not then.error:
            producer_id = None if item.producer is None else item.producer[0]
            item.group.apply(item.applied, then.position, producer_id)
            if producer_id is not None:
                self.open_transactions.setdefault(producer_id, {})[then.group_id] = None
        elif isinstance(then, ConsumerGroupWritten) and isinstance(item.group, ConsumerGroup):
            self._abandon(item.group, then, out, now_ms)
        if isinstance(then, DowngradeWritten) and not then.error:
            self._downgraded(item.group, then, out, now_ms)
        else:
            self._follow(item.group, handle(item.group, then, now_ms), out, now_ms)
        if isinstance(then, DeletionWritten | DowngradeWritten):
            for event in self._held.pop(then.group_id, ()):
                out += self.handle(event, now_ms)

    def _abandon(self, group: ConsumerGroup, then: ConsumerGroupWritten, out: list[Outward], now_ms: int) -> None:
        """Undo a change that could not be written, and all later changes that depend on it."""
        later = [*map(id, group.abandon(then))]
        doomed = [
            item
            for item in self._queue
            if item.group is group and (id(item.then) in later or isinstance(item.then, DowngradeWritten))
        ]
        self._queue = deque(item for item in self._queue if item not in doomed)
        upgrade = group.upgrade
        if upgrade is not None and not group.unwritten:
            group.upgrade = None
            group.died(now_ms)
            self._follow(upgrade.classic, upgrade_failed(upgrade, now_ms), out, now_ms)
        for item in doomed:
            item.then.error = then.error
            self._ended(item, out, now_ms)

    def _downgraded(
        self, group: Group | ConsumerGroup, then: DowngradeWritten, out: list[Outward], now_ms: int
    ) -> None:
        """A consumer group has become a classic one (K26)."""
        for key in group.timer_keys():
            self.timers.disarm(key)
        group.died(now_ms)
        self.groups[group.group_id] = then.successor
        self._follow(then.successor, downgraded(then, now_ms), out, now_ms)
        if then.answer is None and then.request is not None:
            self._held[then.group_id].insert(0, then.request)

    def _watch(self, item: _Unwritten | QuickCommit | CaughtUp) -> None:
        """Arm the one timer of all commits: it fires for the oldest, and is then armed for the next oldest.

        It stays armed when a write has ended, because the next commit would arm it again: a check without effect every
        few seconds costs less than arming and disarming it thousands of times a second.
        """
        if not self._watches and isinstance(item.then, OffsetsWritten):
            self._watches = True
            late_ms = item.asked_ms + self.settings.offsets_commit_timeout_ms
            self.timers.arm(self._late_key(), late_ms, WriteLate(self.partition))

    def _write_late(self, out: list[Outward], now_ms: int) -> None:
        """Answer the commits that have waited too long. They still take effect when they are written (rule 22)."""
        timeout_ms = self.settings.offsets_commit_timeout_ms
        oldest_ms: int | None = None
        for item in [*self._under_way, *self._queue]:
            then = item.then
            if not isinstance(then, OffsetsWritten) or then.token is None:
                continue
            if item.asked_ms + timeout_ms > now_ms:
                oldest_ms = item.asked_ms if oldest_ms is None else oldest_ms
                continue
            late = error_for_client(ErrorCode.REQUEST_TIMED_OUT)
            out.append(Reply(then.token, OffsetsCommitted(then.partitions, [error or late for error in then.errors])))
            then.token = None
        self._watches = oldest_ms is not None
        if oldest_ms is not None:
            self.timers.arm(self._late_key(), oldest_ms + timeout_ms, WriteLate(self.partition))

    # --- transactions -------------------------------------------------------------------------------------------------

    def _mark(self, event: TransactionMarker, now_ms: int) -> None:
        then = OffsetsMarkerWritten(token=event.token, producer_id=event.producer_id, committed=event.committed)
        item = _Unwritten(None, then, now_ms)
        item.producer = (event.producer_id, event.producer_epoch)
        item.marker, item.mark = event.committed, event
        item.pairs = [(b"", None)]  # a control batch holds one record
        self._queue.append(item)

    def _marked(self, then: OffsetsMarkerWritten, out: list[Outward], now_ms: int) -> None:
        if not then.error:
            for group_id in self.open_transactions.pop(then.producer_id, {}):
                group = self.groups.get(group_id)
                if group is not None:
                    ended = TransactionEnded(group_id, then.producer_id, then.committed)
                    self._follow(group, handle(group, ended, now_ms), out, now_ms)
        out.append(Reply(then.token, error_for_client(then.error)))

    # --- all groups ---------------------------------------------------------------------------------------------------

    def _ask_all(self, event: TopicsDeleted, out: list[Outward], now_ms: int) -> None:
        for group in list(self.groups.values()):
            self._follow(group, handle(group, event, now_ms), out, now_ms)

    def _check_expiry(self, out: list[Outward], now_ms: int) -> None:
        for group in list(self.groups.values()):
            if group.group_id not in self._held:
                self._follow(group, handle(group, ExpiryDue(group.group_id), now_ms), out, now_ms)
        self._arm_expiry(now_ms)

    def _arm_expiry(self, now_ms: int) -> None:
        at_ms = now_ms + self.settings.offsets_retention_check_interval_ms
        self.timers.arm(self._expiry_key(), at_ms, ExpiryCheckDue(self.partition))

    def _late_key(self) -> tuple[int, str]:
        return (self.partition, "late")

    def _expiry_key(self) -> tuple[int, str]:
        return (self.partition, "expiry")
