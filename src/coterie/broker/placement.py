"""The node that leads each partition: pure decisions, from names and numbers alone.

A partition has a preferred leader, and is led by it while it is up. Otherwise another node leads it, the first one that
is up in an order that depends on the partition. So the partitions of a stopped node are spread over the others, no
partition moves without need, and a node that starts again leads its own partitions again. Whenever the leader changes,
the leader epoch rises by one.

| what happens                       | preferred leader         | leader                                     |
|------------------------------------|--------------------------|--------------------------------------------|
| it is created                      | by its name and number   | the preferred leader, else the first other |
| it is created with an assignment   | the node that is named   | the same                                   |
| it is reassigned                   | the new node             | that node                                  |
| its leader stops                   | stays                    | another node; none, if no node is up       |
| its preferred leader starts        | stays                    | the preferred leader; the other one, if    |
|                                    |                          | auto.leader.rebalance.enable is off        |
| its preferred leader is elected    | stays                    | the preferred leader                       |
| the broker starts again            | stays                    | the preferred leader: all nodes are up     |
| the broker starts with other nodes | as if created; if it was | the preferred leader                       |
|                                    | reassigned and can, stays|                                            |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from coterie.protocol.java_hash import java_hash

__all__ = [
    "NO_LEADER",
    "Partition",
    "PartitionState",
    "changed_leaders",
    "default_state",
    "leader_of",
    "moved_to",
    "new_states",
    "preferred_leader_of",
    "redistribute",
]

Partition = tuple[str, int]
"""Topic and number."""
NO_LEADER = -1


class PartitionState(NamedTuple):
    """The preferred leader, the leader and the leader epoch of one partition."""

    preferred_leader: int
    leader: int
    leader_epoch: int


def preferred_leader_of(partition: Partition, nodes: Sequence[int]) -> int:
    """Return the preferred leader: a topic's partitions take the nodes in turn, and its name decides the first one."""
    topic, number = partition
    return nodes[(java_hash(topic) + number) % len(nodes)]


def leader_of(preferred_leader: int, number: int, nodes: Sequence[int], up: Collection[int]) -> int:
    if preferred_leader in up:
        return preferred_leader
    others = [node for node in nodes if node != preferred_leader]
    first = number // len(nodes) % max(len(others), 1)  # spreads the partitions of one preferred leader
    return next((node for node in others[first:] + others[:first] if node in up), NO_LEADER)


def default_state(partition: Partition, nodes: Sequence[int]) -> PartitionState:
    preferred_leader = preferred_leader_of(partition, nodes)
    return PartitionState(preferred_leader, preferred_leader, 0)


def new_states(
    topic: str, numbers: range, preferred_leaders: Mapping[int, int], nodes: Sequence[int], up: Collection[int]
) -> dict[Partition, PartitionState]:
    """Return the states of new partitions; `preferred_leaders` has the nodes that the request names."""
    states = {}
    for number in numbers:
        preferred_leader = preferred_leaders.get(number, preferred_leader_of((topic, number), nodes))
        leader = leader_of(preferred_leader, number, nodes, up)
        states[topic, number] = PartitionState(preferred_leader, leader, 0)
    return states


def changed_leaders(
    states: Mapping[Partition, PartitionState], nodes: Sequence[int], up: Collection[int], *, to_preferred: bool = True
) -> dict[Partition, PartitionState]:
    """Return the states that change when these nodes are up.

    Without `to_preferred` a partition keeps a leader that is up, though its preferred leader has started again.
    """
    changed = {}
    for key, state in states.items():
        stays = state.leader in up and (state.preferred_leader not in up or not to_preferred)
        leader = state.leader if stays else leader_of(state.preferred_leader, key[1], nodes, up)
        if leader != state.leader:
            changed[key] = PartitionState(state.preferred_leader, leader, state.leader_epoch + 1)
    return changed


def redistribute(
    states: Mapping[Partition, PartitionState], before: Sequence[int], nodes: Sequence[int]
) -> dict[Partition, PartitionState]:
    """Return all states when other nodes than before are up. A reassigned partition stays, if its node exists."""
    again = {}
    for key, state in states.items():
        was_moved = state.preferred_leader != preferred_leader_of(key, before) and state.preferred_leader in nodes
        again[key] = state if was_moved else state._replace(preferred_leader=preferred_leader_of(key, nodes))
    return again | changed_leaders(again, nodes, nodes)


def moved_to(key: Partition, state: PartitionState, node: int) -> dict[Partition, PartitionState]:
    """Return the state that changes when a partition is reassigned to a node, which is up."""
    new = PartitionState(node, node, state.leader_epoch + (node != state.leader))
    return {key: new} if new != state else {}
