"""Min-cost flow for the sticky assignors when members subscribe to different topics.

It finds optimal balance, then the fewest moves, then the most rack matches. A *pile* is a number of partitions that are
alike: those of one topic (and of one set of racks, if racks matter). The flow from piles to members says how many of
each pile a member gets; `unequal_subscriptions.py` chooses which ones. Three ideas keep it small:

1. Balance. P partitions and M members ask for loads of l = P // M and l + 1 only. If that cannot be reached, the search
   for it gets stuck with a set of piles all of whose readers are full: those members must have more, all others less,
   and in no optimum is anything of the one part of use in the other. So each part is solved by itself.
2. Moves. Every member starts with what it owns. Units to be routed are those without owner and those in excess
   of l. A unit goes along a cheapest path to a member below l (then: below l + 1); giving up something owned costs one
   move, taking it back refunds it. Paths in order of their cost end in a minimum: nothing better has to be looked for.
3. Speed. Sets are bits of an int, so that a search looks at nodes, not at edges, and all paths of one cost are used
   before the next search (`Network`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

ONE = ord("1")
_SPARSE = 12
"""Set bits are picked one by one if fewer than one in this many is set: it is faster then."""
_MOVE_WITH_RACKS = 1 << 24
_NOBODY = -1


class Network:
    """The members and piles of one part of a group: how much of which pile each has, and cheapest paths between them.

    A unit is passed from a member to a pile (the member gives one up) and from a pile to a member (it takes one).
    Giving up something owned costs a move, taking it back refunds it. Having a partition of another rack costs 1 if
    racks count, and a move then costs more than all racks together. No cycle is ever negative, so cheapest paths exist.
    """

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
        """Count what a member has above `level` as excess, which must be routed to it or to another member."""
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
        """Give members of a pile up to `level`, and one more to the first `rest` of them."""
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
        """Return costs and members: giving back what a member owned, and giving it something else."""
        readers, lack = self.readers_of(pile), self._lack[pile]
        if not self._racks_count:
            return ((-1, lack), (0, readers)) if lack else ((0, readers),)
        near = self.near[pile]
        back = self._move
        return (-back, lack & near), (1 - back, lack & ~near), (0, readers & near), (1, readers & ~near)

    def _steps_to_piles(self, member: int) -> tuple[tuple[int, int], ...]:
        """Return costs and piles: giving up what a member did not own before, and giving up what it owned."""
        over, kept = self._over[member], self._kept[member]
        if not self._racks_count:
            return (0, over), (1, kept)
        near = self._near_of[member]
        return (-1, over & ~near), (0, over & near), (self._move - 1, kept & ~near), (self._move, kept & near)

    # --- how far it is ------------------------------------------------------------------------------------------------

    def measure(self) -> None:
        """Find the lowest cost of bringing a surplus unit to each pile and each member.

        Nodes are visited in order of cost, and again if a refund made them cheaper.
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
        """Search breadth first along cheapest steps for members in need; return whether such a path is left."""
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
        """Use up all paths through the layers."""
        for member in positions(self._member_layers[0]):
            while self.excess[member] and (path := self._path([member])):
                self._spend(member, self._send(path, self.excess[member]))
        for pile in positions(self._pile_layers[0]):
            while self.free[pile] and (path := self._path([_NOBODY, pile])):
                self.free[pile] -= self._send(path, self.free[pile])

    def _path(self, path: list[int]) -> list[int]:
        """Return a path of members and piles in turn, from a surplus to a member in need; empty if there is none.

        Dead ends are removed from the layers.
        """
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
        """Send as many units as fit along a path; return how many."""
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
    """Return those of `nodes` that were not reached for `cost` or less."""
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


def bits_of(numbers: Iterable[int], width: int) -> int:
    """Return the set of these numbers, all below `width`, as bits of an int."""
    text = bytearray(b"0") * (width or 1)
    for number in numbers:
        text[-1 - number] = ONE
    return int(text, 2)


def positions(bits: int) -> list[int]:
    """Return the numbers in the set, ascending."""
    if bits.bit_count() * _SPARSE < bits.bit_length():
        return list(each(bits))
    return [number for number, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]


def each(bits: int) -> Iterator[int]:
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def union(sets: Iterable[int]) -> int:
    together = 0
    for bits in sets:
        together |= bits
    return together


def solve(
    sizes: Sequence[int], readers: Sequence[int], owned: Sequence[Mapping[int, int]], near: Sequence[int] | None = None
) -> list[dict[int, int]]:
    """Return for each member how many of each pile it gets.

    `sizes`, `readers` and `near` are by pile, the last two are sets of members; without `near` racks do not count.
    `owned` is by member: how many of each pile it has now.
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
    """Turn the members of each pile into the piles of each member."""
    piles: list[list[int]] = [[] for _ in range(members)]
    for pile, close in enumerate(near):
        for member in positions(close):
            piles[member].append(pile)
    return [bits_of(close, len(near)) for close in piles]


def _settle(network: Network) -> tuple[int, int] | None:
    """Give every member l or l + 1, or return the members and piles for which that is impossible."""
    level = network.total // len(network.accepted)
    network.set_apart_above(level)
    stuck = _route(network, level)
    if stuck:
        return stuck
    for member in list(network.rich):  # one more than l: the own excess has the shortest way
        network.accept_own(member)
    return _route(network, level + 1)


def _route(network: Network, limit: int) -> tuple[int, int] | None:
    """Send surplus units to members below `limit`; if stuck, return the members and piles that can be reached."""
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
    """Use the paths of one step that cost nothing, evenly, so that little has to be rerouted later."""
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
