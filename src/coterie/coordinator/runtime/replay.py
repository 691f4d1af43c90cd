"""From the records of a partition back to its groups (C4).

Records are fed in the order of the log. Of a group only its last record counts, so nothing is built before the end.
"""

from __future__ import annotations

from collections.abc import Iterator

from coterie.coordinator.classic import Group, HeldBytes, restore
from coterie.coordinator.classic.wall_clock import WallClock
from coterie.errors import MalformedError
from coterie.protocol.messages import CommittedOffset, GroupRecord, OffsetRecord, StoredGroup
from coterie.protocol.offsets_topic import Skipped, read_record
from coterie.settings.broker_settings import GroupCoordinatorSettings

__all__ = ["Replay"]

_Offsets = dict[str, dict[int, CommittedOffset]]
_Pending = dict[int, dict[str, dict[tuple[str, int], CommittedOffset]]]

MALFORMED = -1
"""The key of `Replay.skipped` under which records that cannot be read at all are counted."""


class Replay:
    def __init__(self) -> None:
        self._known: dict[str, StoredGroup | None] = {}  # None: a simple group, known by its offsets alone
        self._offsets: dict[str, _Offsets] = {}
        self._pending: _Pending = {}  # producer -> group -> partition -> offset
        self.skipped: dict[int, int] = {}

    def record(self, position: int, key: bytes, value: bytes | None, producer_id: int | None = None) -> None:
        """One record, `producer_id` being that of its batch if the batch is transactional."""
        try:
            record = read_record(key, value)
        except MalformedError:
            record = Skipped(MALFORMED)
        if type(record) is OffsetRecord:  # as nearly all are
            self._offset(record, position, producer_id)
        elif isinstance(record, GroupRecord):
            self._group(record)
        else:
            assert isinstance(record, Skipped)
            self.skipped[record.type] = self.skipped.get(record.type, 0) + 1

    def marker(self, producer_id: int, *, committed: bool) -> None:
        """The end of a transaction: its offsets count now, or never."""
        for group_id, pending in self._pending.pop(producer_id, {}).items():
            if not committed or group_id not in self._known:
                continue
            offsets = self._offsets.setdefault(group_id, {})
            for (topic, partition), offset in pending.items():
                stored = offsets.setdefault(topic, {}).get(partition)
                if stored is None or offset.position > stored.position:
                    offsets[topic][partition] = offset

    def groups(
        self,
        settings: GroupCoordinatorSettings,
        now_ms: int,
        wall: WallClock | None = None,
        held_in_all: HeldBytes | None = None,
    ) -> Iterator[Group]:
        for group_id, stored in self._known.items():
            pending = {
                producer_id: by_group[group_id]
                for producer_id, by_group in self._pending.items()
                if group_id in by_group
            }
            offsets = self._offsets.get(group_id, {})
            yield restore(group_id, settings, stored, offsets, pending, now_ms, wall, held_in_all)

    def _group(self, record: GroupRecord) -> None:
        if record.value is None:
            self._known.pop(record.group_id, None)
            for by_group in self._pending.values():
                by_group.pop(record.group_id, None)
        else:
            self._known[record.group_id] = record.value

    def _offset(self, record: OffsetRecord, position: int, producer_id: int | None) -> None:
        group_id, topic, partition, value = record.group_id, record.topic, record.partition, record.value
        if value is None:
            self._forget(group_id, topic, partition)
            return
        self._known.setdefault(group_id, None)
        value.position = position
        if producer_id is None:
            try:
                self._offsets[group_id][topic][partition] = value
            except KeyError:  # the first of its group, or of the topic
                self._offsets.setdefault(group_id, {})[topic] = {partition: value}
        else:
            pending = self._pending.setdefault(producer_id, {}).setdefault(group_id, {})
            pending[topic, partition] = value

    def _forget(self, group_id: str, topic: str, partition: int) -> None:
        offsets = self._offsets.get(group_id)
        if offsets is not None and topic in offsets:
            offsets[topic].pop(partition, None)
            if not offsets[topic]:
                del offsets[topic]
        for by_group in self._pending.values():
            by_group.get(group_id, {}).pop((topic, partition), None)
