"""What clients know of their commits, from requests and answers alone: an acknowledged one is never lost (rule 22).

Requests that touch one offset are kept in the order in which they were sent, which is the order of the log. An answer
without an error makes one certain and ends the doubt about all before it. Until then it may or may not have happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coterie.coordinator.classic import Group
from coterie.protocol.messages import (
    DeleteGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetsCommitted,
    OffsetsDeleted,
    TopicsDeleted,
    TransactionMarker,
)

__all__ = ["Acknowledged", "Key"]

Key = tuple[str, str, int]
"""Group, topic, partition."""

Value = tuple[int, str] | None
"""Offset and metadata; None if there is none."""

Pending = dict[Key, dict[int, Value]]
"""Of a transaction: by step, for the last one that happened counts."""


@dataclass
class _History:
    certain: tuple[int, Value] = (-1, None)
    """The last step known to have happened, by its number."""
    possible: dict[int, Value] = field(default_factory=dict)

    def values(self) -> list[Value]:
        return [self.certain[1], *self.possible.values()]


class _Marker(NamedTuple):
    producer_id: int
    committed: bool
    pending: Pending
    """What its transaction is about."""


@dataclass
class Acknowledged:
    histories: dict[Key, _History] = field(default_factory=dict)
    transactions: dict[int, Pending] = field(default_factory=dict)
    markers: dict[int, _Marker] = field(default_factory=dict)
    """The markers that are not answered yet, by step."""
    last_deletion: dict[Key, int] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)
    """Steps that nobody will ever know of: answered because they took too long, or not at all."""

    # --- what clients say ---------------------------------------------------------------------------------------------

    def said(self, step: int, request: Any) -> None:
        match request:
            case OffsetCommit():
                for one in request.partitions:
                    if not one.error and len(one.metadata or "") <= 4_096:
                        key, value = (request.group_id, one.topic, one.partition), (one.offset, one.metadata or "")
                        self._wants(step, request.producer_id, key, value)
            case TransactionMarker():
                self._ends(step, request.producer_id, committed=request.committed)
            case DeleteGroup():
                self.gone(step, self.keys_of(request.group_id))
            case OffsetDelete():
                self.gone(step, _named(request))
            case TopicsDeleted():
                self.gone(step, [key for key in self.histories if key[1] in request.topics])

    def gone(self, step: int, keys: Iterable[Key]) -> None:
        """Deleted, expired, or with its topic or group: it may be that there is no such offset any more."""
        for key in keys:
            self._of(key).possible[step] = None
            self.last_deletion[key] = step

    def keys_of(self, group_id: str) -> list[Key]:
        return [key for key in self.histories if key[0] == group_id]

    def _wants(self, step: int, producer_id: int | None, key: Key, value: Value) -> None:
        history = self._of(key)
        if producer_id is None:
            history.possible[step] = value
        else:
            self.transactions.setdefault(producer_id, {}).setdefault(key, {})[step] = value

    def _ends(self, step: int, producer_id: int, *, committed: bool) -> None:
        """Whatever the producer commits after its marker is another transaction."""
        pending = self.transactions.pop(producer_id, {})
        self.markers[step] = _Marker(producer_id, committed, pending)
        if committed:
            self._may_happen(pending)

    def _may_happen(self, pending: Pending) -> None:
        for key, values in pending.items():
            history = self._of(key)  # a commit that came later stands
            history.possible |= {one: value for one, value in values.items() if one > history.certain[0]}

    # --- what they hear -----------------------------------------------------------------------------------------------

    def heard(self, step: int, request: Any, answer: Any, *, late: bool) -> None:
        match request:
            case OffsetCommit():
                if late:
                    self.doubtful.add(step)
                self._committed(step, request, answer)
            case TransactionMarker():
                self._ended(step, written=not answer, committed=request.committed)
            case DeleteGroup():
                for key in self.keys_of(request.group_id):
                    self._settle(step, key, happened=not answer)
            case OffsetDelete():
                happened = _deleted(answer)
                for key in _named(request):
                    self._settle(step, key, happened=key[1:] in happened)

    def nobody_heard(self, step: int) -> None:
        """The coordinator died before it answered."""
        self.doubtful.add(step)
        if step in self.markers:
            self._ended(step, written=False, committed=False)

    def _committed(self, step: int, request: OffsetCommit, answer: OffsetsCommitted) -> None:
        for one, error in zip(answer.partitions, answer.errors, strict=True):
            key = (request.group_id, one.topic, one.partition)
            if not error and request.producer_id is None:
                self._settle(step, key, happened=True)
            elif error and step not in self.doubtful and (error is not one.error):
                self._settle(step, key, happened=False)
                for pending in [*self.transactions.values(), *(marker.pending for marker in self.markers.values())]:
                    pending.get(key, {}).pop(step, None)  # not part of its transaction, whether that has ended or not

    def _ended(self, step: int, *, written: bool, committed: bool) -> None:
        producer_id, _, pending = self.markers.pop(step)
        if not written:  # the transaction is as open as before, so the next marker of the producer ends it
            later = [at for at, marker in self.markers.items() if at > step and marker.producer_id == producer_id]
            marker = self.markers[min(later)] if later else None
            now = marker.pending if marker else self.transactions.setdefault(producer_id, {})
            for key, values in pending.items():
                now[key] = {**values, **now.get(key, {})}
            if marker and marker.committed:
                self._may_happen(pending)
        elif committed:
            for key, values in pending.items():
                for one in sorted(values):
                    # A tombstone in between would have taken it away.
                    if one > self.last_deletion.get(key, -1) and one not in self.doubtful:
                        self._settle(one, key, happened=True)

    def _settle(self, step: int, key: Key, *, happened: bool) -> None:
        """It is known now whether this step happened; if it did, what came before does not matter any more."""
        history = self._of(key)
        if not happened:
            history.possible.pop(step, None)
        elif step in history.possible:
            history.certain = (step, history.possible[step])
            history.possible = {later: value for later, value in history.possible.items() if later > step}

    # --- looking ------------------------------------------------------------------------------------------------------

    def check(self, groups: Mapping[str, Group]) -> None:
        for (group_id, topic, partition), history in self.histories.items():
            group = groups.get(group_id)
            stored = group.offsets.get(topic, {}).get(partition) if group else None
            value = (stored.offset, stored.metadata) if stored else None
            assert value in history.values(), (
                f"{group_id} {topic}:{partition} is {value}; it was acknowledged as {history.certain[1]}"
                f" and may since have become {list(history.possible.values())}"
            )

    def _of(self, key: Key) -> _History:
        return self.histories.setdefault(key, _History())


def _named(request: OffsetDelete) -> list[Key]:
    return [(request.group_id, topic, partition) for topic, numbers in request.topics for partition in numbers]


def _deleted(answer: OffsetsDeleted) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in answer.partitions if not one.error}
