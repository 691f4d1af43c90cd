"""A commit that was acknowledged is never lost, and a committed offset never goes back by itself (rule 22).

What a group has committed changes by a commit that somebody sent, or by being deleted or expiring, which is told; and a
broker that comes back has the last one that was told, or one that was on its way.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupDied, GroupUnloaded, OffsetsDeletedFact, OffsetsExpired, OffsetsStored
from coterie.protocol.apis import offset_commit
from coterie.protocol.messages import OffsetCommit
from coterie.sim.client import Asked, Client
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["CommitsAreKept"]

Key = tuple[str, str, int]


class CommitsAreKept(Observer):
    name = "commits are kept"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.told: dict[Key, int] = {}
        self._told_ms: dict[Key, int] = {}
        self._ever_told: defaultdict[Key, set[int]] = defaultdict(set)
        self._on_the_way: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self.count = 0

    def commit_sent(self, _client: Client, request: OffsetCommit) -> None:
        for one in request.partitions:
            self._on_the_way[request.group_id, one.topic, one.partition][one.offset] += 1

    def tell(self, machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if kind is OffsetsStored:
            for topic, partition, offset in fact.offsets:  # type: ignore[attr-defined]
                key = (fact.group_id, topic, partition)
                if not self._on_the_way.get(key, {}).get(offset):
                    self.fails(f"{offset} was stored for {key}, and nobody has sent that")
                self.told[key], self._told_ms[key] = offset, self.world.schedule.now_ms
                self._ever_told[key].add(offset)
        elif kind is OffsetsExpired or kind is OffsetsDeletedFact:
            for topic, partition in fact.partitions:  # type: ignore[attr-defined]
                self.told.pop((fact.group_id, topic, partition), None)
        elif kind is GroupDied or kind is GroupUnloaded:
            for key in [key for key in self.told if key[0] == fact.group_id]:
                if kind is GroupDied or self._may_be_gone(machine, key):
                    del self.told[key]

    def answered(self, _client: Client, asked: Asked, answer: Any) -> None:
        if asked.module is not offset_commit:
            return
        for one, error in zip(asked.request.partitions, answer.errors, strict=True):
            key = (asked.request.group_id, one.topic, one.partition)
            if error is ErrorCode.NONE:
                self.count += 1
                if one.offset not in self._ever_told.get(key, ()):
                    self.fails(f"the commit of {one.offset} for {key} was acknowledged and never stored")
                self._on_the_way[key][one.offset] -= 1  # one that was refused may be stored later nevertheless

    def broker_began(self, machine: Machine) -> None:
        for key in [key for key in self.told if self._may_be_gone(machine, key)]:
            del self.told[key]
        self._compare(machine, "after the broker came back")

    def sample(self) -> None:
        self._compare(self.world.machine, "now")

    def _may_be_gone(self, machine: Machine, key: Key) -> bool:
        """It was being deleted, or had expired, and the broker died or gave the group away before it could say so."""
        had_expired = self.world.schedule.now_ms - self._told_ms[key] > machine.kept_ms
        return key[0] == self.world.admin.is_deleting or had_expired

    def _compare(self, machine: Machine, when: str) -> None:
        cluster = machine.cluster
        if cluster is None:
            return
        shards = {partition: shard for _, partition, shard in machine.shards()}
        committed = {}
        """Of each group that has a coordinator now."""
        for group_id in {key[0] for key in self.told}:
            shard = shards.get(cluster.partition_of(group_id))
            if shard is not None:
                group = shard.groups.get(group_id)
                committed[group_id] = group.offsets if group is not None else {}
        for key, told in self.told.items():
            group_id, topic, partition = key
            if group_id not in committed:
                continue
            stored = committed[group_id].get(topic, {}).get(partition)
            found = stored.offset if stored is not None else None
            if found == told:
                continue
            if found is None or not self._on_the_way[key][found] > 0:
                self.fails(f"{key} had {told} committed, and has {found} {when}")
                return
            self.told[key], self._told_ms[key] = found, self.world.schedule.now_ms
            self._ever_told[key].add(found)
