"""The state of a group, rebuilt from its records in `__consumer_offsets` and from the facts of Coterie's broker.

Records are applied one after the other; rows of generations, ownership and rebalances come out. What has to be known
for the next batch is JSON. A classic group is derived by `ClassicGroupState`, a group of KIP-848 by
`consumer_group.py`; rebalances that Coterie's own broker recorded as facts are exact, with cause and culprit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.errors import CoterieError, MalformedError
from coterie.facts import Cause
from coterie.ledger import Bookmark, Rebalance, RebalanceOutcome, read_fact
from coterie.ledger.derived import ChangeKind, RecordChange, Seen, compare
from coterie.protocol.consumer_group_records import read_consumer_group_record
from coterie.protocol.messages import GroupRecord, StoredGroup
from coterie.protocol.offsets_topic import read_record
from coterie.protocol.subscription import read_assignment, read_subscription
from coterie.spark.pipeline.consumer_group import ConsumerGroupState
from coterie.spark.pipeline.partition_owners import (
    CLASSIC,
    CONSUMER,
    GroupRows,
    LogPosition,
    PartitionKey,
    PartitionOwner,
    PartitionOwners,
    Row,
    after_rows,
    derived_rebalance,
)

_NO_NAMES: Mapping[str, str] = {}
CONSUMER_PROTOCOL = "consumer"
"""The protocol type whose subscriptions can be read; Connect and others have formats of their own."""
SYNC_ONLY = "from the end of the join phase to the stored assignment"
NOT_KNOWN = "the log does not tell"


class ClassicGroupState:
    """The state of a classic group. `coterie.ledger.derived` has the meaning of the difference of two of its records.

    Records are written for the creation (generation 0), the leader's sync, the last member's leave, and the replacement
    of a static member (semantics 10).
    """

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
        joined_ms = value.state_timestamp_ms if value.members and value.state_timestamp_ms >= 0 else None
        if joined_ms is not None:
            duration = (at.log_ms - joined_ms, SYNC_ONLY)
        moved = [move | {"unassigned_ms": move["unassigned_ms"] or None} for move in change["moved"]]
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
            # 0 would say that it is known
            change=change | {"moved": moved, "unassigned_ms": change["unassigned_ms"] or None},
            began_ms=None,
            duration=duration,
            joined_ms=joined_ms,
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


WHOLE = "from its first cause to its end"
VERSION = 2
"""The version of the JSON of a state."""
RECENT_MS = 3_600_000
RECENT_REBALANCES = 1_000
"""The number of rebalances of the last hour that are kept; a group with more is unstable in any case."""


class GroupRebuilder:
    """One group; `rows` collects what its records say. MalformedError leaves the state as it was."""

    def __init__(self, group_id: str, names: Mapping[str, str] | None = None) -> None:
        self.group_id = group_id
        self.rows = GroupRows()
        self._classic = ClassicGroupState(group_id)
        self._consumer = ConsumerGroupState(group_id, names or {})
        self._facts = Bookmark(group_id)
        self._recent: list[tuple[int, int | None]] = []
        self._was_consumer = False

    def record(self, key: bytes, value: bytes | None, at: LogPosition) -> None:
        found = read_record(key, value)
        before = len(self.rows.rebalances)
        if isinstance(found, GroupRecord):
            self._classic.apply(found.value, at, self.rows)
            self._was_consumer = self._was_consumer and not self._classic.is_there
        else:
            record = read_consumer_group_record(key, value)
            if record is None:
                raise MalformedError(f"not a record of a group: its key is {key.hex()}")
            self._consumer.apply(record, at, self.rows)
            self._was_consumer = self._was_consumer or self._consumer.is_there
        for row in self.rows.rebalances[before:]:
            self._recent.append((row["ended_ms"], row["unassigned_ms"]))

    def fact(self, value: bytes, at: LogPosition) -> None:
        row = observe(self._facts, value, at)
        if row is not None:
            self.rows.rebalances.append(row)

    def state(self) -> Row:
        """Return the group as it is now, as a row of `schemas.GROUPS_STATE`."""
        now = self._consumer if self._consumer.is_there or self._was_consumer else self._classic
        return {
            "group_id": self.group_id,
            "protocol": CONSUMER if now is self._consumer else CLASSIC,
            "state": now.state,
            "generation": now.generation,
            "members": now.members,
            "recent": [
                {"ended_ms": ended_ms, "unassigned_ms": unassigned}
                for ended_ms, unassigned in self._latest_rebalances()
            ],
            "owners": [
                *self._classic.owners.rows(self.group_id, {}),
                *self._consumer.owners.rows(self.group_id, self._consumer.names),
            ],
            "memory": self.to_json(),
        }

    def _latest_rebalances(self) -> list[tuple[int, int | None]]:
        newest = max((ended_ms for ended_ms, _ in self._recent), default=0)
        return [each for each in self._recent if each[0] > newest - RECENT_MS][-RECENT_REBALANCES:]

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": VERSION,
                "classic": self._classic.to_json(),
                "consumer": self._consumer.to_json(),
                "facts": self._facts.to_json(),
                "recent": self._latest_rebalances(),
                "was_consumer": self._was_consumer,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, group_id: str, names: Mapping[str, str], text: str) -> GroupRebuilder:
        data: Any = json.loads(text)
        if data.get("version") != VERSION:
            raise CoterieError(
                f"the stored state of group {group_id} has version {data.get('version')}, and this release writes "
                f"{VERSION}. Read the log again into an empty directory"
            )
        state = cls(group_id, names)
        state._classic = ClassicGroupState.from_json(group_id, data["classic"])
        state._consumer = ConsumerGroupState.from_json(group_id, names, data["consumer"])
        state._facts = Bookmark.from_json(group_id, data["facts"])
        state._recent = [(ended_ms, unassigned_ms) for ended_ms, unassigned_ms in data["recent"]]
        state._was_consumer = data["was_consumer"]
        return state


def observe(mark: Bookmark, data: bytes, at: LogPosition) -> Row | None:
    """Return the rebalance that this fact ended, if any. MalformedError if the fact cannot be read."""
    fact = read_fact(data)
    if fact is None:
        return None
    ended = mark.add(fact)
    return None if ended is None else observed_rebalance(ended) | at.columns()


_SETTLED = frozenset({RebalanceOutcome.STABLE, RebalanceOutcome.EMPTY})
_LEFT = frozenset({Cause.MEMBER_LEFT, Cause.SESSION_EXPIRED, Cause.REVOCATION_TIMEOUT})
"""Causes whose member had left before the rebalance began."""


def observed_rebalance(one: Rebalance) -> Row:
    moved = [
        {
            "topic": move.partition[0],
            "partition": move.partition[1],
            "old_owner": move.old_owner,
            "new_owner": move.new_owner,
            "unassigned_ms": move.unassigned_ms,
        }
        for move in sorted(one.moves, key=lambda move: move.partition)
    ]
    newcomers = {one.culprit} if one.cause is Cause.NEW_MEMBER else set()
    came = newcomers if one.is_of_consumer_group else one.joined_after_ms.keys() - {*one.waits_for, *one.dropped}
    return {
        "group_id": one.group_id,
        "evidence": "observed",
        "protocol": one.group_type,
        "from_generation": one.old_generation_id,
        "generation": one.generation_id,
        "missing": 0,
        "cause": str(one.cause),
        "culprit": one.culprit or None,
        "reason": one.reason,
        "outcome": str(one.outcome),
        "began_ms": one.began_ms,
        "ended_ms": one.ended_ms,
        "duration_ms": one.took_ms,
        "duration_is": WHOLE,
        "members": len(one.joined_after_ms) if one.outcome in _SETTLED else None,
        "came": sorted(came),
        "left": sorted({*one.dropped, *([one.culprit] if one.cause in _LEFT else [])}),
        "joined_ms": one.joined_ms,
        "joined_after": after_rows(one.joined_after_ms),
        "last_to_join": one.last_to_join,
        "revoked_after": after_rows(one.revoked_after_ms) if one.is_of_consumer_group else None,
        "moved": moved,
        "kept": one.kept,
        "unassigned_ms": one.unassigned_ms,
    }
