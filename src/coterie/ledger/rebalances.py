"""Fold facts into rebalances: cause, member that caused it, last member to join, moved partitions, cost.

A rebalance of a classic group has a join phase and a sync phase. In a consumer group (KIP-848) it is one group epoch:
the group is Assigning until the target assignment is computed, and Reconciling until every member has reached it. It
goes on when its coordinator restarts or moves, since every step is in the log; a rebalance of a classic group is lost.

`Bookmark` does it for one group and can be saved as JSON, with the rebalance that is running.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from coterie import facts
from coterie.errors import MalformedError
from coterie.facts import Cause, Fact
from coterie.ledger.derived import DerivedCause, MemberGone, RebalanceSeen
from coterie.ledger.ownership import Move, Ownership, Partition, owned_by, rejoins_of
from coterie.protocol.consumer_group_records import MEMBER_STATES
from coterie.structs import DataStruct, field, field_names, replace


class RebalanceOutcome(StrEnum):
    RUNNING = "running"
    STABLE = "stable"
    EMPTY = "empty"
    SUPERSEDED = "superseded by the next rebalance"
    LOST = "lost with its coordinator"


GONE = "disappeared (left, crashed or timed out: the log does not say)"

_REASONS = {
    "need to re-join with the given member-id": "",  # every member without an id joins twice (KIP-394)
    "need to revoke partitions and re-join": "cooperative follow-up: it revoked partitions",
}
"""Reasons that clients send routinely, and what is shown instead."""


def shown_reason(reason: str | None) -> str:
    """Return the reason that a client sent without ids; empty for a routine one."""
    said = (reason or "").partition(": ")[0]
    return _REASONS.get(said, said)


class Rebalance(DataStruct):
    group_id: str
    cause: Cause | DerivedCause
    culprit: str
    """The member that caused it; empty if there is none."""
    reason: str | None
    """The reason that the client sent, if any."""
    began_ms: int
    """The begin of the rebalance; of a derived one the end, because its begin is not known."""
    old_generation_id: int
    """The generation, or group epoch, before it."""
    waits_for: list[str]
    """The members that had to rejoin, or to reach the next epoch, when it began; if it superseded one: []."""
    generation_id: int | None = None
    protocol_name: str = ""
    """The assignor."""
    leader_id: str = ""
    joined_ms: int | None = None
    """The end of the join phase or, in a consumer group, the time at which the target assignment was computed."""
    ended_ms: int | None = None
    outcome: RebalanceOutcome = RebalanceOutcome.RUNNING
    joined_after_ms: dict[str, int] = field(default_factory=dict)
    """The time after the begin at which each member joined or, in a consumer group, had all of its target
    assignment."""
    revoked_after_ms: dict[str, int | None] = field(default_factory=dict)
    """The members of a consumer group that had to give up partitions, for which others waited.

    It is how long after the begin each had given them up; None if it has not.
    """
    dropped: dict[str, str] = field(default_factory=dict)
    """Members that were removed during the rebalance, and why."""
    moves: list[Move] = field(default_factory=list)
    kept: int = 0
    """Partitions whose owner stayed the same."""
    unassigned_ms: int | None = 0
    """Unassigned partition-milliseconds that this rebalance ended; one partition for one second is 1 000.

    For a derived rebalance it is a lower bound. None if it is not known.
    """
    restarts_ms: list[int] = field(default_factory=list)
    """When the coordinator of a consumer group was started again, or another became it, during the rebalance."""
    is_derived: bool = False
    """It was derived from the records of the group (`derived.py`), not observed by the broker."""
    group_type: str = facts.CLASSIC
    """classic or consumer (KIP-848)."""

    def __repr__(self) -> str:
        who = f" ({self.culprit})" if self.culprit else ""
        took = "" if self.took_ms is None else f" after {self.took_ms} ms"
        generation = self.old_generation_id if self.generation_id is None else self.generation_id
        return (
            f"<rebalance of {self.group_id}: {self.cause}{who}, {self.outcome}{took}, "
            f"{'epoch' if self.is_of_consumer_group else 'generation'} {generation}, "
            f"{len(self.moves)} moved, {self.kept} kept>"
        )

    @property
    def is_of_consumer_group(self) -> bool:
        return self.group_type == facts.CONSUMER

    @property
    def has_times(self) -> bool:
        """Return whether it is known when it began: the log of a classic group does not say."""
        return self.is_of_consumer_group or not self.is_derived

    @property
    def shown_reason(self) -> str:
        """Return the reason without ids; empty for a routine one."""
        return shown_reason(self.reason)

    @property
    def last_to_join(self) -> str | None:
        """Return the member that all others waited for; in a consumer group, the last to have its target."""
        return max(self.joined_after_ms, key=lambda member: self.joined_after_ms[member], default=None)

    @property
    def took_ms(self) -> int | None:
        """Return the duration; None while it is running or if it is not known."""
        return None if self.ended_ms is None or not self.has_times else self.ended_ms - self.began_ms

    @property
    def join_ms(self) -> int | None:
        return None if self.joined_ms is None else self.joined_ms - self.began_ms

    @property
    def sync_ms(self) -> int | None:
        return None if self.ended_ms is None or self.joined_ms is None else self.ended_ms - self.joined_ms


TypeChange = facts.GroupUpgraded | facts.GroupDowngraded
_TYPE_CHANGES = 100
"""How many of a group are kept."""


class Ledger:
    """The last `keep` rebalances of each group, for the `groups` that had one most recently."""

    def __init__(self, keep: int = 1_000, groups: int = 10_000) -> None:
        self._keep = keep
        self._groups = groups
        self._books: dict[str, GroupBook] = {}

    def add(self, fact: Fact) -> None:
        if isinstance(fact, facts.ClockSet):
            for each in self._books.values():
                each.clock_set(fact.by_ms)
            return
        entry = _ENTRIES.get(type(fact))
        if entry is None:
            return
        book = self._books.get(fact.group_id)
        if book is None:
            if type(fact) not in _OPENS:
                return  # the group has never had a rebalance
            if len(self._books) >= self._groups:
                del self._books[next(iter(self._books))]
            book = self._books[fact.group_id] = GroupBook(deque(maxlen=self._keep))
        elif type(fact) is facts.RebalanceStarted:
            self._books[fact.group_id] = self._books.pop(fact.group_id)  # it is now the last to be dropped
        entry(book, fact)

    def rebalances_of(self, group_id: str) -> list[Rebalance]:
        book = self._books.get(group_id)
        return list(book.rebalances) if book else []

    def book_of(self, group_id: str) -> GroupBook | None:
        return self._books.get(group_id)

    def type_changes_of(self, group_id: str) -> list[TypeChange]:
        """Return the upgrades and downgrades of a group, in their order."""
        book = self._books.get(group_id)
        return list(book.type_changes) if book else []

    def open_book(self, group_id: str, ownership: Ownership, running: Rebalance | None) -> None:
        """Continue with the saved state of a group."""
        self._books[group_id] = GroupBook(deque([running] if running else [], self._keep), ownership)

    @property
    def rebalances(self) -> list[Rebalance]:
        """Return the rebalances of all groups, in the order in which they began."""
        rebalances = [one for book in self._books.values() for one in book.rebalances]
        return sorted(rebalances, key=lambda one: one.began_ms)


def fold(group_facts: Iterable[Fact]) -> list[Rebalance]:
    """Return the rebalances of all groups in these facts."""
    ledger = Ledger()
    for fact in group_facts:
        ledger.add(fact)
    return ledger.rebalances


class GroupBook(DataStruct):
    """The rebalances of one group, its changes of type, and who owns its partitions."""

    rebalances: deque[Rebalance]
    ownership: Ownership = field(default_factory=Ownership)
    type_changes: deque[TypeChange] = field(default_factory=lambda: deque(maxlen=_TYPE_CHANGES))

    def running(self) -> Rebalance | None:
        last = self.rebalances[-1] if self.rebalances else None
        return last if last is not None and last.outcome is RebalanceOutcome.RUNNING else None

    def close(self, outcome: RebalanceOutcome, at_ms: int) -> Rebalance | None:
        current = self.running()
        if current is not None:
            current.outcome = outcome
            current.ended_ms = at_ms
        return current

    def clock_set(self, by_ms: int) -> None:
        """Shift the times of what is still open by as much as the clock was set."""
        current = self.running()
        if current is not None:
            current.began_ms += by_ms
            if current.joined_ms is not None:
                current.joined_ms += by_ms
            current.restarts_ms = [at_ms + by_ms for at_ms in current.restarts_ms]
        self.ownership.clock_set(by_ms)

    def dropped(self, member_id: str, why: str, at_ms: int) -> None:
        self.ownership.gone(member_id, at_ms)
        current = self.running()
        if current is not None:
            current.dropped[member_id] = why


def _ended(book: GroupBook, fact: facts.GroupDied | facts.GroupUnloaded | facts.GroupCreated) -> None:
    """Close a rebalance with its group. A new group closes it too, if the last one ended in a crash."""
    book.ownership.emptied()
    book.close(RebalanceOutcome.LOST, fact.at_ms)


def _unloaded(book: GroupBook, fact: facts.GroupUnloaded) -> None:
    """Close a rebalance of a classic group. One of a consumer group goes on when the group is loaded."""
    current = book.running()
    if current is None or not current.is_of_consumer_group:
        _ended(book, fact)


def _started(book: GroupBook, fact: facts.RebalanceStarted) -> None:
    book.close(RebalanceOutcome.SUPERSEDED, fact.at_ms)
    book.rebalances.append(
        Rebalance(
            fact.group_id,
            fact.cause,
            fact.member_id,
            fact.reason,
            fact.at_ms,
            fact.generation_id,
            list(fact.waits_for),
            fact.generation_id + 1 if fact.group_type == facts.CONSUMER else None,  # an epoch begins at once
            group_type=fact.group_type,
        )
    )


def _seen(book: GroupBook, fact: RebalanceSeen) -> None:
    book.close(RebalanceOutcome.SUPERSEDED, fact.at_ms)
    book.rebalances.append(
        Rebalance(
            fact.group_id,
            fact.cause,
            fact.member_id,
            fact.reason,
            fact.at_ms,
            fact.old_generation_id,
            list(fact.waits_for),
            fact.generation_id,
            fact.protocol_name,
            fact.leader_id,
            unassigned_ms=0 if fact.group_type == facts.CONSUMER else None,
            is_derived=True,
            group_type=fact.group_type,
        )
    )


def _joined(book: GroupBook, fact: facts.JoinPhaseCompleted) -> None:
    for one in rejoins_of(fact):
        book.ownership.rejoined(one.member_id, one.metadata, one.at_ms)
    current = book.running()
    if current is not None:
        current.joined_ms = fact.at_ms
        current.generation_id = fact.generation_id
        current.protocol_name = fact.protocol_name
        current.leader_id = fact.leader_id
        current.joined_after_ms = dict(fact.joined_after_ms)


def _computed(book: GroupBook, fact: facts.TargetAssignmentComputed) -> None:
    current = book.running()
    if current is not None:
        current.joined_ms = fact.at_ms
        current.protocol_name = fact.assignor


def _assigned(book: GroupBook, fact: facts.MemberAssigned) -> None:
    moves, gaps_ms = book.ownership.took(fact.member_id, owned_by(fact), fact.at_ms)
    current = book.running()
    if current is None:
        return
    current.moves += moves
    current.unassigned_ms = (current.unassigned_ms or 0) + gaps_ms
    after_ms, who = fact.at_ms - current.began_ms, fact.member_id
    if fact.pending_revocation:
        current.revoked_after_ms[who] = None
    elif current.revoked_after_ms.get(who, 0) is None:
        current.revoked_after_ms[who] = after_ms
    if fact.state == _STABLE and fact.member_epoch > current.old_generation_id:
        current.joined_after_ms[who] = after_ms
    else:
        current.joined_after_ms.pop(who, None)


def _stored(book: GroupBook, fact: facts.AssignmentStored) -> None:
    moves, kept, gap_ms = book.ownership.assigned(fact.assignments, fact.at_ms)
    current = book.close(RebalanceOutcome.STABLE, fact.at_ms)
    if current is None:
        return
    if current.is_of_consumer_group:
        _reconciled(book, current, moves, gap_ms)
        return
    current.moves, current.kept, current.unassigned_ms = moves, kept, gap_ms
    if current.is_derived:  # 0 would say that it is known
        current.moves = [replace(move, unassigned_ms=move.unassigned_ms or None) for move in moves]
        current.unassigned_ms = gap_ms or None


def _reconciled(book: GroupBook, current: Rebalance, moves: list[Move], gap_ms: int) -> None:
    """Add what the members have not said themselves (`MemberAssigned`): it is little, or nothing."""
    current.moves += moves
    current.unassigned_ms = (current.unassigned_ms or 0) + gap_ms
    owned = sum(map(len, book.ownership.held.values()))
    current.kept = owned - len({move.partition for move in current.moves})


def _emptied(book: GroupBook, fact: facts.GroupEmptied) -> None:
    book.ownership.emptied()
    current = book.close(RebalanceOutcome.EMPTY, fact.at_ms)
    if current is not None:
        current.generation_id = fact.generation_id


def _loaded(book: GroupBook, fact: facts.GroupLoaded) -> None:
    """Go on with the rebalance of a consumer group, if it is the epoch that was under way. Else it is lost.

    If the group is Stable, its last step is in the log, and the coordinator could not tell it any more.
    """
    current = book.running()
    is_same = current is not None and (current.group_type, current.generation_id) == (
        fact.group_type,
        fact.generation_id,
    )
    if current is None or not is_same or not current.is_of_consumer_group:
        book.close(RebalanceOutcome.LOST, fact.at_ms)
        book.ownership.assigned(fact.assignments, fact.at_ms)
        return
    current.restarts_ms.append(fact.at_ms)
    moves, _, gap_ms = book.ownership.assigned(fact.assignments, fact.at_ms)
    _reconciled(book, current, moves, gap_ms)
    if fact.state == _STABLE:
        book.close(RebalanceOutcome.STABLE, fact.at_ms)


def _type_changed(book: GroupBook, fact: TypeChange) -> None:
    """Note it. A rebalance that was under way is superseded, or ends with the assignment that is stored then."""
    book.type_changes.append(fact)


_STABLE = MEMBER_STATES[0]
"""The name of the state in which a group, or a member, has reconciled."""
_OPENS = frozenset(
    {
        facts.RebalanceStarted,
        RebalanceSeen,
        facts.AssignmentStored,
        facts.GroupLoaded,
        facts.GroupUpgraded,
        facts.GroupDowngraded,
    }
)
_ENTRIES: Mapping[type[Fact], Callable[[GroupBook, Any], None]] = {
    facts.GroupCreated: _ended,
    facts.RebalanceStarted: _started,
    facts.JoinPhaseCompleted: _joined,
    facts.TargetAssignmentComputed: _computed,
    facts.MemberAssigned: _assigned,
    facts.AssignmentStored: _stored,
    facts.GroupEmptied: _emptied,
    facts.GroupDied: _ended,
    facts.GroupUnloaded: _unloaded,
    facts.GroupLoaded: _loaded,
    facts.GroupUpgraded: _type_changed,
    facts.GroupDowngraded: _type_changed,
    facts.MemberRejoined: lambda book, fact: book.ownership.rejoined(fact.member_id, fact.metadata, fact.at_ms),
    facts.MemberReplaced: lambda book, fact: book.ownership.renamed(fact.old_member_id, fact.member_id),
    facts.MemberLeft: lambda book, fact: book.dropped(fact.member_id, "left", fact.at_ms),
    RebalanceSeen: _seen,
    MemberGone: lambda book, fact: book.dropped(fact.member_id, GONE, fact.at_ms),
    facts.MemberExpired: lambda book, fact: book.dropped(fact.member_id, "session expired", fact.at_ms),
    facts.MemberMissedJoin: lambda book, fact: book.dropped(fact.member_id, "did not join in time", fact.at_ms),
    facts.MemberMissedSync: lambda book, fact: book.dropped(fact.member_id, "did not sync in time", fact.at_ms),
    facts.MemberMissedRevocation: lambda book, fact: book.dropped(
        fact.member_id, "did not give up partitions in time", fact.at_ms
    ),
    facts.MemberTurnedAway: lambda book, fact: book.dropped(
        fact.member_id, f"turned away: {fact.why or 'group is full'}", fact.at_ms
    ),
}


# --- one group, saved and restored ------------------------------------------------------------------------------------


class Bookmark:
    """The rebalances of one group, which can be saved as JSON and continued."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._ledger = Ledger(keep=2, groups=1)

    def add(self, fact: Fact) -> Rebalance | None:
        """Fold a fact. Returns the rebalance that it ended, if any."""
        rebalances = self._ledger.rebalances_of(self._group_id)
        running = rebalances[-1] if rebalances and rebalances[-1].outcome is RebalanceOutcome.RUNNING else None
        self._ledger.add(fact)
        return running if running is not None and running.outcome is not RebalanceOutcome.RUNNING else None

    @property
    def ownership(self) -> Ownership | None:
        """The owners now; None if the group has had no rebalance."""
        book = self._ledger.book_of(self._group_id)
        return None if book is None else book.ownership

    def to_json(self) -> Any:
        book = self._ledger.book_of(self._group_id)
        if book is None:
            return None
        running, ownership = book.running(), book.ownership
        return {
            "running": None
            if running is None
            else {name: getattr(running, name) for name in field_names(Rebalance)}
            | {"moves": [[one.partition, one.old_owner, one.new_owner, one.unassigned_ms] for one in running.moves]},
            "held": [[member_id, sorted(held)] for member_id, held in ownership.held.items()],
            "free": [[*partition, since_ms] for partition, since_ms in ownership.free_since_ms.items()],
            "last": [[*partition, owner] for partition, owner in ownership.last_owners.items()],
        }

    @classmethod
    def from_json(cls, group_id: str, saved: Any) -> Bookmark:
        mark = cls(group_id)
        if saved is None:
            return mark
        try:
            running = saved["running"]
            mark._ledger.open_book(group_id, _ownership(saved), running and _rebalance(running))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedError(f"a bookmark in the ledger of {group_id} cannot be read: {error!r}") from None
        return mark


def _rebalance(saved: Any) -> Rebalance:
    moves = [Move((topic, number), *rest) for (topic, number), *rest in saved["moves"]]
    return Rebalance(
        **{**saved, "cause": Cause(saved["cause"]), "outcome": RebalanceOutcome(saved["outcome"]), "moves": moves}
    )


def _ownership(saved: Any) -> Ownership:
    def partition(topic: str, number: int) -> Partition:
        return topic, number

    return Ownership(
        {member_id: {partition(*each) for each in held} for member_id, held in saved["held"]},
        {partition(topic, number): since_ms for topic, number, since_ms in saved["free"]},
        {partition(topic, number): owner for topic, number, owner in saved["last"]},
    )
