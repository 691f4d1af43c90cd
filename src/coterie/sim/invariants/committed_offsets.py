"""Invariants of committed offsets."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from coterie.client.types import TopicPartition
from coterie.coordinator.classic import ClassicGroupState
from coterie.coordinator.consumer import GroupState
from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupDied, GroupUnloaded, OffsetsDeletedFact, OffsetsExpired, OffsetsStored
from coterie.protocol.apis import offset_commit
from coterie.protocol.messages import OffsetCommit
from coterie.sim.clients import Asked, Client
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import Machine
from coterie.sim.transactional import SimTransaction, Stage, TransactionalProcess
from coterie.sim.world import Observer, World

Key = tuple[str, str, int]


def is_pending(fact: OffsetsStored) -> bool:
    """Return whether the offsets wait for the end of their transaction. The fact of that end names no member."""
    return fact.transactional and fact.member_id != ""


class CommitsAreKept(Observer):
    """A commit that was acknowledged is never lost, and a committed offset never goes back by itself (rule 22).

    Only a commit that a client sent changes it, or a deletion or expiry, for which there is a fact. After a restart the
    broker has the last commit for which there was a fact, or one that was still in flight.
    """

    name = "commits are kept"
    answers = (offset_commit.API.key,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.stored: dict[Key, int] = {}
        self._stored_ms: dict[Key, int] = {}
        self._ever_stored: defaultdict[Key, set[int]] = defaultdict(set)
        self._on_the_way: defaultdict[Key, Counter[int]] = defaultdict(Counter)
        self._in_transactions: defaultdict[Key, set[int]] = defaultdict(set)
        """The offsets that transactions have; those that are decided count when their marker is written."""
        self.count = 0

    def commit_sent(self, _client: Client, request: OffsetCommit) -> None:
        for one in request.partitions:
            self._on_the_way[request.group_id, one.topic, one.partition][one.offset] += 1

    def transaction_changed(self, _process: TransactionalProcess, transaction: SimTransaction) -> None:
        if transaction.stage is Stage.OFFSETS:
            for (topic, partition), one in transaction.offsets.items():
                self._in_transactions[transaction.group_id, topic, partition].add(one.offset)

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if isinstance(fact, OffsetsStored):
            if is_pending(fact):
                return
            for topic, partition, offset in fact.offsets:
                key = (fact.group_id, topic, partition)
                in_transactions, on_the_way = self._in_transactions[key], self._on_the_way[key]
                if not (offset in in_transactions if fact.transactional else on_the_way[offset]):
                    self.fails(f"{offset} was stored for {key}, and nobody has sent that")
                self.stored[key], self._stored_ms[key] = offset, self.world.schedule.now_ms
                self._ever_stored[key].add(offset)
        elif kind is OffsetsExpired or kind is OffsetsDeletedFact:
            for topic, partition in fact.partitions:  # type: ignore[attr-defined]
                self.stored.pop((fact.group_id, topic, partition), None)
        elif kind is GroupDied or kind is GroupUnloaded:
            for key in [key for key in self.stored if key[0] == fact.group_id]:
                if kind is GroupDied or self._may_be_gone(machine, key):
                    del self.stored[key]

    def answered(self, _client: Client, asked: Asked, answer: Any) -> None:
        for one, error in zip(asked.request.partitions, answer.errors, strict=True):
            key = (asked.request.group_id, one.topic, one.partition)
            if error is ErrorCode.NONE:
                self.count += 1
                if one.offset not in self._ever_stored.get(key, ()):
                    self.fails(f"the commit of {one.offset} for {key} was acknowledged and never stored")
                self._on_the_way[key][one.offset] -= 1  # one that was refused may be stored later nevertheless

    def broker_began(self, machine: Machine) -> None:
        for key in [key for key in self.stored if self._may_be_gone(machine, key)]:
            del self.stored[key]
        self._compare(machine, "after the broker came back")

    def sample(self) -> None:
        self._compare(self.world.machine, "now")

    def _may_be_gone(self, machine: Machine, key: Key) -> bool:
        """It was being deleted, or had expired, and the broker died or gave the group away before it could say so."""
        had_expired = self.world.schedule.now_ms - self._stored_ms[key] > machine.kept_ms
        return key[0] == self.world.admin.is_deleting or had_expired

    def _compare(self, machine: Machine, when: str) -> None:
        cluster = machine.cluster
        if cluster is None:
            return
        shards = {partition: shard for _, partition, shard in machine.shards()}
        committed = {}
        """The offsets of each group that has a coordinator now."""
        for group_id in {key[0] for key in self.stored}:
            shard = shards.get(cluster.partition_of(group_id))
            if shard is not None:
                group = shard.groups.get(group_id)
                committed[group_id] = group.offsets if group is not None else {}
        for key, expected in self.stored.items():
            group_id, topic, partition = key
            if group_id not in committed:
                continue
            stored = committed[group_id].get(topic, {}).get(partition)
            found = stored.offset if stored is not None else None
            if found == expected:
                continue
            is_decided = found is not None and found > expected and found in self._in_transactions[key]
            if found is None or not (self._on_the_way[key][found] > 0 or is_decided):
                self.fails(f"{key} had {expected} committed, and has {found} {when}")
                return
            self.stored[key], self._stored_ms[key] = found, self.world.schedule.now_ms
            self._ever_stored[key].add(found)


class OnlyOwnersCommit(Observer):
    """A member commits only in its own generation, and only partitions that it has owned in it (M7)."""

    name = "only owners commit"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owned: dict[str, tuple[int, set[TopicPartition]]] = {}
        """The generation of each process, and all partitions that it has owned in it."""

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        generation = consumer.member.generation_id
        before = self._owned.get(consumer.name)
        if before is not None and before[0] == generation:
            before[1].update(consumer.member.assigned)
        else:
            self._owned[consumer.name] = (generation, set(consumer.member.assigned))

    def commit_sent(self, client: Client, request: OffsetCommit) -> None:
        if not isinstance(client, ConsumerProcess):
            return
        generation = client.member.generation_id
        if request.generation_id != generation:
            self.fails(f"{client.name} commits in generation {request.generation_id}, and is in {generation}")
        self.ownership_changed(client)
        said = {TopicPartition(one.topic, one.partition) for one in request.partitions}
        foreign = said - self._owned[client.name][1]
        if foreign:
            self.fails(f"{client.name} commits {sorted(foreign)} in generation {request.generation_id}, and owns none")


class WhatIsReadStays(Observer):
    """The offsets of partitions that a group reads do not expire (rule 23, KIP-211)."""

    name = "what is read stays"

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is not OffsetsExpired:
            return
        newer = self.world.consumer_group(fact.group_id)
        if newer is not None:
            read = sorted({topic for topic, _ in fact.partitions} & newer.subscribed_topics())
            if read and newer.state is GroupState.STABLE:
                self.fails(f"{fact.group_id} subscribes to {read}, and its offsets have expired (K21)")
            return
        group = self.world.group(fact.group_id)
        if group is None or group.state is not ClassicGroupState.STABLE:
            return  # in between it may have begun a rebalance; it was not in one when they were judged
        for consumer in self.world.consumers.values():
            member = consumer.member
            if member.member_id in group.members and member.generation_id == group.generation_id:
                gone = member.assigned & {TopicPartition(*one) for one in fact.partitions}
                if gone:
                    self.fails(f"{consumer.name} reads {sorted(gone)}, and the offsets of {fact.group_id} have expired")
