"""The node that leads each partition: pure decisions, from names and numbers alone.

A partition has a home. It is led there while its home is up, else by a stand-in, the first of the other nodes that is
up in an order of its own: so what a stopped node led is spread over the others, nothing moves that need not move, and a
node that comes back has its share again. Whenever the leader changes, its epoch rises by one.

| what happens            | home of a partition        | leader                               |
|-------------------------|----------------------------|--------------------------------------|
| it is created           | by its name and number     | its home, else its first stand-in    |
| it is created for nodes | the node that is named     | the same                             |
| it is moved, reassigned | the node it is moved to    | that node                            |
| its leader stops        | stays                      | a stand-in; nobody, if no node is up |
| its home starts         | stays                      | its home; the stand-in, if           |
|                         |                            | auto.leader.rebalance.enable is off  |
| its leader is elected   | stays                      | its home                             |
| the broker starts again  | stays                      | its home: all nodes are up           |
| .. with other nodes     | as if created; if it was   | its home                             |
|                         | moved, and can, it stays   |                                      |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from coterie.protocol.java_hash import java_hash

__all__ = [
    "NOBODY",
    "Partition",
    "Place",
    "default_place",
    "home_of",
    "leader_of",
    "moved",
    "new_places",
    "resettled",
    "settled",
]

Partition = tuple[str, int]
"""Topic and number."""
NOBODY = -1


class Place(NamedTuple):
    """The preferred leader (`home`), the leader and the leader epoch of one partition."""

    home: int
    leader: int
    epoch: int


def home_of(partition: Partition, nodes: Sequence[int]) -> int:
    """A topic's partitions go round the nodes; where that begins is drawn from its name, which spreads small topics."""
    topic, number = partition
    return nodes[(java_hash(topic) + number) % len(nodes)]


def leader_of(home: int, number: int, nodes: Sequence[int], up: Collection[int]) -> int:
    if home in up:
        return home
    others = [node for node in nodes if node != home]
    first = number // len(nodes) % max(len(others), 1)  # of the partitions of one home, each begins one further on
    return next((node for node in others[first:] + others[:first] if node in up), NOBODY)


def default_place(partition: Partition, nodes: Sequence[int]) -> Place:
    home = home_of(partition, nodes)
    return Place(home, home, 0)


def new_places(
    topic: str, numbers: range, homes: Mapping[int, int], nodes: Sequence[int], up: Collection[int]
) -> dict[Partition, Place]:
    """Return the places of new partitions; `homes` has the nodes that the request names."""
    places = {}
    for number in numbers:
        home = homes.get(number, home_of((topic, number), nodes))
        places[topic, number] = Place(home, leader_of(home, number, nodes, up), 0)
    return places


def settled(
    places: Mapping[Partition, Place], nodes: Sequence[int], up: Collection[int], *, comes_back: bool = True
) -> dict[Partition, Place]:
    """Return the places that change when these nodes are up. Unless it `comes_back`, a partition keeps its stand-in."""
    changed = {}
    for key, place in places.items():
        stays = place.leader in up and (place.home not in up or not comes_back)
        leader = place.leader if stays else leader_of(place.home, key[1], nodes, up)
        if leader != place.leader:
            changed[key] = Place(place.home, leader, place.epoch + 1)
    return changed


def resettled(places: Mapping[Partition, Place], before: Sequence[int], nodes: Sequence[int]) -> dict[Partition, Place]:
    """All places when the nodes are others than before; all are up. Who was moved stays, if its home is still there."""
    homes = {}
    for key, place in places.items():
        was_moved = place.home != home_of(key, before) and place.home in nodes
        homes[key] = place._replace(home=place.home if was_moved else home_of(key, nodes))
    return homes | settled(homes, nodes, nodes)


def moved(key: Partition, place: Place, node: int) -> dict[Partition, Place]:
    """Return the place that changes when a partition is moved to a node, which is up."""
    new = Place(node, node, place.epoch + (node != place.leader))
    return {key: new} if new != place else {}
