"""Invariants of requests and rebalances: sessions end, requests are answered, rebalances have causes."""

from __future__ import annotations

from coterie.broker.calls import Call, Gather
from coterie.broker.node import BrokerNode
from coterie.coordinator.classic import ClassicGroupMember, ClassicGroupState
from coterie.coordinator.classic.group import NEVER
from coterie.coordinator.consumer.group import Session
from coterie.facts import (
    Cause,
    Fact,
    GroupLoaded,
    JoinPhaseCompleted,
    MemberExpired,
    MemberTurnedAway,
    RebalanceStarted,
)
from coterie.protocol.apis import by_key
from coterie.protocol.messages import Token
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.world import Observer, World

LATE_MS = 1_000
_NO_SESSION = Session()


class SilentMembersGo(Observer):
    """A member that sends nothing is removed when its session times out (rule 14): its timer is always set."""

    name = "silent members go"

    def sample(self) -> None:
        machine = self.world.machine
        if machine.is_paused:
            return
        by_ms = machine.now_ms - LATE_MS
        for _, _, shard in machine.shards():
            for group in shard.classic_groups():
                for member in group.members.values():
                    if not _waits_for_us(member):
                        self._look_at(group.group_id, member.member_id, member, by_ms)
            for newer in shard.consumer_groups():
                if shard.holds_back(newer.group_id):
                    continue  # sessions start again in the classic group that follows (K26)
                for member_id in newer.members:
                    self._look_at(newer.group_id, member_id, newer.sessions.get(member_id, _NO_SESSION), by_ms)

    def _look_at(self, group_id: str, member_id: str, session: ClassicGroupMember | Session, by_ms: int) -> None:
        if session.deadline_ms < by_ms:
            self.fails(f"{member_id} of {group_id} is silent since {by_ms - session.deadline_ms} ms too long")
        if session.alarm_ms > session.deadline_ms or session.alarm_ms == NEVER:
            self.fails(f"{member_id} of {group_id} may be silent as long as it likes")


def _waits_for_us(member: ClassicGroupMember) -> bool:
    """Rule 9: then it cannot expire, unless it is new."""
    return (member.parked_join is not None or member.parked_sync is not None) and not member.is_new


_PARKED = {"JoinGroup", "SyncGroup"}
_OF_GROUPS = _PARKED | {
    "Heartbeat",
    "ConsumerGroupHeartbeat",
    "LeaveGroup",
    "OffsetCommit",
    "OffsetFetch",
    "DescribeGroups",
    "DeleteGroups",
}


