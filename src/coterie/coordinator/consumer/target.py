"""The target assignment: which assignor is used, and what it assigns (section 5).

`uniform` is the assignor `sticky` of the classic protocol, applied to the last target; `range` is `range`. So both are
the functions of `coterie.assignors`, with Kafka's names for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from coterie.assignors import Assignment, Member, Range, Topic
from coterie.assignors.claims import Claim
from coterie.assignors.java_order import by_id
from coterie.assignors.sticky import stick
from coterie.coordinator.consumer.group import ConsumerGroup, Target
from coterie.protocol.java_hash import map_order


def uniform(members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
    """Balance all partitions at once; no partition moves unless the balance needs it (K18)."""
    ordered = by_id(members)
    shares, _ = stick(ordered, [Claim(member.owned, 0, natural=True) for member in ordered], topics)
    return {member.id: dict(share) for member, share in zip(ordered, shares, strict=True)}


def ranges(members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
    """Assign each topic by itself, in consecutive shares (K17)."""
    return Range().assign(members, topics)


ASSIGNORS: Mapping[str, Callable[[Sequence[Member], Mapping[str, Topic]], Assignment]] = {
    "uniform": uniform,
    "range": ranges,
}


def vote(group: ConsumerGroup) -> str:
    """Return the assignor that most members name; the first of the setting if nobody names one (K16)."""
    votes = Counter(
        member.metadata.server_assignor
        for member in group.members.values()
        if member.metadata.server_assignor is not None
    )
    if not votes:
        return group.settings.group_consumer_assignors[0]
    most = max(votes.values())
    return next(name for name in map_order(list(votes)) if votes[name] == most)


def compute_target(group: ConsumerGroup) -> dict[str, Target]:
    """Return the target of each member for the present subscriptions and topics."""
    image = group.image
    names = group.subscribed_topics()
    topics = {name: Topic(image.topics[name].partitions) for name in sorted(names) if name in image.topics}
    ids: dict[str, UUID] = {name: image.topics[name].id for name in topics}
    members = [
        Member(
            member.member_id,
            sorted(group.topics_of(member)),
            member.metadata.instance_id,
            owned={
                image.topic_names[topic_id]: partitions
                for topic_id, partitions in group.targets.get(member.member_id, {}).items()
                if topic_id in image.topic_names
            },
        )
        for member in group.members.values()
    ]
    assigned = ASSIGNORS[vote(group)](members, topics)
    return {
        member_id: {ids[name]: tuple(sorted(shares[name])) for name in sorted(shares) if shares[name]}
        for member_id, shares in assigned.items()
    }
