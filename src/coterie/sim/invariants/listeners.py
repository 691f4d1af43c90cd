"""Listeners are told in turn: nothing is assigned twice, nothing is taken back that was not given; nobody reads what
its listener does not know of.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from coterie.client.member import effects
from coterie.client.types import TopicPartition
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.observer import Observer

__all__ = ["ListenersAreToldInTurn"]


class ListenersAreToldInTurn(Observer):
    name = "listeners are told in turn"

    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, called_with: Collection[TopicPartition]
    ) -> None:
        partitions = set(called_with)
        if kind is effects.Listened.ASSIGNED:
            if partitions & consumer.told:
                self.fails(f"{consumer.name} was told twice that it owns {sorted(partitions & consumer.told)}")
            consumer.told |= partitions
        else:
            if partitions - consumer.told:
                self.fails(f"{consumer.name} loses what it never had: {sorted(partitions - consumer.told)}")
            consumer.told -= partitions

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        read = {TopicPartition(record.topic, record.partition) for record in records}
        if not read <= consumer.told:
            self.fails(f"{consumer.name} was given records of {sorted(read - consumer.told)}, which it does not own")
