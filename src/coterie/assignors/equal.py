"""Sticky, when all members subscribe to the same topics and racks do not matter: exactly Kafka's answer.

Everyone gets the lower quota P // M, and P mod M members get one more. Each keeps what it owns up to its quota, the
lowest partitions first; what is free then is dealt in order, in rounds, to whoever is below the lower quota, by member
id; the rest goes one each to members that may still have one more. Balance and moves are optimal.

The work is per member and topic, not per partition: only members off their quota are touched, a member that keeps
everything keeps its very mapping, and dealing is slicing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from coterie.assignors.claims import Claims
from coterie.assignors.model import Owned
from coterie.assignors.order import hash_order

__all__ = ["assign_equal", "who_keeps_one_more"]


def assign_equal(ids: Sequence[str], topics: Sequence[str], claims: Claims) -> list[Owned]:
    """`ids` are the members' and `topics` the topics' names, both sorted; the result goes by position of the member."""
    quota, extras = divmod(sum(claims.sizes[topic] for topic in topics), len(ids))
    kept = list(claims.owned)
    loads = [sum(map(len, owned.values())) for owned in kept]
    keeping = who_keeps_one_more(ids, loads, quota, extras)
    for position, load in enumerate(loads):
        excess = load - quota - (position in keeping)
        if excess > 0:
            kept[position] = _without_the_last(kept[position], excess, claims)
            loads[position] -= excess
    needs = [(position, quota - load) for position, load in enumerate(loads) if load < quota]
    spare = extras - len(keeping)
    one_more = [position for position, load in enumerate(loads) if load == quota] if spare else []
    one_more += [position for position, _ in sorted(needs, key=lambda need: need[1])]  # in the order they are filled
    _deal(kept, topics, claims, [*_rounds(needs), (one_more[:spare], 1)])
    return kept


def who_keeps_one_more(ids: Sequence[str], loads: Sequence[int], quota: int, extras: int) -> set[int]:
    """Of the members that own more than the quota the first `extras`, in the order of Java's hash, keep one more."""
    rich = {position for position, load in enumerate(loads) if load > quota}
    if len(rich) <= extras:
        return rich
    if not extras:
        return set()
    return set([position for position in hash_order(ids) if position in rich][:extras])


def _without_the_last(owned: Owned, excess: int, claims: Claims) -> Owned:
    """Gives up the `excess` highest by (partition, topic): Kafka keeps the start of that list."""
    runs = {topic: sorted(run) for topic, run in owned.items()}
    last = sorted(((partition, topic) for topic, run in runs.items() for partition in run[-excess:]), reverse=True)
    for partition, topic in last[:excess]:
        runs[topic].pop()
        claims.release(topic, partition)
    return {topic: run for topic, run in runs.items() if run}


def _rounds(needs: list[tuple[int, int]]) -> list[tuple[list[int], int]]:
    """Members in the order of a round, and for how many rounds this is so: the others are filled by then."""
    blocks, done = [], 0
    for level in sorted({need for _, need in needs}):
        blocks.append(([position for position, need in needs if need >= level], level - done))
        done = level
    return blocks


def _deal(kept: list[Owned], topics: Sequence[str], claims: Claims, blocks: list[tuple[list[int], int]]) -> None:
    """Hands out the free partitions in order. A block gives each of its members one partition a round."""
    free = ((topic, run) for topic in topics if (run := claims.free(topic)))
    gained: defaultdict[int, dict[str, Sequence[int]]] = defaultdict(dict)
    topic, run, at = "", range(0), 0
    for slots, rounds in blocks:
        turn, turns = 0, len(slots) * rounds
        while turn < turns:
            if at == len(run):
                topic, run, at = *next(free), 0
            stop = min(len(run), at + turns - turn)
            first, step = turn % len(slots), len(slots)
            for position, start in zip(chain(slots[first:], slots[:first]), range(at, stop), strict=False):
                mine = gained[position]
                part = run[start:stop:step]
                mine[topic] = sorted((*mine[topic], *part)) if topic in mine else part
            turn += stop - at
            at = stop
    for position, more in gained.items():
        old = kept[position]
        for name in old.keys() & more.keys():
            more[name] = sorted((*old[name], *more[name]))
        kept[position] = {**old, **more}
