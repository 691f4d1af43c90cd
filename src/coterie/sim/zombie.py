"""A process that was away while its group went on, such as a machine brought back from a snapshot: it speaks for a
generation that is over, and nobody may listen to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.errors import KafkaError
from coterie.protocol.apis import find_coordinator, heartbeat, offset_commit, sync_group
from coterie.protocol.messages import CommitPartition, Heartbeat, OffsetCommit, SyncGroup
from coterie.sim.client import ANY, Client
from coterie.sim.host import Clock

if TYPE_CHECKING:
    from coterie.sim.consumer import Consumer
    from coterie.sim.world import World

__all__ = ["Zombie"]

TIMEOUT_MS = 30_000
WITHOUT_PROTOCOL = 4


class Zombie(Client):
    def __init__(self, world: World, name: str, clock: Clock, of: Consumer) -> None:
        """What `of` is now, it will think it is."""
        super().__init__(world, name, clock)
        self.group_id = of.group_id
        self._who = (of.member.member_id, of.habits.instance_id, of.member.generation_id)
        self._owned = sorted(of.member.assigned)

    def begin(self, _about: object = None) -> None:
        group = self.world.group(self.group_id)
        if group is not None and group.generation_id <= self._who[2]:
            # A power cut took its generation, and the group has counted to it again: nobody could tell them apart.
            self.world.when_joined(self.group_id, self.begin)
            return
        request = find_coordinator.Request(keys=[self.group_id])
        self.ask(ANY, "", find_coordinator, request, TIMEOUT_MS, self._found)

    def _found(self, _then: Any, reply: find_coordinator.Response | None, _error: KafkaError | None) -> None:
        if reply is None or reply.coordinators[0].error:
            self.world.forget(self)
            return
        node_id = reply.coordinators[0].node_id
        entries = [CommitPartition(one.topic, one.partition, 0) for one in self._owned]
        commit = OffsetCommit(None, self.group_id, *self._who, entries)
        if entries:
            self.world.commit_sent(self, commit)
            self.ask(
                node_id, "", offset_commit, commit, TIMEOUT_MS, self._ignored, at_most=offset_commit.API.last_by_name
            )
        self.ask(node_id, "", heartbeat, Heartbeat(None, self.group_id, *self._who), TIMEOUT_MS, self._ignored)
        sync = SyncGroup(None, self.group_id, *self._who)
        self.ask(node_id, "", sync_group, sync, TIMEOUT_MS, self._over, at_most=WITHOUT_PROTOCOL)

    def _ignored(self, *_about: Any) -> None:
        """Whether it was granted is seen by those who watch."""

    def _over(self, *_about: Any) -> None:
        self.world.forget(self)
