"""Timers, tokens and memory do not grow with time: everything that is kept belongs to somebody who is there."""

from __future__ import annotations

from coterie.sim.observer import Observer

__all__ = ["NothingGrows"]

_FOR_A_MEMBER, _FOR_A_GROUP, _FOR_A_SHARD, _FOR_A_BROKER = 1, 2, 2, 8
_TOKENS_OF_A_MEMBER = 2
"""A join and a sync."""
_LEFT_BEHIND = 50
"""Commits of connections that are gone, on their way to the disk."""
_FOR_A_CLIENT = 700
"""Things that a client may have before it in the schedule: alarms that were set again, packets, and the timeouts of
connections that it gave up, which stay for 30 s: while a disk is full, its auto-commit is refused and tried again
every retry.backoff.ms, which is ten times a second, as in Kafka's own client."""


class NothingGrows(Observer):
    name = "nothing grows"

    def sample(self) -> None:
        world = self.world
        clients = len(world.consumers) + len(world.producers) + len(world.clients) + 1
        most = 2_000 + _FOR_A_CLIENT * clients
        if len(world.schedule) > most:
            most += sum(len(wire.held) for wire in world.network.wires)
        if len(world.schedule) > most:
            self.fails(f"{len(world.schedule)} things are going to happen to {clients} clients, more than {most}")
        machine = world.machine
        if machine.cluster is None:
            return
        timers, logs = len(machine.cluster.timers), len(machine.cluster.directory.logs)
        shards = [shard for _, _, shard in machine.shards()]
        groups = [group for shard in shards for group in shard.groups.values()]
        members = sum(len(group.members) + len(group.pending) for group in groups)
        wanted = _FOR_A_MEMBER * members + _FOR_A_GROUP * len(groups) + _FOR_A_SHARD * len(shards)
        parked = sum(link.connection.call is not None for link in machine.links)
        if timers > wanted + parked + _FOR_A_BROKER + logs:
            self.fails(f"{timers} timers for {members} members of {len(groups)} groups")
        tokens = sum(1 for shard in shards for _ in shard.waiting_tokens())
        if tokens > _TOKENS_OF_A_MEMBER * members + parked + _LEFT_BEHIND:
            self.fails(f"{tokens} requests are parked by {members} members, and {parked} connections wait")
