"""Loading the groups of a partition of `__consumer_offsets` (C4), as Kafka's GroupMetadataManager replays them.

Records are fed in the order of the log. Offsets change by `StoredOffsets.apply`, as they do live. Of the records of a
group itself only the last counts, so no group is built before the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from coterie.coordinator.classic import Group, HeldBytes, restore
from coterie.coordinator.classic.wall_clock import WallClock
from coterie.coordinator.offsets.stored_offsets import StoredOffsets
from coterie.errors import MalformedError
from coterie.protocol.messages import GroupRecord, OffsetRecord, StoredGroup
from coterie.protocol.offsets_topic import Skipped, read_record
from coterie.settings.broker_settings import GroupCoordinatorSettings

__all__ = ["Replay"]

MALFORMED = -1
"""The key of `Replay.skipped` under which records that cannot be read at all are counted."""


class Replay:
    def __init__(self) -> None:
        self._known: dict[str, StoredGroup | None] = {}  # None: a simple group, known by its offsets alone
        self._offsets: dict[str, StoredOffsets] = {}
        self._open_transactions: dict[int, dict[str, None]] = {}  # producer -> its groups, until the marker
        self.skipped: dict[int, int] = {}

    def record(self, position: int, key: bytes, value: bytes | None, producer_id: int | None = None) -> None:
        """Take one record; `producer_id` is that of its batch if the batch is transactional."""
        try:
            record = read_record(key, value)
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
        if record.value is None:  # what it has committed has tombstones of its own
            self._known.pop(record.group_id, None)
            if record.group_id in self._offsets:
                self._offsets[record.group_id].pending.clear()
        else:
            self._known[record.group_id] = record.value

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
    ) -> Iterator[Group]:
        for group_id, stored in self._known.items():
            offsets = self._offsets.get(group_id)
            yield restore(
                group_id, settings, stored, StoredOffsets() if offsets is None else offsets, now_ms, wall, held_in_all
            )
