"""Invariants of the state of the broker: what it has in memory, in its logs, and what it reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coterie.broker.broker_facts import LeadersChanged
from coterie.broker.group_service import read_some
from coterie.broker.node import BrokerNode
from coterie.coordinator.classic import ClassicGroupState, Group
from coterie.coordinator.classic.member_bytes import count_held
from coterie.coordinator.consumer import ConsumerGroup
from coterie.coordinator.runtime import Replay, Shard
from coterie.facts import AssignmentFailed, AssignmentStored, Fact, Mistake, WriteFailed
from coterie.protocol.consumer_group_records import ConsumerGroupRecord
from coterie.protocol.offsets_topic import OFFSETS_TOPIC, write_record
from coterie.sim.machine import Machine
from coterie.sim.world import Observer, World
from coterie.storage import PartitionLog, Segment
from coterie.structs import asdict

_IN_A_REBALANCE = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE)
_GROWTH = 1.5
"""A log is read again when it has grown so much: comparing all the time would take longer the longer a run is."""


@dataclass(slots=True)
class _Read:
    """The part of a log that was read, up to `offset`. While the segments stay the same, only the rest is new."""

    segments: Sequence[Segment]
    replay: Replay
    offset: int

    def go_on(self, log: PartitionLog) -> None:
        self.segments = log.segments
        while self.offset < log.log_end_offset:
            self.offset = read_some(log, self.offset, self.replay)


class ReplayIsTheSame(Observer):
    """Live state equals replayed state (C4), as far as it is written."""

    name = "replay is the same"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._read: dict[int, _Read] = {}
        self.count = 0
        self._lost: set[str] = set()
        """Groups of which a record could not be written: an older one comes back, until the next."""

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if kind is WriteFailed or kind is AssignmentFailed:
            self._lost.add(fact.group_id)
        elif kind is AssignmentStored:
            self._lost.discard(fact.group_id)
        elif kind is LeadersChanged:
            self._read.clear()

    def broker_began(self, _machine: Machine) -> None:
        self._read.clear()

    def sample(self) -> None:
        machine = self.world.machine
        if not machine.disk.is_failing:
            for node, partition, shard in machine.shards():
                self._compare(node, partition, shard)

    def ended(self) -> None:
        self._read.clear()
        self.sample()

    def _compare(self, node: BrokerNode, partition: int, shard: Shard) -> None:
        if not shard.groups or shard.is_writing:
            return
        log = node.replicas.log(OFFSETS_TOPIC, partition)
        read = self._read.get(partition)
        if log is None or not log.is_in_order or (read is not None and log.log_end_offset <= read.offset * _GROWTH):
            return
        if read is None or not log.has(read.segments):  # compaction has left others, or a flush that failed
            read = self._read[partition] = _Read((), Replay(), log.log_start_offset)
        read.go_on(log)
        groups = read.replay.groups(shard.settings, 0)
        found = {group.group_id: group for group in groups}
        self.count += 1
        for group in shard.groups.values():
            read_group = found.get(group.group_id)
            if isinstance(group, ConsumerGroup):
                self._same_consumer_group(group, read_group)
            else:
                self._same(group, read_group if isinstance(read_group, Group) else None)

    def _same_consumer_group(self, live: ConsumerGroup, read: Group | ConsumerGroup | None) -> None:
        if not isinstance(read, ConsumerGroup):
            self.fails(f"the log has forgotten {live.group_id}, or has it as a classic group")
            return
        if _offsets(live) != _offsets(read):
            self.fails(f"{live.group_id} has other offsets in the log: {_difference(_offsets(live), _offsets(read))}")
        if _recorded(live) != _recorded(read):
            self.fails(f"{live.group_id} is otherwise in the log: {_difference(_recorded(live), _recorded(read))}")

    def _same(self, live: Group, read: Group | None) -> None:
        if read is None:
            if (live.is_in_log and live.group_id not in self._lost) or any(live.offsets.values()):
                self.fails(f"the log has forgotten {live.group_id}")
            return
        if _offsets(live) != _offsets(read):
            self.fails(f"{live.group_id} has other offsets in the log: {_difference(_offsets(live), _offsets(read))}")
        if live.group_id in self._lost:
            return
        if live.state in _IN_A_REBALANCE:
            if read.generation_id > live.generation_id:
                self.fails(f"{live.group_id} is in generation {live.generation_id}, in the log in {read.generation_id}")
        elif _written(live) != _written(read):
            self.fails(f"{live.group_id} is otherwise in the log: {_difference(_written(live), _written(read))}")


def _offsets(group: Group | ConsumerGroup) -> dict[str, Any]:
    return {topic: {at: one.offset for at, one in of.items()} for topic, of in group.offsets.items() if of}


def _written(group: Group) -> dict[str, Any]:
    return {
        "state": group.state,
        "generation": group.generation_id,
        "leader": group.leader_id,
        "protocol": group.protocol_name,
        "members": {
            member.member_id: (member.instance_id, member.assignment, member.metadata(group.protocol_name))
            for member in group.members.values()
        },
    }


def _recorded(group: ConsumerGroup) -> dict[str, Any]:
    """Return the state of a consumer group that its records have."""
    return {
        "group epoch": group.group_epoch,
        "assignment epoch": group.assignment_epoch,
        "metadata hash": group.metadata_hash,
        "resolved": {pattern: list(found.topics) for pattern, found in group.resolved.items()},
        "targets": {member_id: dict(target) for member_id, target in group.targets.items()},
        "members": {member_id: asdict(member) for member_id, member in group.members.items()},
        "static": group.static,
        "held bytes": group.held_bytes,
        "records": {
            key: write_record(ConsumerGroupRecord(key[0], group.group_id, key[1], value))
            for key, value in group.durable.items()
        },
    }


def _difference(live: dict[str, Any], read: dict[str, Any]) -> str:
    keys = [key for key in {**live, **read} if live.get(key) != read.get(key)]
    return "; ".join(f"{key}: {live.get(key)!r} and {read.get(key)!r}" for key in keys)


_FOR_A_MEMBER, _FOR_A_GROUP, _FOR_A_SHARD, _FOR_A_BROKER = 1, 2, 2, 8
_TIMERS_OF_A_SESSION = 4
"""Timers of a member of a consumer group: the session, and the times to revoke, to join and to sync. A member that left
still has its timer."""
_TOKENS_OF_A_MEMBER = 2
"""A join and a sync."""
_LEFT_BEHIND = 50
"""Commits of connections that are gone, on their way to the disk."""
_FOR_A_CLIENT = 700
"""Things that a client may have before it in the schedule: alarms that were set again, packets, and the timeouts of
connections that it gave up, which stay for 30 s: while a disk is full, its auto-commit is refused and tried again
every retry.backoff.ms, which is ten times a second, as in Kafka's own client."""


