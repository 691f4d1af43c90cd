"""Invariants of members: the partitions that they own, and the generation that they are in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from coterie.client.member import effects
from coterie.client.member.states import MemberState
from coterie.client.types import TopicPartition
from coterie.errors import ErrorCode
from coterie.facts import (
    AssignmentStored,
    Fact,
    GroupCreated,
    GroupLoaded,
    JoinPhaseCompleted,
    MemberReplaced,
    TargetAssignmentComputed,
)
from coterie.protocol.apis import consumer_group_heartbeat, heartbeat, join_group, offset_commit, sync_group
from coterie.sim.clients import Asked, Client
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import Machine
from coterie.sim.world import Observer, World

_REMEMBERED = 8
"""The number of generations of a group that are checked."""


class OneOwner(Observer):
    """A partition has one owner in a generation, as the members see it (M14)."""

    name = "one owner"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._owners: dict[str, dict[int, dict[TopicPartition, tuple[str, str | None]]]] = {}

    def ownership_changed(self, consumer: ConsumerProcess) -> None:
        member = consumer.member
        if not member.has_generation:
            return
        generations = self._owners.setdefault(consumer.group_id, {})
        owners = generations.get(member.generation_id)
        if owners is None:
            owners = generations[member.generation_id] = {}
            for old in sorted(generations)[:-_REMEMBERED]:
                del generations[old]
        mine = (member.member_id, consumer.habits.instance_id)
        for one in member.assigned:
            other = owners.setdefault(one, mine)
            if other == mine:
                continue
            if other[1] is not None and other[1] == mine[1]:
                owners[one] = mine  # KIP-345: it has come back under a new id, and the old one is fenced
                continue
            self.fails(f"{one} belongs to {other[0]} and to {mine[0]} in generation {member.generation_id}")

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is GroupCreated:  # another group of that name, which counts from 1 again
            self._owners.pop(fact.group_id, None)
        elif type(fact) is TargetAssignmentComputed:
            self._counts_again(fact.group_id, fact.assignment_epoch)
        elif type(fact) is JoinPhaseCompleted and fact.group_id in self.world.consumer_protocol_groups:
            self._counts_again(fact.group_id, fact.generation_id)

    def _counts_again(self, group_id: str, generation_id: int) -> None:
        """A group that was Empty counts again in the other protocol."""
        known = self._owners.get(group_id, {})
        for later in [generation for generation in known if generation >= generation_id]:
            del known[later]


class AssignmentsAreTheStoredOnes(Observer):
    """A member of a classic group is given what is stored for it in its generation, and nothing else (rule 11)."""

    name = "assignments are the stored ones"
    answers = (sync_group.API.key,)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._stored: dict[tuple[str, int], Mapping[str, bytes]] = {}
        self.count = 0

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if isinstance(fact, (AssignmentStored, GroupLoaded)):
            self._stored[fact.group_id, fact.generation_id] = dict(fact.assignments)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        request = asked.request
        if answer.error or request.group_id in self.world.consumer_protocol_groups:
            return
        stored = self._stored.get((request.group_id, request.generation_id), {})
        if request.member_id in stored:
            self.count += 1
            if stored[request.member_id] != answer.assignment:
                self.fails(f"{client.name} was given what is not stored for generation {request.generation_id}")


class CooperativeMembersKeepReading(Observer):
    """A member always reads the partitions that it keeps, if it is cooperative (KIP-429) or of KIP-848.

    A cooperative one revokes none before it joins.
    """

    name = "cooperative members keep reading"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._held: dict[str, set[TopicPartition]] = {}

    def held(self, consumer: ConsumerProcess, partitions: Collection[TopicPartition]) -> None:
        if consumer.keeps_reading:
            self._held.setdefault(consumer.name, set()).update(partitions)

    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None:
        """Called before the fetcher changes: partitions that stay must not have been held, nor be counted as new."""
        if not consumer.keeps_reading:
            return
        reads = set(consumer.fetcher.assignment)
        kept = reads & set(effect.partitions)
        stopped = kept & self._held.pop(consumer.name, set())
        if stopped:
            self.fails(f"{consumer.name} stopped reading {sorted(stopped)}, which it keeps")
        if kept & set(effect.added):
            self.fails(f"{consumer.name} starts again with {sorted(kept & set(effect.added))}, which it had")

    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, partitions: Collection[TopicPartition]
    ) -> None:
        """The assignment says what to revoke; before it, only partitions of topics that it does not read any more."""
        member = consumer.member
        if (
            kind is effects.Listened.REVOKED
            and member.state is MemberState.PREPARING
            and member.settings.is_cooperative
        ):
            early = [one for one in partitions if one.topic in member.topics]
            if early:
                self.fails(f"{consumer.name} gives up {sorted(early)} before it joins, and nobody has asked for it")

    def sample(self) -> None:
        for consumer in self.world.consumers.values():
            if consumer.keeps_reading:
                states = {one: consumer.fetcher.state(one) for one in consumer.fetcher.assignment}
                paused = [one for one, state in states.items() if state.is_held or state.is_paused]
                held = self._held.get(consumer.name, set())
                if set(paused) - held:
                    self.fails(f"{consumer.name} does not read {sorted(set(paused) - held)}, which it owns")


class ListenersAreCalledInTurn(Observer):
    """A listener gets each partition assigned before it is revoked, and never twice; only assigned ones are read."""

    name = "listeners are called in turn"

    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, called_with: Collection[TopicPartition]
    ) -> None:
        partitions = set(called_with)
        if kind is effects.Listened.ASSIGNED:
            if partitions & consumer.announced:
                self.fails(f"{consumer.name} was assigned twice {sorted(partitions & consumer.announced)}")
            consumer.announced |= partitions
        else:
            if partitions - consumer.announced:
                self.fails(f"{consumer.name} loses what it never had: {sorted(partitions - consumer.announced)}")
            consumer.announced -= partitions

    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None:
        read = {TopicPartition(record.topic, record.partition) for record in records}
        if not read <= consumer.announced:
            self.fails(
                f"{consumer.name} was given records of {sorted(read - consumer.announced)}, which it does not own"
            )


class FencedStaysFenced(Observer):
    """A fenced member stays fenced (rule 18): no request that it sends after it was replaced succeeds."""

    name = "a fenced member stays fenced"
    answers = tuple(api.API.key for api in (heartbeat, offset_commit, join_group, sync_group, consumer_group_heartbeat))

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since: dict[str, int] = {}

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is MemberReplaced:
            self._since[fact.old_member_id] = self.world.schedule.now_ms
            self._since.pop(fact.member_id, None)  # the new id could not be written: the old one holds again (rule 19)
        elif type(fact) is GroupLoaded:
            for member_id in fact.members:  # the coordinator died before it could write it
                self._since.pop(member_id, None)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        if not self._since:
            return
        since_ms = self._since.get(getattr(asked.request, "member_id", ""))
        if since_ms is None or asked.sent_ms <= since_ms:
            return
        if asked.module is heartbeat:
            granted = answer is ErrorCode.NONE and not self.world.may_not_know(asked.request.group_id, asked.sent_ms)
        elif asked.module is offset_commit:
            granted = ErrorCode.NONE in answer.errors
        else:
            granted = answer.error is ErrorCode.NONE
        if granted:
            self.fails(f"{client.name} was fenced at {since_ms} and its {asked.module.API.name} was granted")


_NO_GENERATION = -1


class OldGenerationsAreRefused(Observer):
    """No request of an older generation succeeds (rules 2, 11, 15, 21; KAFKA-2557)."""

    name = "old generations are refused"
    answers = (heartbeat.API.key, offset_commit.API.key, sync_group.API.key)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since: dict[str, dict[int, int]] = {}
        """The start of each generation of each group; one that was not written may come back."""

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is JoinPhaseCompleted:
            self._since.setdefault(fact.group_id, {})[fact.generation_id] = self.world.schedule.now_ms
        elif type(fact) is GroupLoaded:
            began = self._since.get(fact.group_id, {})
            for later in [generation for generation in began if generation > fact.generation_id]:
                del began[later]
        elif type(fact) is GroupCreated:
            self._since.pop(fact.group_id, None)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        if asked.request.group_id in self.world.consumer_protocol_groups:
            return  # its members have epochs of their own: `EpochsAreChecked`
        if asked.module is heartbeat:
            granted = answer is ErrorCode.NONE
        elif asked.module is offset_commit:
            granted = ErrorCode.NONE in answer.errors
        else:
            granted = answer.error is ErrorCode.NONE
        generation = asked.request.generation_id
        if not granted or generation == _NO_GENERATION:
            return
        over_ms = self._since.get(asked.request.group_id, {}).get(generation + 1)
        if over_ms is not None and asked.sent_ms > over_ms:
            if asked.module is heartbeat and self.world.may_not_know(asked.request.group_id, asked.sent_ms):
                return
            self.fails(
                f"{asked.module.API.name} of {client.name} was granted in generation {generation}, which was over "
                f"{asked.sent_ms - over_ms} ms before it was sent"
            )
