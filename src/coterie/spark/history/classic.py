"""A classic group: each of its records is the whole group, so a round is the difference of two of them.

Written are the creation (generation 0), the leader's sync, the last member's leave, and a static member's replacement
(semantics 10). A generation may be missing: compacted away, or its round was overtaken by the next before the leader's
sync. Which of the two cannot be seen, so it is said that it is missing and nothing is made up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.errors import MalformedError
from coterie.messages import StoredGroup, StoredMember
from coterie.spark.history.holding import Holder, Holding
from coterie.spark.history.words import CLASSIC, At, Place, Row, Told, derived_round
from coterie.wire.subscription import read_assignment, read_subscription

__all__ = ["ClassicHistory"]

_NO_NAMES: Mapping[str, str] = {}
CONSUMER_PROTOCOL = "consumer"
"""Connect and others tell their members other things, in bytes of their own."""
SYNC_ONLY = "from the end of the join phase to the stored assignment"
NOT_TOLD = "the log does not tell"


@dataclass(slots=True)
class _Last:
    """What the next record is compared with."""

    generation: int
    assignor: str | None
    members: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    """Instance id and subscription of each."""

    def to_json(self) -> Any:
        return [self.generation, self.assignor, {member: list(about) for member, about in self.members.items()}]

    @classmethod
    def from_json(cls, said: Any) -> _Last:
        generation, assignor, members = said
        return cls(generation, assignor, {member: (about[0], about[1]) for member, about in members.items()})


class ClassicHistory:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.holding = Holding()
        self.last: _Last | None = None

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
        return self.last.generation if self.last else None

    @property
    def members(self) -> int:
        return len(self.last.members) if self.last else 0

    def tell(self, value: StoredGroup | None, at: At, told: Told) -> None:
        if value is None:
            self._gone(at, told)
            return
        last, notes = self.last, []
        if last is not None and value.generation_id < last.generation:
            notes.append(f"the generation was {last.generation} before: the group was deleted and made anew")
            self.holding.forget(at.log_ms, last.generation, "group gone")
            last = None
        now = _Last(value.generation_id, value.protocol_name, {m.member_id: _about(m) for m in value.members})
        owners, members = _owners(value, notes)
        if last is None and value.generation_id > 1:
            notes.append("the first record of the group in the log: what was before is not known")
        if not value.members:
            self.holding.forget(at.log_ms, value.generation_id, "group empty")
        change = self.holding.become(owners, now.members, at.log_ms, value.generation_id)

        before = last.generation if last else (0 if value.generation_id == 1 else None)
        if before is not None and value.generation_id > before:
            told.rounds.append(self._round(last, now, value, at, before, change.columns(_NO_NAMES)))
        elif last is not None and set(last.members) != set(now.members):
            notes.append("a static member came back under another id, without a round")
        told.generations.append(self._row(value, at, last, members, "; ".join(notes) or None))
        told.intervals += self.holding.take_ended(self.group_id, _NO_NAMES)
        self.last = now

    def _gone(self, at: At, told: Told) -> None:
        generation = self.last.generation if self.last else -1
        self.holding.forget(at.log_ms, generation, "group gone")
        told.intervals += self.holding.take_ended(self.group_id, _NO_NAMES)
        told.generations.append(
            {
                "group_id": self.group_id,
                "protocol": CLASSIC,
                "previous_generation": self.last and self.last.generation,
                "tombstone": True,
                "note": "the group was deleted, expired, or went over to the new protocol",
                **at.columns(),
            }
        )
        self.last = None

    def _round(self, last: _Last | None, now: _Last, value: StoredGroup, at: At, before: int, change: Row) -> Row:
        came, left, cause = _cause(last or _Last(0, None), now)
        duration: tuple[int | None, str] = (None, NOT_TOLD)
        if value.members and value.state_timestamp_ms >= 0:
            duration = (at.log_ms - value.state_timestamp_ms, SYNC_ONLY)
        return derived_round(
            self.group_id,
            CLASSIC,
            at,
            generations=(before, now.generation),
            cause=cause,
            outcome="stable" if now.members else "empty",
            came=came,
            left=left,
            members=len(now.members),
            change=change,
            began_ms=None,
            duration=duration,
        )

    def _row(self, value: StoredGroup, at: At, last: _Last | None, members: list[Row], note: str | None) -> Row:
        return {
            "group_id": self.group_id,
            "protocol": CLASSIC,
            "generation": value.generation_id,
            "previous_generation": last and last.generation,
            "missing": max(value.generation_id - last.generation - 1, 0) if last else None,
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
        return {"last": self.last and self.last.to_json(), "holding": self.holding.to_json()}

    @classmethod
    def from_json(cls, group_id: str, said: Any) -> ClassicHistory:
        history = cls(group_id)
        history.last = said["last"] and _Last.from_json(said["last"])
        history.holding = Holding.from_json(said["holding"])
        return history


def _about(member: StoredMember) -> tuple[str | None, str]:
    """What it owns and where is part of a subscription's bytes; only what it wants counts as a change."""
    try:
        wants = read_subscription(member.subscription)
        return member.instance_id, "\n".join(sorted(wants.topics))
    except MalformedError:
        return member.instance_id, member.subscription.hex()


def _cause(last: _Last, now: _Last) -> tuple[list[str], list[str], str]:
    """Who came, who left, and why that made a round, in words of what two records of a group show."""
    came, left = sorted(now.members.keys() - last.members.keys()), sorted(last.members.keys() - now.members.keys())
    names_left = {last.members[member][0] for member in left} - {None}
    again = {now.members[member][0] for member in came} & names_left
    reasons = [
        _count(len(came) - len(again), "member came", "members came"),
        _count(len(left) - len(again), "member is gone", "members are gone"),
        _count(len(again), "static member came back", "static members came back"),
    ]
    stayed = now.members.keys() & last.members.keys()
    changed = sum(now.members[member][1] != last.members[member][1] for member in stayed)
    reasons.append(_count(changed, "member changed its subscription", "members changed their subscriptions"))
    if last.members and now.members and last.assignor != now.assignor:
        reasons.append(f"the assignor changed from {last.assignor} to {now.assignor}")
    said = ", ".join(reason for reason in reasons if reason)
    return came, left, said or "nothing that the log shows: a member asked again, or came and went in between"


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}" if number > 0 else ""


def _owners(value: StoredGroup, notes: list[str]) -> tuple[dict[Place, Holder], list[Row]]:
    owners: dict[Place, Holder] = {}
    rows = []
    for member in sorted(value.members, key=lambda one: one.member_id):
        assigned: list[Place] = []
        topics: list[str] | None = None
        try:
            if value.protocol_type == CONSUMER_PROTOCOL:
                topics = sorted(read_subscription(member.subscription).topics)
            if value.protocol_type == CONSUMER_PROTOCOL and member.assignment:  # the leader may have forgotten it
                partitions = read_assignment(member.assignment).partitions
                assigned = sorted((topic, number) for topic, numbers in partitions.items() for number in numbers)
        except MalformedError:
            notes.append(f"what {member.member_id} subscribes to or was assigned is not of the consumer protocol")
        holder = Holder(member.member_id, member.instance_id, member.client_id)
        owners |= dict.fromkeys(assigned, holder)
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
