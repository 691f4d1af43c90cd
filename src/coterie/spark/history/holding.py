"""Who holds which partition, since when, and what became of those that nobody held for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from coterie.spark.history.group_rows import Place, Row

__all__ = ["Change", "Holder", "Holding"]

MOVED, GIVEN_UP, MEMBER_GONE = "moved", "given up", "member gone"


@dataclass(slots=True, frozen=True)
class Holder:
    member_id: str
    instance_id: str | None = None
    client_id: str | None = None


@dataclass(slots=True)
class Change:
    """What a rebalance did so far."""

    moved: dict[Place, tuple[str, str]] = field(default_factory=dict)
    """Old and new owner; the last move of a partition counts."""
    kept: int = 0
    unassigned_ms: int = 0

    def gave(self, place: Place, old: str, new: str) -> None:
        first = self.moved.get(place, (old, new))[0]
        if first == new:  # there and back within one rebalance
            self.moved.pop(place, None)
        else:
            self.moved[place] = first, new

    def columns(self, names: Mapping[str, str]) -> Row:
        named = sorted(
            (names.get(topic, topic), partition, *owners) for (topic, partition), owners in self.moved.items()
        )
        moved = [
            {"topic": topic, "partition": partition, "old_owner": old, "new_owner": new}
            for topic, partition, old, new in named
        ]
        return {"moved": moved, "kept": self.kept, "unassigned_ms": self.unassigned_ms}


@dataclass(slots=True)
class _Open:
    holder: Holder
    began_ms: int
    first_generation: int


class Holding:
    """Of one group. `ended` is filled with intervals as they end, to be taken by whoever asks."""

    def __init__(self) -> None:
        self.open: dict[Place, _Open] = {}
        self.last_owner: dict[Place, str] = {}
        self.free_since_ms: dict[Place, int] = {}
        self.ended: list[tuple[Place, _Open, int, int, str]] = []

    def become(self, owners: Mapping[Place, Holder], members: Iterable[str], at_ms: int, generation: int) -> Change:
        """A new assignment of the whole group."""
        change, there = Change(), set(members)
        for place, held in list(self.open.items()):
            if place not in owners:
                why = GIVEN_UP if held.holder.member_id in there else MEMBER_GONE
                self.end(place, at_ms, generation, why)
        for place, holder in owners.items():
            self.give(place, holder, at_ms, generation, change)
        return change

    def give(self, place: Place, holder: Holder, at_ms: int, generation: int, change: Change) -> None:
        held = self.open.get(place)
        if held is not None and held.holder.member_id == holder.member_id:
            change.kept += 1
            return
        if held is not None:
            self.end(place, at_ms, generation, MOVED)
        change.unassigned_ms += max(at_ms - self.free_since_ms.pop(place, at_ms), 0)
        before = self.last_owner.get(place, "")
        if before == holder.member_id:
            change.kept += 1
        else:
            change.gave(place, before, holder.member_id)
        self.last_owner[place] = holder.member_id
        self.open[place] = _Open(holder, at_ms, generation)

    def end(self, place: Place, at_ms: int, generation: int, why: str) -> None:
        self.ended.append((place, self.open.pop(place), at_ms, generation, why))
        self.free_since_ms[place] = at_ms

    def forget(self, at_ms: int, generation: int, why: str) -> None:
        """Nobody is there to read: what is free now is not missing anybody."""
        for place in list(self.open):
            self.end(place, at_ms, generation, why)
        self.last_owner.clear()
        self.free_since_ms.clear()

    # --- rows ---------------------------------------------------------------------------------------------------------

    def take_ended(self, group_id: str, names: Mapping[str, str]) -> list[Row]:
        rows = [
            _held(group_id, place, held, names)
            | {
                "ended_ms": ended_ms,
                "held_ms": ended_ms - held.began_ms,
                "last_generation": generation,
                "ended_by": why,
            }
            for place, held, ended_ms, generation, why in self.ended
        ]
        self.ended = []
        return rows

    def owners(self, group_id: str, names: Mapping[str, str]) -> list[Row]:
        return [_held(group_id, place, held, names) for place, held in sorted(self.open.items())]

    # --- memory -------------------------------------------------------------------------------------------------------

    def to_json(self) -> Any:
        return {
            "open": [
                [*place, held.holder.member_id, held.holder.instance_id, held.holder.client_id, held.began_ms, since]
                for place, held in self.open.items()
                for since in [held.first_generation]
            ],
            "last": [[*place, owner] for place, owner in self.last_owner.items()],
            "free": [[*place, since_ms] for place, since_ms in self.free_since_ms.items()],
        }

    @classmethod
    def from_json(cls, said: Any) -> Holding:
        holding = cls()
        for topic, partition, member_id, instance_id, client_id, began_ms, generation in said["open"]:
            holder = Holder(member_id, instance_id, client_id)
            holding.open[topic, partition] = _Open(holder, began_ms, generation)
        holding.last_owner = {(topic, partition): owner for topic, partition, owner in said["last"]}
        holding.free_since_ms = {(topic, partition): since_ms for topic, partition, since_ms in said["free"]}
        return holding


def _held(group_id: str, place: Place, held: _Open, names: Mapping[str, str]) -> Row:
    topic, partition = place
    return {
        "group_id": group_id,
        "topic": names.get(topic, topic),
        "partition": partition,
        "member_id": held.holder.member_id,
        "instance_id": held.holder.instance_id,
        "client_id": held.holder.client_id,
        "began_ms": held.began_ms,
        "first_generation": held.first_generation,
    }
