"""The part of a group that `flow` works on: who has how much of which pile, and cheapest ways to pass units on.

A unit is passed from a member to a pile (the member gives one up) and from a pile to a member (it takes one). Giving up
something owned costs a move, taking it back refunds it; having a partition that is far away costs 1 if racks count, and
a move then costs more than all racks together. No cycle is ever negative, so cheapest ways exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush

from coterie.assignors.bits import bits_of, each, positions

__all__ = ["Network"]

_MOVE_WITH_RACKS = 1 << 24
_NOBODY = -1


class Network:
    def __init__(
        self,
        sizes: Sequence[int],
        readers: Sequence[int],
        owned: Sequence[Mapping[int, int]],
        near: Sequence[int] | None,
        near_of: Sequence[int] | None,
        members: int,
        piles: int,
    ) -> None:
        everyone = positions(members)
        self._members, self._readers, self.owned = members, readers, owned
        self._racks_count = near is not None
        self._move = _MOVE_WITH_RACKS if self._racks_count else 1
        self.near = readers if near is None else near
        self._near_of = near_of if near_of is not None else [(1 << len(sizes)) - 1] * len(owned)
        self.limit = 0
        self.needy = 0
        """Members that have accepted less than the limit."""
        self.free = {pile: sizes[pile] for pile in positions(piles)}
        self.total = sum(self.free.values())
        self.have: dict[int, dict[int, int]] = {}
        self.accepted: dict[int, int] = {}
        self.excess: dict[int, int] = dict.fromkeys(everyone, 0)
        self.rich: set[int] = set()
        """Members with an excess."""
        self._over = dict.fromkeys(everyone, 0)  # piles of which the member has more than it owned
        self._kept: dict[int, int] = {}  # piles of which it has something it owned
        self._lack = dict.fromkeys(self.free, 0)  # members that have less of the pile than they owned
        whole = piles == (1 << len(sizes)) - 1
        for member in everyone:
            mine = owned[member]
            have = dict(mine) if whole else {pile: count for pile, count in mine.items() if piles >> pile & 1}
            kept = 0
            for pile, count in have.items():
                self.free[pile] -= count
                kept |= 1 << pile
            self.have[member] = have
            self.accepted[member] = sum(have.values())
            self._kept[member] = kept

    # --- what is where ------------------------------------------------------------------------------------------------

    def readers_of(self, pile: int) -> int:
        return self._readers[pile] & self._members

    def surplus(self) -> bool:
        return bool(self.rich) or any(self.free.values())

    def set_apart_above(self, level: int) -> None:
        """What a member has above `level` is in excess and must find a place, its own or another."""
        for member, load in self.accepted.items():
            if load > level:
                self.accepted[member], self.excess[member] = level, load - level
                self.rich.add(member)

    def accept_own(self, member: int) -> None:
        self.accepted[member] += 1
        self._spend(member, 1)

    def aim_at(self, limit: int) -> None:
        self.limit = limit
        needy = [member for member, load in self.accepted.items() if load < limit]
        self.needy = bits_of(needy, self._members.bit_length())

    def fill(self, pile: int, members: Iterable[int], level: int, rest: int) -> None:
        """From a pile to members that need it: to `level`, and one more to the first `rest` of them."""
        for index, member in enumerate(members):
            now = level + (index < rest)
            units = now - self.accepted[member]
            if units > 0:
                self._gain(member, pile, units)
                self.free[pile] -= units
                self.accepted[member] = now
                if now == self.limit:
                    self.needy ^= 1 << member

    def _spend(self, member: int, units: int) -> None:
        self.excess[member] -= units
        if not self.excess[member]:
            self.rich.discard(member)

    def _gain(self, member: int, pile: int, units: int) -> None:
        had, owned = self.have[member].get(pile, 0), self.owned[member].get(pile, 0)
        now = self.have[member][pile] = had + units
        if now > owned:
            self._over[member] |= 1 << pile
        if had < owned:
            self._kept[member] |= 1 << pile
            if now >= owned:
                self._lack[pile] &= ~(1 << member)

    def _lose(self, member: int, pile: int, units: int) -> None:
        had, owned = self.have[member].pop(pile), self.owned[member].get(pile, 0)
        now = had - units
        if now:
            self.have[member][pile] = now
        if now <= owned:
            self._over[member] &= ~(1 << pile)
        if now < owned:
            self._lack[pile] |= 1 << member
            if not now:
                self._kept[member] &= ~(1 << pile)

    # --- what a step costs --------------------------------------------------------------------------------------------

    def _steps_to_members(self, pile: int) -> tuple[tuple[int, int], ...]:
        """Cost and members: giving back what a member owned, and giving it something else."""
        readers, lack = self.readers_of(pile), self._lack[pile]
        if not self._racks_count:
            return ((-1, lack), (0, readers)) if lack else ((0, readers),)
        near = self.near[pile]
        back = self._move
        return (-back, lack & near), (1 - back, lack & ~near), (0, readers & near), (1, readers & ~near)

    def _steps_to_piles(self, member: int) -> tuple[tuple[int, int], ...]:
        """Cost and piles: giving up what it has only now, and giving up what it owned."""
        over, kept = self._over[member], self._kept[member]
        if not self._racks_count:
            return (0, over), (1, kept)
        near = self._near_of[member]
        return (-1, over & ~near), (0, over & near), (self._move - 1, kept & ~near), (self._move, kept & near)

    # --- how far it is ------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """What it costs at least to bring one of the surplus units to each pile and each member.

        Nodes are looked at in order of cost, again if a refund made them cheaper.
        """
        self._cost_to_pile: dict[int, int] = {}
        self._cost_to_member: dict[int, int] = {}
        self.piles_at: dict[int, int] = {}
        self.members_at: dict[int, int] = {}
        todo: list[int] = []
        fresh: dict[int, list[int]] = {}  # cost to [piles, members] from where steps are still to be taken

        def reach(cost: int, piles: int, members: int) -> None:
            piles = _not_as_cheap(cost, piles, self.piles_at)
            members = _not_as_cheap(cost, members, self.members_at)
            if piles or members:
                _label(cost, piles, self._cost_to_pile, self.piles_at)
                _label(cost, members, self._cost_to_member, self.members_at)
                if cost not in fresh:
                    fresh[cost] = [0, 0]
                    heappush(todo, cost)
                fresh[cost][0] |= piles
                fresh[cost][1] |= members

        reach(0, sum(1 << pile for pile, units in self.free.items() if units), sum(1 << member for member in self.rich))
        while todo:
            cost = heappop(todo)
            piles, members = fresh.pop(cost)
            found: dict[int, list[int]] = {}
            for pile in each(piles & self.piles_at.get(cost, 0)):
                for step, targets in self._steps_to_members(pile):
                    if targets:
                        found.setdefault(cost + step, [0, 0])[1] |= targets
            for member in each(members & self.members_at.get(cost, 0)):
                for step, targets in self._steps_to_piles(member):
                    if targets:
                        found.setdefault(cost + step, [0, 0])[0] |= targets
            for at, (new_piles, new_members) in found.items():
                reach(at, new_piles, new_members)

    # --- on the way ---------------------------------------------------------------------------------------------------

    def layers(self) -> bool:
        """Breadth first along cheapest steps, up to the first members in need. False: no way of this cost is left."""
        goal = min((cost for cost, members in self.members_at.items() if members & self.needy), default=None)
        if goal is None:
            return False
        sinks = self.members_at[goal] & self.needy
        members = sum(1 << member for member in self.rich) & self.members_at.get(0, 0)
        piles = sum(1 << pile for pile, units in self.free.items() if units) & self.piles_at.get(0, 0)
        seen_members, seen_piles = members, 0
        self._member_layers, self._pile_layers = [members], []
        while members or piles:
            for member in each(members):
                piles |= self._next_piles(member)
            piles &= ~seen_piles
            seen_piles |= piles
            self._pile_layers.append(piles)
            members = 0
            for pile in each(piles):
                members |= self._next_members(pile)
            members &= ~seen_members
            seen_members |= members
            self._member_layers.append(members)
            if members & sinks:
                self._member_layers[-1] &= sinks
                return True
            piles = 0
        return False

    def _next_members(self, pile: int) -> int:
        cost, members = self._cost_to_pile[pile], 0
        for step, targets in self._steps_to_members(pile):
            members |= targets & self.members_at.get(cost + step, 0)
        return members

    def _next_piles(self, member: int) -> int:
        cost, piles = self._cost_to_member[member], 0
        for step, targets in self._steps_to_piles(member):
            piles |= targets & self.piles_at.get(cost + step, 0)
        return piles

    def push(self) -> None:
        """Use up all ways through the layers."""
        for member in positions(self._member_layers[0]):
            while self.excess[member] and (path := self._path([member])):
                self._spend(member, self._send(path, self.excess[member]))
        for pile in positions(self._pile_layers[0]):
            while self.free[pile] and (path := self._path([_NOBODY, pile])):
                self.free[pile] -= self._send(path, self.free[pile])

    def _path(self, path: list[int]) -> list[int]:
        """Members and piles in turn, from a surplus to a member in need; empty if there is none. Dead ends leave."""
        origin = len(path)
        last = 2 * len(self._pile_layers) + 1
        while len(path) < last:
            node, depth = path[-1], len(path) // 2
            if len(path) % 2:
                following = self._next_piles(node) & self._pile_layers[depth]
            else:
                following = self._next_members(node) & self._member_layers[depth]
            if following:
                path.append((following & -following).bit_length() - 1)
                continue
            if len(path) == origin:
                return []
            path.pop()
            layer = self._member_layers if len(path) % 2 == 0 else self._pile_layers
            layer[len(path) // 2] &= ~(1 << node)
        return path

    def _send(self, path: list[int], units: int) -> int:
        """As many units as fit."""
        sink = path[-1]
        units = min(units, self.limit - self.accepted[sink])
        steps = [path[at : at + 3] for at in range(0, len(path) - 1, 2)]
        for giver, pile, taker in steps:
            if giver != _NOBODY:
                had, owned = self.have[giver][pile], self.owned[giver].get(pile, 0)
                units = min(units, had - owned if had > owned else had)
            lacking = self.owned[taker].get(pile, 0) - self.have[taker].get(pile, 0)
            if lacking > 0:
                units = min(units, lacking)
        for giver, pile, taker in steps:
            if giver != _NOBODY:
                self._lose(giver, pile, units)
            self._gain(taker, pile, units)
        self.accepted[sink] += units
        if self.accepted[sink] == self.limit:
            self.needy ^= 1 << sink
        self._member_layers[-1] &= self.needy
        return units


def _not_as_cheap(cost: int, nodes: int, at: Mapping[int, int]) -> int:
    """Those of `nodes` that were not reached for `cost` or less."""
    for known, same in at.items():
        if known <= cost:
            nodes &= ~same
    return nodes


def _label(cost: int, nodes: int, costs: dict[int, int], at: dict[int, int]) -> None:
    if nodes:
        for known in at:
            at[known] &= ~nodes
        at[cost] = at.get(cost, 0) | nodes
        for node in positions(nodes):
            costs[node] = cost
