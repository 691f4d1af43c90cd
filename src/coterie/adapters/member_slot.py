"""A member's side of an assignor: what it says before it joins, and what it remembers of the last rebalance.

An assignor keeps no state, so each consumer has a slot of its own. Two consumers on one slot would each claim what the
other has.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from coterie.assignors import Assignment, Assignor, Member, Owned, Topic, assignor
from coterie.protocol.messages import NO_GENERATION
from coterie.protocol.subscription import Subscription

__all__ = ["Slot", "assign", "resolve"]


def resolve(chosen: Assignor | str) -> Assignor:
    return assignor(chosen) if isinstance(chosen, str) else chosen


class Slot:
    def __init__(self, chosen: Assignor, rack: str | None = None) -> None:
        self.assignor = chosen
        self._rack = rack
        self._owned: Owned = {}
        self._generation = NO_GENERATION

    def subscription(self, topics: Collection[str]) -> Subscription:
        """What this member sends with its join.

        Only a cooperative member still owns something then, and not what it no longer subscribes to: that it has given
        up before. What an eager member had is for the assignor's user data to tell.
        """
        owned = {topic: ids for topic, ids in self._owned.items() if topic in topics}
        return Subscription(
            topics=sorted(topics),
            user_data=self.assignor.user_data(topics, owned, self._generation),
            owned=owned if self.assignor.cooperative else {},
            generation_id=self._generation,
            rack=self._rack,
        )

    def assigned(self, partitions: Iterable[tuple[str, int]], generation: int) -> None:
        owned: dict[str, list[int]] = {}
        for topic, partition in partitions:
            owned.setdefault(topic, []).append(partition)
        self._owned, self._generation = owned, generation
        self.assignor.on_assignment(owned, generation)


def assign(chosen: Assignor, members: Collection[Member], topic: Callable[[str], Topic | None]) -> Assignment:
    """The leader's part; `topic` looks a topic up in the client's metadata."""
    names = dict.fromkeys(name for member in members for name in member.topics)
    known = {name: found for name in names if (found := topic(name)) is not None}
    return chosen.assign(list(members), known)
