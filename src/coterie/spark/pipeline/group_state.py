"""The state of a group, rebuilt from its records in `__consumer_offsets` and from the facts of Coterie's broker.

Records are applied one after the other; rows of generations, ownership and rebalances come out. What has to be known
for the next batch is JSON. A classic group is derived by `classic_group.py`, a group of KIP-848 by `consumer_group.py`;
rebalances that Coterie's own broker recorded as facts are exact, with cause and culprit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.errors import CoterieError, MalformedError
from coterie.ledger import Bookmark, Rebalance, read_fact
from coterie.protocol.consumer_group_records import read_consumer_group_record
from coterie.protocol.messages import GroupRecord
from coterie.protocol.offsets_topic import read_record
from coterie.spark.pipeline.classic_group import ClassicGroupState
from coterie.spark.pipeline.consumer_group import ConsumerGroupState
from coterie.spark.pipeline.partition_owners import CLASSIC, CONSUMER, GroupRows, LogPosition, Row

__all__ = ["WHOLE", "GroupState", "observe", "observed_rebalance"]


WHOLE = "from its first cause to its end"
VERSION = 1
"""The version of the JSON of a state."""
RECENT_MS = 3_600_000
RECENT_REBALANCES = 1_000
"""How many rebalances of the last hour are kept; a group with more is unstable, however many they are."""


class GroupState:
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
    def from_json(cls, group_id: str, names: Mapping[str, str], text: str) -> GroupState:
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
    ended = mark.tell(fact)
    return None if ended is None else observed_rebalance(ended) | at.columns()


def observed_rebalance(one: Rebalance) -> Row:
    moved = [
        {
            "topic": move.partition[0],
            "partition": move.partition[1],
            "old_owner": move.old_owner,
            "new_owner": move.new_owner,
        }
        for move in sorted(one.moves, key=lambda move: move.partition)
    ]
    before = {*one.waits_for, *one.dropped}
    return {
        "group_id": one.group_id,
        "evidence": "observed",
        "protocol": CLASSIC,
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
        "members": len(one.joined_after_ms),
        "came": sorted(one.joined_after_ms.keys() - before),
        "left": sorted(one.dropped),
        "last_to_join": one.last_to_join,
        "moved": moved,
        "kept": one.kept,
        "unassigned_ms": one.unassigned_ms,
    }
