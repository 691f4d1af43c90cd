"""The owners of partitions over time, in columns: a column has the owner of every partition from its time on.

A group of 10 000 partitions that rebalances 1 000 times has ten million intervals, but few columns, and neighbours
among them are nearly equal. So columns are kept in compressed blocks, which the page gets as they are. A member that
gives up everything, as all do in an eager rebalance, makes no column: that is a release, a member and a time.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from coterie import facts
from coterie.diagnosis import Departure, GroupHistory, Happening
from coterie.diagnosis.cost import dead_time_ms
from coterie.facts import Fact
from coterie.ledger import Bookmark, Interval, Rebalance, rejoins_of
from coterie.ledger.derived import MemberGone
from coterie.ledger.ownership import Partition

UNASSIGNED, ABSENT, FIRST_OWNER = 0, 1, 2
"""The values of a column: the partition had an owner and has none; it is not known, or the group has no members; the
others are members, by their number."""
BLOCK = 64
"""Columns in a block."""
MOST_CELLS = 48 << 20
"""Columns times partitions that are kept of one group: about 100 MB in the browser. The oldest blocks are dropped."""
MOST_COLUMNS = 32_768
MOST_MEMBERS = 60_000
"""Members that fit into a column; the later ones are shown as the last."""
MOST_DEAD = 10_000
_GRAINS = ((500, 0), (2_000, 20), (5_000, 100))
_COARSE_MS = 250
_WITHOUT_OWNERS = (
    facts.OffsetsStored,
    facts.OffsetsExpired,
    facts.OffsetsDeletedFact,
    facts.MemberIdGiven,
    facts.MemberIdExpired,
    facts.MemberJoined,
    facts.InstanceIdFenced,
    facts.RebalanceStarted,
    facts.JoinPhaseStuck,
    facts.JoinPhaseCompleted,
    facts.TargetAssignmentComputed,
    facts.WriteFailed,
    facts.AssignmentFailed,
    facts.ClientReported,
)
"""Facts that change no owner. The ledger needs those of a rebalance, but no column ends with them."""

_GONE = (
    facts.MemberLeft,
    facts.MemberExpired,
    facts.MemberMissedJoin,
    facts.MemberMissedSync,
    facts.MemberMissedRevocation,
    facts.MemberTurnedAway,
    MemberGone,
)
"""Facts after which a member is not in the group any more."""
_RELEASING = (facts.MemberRejoined, *_GONE)
"""Facts with which a member may give up everything."""


def grain_of(partitions: int) -> int:
    """Return how close in time, in ms, changes of a group are drawn as one. A small group has every millisecond."""
    return next((grain_ms for most, grain_ms in _GRAINS if partitions <= most), _COARSE_MS)


@dataclass(slots=True)
class TimelineMember:
    member_id: str
    client_id: str = ""
    host: str = ""
    instance_id: str | None = None
    ordinal: int = 0
    """Tells members apart that are there at the same time with the same client id and host, or instance id."""

    @property
    def identity(self) -> tuple[str, str]:
        return (self.instance_id, "") if self.instance_id else (self.client_id, self.host)


@dataclass(slots=True)
class DeadSpan:
    """The time from the last sign of life of a member to the end of its session."""

    member: int
    from_ms: int
    to_ms: int
    partitions: int
    """How many it owned at the end."""

    @property
    def partition_ms(self) -> int:
        return self.partitions * (self.to_ms - self.from_ms)


@dataclass(slots=True)
class Block:
    number: int
    times_ms: list[int] = field(default_factory=list)
    partitions: int = 0
    """How many partitions were known at its end; columns are filled up to that with ABSENT."""
    columns: list[array[int]] = field(default_factory=list)
    """Empty once it is packed."""
    packed: bytes = b""
    releases: list[tuple[int, int, int]] = field(default_factory=list)
    """The column in this block, the member, and when it gave up everything that it has in this column."""

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "times": self.times_ms,
            "partitions": self.partitions,
            "releases": [value for release in self.releases for value in release],
            "data": b64encode(self.packed or _packed(self.columns, self.partitions)).decode("ascii"),
        }


def _packed(columns: list[array[int]], partitions: int) -> bytes:
    packer = zlib.compressobj(level=1)
    parts = []
    for column in columns:
        full = column + array("H", [ABSENT]) * (partitions - len(column))
        if sys.byteorder == "big":
            full.byteswap()
        parts.append(packer.compress(full.tobytes()))
    return b"".join([*parts, packer.flush()])


class Timeline:
    """The owners of one group's partitions, from its facts."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.partitions: dict[Partition, int] = {}
        self.members: list[TimelineMember] = []
        self.dead: deque[DeadSpan] = deque(maxlen=MOST_DEAD)
        self.blocks: deque[Block] = deque([Block(0)])
        self.from_ms: int | None = None
        self.to_ms: int | None = None
        self.dead_partition_ms = 0
        """Partitions of crashed members until their sessions ended, in all."""
        self._ledger = Bookmark(group_id)
        self._numbers: dict[str, int] = {}
        self._present: dict[tuple[str, str], dict[int, str]] = {}
        """The members that are there, by what they are called and their ordinal."""
        self._pending_ms: int | None = None
        self._last: array[int] = array("H")
        self._has_releases = False
        self._columns = self._cells = 0

    def add(self, fact: Fact) -> Rebalance | None:
        """Add a fact. Returns the rebalance that it ended, if any."""
        if isinstance(fact, facts.JoinPhaseCompleted):
            for one in rejoins_of(fact):
                self.add(one)
        elif isinstance(fact, facts.MemberJoined):
            self._join(fact)
        elif isinstance(fact, facts.GroupEmptied | facts.GroupCreated):
            self._present.clear()
        elif isinstance(fact, facts.MemberReplaced):
            self._replace(fact)
        elif isinstance(fact, facts.MemberExpired) and fact.session_timeout_ms > 0:
            self._expire(fact)
        if fact.group_id:
            self.from_ms = fact.at_ms if self.from_ms is None else self.from_ms
            self.to_ms = fact.at_ms if self.to_ms is None else max(self.to_ms, fact.at_ms)
        changes = not isinstance(fact, _WITHOUT_OWNERS)
        if changes and self._pending_ms is not None and fact.at_ms > self._pending_ms + grain_of(len(self.partitions)):
            self._keep_column(self._pending_ms)
        held = self._held_by(fact.member_id) if isinstance(fact, _RELEASING) else 0
        ended = self._ledger.add(fact)
        if isinstance(fact, _RELEASING):
            left = self._held_by(fact.member_id)
            changes = left != held
            if held and not left and self._pending_ms is None and self.blocks[-1].times_ms:
                self._release(self._number_of(fact.member_id), fact.at_ms)
                changes = False
        if isinstance(fact, _GONE):
            self._go(fact.member_id)
        if changes and self._pending_ms is None and fact.group_id:
            self._pending_ms = fact.at_ms
        return ended

    def _held_by(self, member_id: str) -> int:
        owners = self._ledger.ownership
        return 0 if owners is None else len(owners.held.get(member_id, ()))

    def _release(self, number: int, at_ms: int) -> None:
        block = self.blocks[-1]
        block.releases.append((len(block.times_ms) - 1, number, at_ms))
        self._has_releases = True

    @classmethod
    def of_history(cls, history: GroupHistory) -> Timeline:
        """Return the timeline of a history that another source has made, from its intervals."""
        made = cls(history.group_id)
        made.from_ms, made.to_ms = history.from_ms, history.to_ms
        leaving = sorted(
            (stay for stay in history.stays if stay.gone_ms.is_known), key=lambda one: one.gone_ms.value or 0
        )
        for stay in history.stays:
            while leaving and (leaving[0].gone_ms.value or 0) <= (stay.joined_ms.value or 0):
                made._go(leaving.pop(0).member_id)
            member = made.members[made._number_of(stay.member_id)]
            member.client_id, member.host, member.instance_id = stay.client_id, stay.host, stay.instance_id
            made._count(member)
        made._know(sorted({one.partition for one in history.intervals}))
        changes = [(one.began_ms, 1, one) for one in history.intervals]
        changes += [(one.ended_ms, 0, one) for one in history.intervals if one.ended_ms is not None]
        changes.sort(key=lambda change: change[:2])
        emptied = {event.at_ms for event in history.events if event.what is Happening.GROUP_EMPTIED}
        made._sweep(changes, emptied)
        for stay in history.stays:
            gone_ms, session_ms = stay.gone_ms.value, stay.session_timeout_ms.value
            if stay.departure.value == Departure.SESSION_EXPIRED and gone_ms is not None and session_ms is not None:
                owned = dead_time_ms(history, stay) or 0
                made._died(stay.member_id, gone_ms - session_ms, gone_ms, round(owned / max(session_ms, 1)))
        return made

    def _sweep(self, changes: Sequence[tuple[int, int, Interval]], emptied: Container[int]) -> None:
        """Make columns of intervals that begin and end. `emptied` are the times at which the last member went."""
        grain_ms = grain_of(len(self.partitions))
        column = array("H", [ABSENT]) * len(self.partitions)
        owned: Counter[str] = Counter()
        column_ms: int | None = None
        for at_ms, together in groupby(changes, key=lambda change: change[0]):
            now = list(together)
            if column_ms is not None and at_ms > column_ms + grain_ms:
                self._append_if_new(column[:], column_ms)
                column_ms = None
            owned.update(Counter(one.owner for _, begins, one in now if begins))
            owned.subtract(Counter(one.owner for _, begins, one in now if not begins))
            for _, begins, one in now:
                value = FIRST_OWNER + self._number_of(one.owner) if begins else UNASSIGNED
                column[self.partitions[one.partition]] = value
            is_empty = at_ms in emptied and not any(owned.values())
            if is_empty:
                column = array("H", [ABSENT]) * len(self.partitions)
            gone = {one.owner for _, begins, one in now if not begins}
            are_releases = not any(begins or owned[one.owner] for _, begins, one in now) and not is_empty
            if are_releases and column_ms is None and self.blocks[-1].times_ms:
                for owner in sorted(gone):
                    self._release(self._number_of(owner), at_ms)
            elif column_ms is None:
                column_ms = at_ms
        if column_ms is not None:
            self._append_if_new(column[:], column_ms)

    def settle(self) -> None:
        """Make a column of the changes that are pending. Call it before the blocks are read."""
        if self._pending_ms is not None:
            self._keep_column(self._pending_ms)

    def _join(self, fact: facts.MemberJoined) -> None:
        member = self.members[self._number_of(fact.member_id)]
        if not member.client_id and not member.instance_id:
            member.client_id, member.host, member.instance_id = fact.client_id, fact.client_host, fact.instance_id
            self._count(member)

    def _expire(self, fact: facts.MemberExpired) -> None:
        owners = self._ledger.ownership
        held = len(owners.held.get(fact.member_id, ())) if owners is not None else 0
        self._died(fact.member_id, fact.at_ms - fact.session_timeout_ms, fact.at_ms, held)

    def _died(self, member_id: str, from_ms: int, to_ms: int, partitions: int) -> None:
        span = DeadSpan(self._number_of(member_id), from_ms, to_ms, partitions)
        self.dead_partition_ms += span.partition_ms
        self.dead.append(span)

    def _replace(self, fact: facts.MemberReplaced) -> None:
        old = self.members[self._number_of(fact.old_member_id)]
        new = self.members[self._number_of(fact.member_id)]
        new.client_id, new.host, new.ordinal = new.client_id or old.client_id, new.host or old.host, old.ordinal
        new.instance_id = fact.instance_id
        self._present.setdefault(new.identity, {})[new.ordinal] = new.member_id

    def _count(self, member: TimelineMember) -> None:
        """Give a member the first ordinal that is free: one that comes back alone looks as before."""
        there = self._present.setdefault(member.identity, {})
        member.ordinal = next(ordinal for ordinal in range(len(there) + 1) if ordinal not in there)
        there[member.ordinal] = member.member_id

    def _go(self, member_id: str) -> None:
        member = self.members[self._number_of(member_id)]
        there = self._present.get(member.identity, {})
        if there.get(member.ordinal) == member_id:
            del there[member.ordinal]

    def _number_of(self, member_id: str) -> int:
        number = self._numbers.get(member_id)
        if number is None:
            if len(self.members) >= MOST_MEMBERS:
                return len(self.members) - 1
            number = self._numbers[member_id] = len(self.members)
            self.members.append(TimelineMember(member_id))
        return number

    def _keep_column(self, at_ms: int) -> None:
        self._pending_ms = None
        owners = self._ledger.ownership
        if owners is None:
            return
        for known in (*owners.held.values(), owners.free_since_ms):
            self._know(known)
        column = array("H", [ABSENT]) * len(self.partitions)
        for partition in owners.free_since_ms:
            column[self.partitions[partition]] = UNASSIGNED
        for member_id, held in owners.held.items():
            value = FIRST_OWNER + self._number_of(member_id)
            for partition in held:
                column[self.partitions[partition]] = value
        self._append_if_new(column, at_ms)

    def _know(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            if partition not in self.partitions:
                self.partitions[partition] = len(self.partitions)

    def _append_if_new(self, column: array[int], at_ms: int) -> None:
        if column != self._last or self._has_releases:
            self._last = column
            self._has_releases = False
            self._append(column, at_ms)

    def _append(self, column: array[int], at_ms: int) -> None:
        block = self.blocks[-1]
        if len(block.times_ms) == BLOCK:
            block.packed = _packed(block.columns, block.partitions)
            block.columns = []
            block = Block(block.number + 1)
            self.blocks.append(block)
        last_ms = self.blocks[-2].times_ms[-1] if not block.times_ms and len(self.blocks) > 1 else at_ms
        last_ms = block.times_ms[-1] if block.times_ms else last_ms
        block.times_ms.append(max(at_ms, last_ms))  # the clock may have been set back
        block.columns.append(column)
        block.partitions = len(self.partitions)
        self._columns += 1
        self._cells += len(column)
        while len(self.blocks) > 1 and (self._cells > MOST_CELLS or self._columns > MOST_COLUMNS):
            dropped = self.blocks.popleft()
            self._columns -= len(dropped.times_ms)
            self._cells -= len(dropped.times_ms) * dropped.partitions
