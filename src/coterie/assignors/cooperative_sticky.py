"""`cooperative-sticky`: as `sticky`, but members go on reading while they join (KIP-429).

A partition that changes hands is withheld in the first rebalance: its owner sees that it is gone, gives it up and
rejoins, and the second rebalance hands it out. Since the first rebalance made the fewest moves, the second has none to
make, so two rebalances are always enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from coterie.assignors.claims import Claim, Claims
from coterie.assignors.model import Assignment, Assignor, Member, Owned, Topic
from coterie.assignors.order import by_id
from coterie.assignors.sticky import stick
from coterie.assignors.user_data import read_generation, write_generation

__all__ = ["CooperativeSticky"]


class CooperativeSticky(Assignor):
    name = "cooperative-sticky"
    cooperative = True

    def assign(self, members: Sequence[Member], topics: Mapping[str, Topic]) -> Assignment:
        ordered = by_id(members)
        claims = [Claim(member.owned, _generation(member)) for member in ordered]
        result, settled = stick(ordered, claims, topics, still=True)
        return {
            member.id: _without_claims_of_others(shares, position, settled)
            for position, (member, shares) in enumerate(zip(ordered, result, strict=True))
        }

    def user_data(self, topics: Collection[str], owned: Owned, generation: int) -> bytes | None:  # noqa: ARG002
        """The generation, for leaders that do not know Subscription version 2."""
        return write_generation(generation)


def _generation(member: Member) -> int:
    return read_generation(member.user_data) if member.generation is None else member.generation


def _without_claims_of_others(shares: Owned, position: int, settled: Claims) -> dict[str, Sequence[int]]:
    owned = settled.owned[position]
    if shares is owned:
        return dict(owned)
    given: dict[str, Sequence[int]] = {}
    for topic, ids in shares.items():
        claimed, mine = settled.claimed.get(topic), owned.get(topic, ())
        if claimed is None or ids is mine:
            given[topic] = ids
        elif now := [partition for partition in ids if not claimed[partition] or partition in mine]:
            given[topic] = now
    return given
