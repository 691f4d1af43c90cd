"""The coordinator of one node: its shards, and what it answers for partitions it does not have (C1-C3, C5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from coterie.coordinator.classic import Group, HeldBytes, restore
from coterie.coordinator.classic.effects import Reply
from coterie.coordinator.classic.rules import PRECHECKS
from coterie.coordinator.consumer import ConsumerGroup, TopicsImage, heartbeat_refusal, restore_consumer_group
from coterie.coordinator.offsets.stored_offsets import StoredOffsets
from coterie.coordinator.runtime.shard import Appended, ExpiryCheckDue, Outward, Shard, Timers, WriteLate
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode, MalformedError
from coterie.facts import Emit, RecordsSkipped
from coterie.protocol.commit_rows import CommitRows, FetchedRows
from coterie.protocol.consumer_group_records import TYPES, ConsumerGroupRecord, Value, read_consumer_group_record
from coterie.protocol.java_hash import java_hash
from coterie.protocol.messages import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroup,
    DescribeConsumerGroup,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribeGroup,
    GroupRecord,
    GroupsListed,
    Heartbeat,
    JoinedGroup,
    JoinGroup,
    LeaveGroup,
    LeftGroup,
    ListedGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetRecord,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    StoredGroup,
    SyncedGroup,
    SyncGroup,
    Token,
    TopicsDeleted,
    TransactionMarker,
)
from coterie.protocol.offsets_topic import Skipped, read_record
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

MALFORMED = -1
"""The key of `Replay.skipped` under which records that cannot be read at all are counted."""


class Replay:
    """Loads the groups of a partition of `__consumer_offsets` (C4) from its records, in the order of the log.

    Offsets change by `StoredOffsets.apply`, as they do live. Of the records of a group itself only the last of each key
    counts, so no group is built before the end.
    """

    def __init__(self) -> None:
        self._known: dict[str, StoredGroup | None] = {}  # None: a simple group, known by its offsets alone
        self._consumer: dict[str, dict[tuple[int, str], Value]] = {}  # by group and key
        self._offsets: dict[str, StoredOffsets] = {}
        self._open_transactions: dict[int, dict[str, None]] = {}  # producer -> its groups, until the marker
        self.skipped: dict[int, int] = {}

    def record(self, position: int, key: bytes, value: bytes | None, producer_id: int | None = None) -> None:
        """Take one record; `producer_id` is that of its batch if the batch is transactional."""
        try:
            record = read_record(key, value)
            if type(record) is Skipped and record.type in TYPES:
                found = read_consumer_group_record(key, value)
                assert found is not None
                self._consumer_record(found)
                return
        except MalformedError:
            record = Skipped(MALFORMED)
        if type(record) is OffsetRecord:  # as nearly all are
            group_id = record.group_id
            offsets = self._offsets.get(group_id)
            if offsets is None:
                offsets = self._offsets[group_id] = StoredOffsets()
            if record.value is not None:
                self._known.setdefault(group_id, None)
                if producer_id is not None:
                    self._open_transactions.setdefault(producer_id, {})[group_id] = None
            offsets.apply(record, position, producer_id)
        elif isinstance(record, GroupRecord):
            self._group(record)
        else:
            assert isinstance(record, Skipped)
            self.skipped[record.type] = self.skipped.get(record.type, 0) + 1

    def _group(self, record: GroupRecord) -> None:
        if record.value is None:  # what it has committed, open transactions included, has tombstones of its own
            self._known.pop(record.group_id, None)
        else:
            self._known[record.group_id] = record.value

    def _consumer_record(self, record: ConsumerGroupRecord) -> None:
        known = self._consumer.setdefault(record.group_id, {})
        if record.value is None:
            known.pop((record.type, record.about), None)
            if not known:
                del self._consumer[record.group_id]
                offsets = self._offsets.get(record.group_id)
                if offsets is None or not (offsets.by_topic() or offsets.pending):  # else a simple group is left
                    self._known.pop(record.group_id, None)
        else:
            known[record.type, record.about] = record.value

    def marker(self, producer_id: int, *, committed: bool) -> None:
        """Take the end of a transaction: its offsets count now, or never."""
        for group_id in self._open_transactions.pop(producer_id, {}):
            if group_id in self._offsets:
                self._offsets[group_id].end_transaction(producer_id, committed=committed)

    def groups(
        self,
        settings: GroupCoordinatorSettings,
        now_ms: int,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
        image: TopicsImage | None = None,
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> Iterator[Group | ConsumerGroup]:
        for group_id in dict.fromkeys((*self._known, *self._consumer)):
            offsets = self._offsets.get(group_id)
            if offsets is None:
                offsets = StoredOffsets()
            records = self._consumer.get(group_id)
            if records is None:
                yield restore(group_id, settings, self._known[group_id], offsets, now_ms, wall, held_in_all)
            else:
                yield restore_consumer_group(
                    group_id, settings, records, offsets, wall, held_in_all, image, group_configs
                )


_KEY_TYPES = (0, 1)
_CACHED_IDS, _CACHED_LENGTH = 100_000, 256
_OF_NO_GROUP = frozenset({Appended, WriteLate, ExpiryCheckDue, ListGroups, TopicsDeleted, TransactionMarker})


def partition_of(group_id: str, num_partitions: int) -> int:
    """C1: return the partition of `__consumer_offsets` of a group. The absolute value of -2^31 is 0 here."""
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % num_partitions


def find_coordinator(
    key_type: int, key: str, num_partitions: int, leader_of: Callable[[int], int | None]
) -> tuple[ErrorCode, int]:
    """C2: return the node that coordinates a group, or a transactional id (TF1): both are found in the same way.

    `leader_of` returns None while their topic does not exist.
    """
    if key_type not in _KEY_TYPES:
        return ErrorCode.INVALID_REQUEST, -1
    leader = leader_of(partition_of(key, num_partitions))
    return (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1) if leader is None else (ErrorCode.NONE, leader)


def _heartbeat_refusal(_request: Heartbeat, error: ErrorCode) -> ErrorCode:
    """Return the error of a heartbeat that cannot reach its group. While the group is loaded, it succeeds (C3)."""
    return ErrorCode.NONE if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error


# How each request is answered with an error that concerns the coordinator, not the group.
REFUSALS: Mapping[type, Callable[[Any, ErrorCode], Any]] = {
    JoinGroup: lambda request, error: JoinedGroup(error, request.member_id),
    SyncGroup: lambda _request, error: SyncedGroup(error),
    Heartbeat: _heartbeat_refusal,
    LeaveGroup: lambda _request, error: LeftGroup(error),
    OffsetCommit: lambda request, error: OffsetsCommitted(
        request.partitions, [partition.error or error for partition in request.partitions]
    ),
    OffsetFetch: lambda request, error: OffsetsFetched(request.group_id, error),
    OffsetDelete: lambda _request, error: OffsetsDeleted(error),
    DeleteGroup: lambda _request, error: error,
    DescribeGroup: lambda request, error: DescribedGroup(request.group_id, "", error=error),
    ConsumerGroupHeartbeat: lambda _request, error: ConsumerGroupHeartbeatAnswer(error),
    DescribeConsumerGroup: lambda request, error: DescribedConsumerGroup(request.group_id, error),
}


class GroupCoordinator:
    def __init__(
        self,
        settings: GroupCoordinatorSettings | None = None,
        timers: Timers[Any] | None = None,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
        image: TopicsImage | None = None,
        group_configs: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`timers` and `held_in_all` may be those of several coordinators: each has groups of its own."""
        self.held_in_all = HeldBytes() if held_in_all is None else held_in_all
        self.settings = settings or GroupCoordinatorSettings()
        self.timers: Timers[Any] = Timers() if timers is None else timers
        self.wall = WallClock() if wall is None else wall
        self.image = image
        self.group_configs = group_configs
        self.shards: dict[int, Shard] = {}
        self._num_partitions = self.settings.offsets_topic_num_partitions
        self._loading: dict[int, Replay] = {}
        self._partitions: dict[str, int] = {}
        self._tickets = count(1)

    def handle(self, event: Any, now_ms: int) -> list[Outward]:
        """Handle a request of a group, or the end of an append. Requests of a group are handled one at a time (C5)."""
        if type(event) in _OF_NO_GROUP:  # one look-up for all of them: this runs for every heartbeat
            return self._handle_other(event, now_ms)
        partition = self._partitions.get(event.group_id)
        if partition is None:
            partition = self.partition_of(event.group_id)
        shard = self.shards.get(partition)
        if shard is None:
            return self._refuse(event, partition)
        return shard.handle(event, now_ms)

    def appended(self, event: Appended, now_ms: int) -> list[Outward]:
        """Handle the end of an append."""
        shard = self.shards.get(event.partition)
        return [] if shard is None else shard.handle(event, now_ms)

    def holds_instance(self, request: Heartbeat) -> bool:
        """Return whether the sender has the instance id that it gives."""
        shard = self.shards.get(self.partition_of(request.group_id))
        group = None if shard is None else shard.groups.get(request.group_id)
        return group is not None and group.static.get(request.instance_id or "") == request.member_id

    def quick_heartbeat(self, request: ConsumerGroupHeartbeat, now_ms: int) -> int | None:
        """Handle a heartbeat of a consumer group that changes nothing; None: `handle` must."""
        shard = self.shards.get(self.partition_of(request.group_id))
        return None if shard is None else shard.quick_heartbeat(request, now_ms)

    def quick_commit(
        self, group_id: str, generation_id: int, member_id: str, of: CommitRows, token: Token, now_ms: int
    ) -> list[Outward] | None:
        """Handle a commit as most are; None: `handle` must. See `Shard.quick_commit`."""
        partition = self._partitions.get(group_id)
        shard = self.shards.get(self.partition_of(group_id) if partition is None else partition)
        return None if shard is None else shard.quick_commit(group_id, generation_id, member_id, of, token, now_ms)

    def quick_rejoin(self, request: JoinGroup | SyncGroup, now_ms: int) -> list[Outward] | None:
        """Handle a join or a sync as most are in a rebalance; None: `handle` must. See `Shard.quick_rejoin`."""
        partition = self._partitions.get(request.group_id)
        if partition is None:
            partition = self.partition_of(request.group_id)
        shard = self.shards.get(partition)
        return None if shard is None else shard.quick_rejoin(request, now_ms)

    def quick_fetch(
        self, group_id: str, topic: str, partitions: Sequence[int], *, require_stable: bool
    ) -> FetchedRows | None:
        """Return offsets of one topic of a classic group, if all are there without metadata; None: `handle` must."""
        partition = self._partitions.get(group_id)
        shard = self.shards.get(self.partition_of(group_id) if partition is None else partition)
        return None if shard is None else shard.quick_fetch(group_id, topic, partitions, require_stable=require_stable)

    def _handle_other(self, event: Any, now_ms: int) -> list[Outward]:
        kind = type(event)
        if kind is ListGroups:
            return self._list(event, now_ms)
        if kind is TopicsDeleted:
            return [effect for shard in self.shards.values() for effect in shard.handle(event, now_ms)]
        shard = self.shards.get(event.partition)
        if shard is None and kind is TransactionMarker:
            return [Reply(event.token, ErrorCode.NOT_COORDINATOR)]
        return shard.handle(event, now_ms) if shard else []

    def partition_of(self, group_id: str) -> int:
        partition = self._partitions.get(group_id)
        if partition is None:
            if len(self._partitions) >= _CACHED_IDS:
                self._partitions.clear()
            partition = partition_of(group_id, self._num_partitions)
            if len(group_id) <= _CACHED_LENGTH:
                self._partitions[group_id] = partition
        return partition

    def count_partitions(self, num_partitions: int) -> None:
        """Set the actual number of partitions of `__consumer_offsets`, whatever the setting is now."""
        self._num_partitions = num_partitions
        self._partitions.clear()

    # --- gaining and losing partitions (C4) ---------------------------------------------------------------------------

    def gain(self, partition: int) -> Replay:
        """Take over a partition. Its groups answer only when its log has been read into the returned replay."""
        return self._loading.setdefault(partition, Replay())

    def is_loading(self, partition: int, replay: Replay | None = None) -> bool:
        """Return whether the partition is being loaded and, if `replay` is given, whether into that one."""
        found = self._loading.get(partition)
        return found is not None and (replay is None or found is replay)

    def loaded(self, partition: int, now_ms: int) -> list[Outward]:
        replay = self._loading.pop(partition)
        shard = self.shards[partition] = Shard(
            partition,
            self.settings,
            self.timers,
            self._tickets,
            self.wall,
            self.held_in_all,
            self.image,
            self.group_configs,
        )
        groups = replay.groups(self.settings, now_ms, self.wall, self.held_in_all, self.image, self.group_configs)
        out = shard.load(groups, now_ms)
        if replay.skipped:
            out.append(Emit(RecordsSkipped(now_ms, "", replay.skipped)))
        return out

    def lose(self, partition: int, now_ms: int) -> list[Outward]:
        self._loading.pop(partition, None)
        shard = self.shards.pop(partition, None)
        return shard.unload(now_ms) if shard else []

    # --- answers without a shard --------------------------------------------------------------------------------------

    def _refuse(self, request: Any, partition: int) -> list[Outward]:
        kind = type(request)
        refusal = REFUSALS.get(kind)
        if refusal is None:
            return []  # a timer or a write of a group that went elsewhere
        loading = partition in self._loading
        elsewhere = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
        if kind is ConsumerGroupHeartbeat:
            refusal_of_request = heartbeat_refusal(request, self.settings)
            if refusal_of_request is not None:
                return [Reply(request.token, ConsumerGroupHeartbeatAnswer(*refusal_of_request))]
        precheck = PRECHECKS.get(kind)
        error = precheck(request, self.settings) if precheck else ErrorCode.NONE
        return [Reply(request.token, refusal(request, error or elsewhere))]

    def _list(self, request: ListGroups, now_ms: int) -> list[Outward]:
        if self._loading:  # half a list would be a lie
            return [Reply(request.token, GroupsListed(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))]
        groups: list[ListedGroup] = []
        for shard in self.shards.values():
            for effect in shard.handle(request, now_ms):
                assert isinstance(effect, Reply)
                groups += effect.answer.groups
        return [Reply(request.token, GroupsListed(ErrorCode.NONE, groups))]
