"""`sticky`: balanced, and as much as possible stays where it is. Members give everything up before they join (eager).

Which of three ways is taken depends on the group alone: `equal`, `equal_racks` (both exactly Kafka's answer), `unequal`
(the optimum, which Kafka misses in up to one case in five). What a member owned comes from its user data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coterie.assignors.claims import Claim, Claims, settle
from coterie.assignors.equal import assign_equal
from coterie.assignors.equal_racks import assign_equal_with_racks
from coterie.assignors.model import Assignment, Assignor, Member, Owned, Topic
from coterie.assignors.order import by_id, java_sorted
from coterie.assignors.racks import racks_differ, racks_matter, topic_racks
from coterie.assignors.unequal import assign_unequal
from coterie.assignors.user_data import OwnedReader, write_owned
from coterie.protocol.messages import NO_GENERATION

__all__ = ["Sticky", "stick"]


class Sticky(Assignor):
    name = "sticky"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = by_id(members)
        reader = OwnedReader()
        result, _ = stick(ordered, [_claim(member, reader) for member in ordered], topics)
        return {member.id: dict(shares) for member, shares in zip(ordered, result, strict=True)}

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """Version 1: what the member had, and the generation it had it in. Nothing before its first rebalance."""
        return write_owned(owned, generation) if owned or generation != NO_GENERATION else None


def _claim(member: Member, reader: OwnedReader) -> Claim:
    """User data if there is any; a caller without a wire may as well fill in `owned` and `generation`."""
    if member.user_data:
        return Claim(*reader.read(member.user_data), natural=True)
    return Claim(member.owned, NO_GENERATION if member.generation is None else member.generation)


def stick(
    members: Sequence[Member], claims: Sequence[Claim], topics: Mapping[str, Topic], *, still: bool = False
) -> tuple[list[Owned], Claims]:
    """Members in order of id; the result goes by position. `still`: see `assign_equal_with_racks`."""
    subscribed = _subscriptions(members, topics)
    names = java_sorted(_subscribed_by_anyone(subscribed, topics))
    settled = settle(claims, subscribed, {name: topics[name].partitions for name in names})
    ids = [member.id for member in members]
    racks = [member.rack for member in members]
    near = topic_racks(topics, names) if any(racks) else {}
    if not names:
        return [{} for _ in members], settled
    if any(topics_of is not subscribed[0] for topics_of in subscribed):
        differ = racks_differ(racks, near.values())
        return assign_unequal(names, subscribed, settled, racks, near if differ else None), settled
    if racks_matter(racks, near.values()):
        return assign_equal_with_racks(ids, names, settled, racks, near, still=still), settled
    return assign_equal(ids, names, settled), settled


def _subscribed_by_anyone(subscribed: Sequence[frozenset[str]], topics: Mapping[str, Topic]) -> set[str]:
    """The union. Mostly the largest subscription is all there is, and then the others need not be looked at."""
    names: set[str] = set()
    for mine in sorted(set(subscribed), key=len, reverse=True):
        names |= mine
        if len(names) == len(topics):
            break
    return names


def _subscriptions(members: Sequence[Member], topics: Mapping[str, Topic]) -> list[frozenset[str]]:
    """The subscribed topics that exist and have partitions; one object for all that are equal."""
    existing = frozenset(name for name, topic in topics.items() if topic.partitions)
    known: dict[frozenset[str], frozenset[str]] = {}
    sets: list[frozenset[str]] = []
    previous: Sequence[str] | None = None
    for member in members:
        if member.topics is previous or (sets and member.topics == previous):
            sets.append(sets[-1])
            continue
        previous = member.topics
        mine = existing.intersection(previous)
        sets.append(known.setdefault(mine, mine))
    return sets
