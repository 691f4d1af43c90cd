"""What an assignor is given and what it gives back.

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
"""The version of the Subscription that brought the generation (KIP-792)."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that exists. One that is subscribed but not in the metadata is left out of `topics` and is skipped."""

    partitions: int
    racks: Sequence[Collection[str]] | None = None
    """For each partition the racks of its replicas; None if the cluster does not say."""


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
        """As the leader of a group hears of it."""
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
    """Base of every assignor, ours and yours: a name, and `assign`.

    An assignor keeps no state between calls: whatever must survive from one rebalance to the next travels in the
    subscriptions, as owned partitions or as user data.
    """

    name: str
    """What members vote for, on the wire."""
    cooperative: bool = False
    """Members keep what they own while they join, and `assign` withholds what must first be given up (KIP-429)."""

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Run by the leader: who reads what."""
        raise NotImplementedError

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """Run by every member before it joins: what it wants the leader to know besides its subscription."""
        return None

    def on_assignment(self, owned: Owned, generation: int) -> None:
        """Run by every member after each rebalance."""
