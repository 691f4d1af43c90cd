"""A producer whose batches are refused as out of place finds them another one (KIP-360): what was given up before them
must not hold them up for ever.
"""

from __future__ import annotations

from coterie.sim.observer import Observer

__all__ = ["ProducersFindTheirPlace"]


class ProducersFindTheirPlace(Observer):
    name = "producers find their place"

    def sample(self) -> None:
        for producer in self.world.producers.values():
            identity = producer.batching.identity
            if identity is None or not identity.is_somebody:
                continue  # it has to ask for an id first
            for topic in producer.batching.topics.values():
                for queue in topic.queues.values():
                    if queue.unsettled and queue.may_move():
                        self.fails(f"all that {producer.name} sent to {queue.where} was refused, and it stays there")
