"""The owner of each partition of a group, and since when; and the rows that the state of a group is written to.

A partition that nobody owned for a while is remembered, with its last owner, until it has an owner again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Row = dict[str, Any]
PartitionKey = tuple[str, int]
"""Topic (its id in the new protocol) and number."""

CLASSIC, CONSUMER = "classic", "consumer"


class LogPosition(NamedTuple):
    """The position of a record in the log, and its timestamp."""

    log_partition: int
    log_offset: int
    log_ms: int

    def columns(self) -> Row:
        return self._asdict()


@dataclass(slots=True)
class GroupRows:
    """Rows of the tables `generations`, `ownership` and `rebalances`."""

    generations: list[Row] = field(default_factory=list)
    intervals: list[Row] = field(default_factory=list)
    rebalances: list[Row] = field(default_factory=list)


def derived_rebalance(
    group_id: str,
    protocol: str,
    at: LogPosition,
    *,
    generations: tuple[int, int],
    cause: str,
    outcome: str,
    came: Sequence[str],
    left: Sequence[str],
    members: int,
    change: Mapping[str, Any],
    began_ms: int | None,
    duration: tuple[int | None, str],
    joined_ms: int | None = None,
    joined_after: Mapping[str, int] | None = None,
    revoked_after: Mapping[str, int | None] | None = None,
) -> Row:
    before, after = generations
    return {
        "group_id": group_id,
        "evidence": "derived",
        "protocol": protocol,
        "from_generation": before,
        "generation": after,
        "missing": after - before - 1,
        "cause": cause,
        "outcome": outcome,
        "began_ms": began_ms,
        "ended_ms": at.log_ms,
        "duration_ms": duration[0],
        "duration_is": duration[1],
        "members": members,
        "came": list(came),
        "left": list(left),
        "joined_ms": joined_ms,
        "joined_after": after_rows(joined_after),
        "last_to_join": None if not joined_after else max(joined_after, key=lambda member: joined_after[member]),
        "revoked_after": after_rows(revoked_after),
        **change,
        **at.columns(),
    }


def after_rows(after_ms: Mapping[str, int | None] | None) -> list[Row] | None:
    """Return how long after the begin of a rebalance each member did something."""
    return None if after_ms is None else [{"member_id": who, "after_ms": ms} for who, ms in sorted(after_ms.items())]


MOVED, GIVEN_UP, MEMBER_GONE = "moved", "given up", "member gone"


@dataclass(slots=True, frozen=True)
class PartitionOwner:
    member_id: str
    instance_id: str | None = None
    client_id: str | None = None


@dataclass(slots=True)
class OwnerChanges:
    """The changes that a rebalance has made so far."""

    moved: dict[PartitionKey, tuple[str, str, int | None]] = field(default_factory=dict)
    """Old and new owner of each partition that has moved, and how long it had none; None if it never had one."""
    kept: int = 0
    unassigned_ms: int = 0

    def move(self, key: PartitionKey, old: str, new: str, gap_ms: int | None) -> None:
        first, _, earlier_ms = self.moved.get(key, (old, new, None))
        if first == new:  # there and back within one rebalance
            self.moved.pop(key, None)
        else:
            self.moved[key] = first, new, gap_ms if earlier_ms is None else earlier_ms + (gap_ms or 0)

    def columns(self, names: Mapping[str, str]) -> Row:
        """Return the columns of a rebalance; `names` are the names of topics by id."""
        named = sorted(
            (names.get(topic, topic), partition, *owners) for (topic, partition), owners in self.moved.items()
        )
        moved = [
            {"topic": topic, "partition": partition, "old_owner": old, "new_owner": new, "unassigned_ms": gap_ms}
            for topic, partition, old, new, gap_ms in named
        ]
        return {"moved": moved, "kept": self.kept, "unassigned_ms": self.unassigned_ms}


@dataclass(slots=True)
class _Interval:
    """An interval of ownership that has not ended."""

    owner: PartitionOwner
    began_ms: int
    first_generation: int


class PartitionOwners:
    """The owners of the partitions of one group. `ended` collects intervals of ownership until they are taken."""

    def __init__(self) -> None:
        self.open: dict[PartitionKey, _Interval] = {}
        self.last_owner: dict[PartitionKey, str] = {}
        self.free_since_ms: dict[PartitionKey, int] = {}
        self.ended: list[tuple[PartitionKey, _Interval, int, int, str]] = []

    def assign(
        self, owners: Mapping[PartitionKey, PartitionOwner], members: Iterable[str], at_ms: int, generation: int
    ) -> OwnerChanges:
        """Take a new assignment of the whole group."""
        change, there = OwnerChanges(), set(members)
        for key, held in list(self.open.items()):
            if key not in owners:
                why = GIVEN_UP if held.owner.member_id in there else MEMBER_GONE
                self.end(key, at_ms, generation, why)
        for key, owner in owners.items():
            self.give(key, owner, at_ms, generation, change)
        return change

    def give(self, key: PartitionKey, owner: PartitionOwner, at_ms: int, generation: int, change: OwnerChanges) -> None:
        """Make `owner` the owner of a partition, and note in `change` whether it has moved."""
        held = self.open.get(key)
        if held is not None and held.owner.member_id == owner.member_id:
            change.kept += 1
            return
        if held is not None:
            self.end(key, at_ms, generation, MOVED)
        gap_ms = max(at_ms - self.free_since_ms.pop(key, at_ms), 0)
        change.unassigned_ms += gap_ms
        before = self.last_owner.get(key, "")
        if before == owner.member_id:
            change.kept += 1
        else:
            change.move(key, before, owner.member_id, gap_ms if before else None)
        self.last_owner[key] = owner.member_id
        self.open[key] = _Interval(owner, at_ms, generation)

    def end(self, key: PartitionKey, at_ms: int, generation: int, why: str) -> None:
        self.ended.append((key, self.open.pop(key), at_ms, generation, why))
        self.free_since_ms[key] = at_ms

    def forget(self, at_ms: int, generation: int, why: str) -> None:
        """End all intervals. The group has no members, so partitions do not count as unassigned."""
        for key in list(self.open):
            self.end(key, at_ms, generation, why)
        self.last_owner.clear()
        self.free_since_ms.clear()

    def take_ended(self, group_id: str, names: Mapping[str, str]) -> list[Row]:
        """Return the intervals that have ended since the last call, as rows of the table `ownership`."""
        rows = [
            _held(group_id, key, held, names)
            | {
                "ended_ms": ended_ms,
                "held_ms": ended_ms - held.began_ms,
                "last_generation": generation,
                "ended_by": why,
            }
            for key, held, ended_ms, generation, why in self.ended
        ]
        self.ended = []
        return rows

    def rows(self, group_id: str, names: Mapping[str, str]) -> list[Row]:
        """Return the intervals that last, as rows of the table `owners`."""
        return [_held(group_id, key, held, names) for key, held in sorted(self.open.items())]

    def to_json(self) -> Any:
        return {
            "open": [
                [*key, held.owner.member_id, held.owner.instance_id, held.owner.client_id, held.began_ms, since]
                for key, held in self.open.items()
                for since in [held.first_generation]
            ],
            "last": [[*key, owner] for key, owner in self.last_owner.items()],
            "free": [[*key, since_ms] for key, since_ms in self.free_since_ms.items()],
        }

    @classmethod
    def from_json(cls, data: Any) -> PartitionOwners:
        owners = cls()
        for topic, partition, member_id, instance_id, client_id, began_ms, generation in data["open"]:
            owner = PartitionOwner(member_id, instance_id, client_id)
            owners.open[topic, partition] = _Interval(owner, began_ms, generation)
        owners.last_owner = {(topic, partition): owner for topic, partition, owner in data["last"]}
        owners.free_since_ms = {(topic, partition): since_ms for topic, partition, since_ms in data["free"]}
        return owners


def _held(group_id: str, key: PartitionKey, held: _Interval, names: Mapping[str, str]) -> Row:
    topic, partition = key
    return {
        "group_id": group_id,
        "topic": names.get(topic, topic),
        "partition": partition,
        "member_id": held.owner.member_id,
        "instance_id": held.owner.instance_id,
        "client_id": held.owner.client_id,
        "began_ms": held.began_ms,
        "first_generation": held.first_generation,
    }
