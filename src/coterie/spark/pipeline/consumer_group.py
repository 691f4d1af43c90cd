"""The state of a group of the new protocol (KIP-848): it is spread over many records, and a rebalance is one epoch.

A rebalance begins with the record of a new group epoch. It is over when every member has reached that epoch with all
that it was assigned, or when the next epoch comes. Members that join are written before their epoch, and those that
leave are erased before it (semantics-848 rule 27), so both belong to the epoch that follows. A member owns what it was
assigned, and also what it has yet to give back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.protocol.consumer_group_records import (
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    TargetEpoch,
    TopicPartitions,
    topic_id_text,
)
from coterie.spark.pipeline.partition_owners import (
    CONSUMER,
    GIVEN_UP,
    MEMBER_GONE,
    GroupRows,
    LogPosition,
    OwnerChanges,
    PartitionKey,
    PartitionOwner,
    PartitionOwners,
    Row,
    derived_rebalance,
)

_STABLE = 0
WHOLE = "from the new epoch to the last member's"
OVERTAKEN = "from the new epoch to the next one"
EPOCH, MEMBER, TARGET_EPOCH, CURRENT = 3, 5, 6, 8
FIRST_EPOCHS = (1, 2)
"""A new group is at 1 in memory, so the first epoch in the log is 2 (semantics-848 rule 1); older Kafka began at 0."""


@dataclass(slots=True)
class _ConsumerMember:
    about: Row
    """Its columns in a generation, without the assignment."""
    epoch: int = -1
    is_stable: bool = False
    held: set[PartitionKey] = field(default_factory=set)


@dataclass(slots=True)
class _Epoch:
    from_epoch: int
    began_ms: int
    came: list[str]
    left: list[str]
    causes: list[str]
    change: OwnerChanges = field(default_factory=OwnerChanges)


class ConsumerGroupState:
    def __init__(self, group_id: str, names: Mapping[str, str]) -> None:
        self.group_id = group_id
        self.names = names
        self.owners = PartitionOwners()
        self.epoch: int | None = None
        self.previous_row: int | None = None
        self.assignor: str | None = None
        self.assigned_ms: int | None = None
        self._members: dict[str, _ConsumerMember] = {}
        self._behind: set[str] = set()
        """Members that have not reached the epoch, kept so that a record does not cost a look at the whole group."""
        self._rebalance: _Epoch | None = None
        self._next = _Epoch(0, 0, [], [], [])
        """What was written before the epoch that it leads to."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None

    @property
    def state(self) -> str:
        if self.epoch is None:
            return "Gone"
        if not self._members:
            return "Empty"
        return "Reconciling" if self._behind else "Stable"

    @property
    def generation(self) -> int | None:
        return self.epoch

    @property
    def members(self) -> int:
        return len(self._members)

    # --- records ------------------------------------------------------------------------------------------------------

    def apply(self, record: ConsumerGroupRecord, at: LogPosition, rows: GroupRows) -> None:
        value = record.value
        if record.type == EPOCH:
            self._new_epoch(value.epoch if isinstance(value, ConsumerGroupEpoch) else None, at, rows)
        elif record.type == MEMBER:
            self._member(record.about, value if isinstance(value, MemberMetadata) else None, at)
        elif record.type == CURRENT:
            self._current(record.about, value if isinstance(value, CurrentAssignment) else None, at)
        elif record.type == TARGET_EPOCH and isinstance(value, TargetEpoch):
            self.assigned_ms = value.assigned_ms or None
        # A member that is erased while all wait for it does not end the rebalance: the next epoch is in the same write.
        has_reached = record.type == CURRENT and value is not None
        if self._rebalance is not None and has_reached and not self._behind:
            self._close(at, rows, "stable", WHOLE)
        rows.intervals += self.owners.take_ended(self.group_id, self.names)

    def _new_epoch(self, epoch: int | None, at: LogPosition, rows: GroupRows) -> None:
        if epoch is not None and epoch == self.epoch:
            return  # the same once more, with another hash of its topics
        if self._rebalance is not None:
            self._close(at, rows, "superseded by the next rebalance", OVERTAKEN)
        if epoch is None or (self.epoch is not None and epoch < self.epoch):
            self._gone(at, rows)  # in the second case the tombstone was compacted away
        if epoch is None:
            return
        before, self.epoch = self.epoch, epoch
        following, self._next = self._next, _Epoch(0, 0, [], [], [])
        self._behind = {member_id for member_id, member in self._members.items() if self._is_behind(member)}
        if before is None and epoch not in FIRST_EPOCHS:
            return  # the first that is known of it: there is nothing to compare with
        following.from_epoch, following.began_ms = epoch - 1 if before is None else before, at.log_ms
        self._rebalance = following
        if not self._members:
            self._close(at, rows, "empty", WHOLE)

    def _member(self, member_id: str, value: MemberMetadata | None, at: LogPosition) -> None:
        member = self._members.get(member_id)
        if value is None:
            if member is not None:
                self._release(member, at, MEMBER_GONE)
                del self._members[member_id]
                self._behind.discard(member_id)
                if member_id in self._next.came:  # in key of a static member, without an epoch, and gone again
                    self._next.came.remove(member_id)
                else:
                    self._next.left.append(member_id)
            return
        about = _about(member_id, value)
        if member is None:
            member = self._members[member_id] = _ConsumerMember(about)
            if member_id in self._next.left:  # it had been removed
                self._next.left.remove(member_id)
            else:
                self._next.came.append(member_id)
        elif member.about["topics"] != about["topics"] or member.about["pattern"] != about["pattern"]:
            self._next.causes.append("a member changed its subscription")
        member.about = about
        self.assignor = value.server_assignor or self.assignor
        if self._is_behind(member):
            self._behind.add(member_id)

    def _current(self, member_id: str, value: CurrentAssignment | None, at: LogPosition) -> None:
        member = self._members.get(member_id)
        if value is None:
            if member is not None:
                self._release(member, at, MEMBER_GONE)
                member.epoch, member.is_stable = -1, False
            return
        if member is None:  # its metadata was compacted to a later place in the log
            member = self._members[member_id] = _ConsumerMember({"member_id": member_id})
        held = set(_keys([*value.assigned, *value.pending_revocation]))
        change = self._rebalance.change if self._rebalance is not None else OwnerChanges()
        for key in member.held - held:
            self._end(key, member_id, at, GIVEN_UP)
        owner = PartitionOwner(member_id, member.about.get("instance_id"), member.about.get("client_id"))
        for key in sorted(held - member.held):
            self.owners.give(key, owner, at.log_ms, self.epoch or value.member_epoch, change)
        member.held, member.epoch, member.is_stable = held, value.member_epoch, value.state == _STABLE
        (self._behind.add if self._is_behind(member) else self._behind.discard)(member_id)

    def _is_behind(self, member: _ConsumerMember) -> bool:
        return member.epoch != self.epoch or not member.is_stable

    def _release(self, member: _ConsumerMember, at: LogPosition, why: str) -> None:
        for key in sorted(member.held):
            self._end(key, member.about["member_id"], at, why)
        member.held = set()

    def _end(self, key: PartitionKey, member_id: str, at: LogPosition, why: str) -> None:
        held = self.owners.open.get(key)
        if held is not None and held.owner.member_id == member_id:
            self.owners.end(key, at.log_ms, self.epoch or 0, why)

    # --- rows ---------------------------------------------------------------------------------------------------------

    def _close(self, at: LogPosition, rows: GroupRows, outcome: str, covers: str) -> None:
        closing, self._rebalance = self._rebalance, None
        assert closing is not None and self.epoch is not None
        if outcome == "stable":
            moved = sum(key in self.owners.open for key in closing.change.moved)
            closing.change.kept = len(self.owners.open) - moved
        if outcome == "empty":
            self.owners.forget(at.log_ms, self.epoch, "group empty")
        rows.rebalances.append(
            derived_rebalance(
                self.group_id,
                CONSUMER,
                at,
                generations=(closing.from_epoch, self.epoch),
                cause=_cause(closing),
                outcome=outcome,
                came=closing.came,
                left=closing.left,
                members=len(self._members),
                change=closing.change.columns(self.names),
                began_ms=closing.began_ms,
                duration=(at.log_ms - closing.began_ms, covers),
            )
        )
        rows.generations.append(self._row(at, closing, is_settled=outcome != "superseded by the next rebalance"))
        self.previous_row = self.epoch

    def _row(self, at: LogPosition, closing: _Epoch, *, is_settled: bool) -> Row:
        before = self.previous_row
        return {
            "group_id": self.group_id,
            "protocol": CONSUMER,
            "generation": self.epoch,
            "previous_generation": before,
            "missing": None if before is None or self.epoch is None else self.epoch - before - 1,
            "protocol_type": "consumer",
            "assignor": self.assignor,
            "state_ms": self.assigned_ms if self.assigned_ms is not None else closing.began_ms,
            "members": [
                member.about | {"assignment": self._assignment(member)} for _, member in sorted(self._members.items())
            ],
            "settled": is_settled,
            "tombstone": False,
            **at.columns(),
        }

    def _assignment(self, member: _ConsumerMember) -> list[Row]:
        named = sorted((self.names.get(topic, topic), partition) for topic, partition in member.held)
        return [{"topic": topic, "partition": partition} for topic, partition in named]

    def _gone(self, at: LogPosition, rows: GroupRows) -> None:
        self.owners.forget(at.log_ms, self.epoch or 0, "group gone")
        rows.generations.append(
            {
                "group_id": self.group_id,
                "protocol": CONSUMER,
                "previous_generation": self.previous_row,
                "tombstone": True,
                "note": "the group was deleted, expired, or went back to the classic protocol",
                **at.columns(),
            }
        )
        self.epoch = self.previous_row = None
        self._members, self._behind, self._next = {}, set(), _Epoch(0, 0, [], [], [])

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> Any:
        return {
            "epoch": self.epoch,
            "previous_row": self.previous_row,
            "assignor": self.assignor,
            "assigned_ms": self.assigned_ms,
            "members": [
                [member.about, member.epoch, member.is_stable, sorted(member.held)] for member in self._members.values()
            ],
            "rebalance": self._rebalance and _rebalance_to_json(self._rebalance),
            "next": _rebalance_to_json(self._next),
            "holding": self.owners.to_json(),
        }

    @classmethod
    def from_json(cls, group_id: str, names: Mapping[str, str], data: Any) -> ConsumerGroupState:
        state = cls(group_id, names)
        state.epoch, state.previous_row = data["epoch"], data["previous_row"]
        state.assignor, state.assigned_ms = data["assignor"], data["assigned_ms"]
        for about, epoch, is_stable, held in data["members"]:
            keys = {(topic, partition) for topic, partition in held}
            state._members[about["member_id"]] = _ConsumerMember(about, epoch, is_stable, keys)
        state._behind = {member_id for member_id, one in state._members.items() if state._is_behind(one)}
        state._rebalance = data["rebalance"] and _rebalance_from_json(data["rebalance"])
        state._next = _rebalance_from_json(data["next"])
        state.owners = PartitionOwners.from_json(data["holding"])
        return state


