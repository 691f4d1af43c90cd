"""Sticky, when members subscribe to different topics: optimal balance, then the fewest moves, then rack matches.

A *pile* is a number of partitions that are alike: those of one topic (and of one set of racks, if racks matter). The
question is how many of each pile a member has; which ones is settled afterwards. It is a min-cost flow from piles to
members, and three thoughts keep it small.

1. Balance. P partitions and M members ask for loads of l = P // M and l + 1 only. If that cannot be reached, the search
   for it gets stuck with a set of piles all of whose readers are full: those members must have more, all others less,
   and in no optimum is anything of the one part of use in the other. So each part is solved by itself.
2. Moves. Everyone starts with what it owns. Units to be routed are those nobody owns and those a member has in excess
   of l. A unit goes along a cheapest path to a member below l (then: below l + 1); giving up something owned costs one
   move, taking it back refunds it. Paths in order of their cost end in a minimum: nothing better has to be looked for.
3. Speed. Sets are bits of an int, so that a search looks at nodes, not at edges, and all paths of one cost are used
   before the next search (`network`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.assignors.bits import bits_of, positions, union
from coterie.assignors.network import Network

__all__ = ["solve"]


def solve(
    sizes: Sequence[int], readers: Sequence[int], owned: Sequence[Mapping[int, int]], near: Sequence[int] | None = None
) -> list[dict[int, int]]:
    """For each member, pile to how many of it.

    `sizes`, `readers` and `near` go by pile, the last two are sets of members; without `near` racks do not count.
    `owned` goes by member: pile to how many of it it has now.
    """
    result: list[dict[int, int]] = [{} for _ in owned]
    near_of = None if near is None else _turned(near, len(owned))
    blocks = [((1 << len(owned)) - 1, (1 << len(sizes)) - 1)]
    while blocks:
        members, piles = blocks.pop()
        if not members:
            continue
        network = Network(sizes, readers, owned, near, near_of, members, piles)
        stuck = _settle(network)
        if stuck:
            many, much = stuck
            blocks += [(many, much), (members & ~many, piles & ~much)]
        else:
            for member, have in network.have.items():
                result[member] = have
    return result


def _turned(near: Sequence[int], members: int) -> list[int]:
    """From members for each pile to piles for each member."""
    piles: list[list[int]] = [[] for _ in range(members)]
    for pile, close in enumerate(near):
        for member in positions(close):
            piles[member].append(pile)
    return [bits_of(close, len(near)) for close in piles]


def _settle(network: Network) -> tuple[int, int] | None:
    """Give every member l or l + 1, or say which members and piles cannot be part of that."""
    level = network.total // len(network.accepted)
    network.set_apart_above(level)
    stuck = _route(network, level)
    if stuck:
        return stuck
    for member in list(network.rich):  # one more than l: the own excess has the shortest way
        network.accept_own(member)
    return _route(network, level + 1)


def _route(network: Network, limit: int) -> tuple[int, int] | None:
    """Send surplus units to members below `limit`; stuck: the members and piles that could still be reached."""
    network.aim_at(limit)
    _pour(network)
    while network.needy and network.surplus():
        network.measure()
        if not any(members & network.needy for members in network.members_at.values()):
            return union(network.members_at.values()), union(network.piles_at.values())
        while network.layers():
            network.push()
    return None


def _pour(network: Network) -> None:
    """The paths that cost nothing and have one step. Evenly, so that little has to be rerouted later."""
    waiting = [pile for pile, units in network.free.items() if units]
    for pile in sorted(waiting, key=lambda pile: network.readers_of(pile).bit_count()):
        thirsty = network.readers_of(pile) & network.near[pile] & network.needy
        if thirsty:
            _fill(network, pile, positions(thirsty))


def _fill(network: Network, pile: int, members: list[int]) -> None:
    """Raise the lowest of `members` to a common level, as far as the pile reaches."""
    units, accepted = network.free[pile], network.accepted
    members.sort(key=accepted.__getitem__)
    lowest, held = 0, 0  # how many can be raised to a common level, and what they have together
    for member in members:
        if accepted[member] * lowest - held >= units:  # to lift the others to this one takes all there is
            break
        lowest += 1
        held += accepted[member]
    level, rest = divmod(units + held, lowest)
    if level >= network.limit:
        level, rest = network.limit, 0
    network.fill(pile, members[:lowest], level, rest)
