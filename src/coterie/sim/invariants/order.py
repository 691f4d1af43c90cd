"""Whoever owns a partition is handed its records in order, each once, for as long as it owns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.member import effects
from coterie.client.types import TopicPartition
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["RecordsComeInOrder"]


class RecordsComeInOrder(Observer):
    name = "records come in order"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._last: dict[str, dict[TopicPartition, int]] = {}

    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None:
        """What is new to it begins where the group has come to."""
        stays = set(effect.partitions) - set(effect.added)
        before = self._last.get(consumer.name, {})
        self._last[consumer.name] = {one: last for one, last in before.items() if one in stays}

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        last = self._last.setdefault(consumer.name, {})
        for record in records:
            where = TopicPartition(record.topic, record.partition)
            before = last.get(where)
            if before is not None and record.offset != before + 1:
                self.fails(f"{consumer.name} was handed {where} at {record.offset}, after {before}")
            last[where] = record.offset
