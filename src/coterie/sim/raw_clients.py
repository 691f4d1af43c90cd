"""Clients that send single requests: a simple consumer, and a member of a generation that is over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from coterie.client.network.network_client import NetworkClient
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import heartbeat, offset_commit, offset_fetch, sync_group
from coterie.protocol.messages import CommitPartition, Heartbeat, OffsetCommit, OffsetFetch, OffsetsCommitted, SyncGroup
from coterie.sim.client import Client
from coterie.sim.host import HostClock

if TYPE_CHECKING:
    from coterie.sim.consumer import ConsumerProcess
    from coterie.sim.world import World

__all__ = ["Committer", "Zombie"]


class Committer(Client):
    """A simple consumer: commits offsets for a group of its own without being a member, and asks for them again."""

    def __init__(
        self, world: World, name: str, clock: HostClock, group_id: str, topic: str, partitions: int, every_ms: int
    ) -> None:
        super().__init__(world, name, clock)
        self.group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self._every_ms = every_ms
        self._next = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """For each partition the offset, and when it was sent."""

    async def live(self) -> None:
        cluster = self.cluster()
        coordinator: int | None = None
        while True:
            try:
                if coordinator is None:
                    coordinator = (await cluster.find_coordinator(self.group_id)).id
                elif self._rng.random() < 0.3:
                    await self._look(cluster, coordinator)
                else:
                    await self._commit(cluster, coordinator)
            except KafkaError:
                coordinator = None
            await asyncio.sleep((1 + int(self._rng.expovariate(1 / self._every_ms))) / 1000)

    async def _commit(self, cluster: NetworkClient, coordinator: int) -> None:
        self._next += 1
        wanted = self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions))
        entries = [CommitPartition(self._topic, partition, self._next) for partition in sorted(wanted)]
        request = OffsetCommit(None, self.group_id, "", None, -1, entries)
        self.world.commit_sent(self, request)
        sent_ms = self.world.schedule.now_ms
        reply: OffsetsCommitted = await cluster.send(
            coordinator, offset_commit, request, at_most=offset_commit.API.last_by_name
        )
        for one, error in zip(entries, reply.errors, strict=True):
            if error is ErrorCode.NONE:
                self.acknowledged[one.partition] = (one.offset, sent_ms)
        if ErrorCode.NOT_COORDINATOR in reply.errors:
            raise KafkaError.of(ErrorCode.NOT_COORDINATOR, "committing")

    async def _look(self, cluster: NetworkClient, coordinator: int) -> None:
        (reply,) = await cluster.send(
            coordinator,
            offset_fetch,
            [OffsetFetch(None, self.group_id, None)],
            at_most=offset_fetch.API.last_by_name,
        )
        if reply.error:
            raise KafkaError.of(reply.error, "asking for what it committed")
        if self.group_id in self.world.admin.deleted:
            self.acknowledged.clear()  # then `invariants/committed.py` alone knows what must still be there
        found = {one.partition: one.offset for one in reply.partitions}
        kept_since_ms = self.world.schedule.now_ms - self.world.machine.kept_ms
        for partition, (offset, sent_ms) in self.acknowledged.items():
            if found.get(partition, -1) < offset and sent_ms > kept_since_ms:
                self.world.fails(
                    "commits are kept",
                    f"{self.name} asked for what it committed: {partition} is {found.get(partition)}, not {offset}",
                )


WITHOUT_PROTOCOL = 4


class Zombie(Client):
    """A process that was away while its group went on, such as a machine brought back from a snapshot.

    It speaks for a generation that is over: nothing that it asks for may be granted.
    """

    def __init__(self, world: World, name: str, clock: HostClock, of: ConsumerProcess) -> None:
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
