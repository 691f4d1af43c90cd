"""The state of a group of the new protocol (KIP-848): it is spread over many records, and a rebalance is one epoch.

A rebalance begins with the record of a new group epoch. It is over when every member has reached that epoch with all
that it was assigned, or when the next epoch comes. Members that join are written before their epoch, and those that
leave are erased before it (K27), so both belong to the epoch that follows. A member owns what it was assigned, and also
what it has yet to give back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.ledger.derived import FIRST_EPOCHS, EpochChanges
from coterie.protocol.consumer_group_records import (
    CURRENT,
    EPOCH,
    MEMBER,
    MEMBER_STATES,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    ConsumerGroupEpoch,
    ConsumerGroupRecord,
    CurrentAssignment,
    MemberMetadata,
    ResolvedPattern,
    TargetAssignment,
    TargetEpoch,
    TopicPartitions,
    Value,
    topic_id_text,
)
from coterie.spark.pipeline.partition_owners import (
    CLASSIC,
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
from coterie.structs import asdict

WHOLE = "from the new epoch to the last member's"
OVERTAKEN = "from the new epoch to the next one"


@dataclass(slots=True)
class _ConsumerMember:
    about: Row
    """Its columns in a generation, without what it is assigned."""
    epoch: int | None = None
    state: str | None = None
    held: set[PartitionKey] = field(default_factory=set)
    pending: set[PartitionKey] = field(default_factory=set)
    """The partitions that it has yet to revoke."""


@dataclass(slots=True)
class _Epoch:
    """A rebalance that has not ended."""

    from_epoch: int
    began_ms: int
    why: str
    came: list[str]
    left: list[str]
    change: OwnerChanges = field(default_factory=OwnerChanges)
    computed_ms: int | None = None
    """The time at which the target assignment was computed."""
    reached: dict[str, int] = field(default_factory=dict)
    """The time after the begin at which each member had all of its target."""
    revoked: dict[str, int | None] = field(default_factory=dict)
    """The time after the begin at which each member had revoked its partitions; None if it has not."""


class ConsumerGroupState:
    def __init__(self, group_id: str, names: Mapping[str, str]) -> None:
        self.group_id = group_id
        self.names = names
        self.owners = PartitionOwners()
        self.epoch: int | None = None
        self.previous_row: int | None = None
        self.assignment_epoch: int | None = None
        self.assigned_ms: int | None = None
        self._targets: dict[str, list[PartitionKey]] = {}
        self._resolved: dict[str, list[str]] = {}
        """Regular expressions, and the topics that they match."""
        self._members: dict[str, _ConsumerMember] = {}
        self._behind: set[str] = set()
        """Members that have not reached the epoch, kept so that a record does not cost a look at the whole group."""
        self._rebalance: _Epoch | None = None
        self._next = EpochChanges()
        """The changes that were written before the epoch that they lead to."""

    @property
    def is_there(self) -> bool:
        return self.epoch is not None

    @property
    def state(self) -> str:
        if self.epoch is None:
            return "Gone"
        if not self._members:
            return "Empty"
        if self.assignment_epoch is not None and self.assignment_epoch < self.epoch:
            return "Assigning"
        return "Reconciling" if self._behind else "Stable"

    @property
    def generation(self) -> int | None:
        return self.epoch

    @property
    def members(self) -> int:
        return len(self._members)

    # --- records ------------------------------------------------------------------------------------------------------

    def apply(self, record: ConsumerGroupRecord, at: LogPosition, rows: GroupRows) -> None:
        value, about = record.value, record.about
        if record.type == EPOCH:
            self._new_epoch(value.epoch if isinstance(value, ConsumerGroupEpoch) else None, at, rows)
        elif record.type == MEMBER:
            self._member(about, value if isinstance(value, MemberMetadata) else None, at)
        elif record.type == CURRENT:
            self._current(about, value if isinstance(value, CurrentAssignment) else None, at)
        elif record.type in (TARGET, TARGET_EPOCH):
            self._target(about, value, at)
        elif record.type == REGEX:
            self._regex(about, list(value.topics) if isinstance(value, ResolvedPattern) else None)
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
        changes, self._next = self._next, EpochChanges()
        self._behind = {member_id for member_id, member in self._members.items() if self._is_behind(member)}
        was_classic = any(one.about.get("type") == CLASSIC for one in self._members.values())
        if before is None and (epoch not in FIRST_EPOCHS or was_classic):  # a classic group was converted (K24)
            return  # the first that is known of it: there is nothing to compare with
        old = epoch - 1 if before is None else before
        self._rebalance = _Epoch(old, at.log_ms, changes.why(epoch - old - 1), *changes.ids())
        if not self._members:
            self._close(at, rows, "empty", WHOLE)

    def _target(self, member_id: str, value: Value | None, at: LogPosition) -> None:
        if isinstance(value, TargetEpoch):
            self.assignment_epoch, self.assigned_ms = value.assignment_epoch, value.assigned_ms or None
            if self._rebalance is not None and value.assignment_epoch == self.epoch:
                self._rebalance.computed_ms = at.log_ms
        elif isinstance(value, TargetAssignment):
            keys = _keys(TopicPartitions(*topic) for topic in value.partitions.items())
            self._targets[member_id] = sorted(keys)
        else:
            self._targets.pop(member_id, None)

    def _regex(self, pattern: str, topics: list[str] | None) -> None:
        if topics is None:
            self._resolved.pop(pattern, None)
            return
        if topics != self._resolved.get(pattern):
            self._next.resolved.append(pattern)
        self._resolved[pattern] = topics

    def _member(self, member_id: str, value: MemberMetadata | None, at: LogPosition) -> None:
        member = self._members.get(member_id)
        if value is None:
            if member is not None:
                self._release(member, at, MEMBER_GONE)
                del self._members[member_id]
                self._behind.discard(member_id)
                self._next.left[member_id] = member.about.get("instance_id")
            return
        about = _about(member_id, value)
        if member is None:
            member = self._members[member_id] = _ConsumerMember(about)
            self._next.joined(member_id, value.instance_id)
        elif member.about.get("topics") != about["topics"] or member.about.get("pattern") != about["pattern"]:
            self._next.changed.append(member_id)
        member.about = about
        if self._is_behind(member):
            self._behind.add(member_id)

    def _current(self, member_id: str, value: CurrentAssignment | None, at: LogPosition) -> None:
        member = self._members.get(member_id)
        if value is None:
            if member is not None:
                self._release(member, at, MEMBER_GONE)
                member.epoch = member.state = None
            return
        if member is None:  # its metadata was compacted to a later place in the log
            member = self._members[member_id] = _ConsumerMember({"member_id": member_id})
        pending = set(_keys(value.pending_revocation))
        held = {*_keys(value.assigned), *pending}
        change = self._rebalance.change if self._rebalance is not None else OwnerChanges()
        for key in member.held - held:
            self._end(key, member_id, at, GIVEN_UP)
        owner = PartitionOwner(member_id, member.about.get("instance_id"), member.about.get("client_id"))
        for key in sorted(held - member.held):
            self.owners.give(key, owner, at.log_ms, self.epoch or value.member_epoch, change)
        member.held, member.pending, member.epoch = held, pending, value.member_epoch
        member.state = MEMBER_STATES[value.state] if 0 <= value.state < len(MEMBER_STATES) else f"state {value.state}"
        (self._behind.add if self._is_behind(member) else self._behind.discard)(member_id)
        if self._rebalance is not None:
            self._rebalance_goes_on(self._rebalance, member_id, member, at)

    def _rebalance_goes_on(self, rebalance: _Epoch, member_id: str, member: _ConsumerMember, at: LogPosition) -> None:
        after_ms = at.log_ms - rebalance.began_ms
        if member.pending:
            rebalance.revoked[member_id] = None
        elif member_id in rebalance.revoked and rebalance.revoked[member_id] is None:
            rebalance.revoked[member_id] = after_ms
        if member_id in self._behind:
            rebalance.reached.pop(member_id, None)
        else:
            rebalance.reached[member_id] = after_ms

    def _is_behind(self, member: _ConsumerMember) -> bool:
        return member.epoch != self.epoch or member.state != MEMBER_STATES[0]

    def _release(self, member: _ConsumerMember, at: LogPosition, why: str) -> None:
        for key in sorted(member.held):
            self._end(key, member.about["member_id"], at, why)
        member.held, member.pending = set(), set()

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
                cause=closing.why,
                outcome=outcome,
                came=closing.came,
                left=closing.left,
                members=len(self._members),
                change=closing.change.columns(self.names),
                began_ms=closing.began_ms,
                duration=(at.log_ms - closing.began_ms, covers),
                joined_ms=closing.computed_ms,
                joined_after=closing.reached,
                revoked_after=closing.revoked,
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
            "assignment_epoch": self.assignment_epoch,
            "assignor": self._assignor(),
            "state_ms": self.assigned_ms if self.assigned_ms is not None else closing.began_ms,
            "members": [self._member_row(member_id, member) for member_id, member in sorted(self._members.items())],
            "regexes": [{"regex": regex, "topics": topics} for regex, topics in sorted(self._resolved.items())],
            "settled": is_settled,
            "tombstone": False,
            **at.columns(),
        }

    def _member_row(self, member_id: str, member: _ConsumerMember) -> Row:
        target = self._targets.get(member_id)
        return member.about | {
            "assignment": self._named(member.held),
            "epoch": member.epoch,
            "state": member.state,
            "pending_revocation": self._named(member.pending),
            "target": None if target is None else self._named(target),
        }

    def _named(self, keys: Iterable[PartitionKey]) -> list[Row]:
        named = sorted((self.names.get(topic, topic), partition) for topic, partition in keys)
        return [{"topic": topic, "partition": partition} for topic, partition in named]

    def _assignor(self) -> str | None:
        """Return the assignor that most members name (K16); None if nobody does: the default is not in the log."""
        votes = [one.about["assignor"] for one in self._members.values() if one.about.get("assignor")]
        return max(sorted(votes, reverse=True), key=votes.count, default=None)

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
        self.epoch = self.previous_row = self.assignment_epoch = None
        new = {one: self._members[one] for one in self._next.joiners}  # if only the tombstone was compacted away
        self._members, self._behind, self._next = new, set(new), EpochChanges([*new])
        self._targets, self._resolved = {}, {}

    # --- JSON ---------------------------------------------------------------------------------------------------------

    def to_json(self) -> Any:
        return {
            "epoch": self.epoch,
            "previous_row": self.previous_row,
            "assignment_epoch": self.assignment_epoch,
            "assigned_ms": self.assigned_ms,
            "members": [
                [member.about, member.epoch, member.state, sorted(member.held), sorted(member.pending)]
                for member in self._members.values()
            ],
            "targets": self._targets,
            "resolved": self._resolved,
            "rebalance": self._rebalance and _rebalance_to_json(self._rebalance),
            "next": asdict(self._next),
            "holding": self.owners.to_json(),
        }

    @classmethod
    def from_json(cls, group_id: str, names: Mapping[str, str], data: Any) -> ConsumerGroupState:
        state = cls(group_id, names)
        state.epoch, state.previous_row = data["epoch"], data["previous_row"]
        state.assignment_epoch, state.assigned_ms = data["assignment_epoch"], data["assigned_ms"]
        for about, epoch, member_state, held, pending in data["members"]:
            member = _ConsumerMember(about, epoch, member_state, set(map(_key, held)), set(map(_key, pending)))
            state._members[about["member_id"]] = member
        state._behind = {member_id for member_id, one in state._members.items() if state._is_behind(one)}
        state._targets = {member_id: [_key(one) for one in target] for member_id, target in data["targets"].items()}
        state._resolved = data["resolved"]
        state._rebalance = data["rebalance"] and _rebalance_from_json(data["rebalance"])
        state._next = EpochChanges(**data["next"])
        state.owners = PartitionOwners.from_json(data["holding"])
        return state


def _key(said: Any) -> PartitionKey:
    topic, partition = said
    return topic, partition


def _rebalance_to_json(one: _Epoch) -> Any:
    moved = [[*key, *change] for key, change in one.change.moved.items()]
    return asdict(one) | {"change": [moved, one.change.unassigned_ms]}


def _rebalance_from_json(data: Any) -> _Epoch:
    moved, unassigned_ms = data["change"]
    change = OwnerChanges(
        {(topic, number): (old, new, gap) for topic, number, old, new, gap in moved}, 0, unassigned_ms
    )
    return _Epoch(**data | {"change": change})


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
        "rack_id": value.rack_id,
        "assignor": value.server_assignor,
        "type": CONSUMER if value.classic_session_timeout_ms is None else CLASSIC,
    }
