"""Live state equals replayed state (C4): a crash would bring back what there is, as far as it is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from coterie.broker.broker_facts import LeadersChanged
from coterie.broker.group_service import read_some
from coterie.broker.node import Node
from coterie.coordinator.classic import Group, State
from coterie.coordinator.runtime import Replay, Shard
from coterie.facts import AssignmentFailed, AssignmentStored, Fact, WriteFailed
from coterie.protocol.offsets_topic import OFFSETS_TOPIC
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World
from coterie.storage import PartitionLog, Segment

__all__ = ["ReplayIsTheSame"]

_IN_A_REBALANCE = (State.PREPARING_REBALANCE, State.COMPLETING_REBALANCE)
_GROWTH = 1.5
"""A log is read again when it has grown so much: comparing all the time would take longer the longer a run is."""


@dataclass(slots=True)
class _Read:
    """What was read of a log, up to `offset`. As long as it has the segments that it had then, only the rest is new."""

    segments: Sequence[Segment]
    replay: Replay
    offset: int

    def go_on(self, log: PartitionLog) -> None:
        self.segments = log.segments
        while self.offset < log.log_end:
            self.offset = read_some(log, self.offset, self.replay)


class ReplayIsTheSame(Observer):
    name = "replay is the same"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._read: dict[int, _Read] = {}
        self.count = 0
        self._lost: set[str] = set()
        """Groups of which a record could not be written: an older one comes back, until the next."""

    def tell(self, _machine: Machine, fact: Fact) -> None:
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

    def _compare(self, node: Node, partition: int, shard: Shard) -> None:
        if not shard.groups or shard.is_writing:
            return
        log = node.replicas.log(OFFSETS_TOPIC, partition)
        read = self._read.get(partition)
        if log is None or not log.is_in_order or (read is not None and log.log_end <= read.offset * _GROWTH):
            return
        if read is None or not log.has(read.segments):  # compaction has left others, or a flush that failed
            read = self._read[partition] = _Read((), Replay(), log.log_start)
        read.go_on(log)
        found = {group.group_id: group for group in read.replay.groups(shard.settings, 0)}
        self.count += 1
        for group in shard.groups.values():
            self._same(group, found.get(group.group_id))

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


def _offsets(group: Group) -> dict[str, Any]:
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


def _difference(live: dict[str, Any], read: dict[str, Any]) -> str:
    keys = [key for key in {**live, **read} if live.get(key) != read.get(key)]
    return "; ".join(f"{key}: {live.get(key)!r} and {read.get(key)!r}" for key in keys)
