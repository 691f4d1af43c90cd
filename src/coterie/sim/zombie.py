"""A process that was away while its group went on, such as a machine brought back from a snapshot: it speaks for a
generation that is over, and nobody may listen to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from coterie.errors import KafkaError
from coterie.protocol.apis import heartbeat, offset_commit, sync_group
from coterie.protocol.messages import CommitPartition, Heartbeat, OffsetCommit, SyncGroup
from coterie.sim.client import Client
from coterie.sim.host import HostClock

if TYPE_CHECKING:
    from coterie.sim.consumer import Consumer
    from coterie.sim.world import World

__all__ = ["Zombie"]

WITHOUT_PROTOCOL = 4


class Zombie(Client):
    def __init__(self, world: World, name: str, clock: HostClock, of: Consumer) -> None:
        """What `of` is now, it will think it is."""
        super().__init__(world, name, clock)
        self.group_id = of.group_id
        self._who = (of.member.member_id, of.habits.instance_id, of.member.generation_id)
        self._owned = sorted(of.member.assigned)

    def awakes(self, _about: object = None) -> None:
        group = self.world.group(self.group_id)
        if group is not None and group.generation_id <= self._who[2]:
            # A power cut took its generation, and the group has counted to it again: nobody could tell them apart.
            self.world.when_joined(self.group_id, self.awakes)
            return
        self.begin()

    async def live(self) -> None:
        with suppress(KafkaError):  # whether it was granted is seen by those who watch
            await self._speak()
        self.world.forget(self)

    async def _speak(self) -> None:
        cluster = self.cluster()
        node_id = (await cluster.find_coordinator(self.group_id)).id
        entries = [CommitPartition(one.topic, one.partition, 0) for one in self._owned]
        if entries:
            commit = OffsetCommit(None, self.group_id, *self._who, entries)
            self.world.commit_sent(self, commit)
            await cluster.send(node_id, offset_commit, commit, at_most=offset_commit.API.last_by_name)
        await cluster.send(node_id, heartbeat, Heartbeat(None, self.group_id, *self._who))
        sync = SyncGroup(None, self.group_id, *self._who)
        await cluster.send(node_id, sync_group, sync, at_most=WITHOUT_PROTOCOL)
