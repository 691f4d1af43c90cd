"""What the members of groups make a broker hold is counted right: what is given back is counted as given back."""

from __future__ import annotations

from coterie.coordinator.classic.member_bytes import count_held
from coterie.sim.observer import Observer

__all__ = ["HeldBytesAreCounted"]


class HeldBytesAreCounted(Observer):
    name = "held bytes are counted"

    def sample(self) -> None:
        machine = self.world.machine
        if machine.cluster is None or machine.is_paused:
            return
        in_all = 0
        for _, _, shard in machine.shards():
            for group in shard.groups.values():
                held = count_held(group)
                in_all += held
                if group.held_bytes != held:
                    self.fails(f"the members of {group.group_id} hold {held} bytes, counted are {group.held_bytes}")
        counted = machine.cluster.held_by_groups.total
        if counted != in_all:
            self.fails(f"the members of all groups hold {in_all} bytes, counted are {counted}")

    def ended(self) -> None:
        self.sample()
