"""A simple consumer: commits offsets for a group of its own without being a member, and asks for them again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coterie.errors import ErrorCode, KafkaError
from coterie.protocol.apis import find_coordinator, offset_commit, offset_fetch
from coterie.protocol.messages import CommitPartition, OffsetCommit, OffsetFetch
from coterie.sim.client import ANY, Client
from coterie.sim.host import Clock

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = ["Committer"]


class Committer(Client):
    def __init__(
        self, world: World, name: str, clock: Clock, group_id: str, topic: str, partitions: int, every_ms: int
    ) -> None:
        super().__init__(world, name, clock)
        self.group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self._every_ms = every_ms
        self._coordinator: int | None = None
        self._next = 0
        self._sent_ms = 0
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """For each partition the offset, and when it was sent."""

    def begin(self, _about: object = None) -> None:
        if self.is_paused:
            self.misses(self.begin, None)
        elif not self.is_alive:
            return
        elif self._coordinator is None:
            request = find_coordinator.Request(keys=[self.group_id])
            self.ask(ANY, "", find_coordinator, request, 30_000, self._found)
        elif self._rng.random() < 0.3:
            request_all = OffsetFetch(None, self.group_id, None)
            self.ask(
                self._coordinator,
                "",
                offset_fetch,
                [request_all],
                30_000,
                self._fetched,
                at_most=offset_fetch.API.last_by_name,
            )
        else:
            self._commit()

    def _commit(self) -> None:
        assert self._coordinator is not None
        self._next += 1
        wanted = self._rng.sample(range(self._partitions), self._rng.randint(1, self._partitions))
        entries = [CommitPartition(self._topic, partition, self._next) for partition in sorted(wanted)]
        request = OffsetCommit(None, self.group_id, "", None, -1, entries)
        self.world.commit_sent(self, request)
        self._sent_ms = self.world.schedule.now_ms
        self.ask(
            self._coordinator,
            "",
            offset_commit,
            request,
            30_000,
            self._committed,
            request,
            at_most=offset_commit.API.last_by_name,
        )

    def _again(self) -> None:
        self.later(1 + int(self._rng.expovariate(1 / self._every_ms)), self.begin, None)

    def _found(self, _then: Any, reply: find_coordinator.Response | None, _error: KafkaError | None) -> None:
        if reply is not None and not reply.coordinators[0].error:
            self._coordinator = reply.coordinators[0].node_id
        self._again()

    def _committed(self, request: OffsetCommit, reply: Any, _error: KafkaError | None) -> None:
        if reply is None:
            self._coordinator = None
        else:
            for one, error in zip(request.partitions, reply.errors, strict=True):
                if error is ErrorCode.NOT_COORDINATOR:
                    self._coordinator = None
                elif error is ErrorCode.NONE:
                    self.acknowledged[one.partition] = (one.offset, self._sent_ms)
        self._again()

    def _fetched(self, _then: Any, reply: Any, _error: KafkaError | None) -> None:
        if reply is None or reply[0].error:
            self._coordinator = None
        else:
            if self.group_id in self.world.admin.deleted:
                self.acknowledged.clear()  # then `invariants/committed.py` alone knows what must still be there
            found = {one.partition: one.offset for one in reply[0].partitions}
            kept_since_ms = self.world.schedule.now_ms - self.world.machine.kept_ms
            for partition, (offset, sent_ms) in self.acknowledged.items():
                if found.get(partition, -1) < offset and sent_ms > kept_since_ms:
                    self.world.fails(
                        "commits are kept",
                        f"{self.name} asked for what it committed: {partition} is {found.get(partition)}, not {offset}",
                    )
        self._again()
