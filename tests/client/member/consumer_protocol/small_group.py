"""A coordinator of one KIP-848 group, as small as it can be: the three epochs, reconciliation, sessions. For tests.

Partitions are numbers of one topic. A partition belongs to a member as long as it is assigned to it or is still to be
given up by it, and nobody else gets it in that time.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from client.member.consumer_protocol.seat import TOPICS
from coterie.errors import ErrorCode
from coterie.protocol.apis.consumer_group_heartbeat import Assignment, Request, Response, TopicPartitions
from coterie.protocol.messages import OffsetCommit

SESSION_MS = 12_000


@dataclass
class MemberRecord:
    deadline_ms: int
    epoch: int = 0
    assigned: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)
    """Still to be given up."""
    told: set[int] | None = None
    timeout_ms: int = 0

    @property
    def holds(self) -> set[int]:
        return self.assigned | self.pending


class SmallGroup:
    def __init__(self, partitions: int, interval_ms: int) -> None:
        self.partitions = partitions
        self.interval_ms = interval_ms
        self.epoch = 1
        self.members: dict[str, MemberRecord] = {}

    def expire(self, now_ms: int) -> None:
        for member_id in [one for one, record in self.members.items() if record.deadline_ms <= now_ms]:
            self.remove(member_id)

    def remove(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self.epoch += 1

    def target(self, member_id: str) -> set[int]:
        ids = sorted(self.members)
        return set(range(self.partitions)[ids.index(member_id) :: len(ids)])

    def heartbeat(self, request: Request, now_ms: int) -> Response:
        self.expire(now_ms)
        member_id, epoch = request.member_id, request.member_epoch
        if epoch < 0:
            self.remove(member_id)
            return Response(member_id=member_id, member_epoch=epoch)
        if epoch == 0:
            if member_id not in self.members:
                self.epoch += 1
            self.members[member_id] = MemberRecord(0)
        record = self.members.get(member_id)
        if record is None:
            return Response(error=ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch not in {0, record.epoch}:
            return Response(error=ErrorCode.FENCED_MEMBER_EPOCH)
        record.deadline_ms = now_ms + SESSION_MS
        owned = None
        if request.topic_partitions is not None:
            owned = {number for one in request.topic_partitions for number in one.partitions}
        self._reconcile(member_id, record, owned)
        is_full = request.subscribed_topic_names is not None and owned is not None
        changed = record.told != record.assigned
        record.told = set(record.assigned)
        return Response(
            member_id=member_id,
            member_epoch=record.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=_assignment(record.assigned) if changed or is_full else None,
        )

    def _reconcile(self, member_id: str, record: MemberRecord, owned: set[int] | None) -> None:
        if record.pending and (owned is None or owned & record.pending):
            return
        record.pending = set()
        target = self.target(member_id)
        gone = record.assigned - target
        record.assigned -= gone
        if gone and (owned is None or owned & gone):
            record.pending = gone
            return
        others = {number for one, other in self.members.items() if one != member_id for number in other.holds}
        record.assigned |= target - others
        record.epoch = self.epoch

    def commit(self, request: OffsetCommit) -> ErrorCode:
        record = self.members.get(request.member_id)
        if record is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if request.generation_id == record.epoch else ErrorCode.STALE_MEMBER_EPOCH


def _assignment(partitions: Collection[int]) -> Assignment:
    listed = [TopicPartitions(topic_id=TOPICS["t"], partitions=sorted(partitions))] if partitions else []
    return Assignment(topic_partitions=listed)
