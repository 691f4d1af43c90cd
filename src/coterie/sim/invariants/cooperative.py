"""Cooperative members never stop reading what they keep, and give nothing up before they join (KIP-429)."""

from __future__ import annotations

from collections.abc import Collection

from coterie.client.consumer.partition_state import PartitionState
from coterie.client.member import effects
from coterie.client.member.states import MemberState
from coterie.client.types import TopicPartition
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["CooperativeMembersKeepReading"]


class CooperativeMembersKeepReading(Observer):
    name = "cooperative members keep reading"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._held: dict[str, set[TopicPartition]] = {}

    def held(self, consumer: ConsumerProcess, partitions: Collection[TopicPartition]) -> None:
        if consumer.member.settings.is_cooperative:
            self._held.setdefault(consumer.name, set()).update(partitions)

    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None:
        """Before the reader is told: what stays must not have been held, nor be counted as new."""
        if not consumer.member.settings.is_cooperative:
            return
        reads = set(consumer.fetcher.assignment)
        kept = reads & set(effect.partitions)
        stopped = kept & self._held.pop(consumer.name, set())
        if stopped:
            self.fails(f"{consumer.name} stopped reading {sorted(stopped)}, which it keeps")
        if kept & set(effect.added):
            self.fails(f"{consumer.name} starts again with {sorted(kept & set(effect.added))}, which it had")

    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, partitions: Collection[TopicPartition]
    ) -> None:
        """What it has to give up it is told by the assignment; until then only what it does not read any more goes."""
        member = consumer.member
        if (
            kind is effects.Listened.REVOKED
            and member.state is MemberState.PREPARING
            and member.settings.is_cooperative
        ):
            early = [one for one in partitions if one.topic in member.topics]
            if early:
                self.fails(f"{consumer.name} gives up {sorted(early)} before it joins, and nobody has asked for it")

    def sample(self) -> None:
        for consumer in self.world.consumers.values():
            if consumer.member.settings.is_cooperative:
                paused = [one for one in consumer.fetcher.assignment if _is_stuck(consumer.fetcher.state(one))]
                held = self._held.get(consumer.name, set())
                if set(paused) - held:
                    self.fails(f"{consumer.name} does not read {sorted(set(paused) - held)}, which it owns")


def _is_stuck(state: PartitionState) -> bool:
    return state.is_held or state.is_paused
