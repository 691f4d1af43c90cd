"""Every request is answered, or its connection is gone: none is forgotten, but for rules 10 and 13.

A join or sync that another of the same member has replaced, and the sync of one that left, are never answered.
"""

from __future__ import annotations

from coterie.broker.calls import Call, Gather
from coterie.coordinator.classic import State
from coterie.facts import Fact, JoinPhaseCompleted, MemberTurnedAway, RebalanceStarted
from coterie.protocol.messages import Token
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["NobodyIsForgotten"]

_PARKED = {"JoinGroup", "SyncGroup"}
_OF_GROUPS = _PARKED | {"Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "DescribeGroups", "DeleteGroups"}


class NobodyIsForgotten(Observer):
    name = "nobody is forgotten"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._turned_away: set[str] = set()
        """Groups that refused a member in this rebalance: completion is checked at the next event only (rule 1)."""

    def tell(self, _machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if kind is MemberTurnedAway:
            self._turned_away.add(fact.group_id)
        elif kind is JoinPhaseCompleted or kind is RebalanceStarted:
            self._turned_away.discard(fact.group_id)

    def sample(self) -> None:
        self._look(self.world.machine)

    def ended(self) -> None:
        self.sample()

    def _look(self, machine: Machine) -> None:
        if machine.cluster is None or machine.is_paused:
            return
        for _, _, shard in machine.shards():
            for group in shard.groups.values():
                is_waiting = group.state is State.PREPARING_REBALANCE and not group.in_initial_delay
                if is_waiting and group.everybody_joined() and group.group_id not in self._turned_away:
                    self.fails(f"everybody's join is parked, and {group.group_id} waits (rule 4)")
                if group.state is State.PREPARING_REBALANCE and any(
                    member.parked_sync is not None for member in group.members.values()
                ):
                    self.fails(f"a sync waits in {group.group_id}, which prepares a rebalance (rule 13)")
        waiting: set[int] | None = None
        for link in machine.links:
            call = link.connection.call
            if call is None or call.route.api.name not in _OF_GROUPS:
                continue
            if waiting is None:
                waiting = {id(_call(token)) for _, _, shard in machine.shards() for token in shard.waiting_tokens()}
            if id(call) not in waiting and not _may_be_forgotten(link, call):
                self.fails(f"{call.route.api.name} of {link.wire.client.name} is answered by nobody")


def _call(token: Token) -> object:
    if isinstance(token, tuple) and isinstance(token[0], Gather):
        return token[0].call
    return token


def _may_be_forgotten(link: BrokerLink, call: Call) -> bool:
    if call.route.api.name not in _PARKED:
        return False
    wire, client = link.wire, link.wire.client
    if not wire.is_open or not client.is_alive or not isinstance(client, ConsumerProcess):
        return True
    return client.member.ending is not None or not _PARKED.intersection(wire.waits_for)
