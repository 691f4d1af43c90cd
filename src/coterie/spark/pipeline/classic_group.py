"""The state of a classic group. `coterie.ledger.derived` says what the difference of two of its records means.

Records are written for the creation (generation 0), the leader's sync, the last member's leave, and the replacement of
a static member (semantics 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coterie.errors import MalformedError
from coterie.ledger.derived import ChangeKind, RecordChange, Seen, compare
from coterie.protocol.messages import StoredGroup
from coterie.protocol.subscription import read_assignment, read_subscription
from coterie.spark.pipeline.partition_owners import (
    CLASSIC,
    GroupRows,
    LogPosition,
    PartitionKey,
    PartitionOwner,
    PartitionOwners,
    Row,
    derived_rebalance,
)

__all__ = ["ClassicGroupState"]

_NO_NAMES: Mapping[str, str] = {}
CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose subscriptions can be read; Connect and others have formats of their own."""
SYNC_ONLY = "from the end of the join phase to the stored assignment"
NOT_KNOWN = "the log does not tell"


class ClassicGroupState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.owners = PartitionOwners()
        self.last: Seen | None = None

    @property
    def is_there(self) -> bool:
        return self.last is not None

    @property
    def state(self) -> str:
        if self.last is None:
            return "Gone"
        return "Stable" if self.last.members else "Empty"

    @property
    def generation(self) -> int | None:
        return self.last.generation_id if self.last else None

    @property
    def members(self) -> int:
        return len(self.last.members) if self.last else 0

    def apply(self, value: StoredGroup | None, at: LogPosition, rows: GroupRows) -> None:
        step, notes = compare(self.last, value), []
        if value is None or step.now is None:
            self._gone(at, rows)
            return
        if step.is_new_group and self.last is not None:
            before = self.last.generation_id
            notes.append(f"the generation was {before} before: the group was deleted and created again")
            self.owners.forget(at.log_ms, before, "group gone")
        owners, members = _owners(value, notes)
        if step.kind is ChangeKind.FIRST and value.generation_id > 1:
            notes.append("the first record of the group in the log: what was before is not known")
        if not value.members:
            self.owners.forget(at.log_ms, value.generation_id, "group empty")
        change = self.owners.assign(owners, step.now.members, at.log_ms, value.generation_id)
        if step.kind is ChangeKind.REBALANCE:
            rows.rebalances.append(self._rebalance(step, value, at, change.columns(_NO_NAMES)))
        elif step.kind is ChangeKind.REPLACED:
            notes.append("a static member came back under another id, without a rebalance")
        rows.generations.append(self._row(value, at, step.last, members, "; ".join(notes) or None))
        rows.intervals += self.owners.take_ended(self.group_id, _NO_NAMES)
        self.last = step.now

    def _gone(self, at: LogPosition, rows: GroupRows) -> None:
        generation = self.last.generation_id if self.last else -1
        self.owners.forget(at.log_ms, generation, "group gone")
        rows.intervals += self.owners.take_ended(self.group_id, _NO_NAMES)
        rows.generations.append(
            {
                "group_id": self.group_id,
                "protocol": CLASSIC,
                "previous_generation": self.last and self.last.generation_id,
                "tombstone": True,
                "note": "the group was deleted, expired, or went over to the new protocol",
                **at.columns(),
            }
        )
        self.last = None

    def _rebalance(self, step: RecordChange, value: StoredGroup, at: LogPosition, change: Row) -> Row:
        duration: tuple[int | None, str] = (None, NOT_KNOWN)
        if value.members and value.state_timestamp_ms >= 0:
            duration = (at.log_ms - value.state_timestamp_ms, SYNC_ONLY)
        return derived_rebalance(
            self.group_id,
            CLASSIC,
            at,
            generations=(step.before.generation_id, value.generation_id),
            cause=step.why(),
            outcome="stable" if value.members else "empty",
            came=step.came,
            left=step.left,
            members=len(value.members),
            change=change | {"unassigned_ms": change["unassigned_ms"] or None},  # 0 would say that it is known
            began_ms=None,
            duration=duration,
        )

    def _row(self, value: StoredGroup, at: LogPosition, last: Seen | None, members: list[Row], note: str | None) -> Row:
        return {
            "group_id": self.group_id,
            "protocol": CLASSIC,
            "generation": value.generation_id,
            "previous_generation": last and last.generation_id,
            "missing": max(value.generation_id - last.generation_id - 1, 0) if last else None,
            "protocol_type": value.protocol_type,
            "assignor": value.protocol_name,
            "leader": value.leader_id,
            "state_ms": None if value.state_timestamp_ms < 0 else value.state_timestamp_ms,
            "members": members,
            "settled": True,
            "tombstone": False,
            "note": note,
            **at.columns(),
        }

    def to_json(self) -> Any:
        return {"last": self.last and self.last.to_json(), "holding": self.owners.to_json()}

    @classmethod
    def from_json(cls, group_id: str, data: Any) -> ClassicGroupState:
        state = cls(group_id)
        state.last = data["last"] and Seen.from_json(data["last"])
        state.owners = PartitionOwners.from_json(data["holding"])
        return state


def _owners(value: StoredGroup, notes: list[str]) -> tuple[dict[PartitionKey, PartitionOwner], list[Row]]:
    owners: dict[PartitionKey, PartitionOwner] = {}
    rows = []
    for member in sorted(value.members, key=lambda one: one.member_id):
        assigned: list[PartitionKey] = []
        topics: list[str] | None = None
        try:
            if value.protocol_type == CONSUMER_PROTOCOL:
                topics = sorted(read_subscription(member.subscription).topics)
            if value.protocol_type == CONSUMER_PROTOCOL and member.assignment:  # the leader may have forgotten it
                partitions = read_assignment(member.assignment).partitions
                assigned = sorted((topic, number) for topic, numbers in partitions.items() for number in numbers)
        except MalformedError:
            notes.append(f"what {member.member_id} subscribes to or was assigned is not of the consumer protocol")
        owner = PartitionOwner(member.member_id, member.instance_id, member.client_id)
        owners |= dict.fromkeys(assigned, owner)
        rows.append(
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "session_timeout_ms": member.session_timeout_ms,
                "topics": topics,
                "pattern": None,
                "assignment": [{"topic": topic, "partition": number} for topic, number in assigned],
            }
        )
    return owners, rows
