"""What is told and written has the time of the wall clock, whatever becomes of that."""

from __future__ import annotations

from coterie.facts import Fact
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["TimesAreTheWallClocks"]


class TimesAreTheWallClocks(Observer):
    name = "times are the wall clock's"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._earliest_ms = self._latest_ms = world.machine.wall_ms

    def tell(self, machine: Machine, fact: Fact) -> None:
        wall_ms = machine.wall_ms
        self._earliest_ms = min(self._earliest_ms, wall_ms)
        self._latest_ms = max(self._latest_ms, wall_ms)
        if fact.at_ms != wall_ms:
            self.fails(f"{type(fact).__name__} is told with {fact.at_ms}, and the wall clock says {wall_ms}")

    def sample(self) -> None:
        for _, _, shard in self.world.machine.shards():
            for group in shard.groups.values():
                if not self._earliest_ms <= group.state_timestamp_ms <= self._latest_ms:
                    self.fails(f"the state of {group.group_id} is from {group.state_timestamp_ms}")
