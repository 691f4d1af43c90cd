"""Offsets of what a group reads do not expire, however long nobody has committed (rule 23, KIP-211)."""

from __future__ import annotations

from coterie.client.types import TopicPartition
from coterie.coordinator.classic import State
from coterie.facts import Fact, OffsetsExpired
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer

__all__ = ["WhatIsReadStays"]


class WhatIsReadStays(Observer):
    name = "what is read stays"

    def tell(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is not OffsetsExpired:
            return
        group = self.world.group(fact.group_id)
        if group is None or group.state is not State.STABLE:
            return  # in between it may have begun a rebalance; it was not in one when they were judged
        for consumer in self.world.consumers.values():
            member = consumer.member
            if member.member_id in group.members and member.generation_id == group.generation_id:
                gone = member.assigned & {TopicPartition(*one) for one in fact.partitions}
                if gone:
                    self.fails(f"{consumer.name} reads {sorted(gone)}, and the offsets of {fact.group_id} have expired")
