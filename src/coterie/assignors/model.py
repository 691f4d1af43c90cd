"""The base class of assignors, and the types of its arguments and results.

Partitions are never objects of their own: a member's share of a topic is a sequence of ids (a list, an `array` or a
`range`), so that a million partitions cost a few thousand Python objects.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from coterie.protocol.subscription import Subscription

__all__ = ["Assignment", "Assignor", "Member", "Owned", "Topic"]

Owned = Mapping[str, Sequence[int]]
"""Topic to partition ids."""

Assignment = dict[str, dict[str, Sequence[int]]]
"""Member id to topic to partition ids. Every member is in it, also one that gets nothing."""


GENERATION_SINCE = 2
"""The first version of the Subscription with a generation (KIP-792)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists. One that is subscribed but not in the metadata is not in `topics`, and is skipped."""

    partitions: int
    racks: Sequence[Collection[str]] | None = None
    """The racks of each partition's replicas; None if the cluster does not say."""


@dataclass(slots=True)
class Member:
    """A member as its Subscription describes it (Kafka's ConsumerProtocolSubscription, versions 0 to 3)."""

    id: str
    topics: Sequence[str]
    instance_id: str | None = None
    rack: str | None = None
    """"" counts as none, as in Kafka."""
    owned: Owned = field(default_factory=dict)
    generation: int | None = None
    """The generation in the Subscription (version 2 and later), None if it has no such field."""
    user_data: bytes | None = None

    @classmethod
    def of(cls, member_id: str, subscription: Subscription, instance_id: str | None = None) -> Member:
        """Return a member as the leader of a group sees it."""
        return cls(
            member_id,
            subscription.topics,
            instance_id,
            subscription.rack,
            subscription.owned,
            subscription.generation_id if subscription.version >= GENERATION_SINCE else None,
            subscription.user_data,
        )


class Assignor:
    """Base of every assignor: a name, and `assign`.

    An assignor keeps no state between calls: what must survive from one rebalance to the next is in the subscriptions,
    as owned partitions or as user data.
    """

    name: str
    """The name of the protocol that members vote for."""
    cooperative: bool = False
    """Members keep what they own while they join, and `assign` withholds what must first be given up (KIP-429)."""

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Return which member gets which partitions; called by the leader of the group."""
        raise NotImplementedError

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """Return user data for the subscription; called by every member before it joins."""
        return None

    def on_assignment(self, owned: Owned, generation: int) -> None:
        """Note an assignment; called by every member after each rebalance."""
