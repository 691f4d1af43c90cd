"""Whose offsets the group's offsets are, and what follows for a query that comes back to its checkpoint; pure.

Two places know how far a query is: its checkpoint and the group. They differ for as long as a batch is under way, and
after a crash nobody remembers why. So the query writes its name beside every offset it commits (Kafka keeps a note with
each): `spark query 5f0c plan 7`. Whoever else commits in between overwrites the note, and then the group is right.

| the group's note on a partition    | who is right                                    | a batch to be repeated  |
|------------------------------------|-------------------------------------------------|-------------------------|
| ours, of a plan before this one    | the checkpoint: nobody else has been there      | is read again, the same |
| ours, of this plan or a later one  | the group: what the plan has is done, and more  | (there is none)         |
| ours, "released": we left the      | the group: others have gone on from our offset  | is left to them         |
| batch to others, in order          |                                                 |                         |
| somebody else's, or none           | the group: others have gone on from our offset  | is left to them         |
| the group has no offset at all     | the checkpoint                                  | is read again, the same |

Nothing can be missing: what is left to others lies behind the offset they began at, and that was ours; and a batch that
was once left to them is never ours again, so that a sink which remembers a batch remembers the right one. What is read
twice is a batch that was under way when its query crashed, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.spark.plan import Plan, Span

__all__ = ["Note", "goes_on_at", "to_repeat"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_NOTE = re.compile(r"spark query ([0-9a-f]{1,64}) plan ([0-9]{1,18})( released)?")


@dataclass(frozen=True, slots=True)
class Note:
    """What a query writes beside an offset: everything up to this plan is done."""

    query: str
    plan: int
    is_released: bool = False
    """The plan after this one was begun and not finished, and others were there to read it."""

    def __str__(self) -> str:
        return f"spark query {self.query} plan {self.plan}{' released' if self.is_released else ''}"

    @classmethod
    def parse(cls, text: str) -> Note | None:
        found = _NOTE.fullmatch(text)
        return cls(found[1], int(found[2]), bool(found[3])) if found else None


def goes_on_at(partition: TopicPartition, done: Plan, committed: Offsets) -> int | None:
    """Where a partition that is ours goes on, when the checkpoint says that `done` is; None: where a new one begins."""
    theirs = committed.get(partition)
    ours = done.spans.get(partition)
    if theirs is None:
        return ours.until_offset if ours else None
    if ours is None or not _is_checkpoint_right(done, theirs):
        return theirs.offset
    return ours.until_offset


def to_repeat(plan: Plan, committed: Offsets) -> dict[TopicPartition, Span]:
    """What to read of a plan that Spark has begun and not finished."""
    return {
        partition: span
        for partition, span in plan.to_read().items()
        if partition not in committed or _is_checkpoint_right(plan, committed[partition])
    }


def _is_checkpoint_right(plan: Plan, committed: OffsetAndMetadata) -> bool:
    note = Note.parse(committed.metadata)
    return note is not None and note.query == plan.query and note.plan < plan.number and not note.is_released
