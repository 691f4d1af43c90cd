"""A member commits only in the generation it is in, and only what it has owned in that: nothing after it was taken from
it (M7).
"""

from __future__ import annotations

from coterie.client.types import TopicPartition
from coterie.protocol.messages import OffsetCommit
from coterie.sim.client import Client
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["OnlyOwnersCommit"]


class OnlyOwnersCommit(Observer):
    name = "only owners commit"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owned: dict[str, tuple[int, set[TopicPartition]]] = {}
        """Of each process: a generation, and all that it has owned while it was in it."""

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        generation = consumer.member.generation_id
        before = self._owned.get(consumer.name)
        if before is not None and before[0] == generation:
            before[1].update(consumer.member.assigned)
        else:
            self._owned[consumer.name] = (generation, set(consumer.member.assigned))

    def commit_sent(self, client: Client, request: OffsetCommit) -> None:
        if not isinstance(client, ConsumerProcess):
            return
        generation = client.member.generation_id
        if request.generation_id != generation:
            self.fails(f"{client.name} commits in generation {request.generation_id}, and is in {generation}")
        self.ownership_changed(client)
        said = {TopicPartition(one.topic, one.partition) for one in request.partitions}
        foreign = said - self._owned[client.name][1]
        if foreign:
            self.fails(f"{client.name} commits {sorted(foreign)} in generation {request.generation_id}, and owns none")
