"""The member's side of an assignor: the subscription it sends, and what it remembers of the last rebalance.

An assignor keeps no state, so each consumer has its own slot. Two consumers with one slot would each claim what the
other owns.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from coterie.assignors import Assignment, Assignor, Member, Owned, Topic, assignor
from coterie.protocol.messages import NO_GENERATION
from coterie.protocol.subscription import Subscription


def resolve(chosen: Assignor | str) -> Assignor:
    """Return an assignor by its name, or the given one."""
    return assignor(chosen) if isinstance(chosen, str) else chosen


class MemberSlot:
    def __init__(self, chosen: Assignor, rack: str | None = None) -> None:
        self.assignor = chosen
        self._rack = rack
        self._owned: Owned = {}
        self._generation = NO_GENERATION

    def subscription(self, topics: Collection[str]) -> Subscription:
        """Return the subscription that this member sends with JoinGroup.

        Only a cooperative member still owns partitions then, of the topics it still subscribes to. What an eager member
        owned is in the assignor's user data.
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
    """Assign partitions, as the leader does. `topic` looks up a topic in the client's metadata."""
    names = dict.fromkeys(name for member in members for name in member.topics)
    known = {name: found for name in names if (found := topic(name)) is not None}
    return chosen.assign(list(members), known)
