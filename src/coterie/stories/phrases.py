"""How an answer is said in a story: one short phrase each, the same in the grid and in its failures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coterie.errors import ErrorCode
from coterie.protocol.messages import (
    DescribedGroup,
    JoinedGroup,
    LeftGroup,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    SyncedGroup,
)

__all__ = ["in_words"]


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
    said = [f"{one.topic}:{one.partition}={one.error.name if one.error else one.offset}" for one in answer.partitions]
    return " ".join(said) or "nothing"


def _deleted(answer: OffsetsDeleted) -> str:
    if answer.error:
        return answer.error.name
    return " ".join(f"{one.topic}:{one.partition} {_error(one.error)}" for one in answer.partitions) or "ok"


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
}


def in_words(answer: Any) -> str:
    return _WORDS[type(answer)](answer)
