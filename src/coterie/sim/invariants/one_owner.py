"""In one generation a partition has one owner, as the members see it (M14)."""

from __future__ import annotations

from coterie.client.types import TopicPartition
from coterie.facts import Fact, GroupCreated
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["OneOwner"]

_REMEMBERED = 8
"""Generations of a group: whoever is further behind has been told so."""


class OneOwner(Observer):
    name = "one owner"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owners: dict[str, dict[int, dict[TopicPartition, tuple[str, str | None]]]] = {}

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        member = consumer.member
        if not member.has_generation:
            return
        generations = self._owners.setdefault(consumer.group_id, {})
        owners = generations.get(member.generation_id)
        if owners is None:
            owners = generations[member.generation_id] = {}
            for old in sorted(generations)[:-_REMEMBERED]:
                del generations[old]
        mine = (member.member_id, consumer.habits.instance_id)
        for one in member.assigned:
            other = owners.setdefault(one, mine)
            if other == mine:
                continue
            if other[1] is not None and other[1] == mine[1]:
                owners[one] = mine  # KIP-345: it has come back under a new id, and the old one is fenced
                continue
            self.fails(f"{one} belongs to {other[0]} and to {mine[0]} in generation {member.generation_id}")

    def tell(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is GroupCreated:  # another group of that name, which counts from 1 again
            self._owners.pop(fact.group_id, None)