class NobodyIsForgotten(Observer):
    """Every request is answered, or its connection is closed; rules 10 and 13 have the exceptions.

    A join or sync that another one of the same member has replaced, and the sync of a member that left, get no answer.
    """

    name = "nobody is forgotten"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._turned_away: set[str] = set()
        """Groups that refused a member in this rebalance: completion is checked at the next event only (rule 1)."""

    def on_fact(self, _machine: Machine, fact: Fact) -> None:
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
            for group in shard.classic_groups():
                is_waiting = group.state is ClassicGroupState.PREPARING_REBALANCE and not group.in_initial_delay
                if is_waiting and group.all_members_joined() and group.group_id not in self._turned_away:
                    self.fails(f"all joins are parked, and {group.group_id} waits (rule 4)")
                if group.state is ClassicGroupState.PREPARING_REBALANCE and any(
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


_SIGNS_OF_LIFE = ("Heartbeat", "OffsetCommit")
_HEARD = {"JoinGroup", "LeaveGroup", *_SIGNS_OF_LIFE}
_GROUP_KEYS = {row.key: row.name for row in by_key.values() if row.name in _HEARD}
_BY_JOIN = {
    Cause.NEW_MEMBER,
    Cause.PROTOCOLS_CHANGED,
    Cause.LEADER_REJOINED,
    Cause.STATIC_MEMBER_REPLACED,
    Cause.STATIC_MEMBER_CHANGED_VOTE,
}


class _Heard:
    """The requests of one process."""

    __slots__ = ("at", "instance_id", "session_ms")

    def __init__(self, session_ms: int, instance_id: str | None) -> None:
        self.session_ms = session_ms
        self.instance_id = instance_id
        self.at: dict[str, tuple[int, BrokerNode]] = {}
        """The time of the last request of each API, without pauses of the broker, and the node."""


class RebalancesHaveCauses(Observer):
    """Every rebalance has a cause that the world really produced (section 12)."""

    name = "rebalances have causes"
    requests = tuple(_GROUP_KEYS)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard: dict[str, _Heard] = {}
        self._loaded: set[str] = set()

    def came(self, consumer: ConsumerProcess) -> None:
        self._heard[consumer.name] = _Heard(consumer.habits.session_timeout_ms, consumer.habits.instance_id)

    def request_arrived(self, machine: Machine, link: BrokerLink, frame: bytes) -> None:
        heard = self._heard.get(link.wire.client.name)
        if heard is not None:
            name = _GROUP_KEYS[frame[1]]
            if link.connection.call is None or name not in _SIGNS_OF_LIFE:
                heard.at[name] = (
                    self.world.schedule.now_ms - machine.away_ms,
                    link.node,
                )  # what waits for another renews nothing yet

    def on_fact(self, machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if kind is not GroupLoaded and fact.group_id in self.world.consumer_protocol_groups:
            return  # `EpochsHaveCauses`
        if kind is RebalanceStarted:
            self._started(machine, fact)  # type: ignore[arg-type]
        elif kind is MemberExpired:
            self._expired(machine, fact)  # type: ignore[arg-type]
        elif kind is GroupLoaded:
            self._loaded.add(fact.group_id)

    def _of(self, member_id: str) -> list[_Heard]:
        """The processes that may have this id: ids begin with the client's name, or with the instance's (rule 3)."""
        name = member_id[:-37]
        return [heard for who, heard in self._heard.items() if name in (who, heard.instance_id)] if name else []

    def _sent(self, what: str, member_id: str) -> bool:
        return any(what in heard.at for heard in self._of(member_id))

    def _started(self, machine: Machine, fact: RebalanceStarted) -> None:
        cause, member_id = fact.cause, fact.member_id
        if cause in _BY_JOIN:
            self._must(self._sent("JoinGroup", member_id), fact, "it never sent a join")
        elif cause is Cause.WRITE_FAILED:
            self._must(machine.disk.refused > 0 or machine.was_slow, fact, "its disk has refused nothing")
        elif cause in {Cause.COORDINATOR_MOVED, Cause.OVER_SIZE_AT_LOAD}:
            self._must(fact.group_id in self._loaded, fact, "the group was never loaded")
        elif cause in {Cause.MEMBER_LEFT, Cause.PENDING_MEMBER_LEFT}:
            self._must(self._sent("LeaveGroup", member_id), fact, "it never sent a leave")
        elif cause is Cause.SYNC_TIMEOUT:
            self._must(self._sent("JoinGroup", member_id), fact, "it never joined")

    def _expired(self, machine: Machine, fact: MemberExpired) -> None:
        """A member whose session is renewed all the time is not to expire; a beat that is refused renews nothing.

        That the broker could not hear it, since it was paused, is not the member's fault.
        """
        heard = self._of(fact.member_id)
        was_away = machine.resumed_ms == self.world.schedule.now_ms
        if len(heard) != 1 or heard[0].instance_id is not None or not (was_away or self._is_beating(fact)):
            return
        for at_ms, node in (heard[0].at[name] for name in _SIGNS_OF_LIFE if name in heard[0].at):
            silent_ms = self.world.schedule.now_ms - machine.away_ms - at_ms
            asked_right = node.coordinator.partition_of(fact.group_id) in node.coordinator.shards
            if asked_right and silent_ms < heard[0].session_ms * 3 // 4:
                self.fails(f"{fact.member_id} expired {silent_ms} ms after it was heard")

    def _is_beating(self, fact: MemberExpired) -> bool:
        """Return whether the member sends heartbeats under this id and generation: then all of them succeed."""
        for consumer in self.world.consumers.values():
            member = consumer.member
            if member.member_id == fact.member_id:
                group = self.world.group(fact.group_id)
                return group is not None and group.generation_id == member.generation_id and member.is_settled
        return False

    def _must(self, holds: bool, fact: RebalanceStarted, what: str) -> None:
        if not holds:
            self.fails(f"a rebalance of {fact.group_id} began ({fact.cause}, {fact.member_id or 'nobody'}), and {what}")
