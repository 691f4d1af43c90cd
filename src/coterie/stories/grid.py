"""The text grid of a story: one row for each step, five columns.

    at_ms | who | says      | hears              | group
    0     | a   | join      | MEMBER_ID_REQUIRED | Empty
    0     | a   | join      | -                  | PreparingRebalance
    3000  |     |           | a: leads gen 1     | CompletingRebalance
    3000  | a   | sync a=01 | -                  | CompletingRebalance
    3004  |     | (on disk) | a: 01              | Stable

A failing story is printed in this form, so a bug report can be pasted into a test.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from coterie.errors import CoterieError, ErrorCode
from coterie.protocol.messages import (
    ConsumerGroupHeartbeatAnswer,
    DescribedGroup,
    JoinedGroup,
    LeftGroup,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    SyncedGroup,
)

_HEAD = ("at_ms", "who", "says", "hears", "group")


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One row of the grid."""

    at_ms: int
    who: str
    says: str
    hears: str
    group: str


def show(steps: Sequence[StoryStep]) -> str:
    rows = [_HEAD, *(tuple(str(cell) for cell in astuple(step)) for step in steps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return "\n".join(
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def read(text: str) -> list[StoryStep]:
    lines = [line for line in text.splitlines() if line.strip()]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    if not rows or tuple(rows[0]) != _HEAD:
        raise CoterieError(f"a story begins with the line `{' | '.join(_HEAD)}`")
    steps = []
    for line, row in zip(lines[1:], rows[1:], strict=True):
        if len(row) != len(_HEAD) or not row[0].isdigit():
            raise CoterieError(f"a step has {len(_HEAD)} columns, the first of them a time in ms; this one: {line!r}")
        steps.append(StoryStep(int(row[0]), *row[1:]))
    return steps


# --- answers ----------------------------------------------------------------------------------------------------------


def _error(error: ErrorCode) -> str:
    return error.name if error else "ok"


def _joined(answer: JoinedGroup) -> str:
    if answer.error:
        return answer.error.name
    role = "leads" if answer.leader_id == answer.member_id else "follows"
    return f"{role} gen {answer.generation_id}" + (" skip" if answer.skip_assignment else "")


def _synced(answer: SyncedGroup) -> str:
    return answer.error.name if answer.error else answer.assignment.hex() or "nothing"


def _left(answer: LeftGroup) -> str:
    return _error(answer.error) if answer.error else " ".join(_error(one.error) for one in answer.members) or "ok"


def _committed(answer: OffsetsCommitted) -> str:
    return " ".join(dict.fromkeys(_error(error) for error in answer.errors)) or "ok"


def _fetched(answer: OffsetsFetched) -> str:
    if answer.error:
        return answer.error.name
    offsets = [
        f"{one.topic}:{one.partition}={one.error.name if one.error else one.offset}" for one in answer.partitions
    ]
    return " ".join(offsets) or "nothing"


def _deleted(answer: OffsetsDeleted) -> str:
    if answer.error:
        return answer.error.name
    return " ".join(f"{one.topic}:{one.partition} {_error(one.error)}" for one in answer.partitions) or "ok"


def _heartbeat_answered(answer: ConsumerGroupHeartbeatAnswer) -> str:
    """A story has one topic, so the numbers of partitions say it all."""
    if answer.error:
        return answer.error.name
    epoch = f"epoch {answer.member_epoch}"
    if answer.assignment is None:
        return epoch
    numbers = [str(number) for partitions in answer.assignment.values() for number in partitions]
    return f"{epoch}: {' '.join(numbers) or 'nothing'}"


def _described(answer: DescribedGroup) -> str:
    return f"{answer.state} with {len(answer.members)}"


_WORDS: Mapping[type, Callable[[Any], str]] = {
    ErrorCode: _error,
    JoinedGroup: _joined,
    SyncedGroup: _synced,
    LeftGroup: _left,
    OffsetsCommitted: _committed,
    OffsetsFetched: _fetched,
    OffsetsDeleted: _deleted,
    DescribedGroup: _described,
    ConsumerGroupHeartbeatAnswer: _heartbeat_answered,
}


def in_words(answer: Any) -> str:
    """Return the short phrase for an answer."""
    return _WORDS[type(answer)](answer)
