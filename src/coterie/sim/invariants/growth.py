"""Timers, tokens and memory do not grow with time: everything that is kept belongs to somebody who is there."""

from __future__ import annotations

from coterie.sim.observer import Observer

__all__ = ["NothingGrows"]

_FOR_A_MEMBER, _FOR_A_GROUP, _FOR_A_SHARD, _FOR_A_NODE = 1, 2, 2, 8
_FOR_A_CLIENT = 60
"""Things that a client may have before it in the schedule: alarms that were set again, packets, timeouts."""


class NothingGrows(Observer):
    name = "nothing grows"

    def sample(self) -> None:
        world = self.world
        clients = len(world.consumers) + len(world.producers) + len(world.clients) + 1
        packets = sum(len(wire.held) for wire in world.network.wires)
        most = 2_000 + _FOR_A_CLIENT * clients + packets
        if len(world.schedule) > most:
            self.fails(f"{len(world.schedule)} things are going to happen to {clients} clients, more than {most}")
        for machine in world.machines.values():
            node = machine.node
            if node is None:
                continue
            coordinator = node.coordinator
            groups = [group for shard in coordinator.shards.values() for group in shard.groups.values()]
            members = sum(len(group.members) + len(group.pending) for group in groups)
            wanted = _FOR_A_MEMBER * members + _FOR_A_GROUP * len(groups) + _FOR_A_SHARD * len(coordinator.shards)
            parked = sum(link.connection.call is not None for link in machine.links)
            if len(coordinator.timers) > wanted + parked + _FOR_A_NODE + len(node.directory.logs):
                self.fails(f"{len(coordinator.timers)} timers for {members} members of {len(groups)} groups")