class NothingGrows(Observer):
    """Timers, tokens and memory do not grow with time: each belongs to a member or connection that exists."""

    name = "nothing grows"

    def sample(self) -> None:
        world = self.world
        processes = [*world.consumers.values(), *world.producers.values(), *world.clients.values(), world.admin]
        most = 2_000 + _FOR_A_CLIENT * len(processes)
        due = len(world.schedule) + sum(len(process.loop) for process in processes)
        if due > most:
            most += sum(len(wire.held) for wire in world.network.wires)
        if due > most:
            self.fails(f"{due} things are going to happen to {len(processes)} clients, more than {most}")
        machine = world.machine
        if machine.cluster is None:
            return
        timers, logs = len(machine.cluster.timers), len(machine.cluster.directory.logs)
        shards = [shard for _, _, shard in machine.shards()]
        groups = [group for shard in shards for group in shard.classic_groups()]
        newer = [group for shard in shards for group in shard.consumer_groups()]
        members = sum(len(group.members) + len(group.pending) for group in groups)
        members += _TIMERS_OF_A_SESSION * sum(len(group.sessions) for group in newer)
        count = len(groups) + len(newer)
        wanted = _FOR_A_MEMBER * members + _FOR_A_GROUP * count + _FOR_A_SHARD * len(shards)
        parked = sum(link.connection.call is not None for link in machine.links)
        if timers > wanted + parked + _FOR_A_BROKER + logs:
            self.fails(f"{timers} timers for {members} members of {count} groups")
        tokens = sum(1 for shard in shards for _ in shard.waiting_tokens())
        if tokens > _TOKENS_OF_A_MEMBER * members + parked + _LEFT_BEHIND:
            self.fails(f"{tokens} requests are parked by {members} members, and {parked} connections wait")


class HeldBytesAreCounted(Observer):
    """The count of the bytes that the members of groups use is right, also when they are released."""

    name = "held bytes are counted"

    def sample(self) -> None:
        machine = self.world.machine
        if machine.cluster is None or machine.is_paused:
            return
        if self.world.consumer_protocol_groups and any(shard.is_writing for _, _, shard in machine.shards()):
            return  # a group that changes its type is counted twice until that is durable
        in_all = 0
        for _, _, shard in machine.shards():
            for group in shard.classic_groups():
                held = count_held(group)
                in_all += held
                if group.held_bytes != held:
                    self.fails(f"the members of {group.group_id} hold {held} bytes, counted are {group.held_bytes}")
            in_all += sum(group.held_bytes for group in shard.consumer_groups())  # compared by `ReplayIsTheSame`
        counted = machine.cluster.held_by_groups.total
        if counted != in_all:
            self.fails(f"the members of all groups hold {in_all} bytes, counted are {counted}")

    def ended(self) -> None:
        self.sample()


class TimesAreTheWallClocks(Observer):
    """Facts and records have the time of the wall clock, even if that clock is set."""

    name = "times are the wall clock's"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._earliest_ms = self._latest_ms = world.machine.wall_ms

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        wall_ms = machine.wall_ms
        self._earliest_ms = min(self._earliest_ms, wall_ms)
        self._latest_ms = max(self._latest_ms, wall_ms)
        if fact.group_id in self.world.consumer_protocol_groups:
            # It has the time of its event, and comes when the record is durable.
            if not 0 <= wall_ms - fact.at_ms <= self.world.schedule.now_ms:
                self.fails(f"{type(fact).__name__} has {fact.at_ms}, and the wall clock says {wall_ms}")
        elif fact.at_ms != wall_ms:
            self.fails(f"{type(fact).__name__} has {fact.at_ms}, and the wall clock says {wall_ms}")

    def sample(self) -> None:
        for _, _, shard in self.world.machine.shards():
            for group in shard.classic_groups():
                if not self._earliest_ms <= group.state_timestamp_ms <= self._latest_ms:
                    self.fails(f"the state of {group.group_id} is from {group.state_timestamp_ms}")


class NoMistakes(Observer):
    """The broker has no bugs: an exception that it survives is one as well."""

    name = "no mistakes"

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        if type(fact) is Mistake:
            self.fails(f"{machine.name}, {fact.doing}:\n{fact.trace}")