def _rebalance_to_json(one: _Epoch) -> Any:
    moved = [[*key, *owners] for key, owners in one.change.moved.items()]
    return [one.from_epoch, one.began_ms, one.came, one.left, one.causes, moved, one.change.unassigned_ms]


def _rebalance_from_json(data: Any) -> _Epoch:
    from_epoch, began_ms, came, left, causes, moved, unassigned_ms = data
    change = OwnerChanges({(topic, partition): (old, new) for topic, partition, old, new in moved}, 0, unassigned_ms)
    return _Epoch(from_epoch, began_ms, came, left, causes, change)


def _cause(one: _Epoch) -> str:
    reasons = [
        f"{len(one.came)} {'member' if len(one.came) == 1 else 'members'} came" if one.came else "",
        f"{len(one.left)} {'member is' if len(one.left) == 1 else 'members are'} gone" if one.left else "",
        *dict.fromkeys(one.causes),
    ]
    return (
        ", ".join(reason for reason in reasons if reason)
        or "unknown: no member changed; probably topics of the subscription did"
    )


def _keys(partitions: Iterable[TopicPartitions]) -> Iterable[PartitionKey]:
    for each in partitions:
        topic_id = topic_id_text(each.topic_id.bytes)
        for partition in each.partitions:
            yield topic_id, partition


def _about(member_id: str, value: MemberMetadata) -> Row:
    return {
        "member_id": member_id,
        "instance_id": value.instance_id,
        "client_id": value.client_id,
        "client_host": value.client_host,
        "rebalance_timeout_ms": value.rebalance_timeout_ms,
        "session_timeout_ms": value.classic_session_timeout_ms,
        "topics": sorted(value.topics),
        "pattern": value.pattern or None,
    }
