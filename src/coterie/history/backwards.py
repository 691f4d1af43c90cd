"""A strategy of a user's own, which no broker knows of: what range gives to the first, it gives to the last.

`BackwardsCooperative` does the same in two steps, so that members go on reading meanwhile (KIP-429).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors import Assignment, Assignor, Member, Range, Topic

__all__ = ["Backwards", "BackwardsCooperative"]


class Backwards(Assignor):
    name = "backwards"

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        first_to_last = sorted(member.id for member in members)
        given = Range().assign([Member(one.id, one.topics) for one in members], topics)
        return {one: given[other] for one, other in zip(first_to_last, reversed(first_to_last), strict=True)}


class BackwardsCooperative(Backwards):
    name = "backwards-cooperative"
    cooperative = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        """What another member still has is given when it has let go."""
        owners = {
            (topic, one): member.id for member in members for topic, owned in member.owned.items() for one in owned
        }
        return {
            member_id: {
                topic: [one for one in ids if owners.get((topic, one), member_id) == member_id]
                for topic, ids in given.items()
            }
            for member_id, given in super().assign(members, topics).items()
        }
