"""One group from its first record to its last: which history a record belongs to, and what is remembered in between."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from coterie.errors import CoterieError, MalformedError
from coterie.ledger import Bookmark
from coterie.protocol.consumer_group_records import read_consumer_group_record
from coterie.protocol.messages import GroupRecord
from coterie.protocol.offsets_topic import read_record
from coterie.spark.history.classic import ClassicHistory
from coterie.spark.history.consumer import ConsumerHistory
from coterie.spark.history.group_rows import CLASSIC, CONSUMER, At, Row, Told
from coterie.spark.history.observed import observe

__all__ = ["GroupHistory"]

VERSION = 1
"""Of what is remembered."""
RECENT_MS = 3_600_000
RECENT_REBALANCES = 1_000
"""A group with more in an hour is unwell whatever their number."""


class GroupHistory:
    """Told of record after record; `told` collects rows. MalformedError leaves it as it was."""

    def __init__(self, group_id: str, names: Mapping[str, str] | None = None) -> None:
        self.group_id = group_id
        self.told = Told()
        self._classic = ClassicHistory(group_id)
        self._consumer = ConsumerHistory(group_id, names or {})
        self._facts = Bookmark(group_id)
        self._recent: list[tuple[int, int | None]] = []
        self._was_consumer = False

    def record(self, key: bytes, value: bytes | None, at: At) -> None:
        found = read_record(key, value)
        before = len(self.told.rebalances)
        if isinstance(found, GroupRecord):
            self._classic.tell(found.value, at, self.told)
            self._was_consumer = self._was_consumer and not self._classic.is_there
        else:
            of_consumers = read_consumer_group_record(key, value)
            if of_consumers is None:
                raise MalformedError(f"a record of no kind that tells of a group: its key is {key.hex()}")
            self._consumer.tell(of_consumers, at, self.told)
            self._was_consumer = self._was_consumer or self._consumer.is_there
        for row in self.told.rebalances[before:]:
            self._recent.append((row["ended_ms"], row["unassigned_ms"]))

    def fact(self, value: bytes, at: At) -> None:
        row = observe(self._facts, value, at)
        if row is not None:
            self.told.rebalances.append(row)

    # --- how it is now ------------------------------------------------------------------------------------------------

    def state(self) -> Row:
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
                *self._classic.holding.owners(self.group_id, {}),
                *self._consumer.holding.owners(self.group_id, self._consumer.names),
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
    def from_json(cls, group_id: str, names: Mapping[str, str], text: str) -> GroupHistory:
        said: Any = json.loads(text)
        if said.get("version") != VERSION:
            raise CoterieError(
                f"what is remembered of group {group_id} is of version {said.get('version')}, and this is {VERSION}: "
                "another release wrote it. Read the log again into an empty directory"
            )
        history = cls(group_id, names)
        history._classic = ClassicHistory.from_json(group_id, said["classic"])
        history._consumer = ConsumerHistory.from_json(group_id, names, said["consumer"])
        history._facts = Bookmark.from_json(group_id, said["facts"])
        history._recent = [(ended_ms, unassigned_ms) for ended_ms, unassigned_ms in said["recent"]]
        history._was_consumer = said["was_consumer"]
        return history
