"""The part of a group that all types of groups have: its name, its committed offsets, and the memory it takes.

The rules of offsets (`offset_metadata_manager.py`) are the same for all types, but for some questions. A type answers
them by the methods that raise NotImplementedError here, as the implementations of Kafka's interface `Group` do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from coterie.coordinator.offsets.stored_offsets import StoredOffsets
from coterie.coordinator.wall_clock import WallClock
from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    CommittedOffset,
    ListedGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Record,
    Token,
)
from coterie.settings.group_coordinator_settings import GroupCoordinatorSettings

if TYPE_CHECKING:
    from coterie.coordinator.classic.effects import Effects, OffsetsWritten, TimerKey


class HeldBytes:
    """The bytes that members make all groups of a process hold."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


class OffsetsGroup:
    __slots__ = (
        "fenced",
        "group_id",
        "held_bytes",
        "held_in_all",
        "is_in_log",
        "records_under_way",
        "settings",
        "static",
        "stored",
        "unwritten_commits",
        "wall",
    )

    def __init__(
        self,
        group_id: str,
        settings: GroupCoordinatorSettings,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
    ) -> None:
        """`held_in_all` is what all groups of a process hold, this one included."""
        self.group_id = group_id
        self.settings = settings
        self.wall = WallClock() if wall is None else wall
        self.held_bytes = 0  # for members and ids, as `member_bytes` counts them
        self.held_in_all = HeldBytes() if held_in_all is None else held_in_all
        self.is_in_log = False  # some record of it is written
        self.records_under_way = 0  # of the group itself, on their way to the log
        self.stored = StoredOffsets()
        self.static: dict[str, str] = {}  # instance id -> member id
        self.fenced: dict[str, tuple[str, set[str]]] | None = None  # instance id -> its member, and whom it fenced
        self.unwritten_commits: dict[int, OffsetsWritten] = {}  # on their way to the log, by identity

    # --- what a type of groups says -----------------------------------------------------------------------------------

    @property
    def is_dead(self) -> bool:
        """Return whether there is no such group: nothing of it is kept."""
        raise NotImplementedError

    @property
    def is_empty(self) -> bool:
        """Return whether it exists and has no members."""
        raise NotImplementedError

    def validate_offset_commit(self, request: OffsetCommit) -> ErrorCode:
        """Return whether the group as a whole refuses a commit; partitions are checked after this."""
        raise NotImplementedError

    def commit_accepted(self, request: OffsetCommit, now_ms: int) -> Effects:
        """Return what follows from a commit that the group accepts, beside its records."""
        raise NotImplementedError

    def validate_offset_fetch(self, request: OffsetFetch) -> ErrorCode:
        raise NotImplementedError

    def validate_offset_delete(self, request: OffsetDelete) -> ErrorCode:
        raise NotImplementedError

    def validate_delete(self) -> ErrorCode:
        raise NotImplementedError

    def subscribes_to(self, topic: str) -> bool:
        raise NotImplementedError

    @property
    def offsets_may_expire(self) -> bool:
        """Return whether offsets of topics without subscription expire in the present state."""
        raise NotImplementedError

    def base_timestamp_ms(self, offset: CommittedOffset) -> int:
        """Return the time from which the retention of an offset is counted."""
        raise NotImplementedError

    def tombstones(self) -> list[Record]:
        """Return the records that end the group itself; its offsets have their own."""
        raise NotImplementedError

    def died(self, now_ms: int) -> Effects:
        """End the group: it is deleted, or could not be written."""
        raise NotImplementedError

    def listed(self) -> ListedGroup:
        """Return the group's line in a list."""
        raise NotImplementedError

    def timer_keys(self) -> Iterable[TimerKey]:
        """Return the keys of all timers that it may have armed."""
        raise NotImplementedError

    def parked_tokens(self) -> Iterable[Token]:
        """Return the tokens of requests that it answers later, beside those that wait for a write."""
        return ()

    def apply(self, records: Sequence[Record], position: int, producer_id: int | None = None) -> None:
        """Apply records that are durable, in the log from `position` on."""
        raise NotImplementedError

    # --- memory -------------------------------------------------------------------------------------------------------

    def _hold(self, more: int) -> None:
        self.held_bytes += more
        self.held_in_all.total += more

    def let_go(self) -> None:
        """Stop counting the bytes of this group: it was removed, or another broker loads it."""
        self._hold(-self.held_bytes)

    # --- offsets ------------------------------------------------------------------------------------------------------

    @property
    def offsets(self) -> dict[str, dict[int, CommittedOffset]]:
        """The committed offsets by topic and partition."""
        return self.stored.by_topic()

    @property
    def pending_offsets(self) -> dict[int, dict[tuple[str, int], CommittedOffset]]:
        """The offsets of open transactions by producer, topic and partition."""
        return self.stored.pending

    def has_pending_offset(self, topic: str, partition: int) -> bool:
        return any((topic, partition) in offsets for offsets in self.pending_offsets.values())

    def partitions_with_offsets(self) -> dict[tuple[str, int], None]:
        """All partitions that need a tombstone, in a fixed order: stored, pending and not yet written."""
        partitions = {(topic, partition): None for topic, offsets in self.offsets.items() for partition in offsets}
        for pending in self.pending_offsets.values():
            partitions.update(dict.fromkeys(pending))
        for commit in self.unwritten_commits.values():
            partitions.update(((record.topic, record.partition), None) for record in commit.records)
        return partitions
