"""A simple consumer: commits offsets for a group of its own without being a member, and asks for them again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coterie.client.network.cluster import Cluster
from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import offset_commit, offset_fetch
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetFetch, OffsetsCommitted
from coterie.sim.client import Client
from coterie.sim.host import HostClock

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Committer"]


class Committer(Client):
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

    async def _commit(self, cluster: Cluster, coordinator: int) -> None:
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

    async def _look(self, cluster: Cluster, coordinator: int) -> None:
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
