"""A ledger put down and taken up again: what one group's rebalances need to be folded further, as JSON.

Only the rebalance that is running is kept; those that are over have been told by then.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from coterie.errors import MalformedError
from coterie.facts import Cause, Fact
from coterie.ledger.ownership import Move, Ownership, Partition
from coterie.ledger.rebalances import Ledger, Outcome, Rebalance

__all__ = ["Bookmark"]


class Bookmark:
    """The rebalances of one group, told as they end."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._ledger = Ledger(keep=2, groups=1)

    def tell(self, fact: Fact) -> Rebalance | None:
        """The rebalance that this fact ended."""
        rebalances = self._ledger.rebalances_of(self._group_id)
        running = rebalances[-1] if rebalances and rebalances[-1].outcome is Outcome.RUNNING else None
        self._ledger.tell(fact)
        return running if running is not None and running.outcome is not Outcome.RUNNING else None

    def to_json(self) -> Any:
        book = self._ledger.book_of(self._group_id)
        if book is None:
            return None
        running, ownership = book.running(), book.ownership
        return {
            "running": None
            if running is None
            else {each.name: getattr(running, each.name) for each in fields(Rebalance)},
            "held": [[member_id, sorted(held)] for member_id, held in ownership.held.items()],
            "free": [[*partition, since_ms] for partition, since_ms in ownership.free_since_ms.items()],
            "last": [[*partition, owner] for partition, owner in ownership.last_owners.items()],
        }

    @classmethod
    def from_json(cls, group_id: str, said: Any) -> Bookmark:
        mark = cls(group_id)
        if said is None:
            return mark
        try:
            running = said["running"]
            mark._ledger.open_book(group_id, _ownership(said), running and _rebalance(running))
        except (KeyError, TypeError, ValueError) as error:
            raise MalformedError(f"a bookmark in the ledger of {group_id} cannot be read: {error!r}") from None
        return mark


def _rebalance(said: Any) -> Rebalance:
    moves = [Move((topic, number), old, new) for (topic, number), old, new in said["moves"]]
    return Rebalance(**{**said, "cause": Cause(said["cause"]), "outcome": Outcome(said["outcome"]), "moves": moves})


def _ownership(said: Any) -> Ownership:
    def partition(topic: str, number: int) -> Partition:
        return topic, number

    return Ownership(
        {member_id: {partition(*each) for each in held} for member_id, held in said["held"]},
        {partition(topic, number): since_ms for topic, number, since_ms in said["free"]},
        {partition(topic, number): owner for topic, number, owner in said["last"]},
    )
