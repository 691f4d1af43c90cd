"""Read the records of `__consumer_offsets` one by one: the records of groups become a history, commits are kept.

The records of a group are all on one partition, so each partition is read in its order. A compacted log has only the
last record of a classic group: its history begins there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from coterie.diagnosis.evidence import Evidence, Grade
from coterie.diagnosis.from_facts import KEEP_REBALANCES, HistoryBuilder
from coterie.diagnosis.model import GroupHistory
from coterie.errors import MalformedError
from coterie.ledger.derived import DerivedFacts
from coterie.protocol.consumer_group_records import (
    MEMBER,
    ConsumerGroupRecord,
    MemberMetadata,
    read_consumer_group_record,
)
from coterie.protocol.messages import GroupRecord, OffsetRecord
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, Skipped, read_record
from coterie.protocol.subscription import read_subscription

KEEP_COMMITS = 1_000_000
"""The number of partitions of all groups whose last commit is kept."""

_COMMIT_TYPES = (b"\0\0", b"\0\1")
"""The first bytes of the key of a commit."""


def is_commit(key: bytes | None) -> bool:
    return key is not None and key[:2] in _COMMIT_TYPES


@dataclass(frozen=True, slots=True)
class Commit:
    offset: int
    at_ms: int


class OffsetsTopic:
    """Histories of all groups in the records of `__consumer_offsets`, and the last commit of each partition."""

    def __init__(self, names: Mapping[UUID, str] | None = None, keep: int = KEEP_REBALANCES) -> None:
        self._names = names
        self._derived: dict[int, DerivedFacts] = {}
        self._builder = HistoryBuilder(Grade.DERIVED, keep)
        self._commits: OrderedDict[tuple[str, str, int], Commit] = OrderedDict()
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
        if isinstance(record, OffsetRecord):
            self._commit(record, at_ms)
            return None
        if not isinstance(record, GroupRecord | ConsumerGroupRecord):
            return None
        place = f"{OFFSETS_TOPIC}-{partition}@{offset}"
        derived = self._derived.setdefault(partition, DerivedFacts(self._names))
        for fact in derived.add(at_ms, record):
            self._builder.add(fact, place)
        self._describe(record, Evidence(Grade.DERIVED, place, at_ms))
        return record.group_id

    def committed(self, group_id: str, topic: str, partition: int) -> Commit | None:
        return self._commits.get((group_id, topic, partition))

    def commits_of(self, group_id: str) -> dict[tuple[str, int], Commit]:
        return {(topic, number): one for (group, topic, number), one in self._commits.items() if group == group_id}

    def histories(self) -> dict[str, GroupHistory]:
        return self._builder.histories()

    def _commit(self, record: OffsetRecord, at_ms: int) -> None:
        place = record.group_id, record.topic, record.partition
        if record.value is None:
            self._commits.pop(place, None)
            return
        self._commits[place] = Commit(record.value.offset, at_ms)
        if len(self._commits) > KEEP_COMMITS:
            self._commits.popitem(last=False)

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
