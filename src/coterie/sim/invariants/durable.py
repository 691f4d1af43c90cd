"""Readers are shown only what cannot be lost any more: what they were given is durable when they have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coterie.client.types import TopicPartition
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.observer import Observer

__all__ = ["OnlyDurableIsRead"]


class OnlyDurableIsRead(Observer):
    name = "only what is durable is read"

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        for where, last in {TopicPartition(one.topic, one.partition): one.offset for one in records}.items():
            log = self.world.log(where)
            if log is not None and last >= log.durable_end:
                self.fails(f"{consumer.name} has {where} to {last}, which is durable to before {log.durable_end}")
