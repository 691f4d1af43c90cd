"""Read the records of `__consumer_offsets` one by one: those of groups become histories, and commits offsets.

The records of a group are all on one partition, so each partition is read in its order. A compacted log has only the
last record of a classic group: its history begins there.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from coterie.diagnosis.evidence import Evidence, Grade
from coterie.diagnosis.from_facts import HistoryBuilder
from coterie.diagnosis.model import GroupHistory
from coterie.errors import MalformedError
from coterie.facts import CONSUMER
from coterie.ledger.derived import DerivedFacts
from coterie.protocol.consumer_group_records import (
    MEMBER,
    ConsumerGroupRecord,
    MemberMetadata,
    read_consumer_group_record,
)
from coterie.protocol.messages import GroupRecord, OffsetRecord
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, Skipped, read_key, read_record
from coterie.protocol.subscription import read_subscription

KEEP_COMMITS = 1_000_000
"""The number of partitions of all groups whose last commit is kept."""

_COMMIT_TYPES = (b"\0\0", b"\0\1")
"""The first bytes of the key of a commit."""


def is_commit(key: bytes | None) -> bool:
    return key is not None and key[:2] in _COMMIT_TYPES


class Commits:
    """The last committed offset of each partition of each group."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], int]] = {}
        self._count = 0

    def add(self, key: bytes, value: bytes | None) -> tuple[str, str, int, int | None] | None:
        """Add the record of a commit. Returns group, topic, partition and offset; None if it cannot be read."""
        try:
            record = read_record(key, value)
        except MalformedError:
            return None
        if not isinstance(record, OffsetRecord):
            return None
        offset = record.value.offset if record.value else None
        self.set(record.group_id, (record.topic, record.partition), offset)
        return record.group_id, record.topic, record.partition, offset

    def set(self, group_id: str, place: tuple[str, int], offset: int | None) -> None:
        """Set the committed offset of a partition; None if it was deleted."""
        group = self._groups.setdefault(group_id, {})
        if offset is None:
            self._count -= group.pop(place, None) is not None
        elif place in group or self._count < KEEP_COMMITS:
            self._count += place not in group
            group[place] = offset

    def of(self, group_id: str) -> dict[tuple[str, int], int]:
        return self._groups.get(group_id, {})


def group_of(key: bytes | None) -> str | None:
    """Return the group of a record that is about a group of consumers; None for commits and other records."""
    try:
        found = read_key(key or b"")
    except MalformedError:
        return None
    if isinstance(found, Skipped):
        return found.group_id if found.group_type == CONSUMER and found.group_id else None
    return None if is_commit(key) else found.group_id


class OffsetsTopic:
    """Histories of all groups in the records of `__consumer_offsets`."""

    def __init__(self, names: Mapping[UUID, str] | None = None) -> None:
        self._names = names
        self._derived: dict[int, DerivedFacts] = {}
        self._builder = HistoryBuilder(Grade.DERIVED)
        self.malformed = 0
        """How many records could not be read."""

    def add(self, partition: int, offset: int, at_ms: int, key: bytes | None, value: bytes | None) -> str | None:
        """Add a record. Returns the group if it is a record of a group, not of a commit."""
        try:
            found = read_record(key or b"", value)
            record = read_consumer_group_record(key or b"", value) if isinstance(found, Skipped) else found
        except MalformedError:
            self.malformed += 1
            return None
        if not isinstance(record, GroupRecord | ConsumerGroupRecord):
            return None
        place = f"{OFFSETS_TOPIC}-{partition}@{offset}"
        derived = self._derived.setdefault(partition, DerivedFacts(self._names))
        for fact in derived.add(at_ms, record):
            self._builder.add(fact, place)
        self._describe(record, Evidence(Grade.DERIVED, place, at_ms))
        return record.group_id

    def histories(self) -> dict[str, GroupHistory]:
        return self._builder.histories()

    def _describe(self, record: GroupRecord | ConsumerGroupRecord, at: Evidence) -> None:
        """Add the timeouts and the topics of members."""
        if isinstance(record, ConsumerGroupRecord):
            value = record.value
            if record.type == MEMBER and isinstance(value, MemberMetadata):
                self._builder.describe_member(
                    record.group_id,
                    record.about,
                    at,
                    rebalance_timeout_ms=value.rebalance_timeout_ms,
                    session_timeout_ms=value.classic_session_timeout_ms,
                    topics=tuple(sorted(value.topics)) or None,
                )
            return
        for member in record.value.members if record.value is not None else ():
            try:
                topics = tuple(sorted(read_subscription(member.subscription).topics))
            except MalformedError:
                topics = None
            self._builder.describe_member(
                record.group_id,
                member.member_id,
                at,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                topics=topics,
            )
