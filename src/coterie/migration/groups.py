"""When the offsets of a group can be set in the target, and whether the group can move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coterie.client.types import OffsetAndMetadata, TopicPartition
from coterie.migration.progress import Progress, WrittenOffset
from coterie.spark.checkpoint import CommitNote

Committed = Mapping[TopicPartition, OffsetAndMetadata]
IDLE = ("Empty", "Dead", "")
"""States of groups without members; a group that is not listed has none either."""


@dataclass(frozen=True)
class TranslatedOffsets:
    """A group's offsets as they are in the target."""

    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    not_copied: tuple[TopicPartition, ...] = ()
    """Partitions in which the group is ahead of the copy. Their offsets are the end of the copy."""


def translated(
    committed: Committed, progress: Progress, reached: Callable[[TopicPartition], int | None]
) -> TranslatedOffsets:
    """Translate the offsets of a group. `reached` is how far a partition of the source was read.

    The note of a Spark query is left out: it says that the checkpoint is right, which has offsets of the source.
    """
    offsets, not_copied = {}, []
    for one, at in sorted(committed.items()):
        if one.topic not in progress.topics:
            continue
        metadata = "" if CommitNote.parse(at.metadata) else at.metadata
        offsets[one] = OffsetAndMetadata(progress.table(one).translate(at.offset), metadata)
        if at.offset > (reached(one) or 0):
            not_copied.append(one)
    return TranslatedOffsets(offsets, tuple(not_copied))


def is_untouched(there: Committed, written: Mapping[TopicPartition, WrittenOffset]) -> bool:
    """Return whether all offsets that a group has in the target were set by this migration.

    If not, its members have committed there. Its offsets must not be set again then, as that would set it back.
    """
    return all(one in written and at.offset in written[one] for one, at in there.items())


def offsets_to_set(wanted: Committed, there: Committed) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets that differ, or whose metadata differs."""

    def is_set(one: TopicPartition, at: OffsetAndMetadata) -> bool:
        now = there.get(one)
        return now is not None and (now.offset, now.metadata) == (at.offset, at.metadata)

    return {one: at for one, at in wanted.items() if not is_set(one, at)}


@dataclass(frozen=True)
class GroupStatus:
    """How far a group is on its way to the target."""

    group_id: str
    source_state: str
    target_state: str
    not_copied: int
    """In how many partitions it is ahead of the copy."""
    not_set: int
    """How many offsets are not set in the target yet."""
    has_moved: bool
    """True if its members have committed in the target."""

    @property
    def is_ready(self) -> bool:
        """True if nothing has to be waited for."""
        return self.runs_there or self.has_moved or not (self.not_copied or self.not_set)

    @property
    def runs_there(self) -> bool:
        """True if it has members in the target."""
        return self.target_state not in IDLE

    @property
    def next_step(self) -> str:
        """What is left to do, as a sentence."""
        runs_here = self.source_state not in IDLE
        if self.runs_there or self.has_moved:
            return "stop it on the source: it runs on both" if runs_here and self.runs_there else "moved"
        if runs_here:
            return "stop it on the source"
        if self.not_copied:
            return f"wait: {self.not_copied} offsets are ahead of the copy"
        if self.not_set:
            return f"wait: {self.not_set} offsets are not set in the target"
        return "start it on the target"


@dataclass(frozen=True)
class GroupView:
    """A group on both sides, and the offsets to set in the target."""

    status: GroupStatus
    to_set: Committed
    there: Committed
    """The offsets that it has in the target."""

    def written(self) -> dict[TopicPartition, WrittenOffset]:
        """Return what to store before the offsets are set."""
        before = {one: self.there[one].offset if one in self.there else None for one in self.to_set}
        return {one: WrittenOffset(before[one], at.offset) for one, at in self.to_set.items()}


def view_of(
    group_id: str,
    states: tuple[str, str],
    wanted: TranslatedOffsets,
    there: Committed,
    written: Mapping[TopicPartition, WrittenOffset],
) -> GroupView:
    """Decide what to do for a group. `states` are its states in the source and in the target."""
    has_moved = not is_untouched(there, written)
    differ = {} if has_moved else offsets_to_set(wanted.offsets, there)
    status = GroupStatus(group_id, *states, len(wanted.not_copied), len(differ), has_moved)
    return GroupView(status, {} if status.runs_there else differ, there)
