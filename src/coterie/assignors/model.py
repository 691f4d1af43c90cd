"""The base class of assignors, the types of its arguments and results, racks, and the orders of members
and topics.

Partitions are never objects of their own: a member's share of a topic is a sequence of ids (a list, an `array` or a
`range`), so that a million partitions cost a few thousand Python objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from coterie.protocol.subscription import Subscription

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
    lag: Sequence[int | None] | None = None
    """The lag of each partition for the group; None for one without a committed offset.

    Only the broker knows it, and only tells it to an assignor with `uses_lag`.
    """


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
    uses_lag: bool = False
    """True if `assign` wants `Topic.lag`, in the broker."""

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """Return which member gets which partitions; called by the leader of the group."""
        raise NotImplementedError

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """Return user data for the subscription; called by every member before it joins."""
        return None

    def on_assignment(self, owned: Owned, generation: int) -> None:
        """Note an assignment; called by every member after each rebalance."""


RackSet = frozenset[str]
_NOWHERE: RackSet = frozenset()


def topic_racks(topics: Mapping[str, Topic], names: Iterable[str]) -> dict[str, list[RackSet]]:
    """Return the racks of replicas for each topic and partition; unknown ones have none."""
    interned: dict[RackSet, RackSet] = {}
    sets: dict[str, list[RackSet]] = {}
    for name in names:
        topic = topics[name]
        given = list(topic.racks or ())[: topic.partitions]
        known = [interned.setdefault(racks, racks) for racks in map(frozenset, given)]
        sets[name] = known + [_NOWHERE] * (topic.partitions - len(known))
    return sets


def racks_matter(member_racks: Iterable[str | None], partition_racks: Iterable[Sequence[RackSet]]) -> bool:
    """Return whether Kafka uses racks: members and replicas share some, and not every partition is in all of them."""
    wanted = {rack for rack in member_racks if rack}
    if not wanted:
        return False
    distinct, everywhere = _seen(partition_racks)
    return bool(wanted & everywhere) and distinct != {everywhere}


def racks_differ(member_racks: Iterable[str | None], partition_racks: Iterable[Sequence[RackSet]]) -> bool:
    """Return whether racks can make a difference; also if replicas are in all racks, but some member is in none."""
    wanted = {rack or None for rack in member_racks}
    distinct, everywhere = _seen(partition_racks)
    return bool(wanted & everywhere) and not (distinct == {everywhere} and wanted <= everywhere)


def _seen(partition_racks: Iterable[Sequence[RackSet]]) -> tuple[set[RackSet], RackSet]:
    distinct = {racks for racks_of_topic in partition_racks for racks in racks_of_topic}
    return distinct, frozenset().union(*distinct)


# --- Kafka's orders of members and topics -----------------------------------------------------------------------------


def java_sorted(texts: Iterable[str]) -> list[str]:
    """Sort as `String.compareTo`: by UTF-16 units, which is not Python's order beyond the basic plane."""
    return sorted(texts, key=_utf16)


def by_id(members: Sequence[Member]) -> list[Member]:
    """Return members as the sticky assignors order them: by member id, static or not."""
    if all(member.id.isascii() for member in members):
        return sorted(members, key=attrgetter("id"))
    return sorted(members, key=lambda member: _utf16(member.id))


def by_instance_then_id(members: Sequence[Member]) -> list[Member]:
    """Return members as range and roundrobin order them: static ones by instance id, then the others by member id."""
    return sorted(members, key=lambda m: (m.instance_id is None, _utf16(m.instance_id or ""), _utf16(m.id)))


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")
