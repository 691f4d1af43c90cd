"""Every rebalance has a cause that the world really produced (section 12)."""

from __future__ import annotations

from coterie.broker.node import Node
from coterie.facts import Cause, Fact, GroupLoaded, MemberExpired, RebalanceStarted
from coterie.protocol.apis import by_key
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["RebalancesHaveCauses"]

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
    """Of one process."""

    __slots__ = ("at", "instance_id", "session_ms")

    def __init__(self, session_ms: int, instance_id: str | None) -> None:
        self.session_ms = session_ms
        self.instance_id = instance_id
        self.at: dict[str, tuple[int, Node]] = {}
        """What it asked for: when that was last received, not counting pauses of the broker, and by whom."""


class RebalancesHaveCauses(Observer):
    name = "rebalances have causes"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard: dict[str, _Heard] = {}
        self._loaded: set[str] = set()

    def came(self, consumer: ConsumerProcess) -> None:
        self._heard[consumer.name] = _Heard(consumer.habits.session_timeout_ms, consumer.habits.instance_id)

    def request_arrived(self, machine: Machine, link: BrokerLink, frame: bytes) -> None:
        heard = self._heard.get(link.wire.client.name)
        if heard is not None:
            name = _GROUP_KEYS.get(frame[1])
            if name is not None and (link.connection.call is None or name not in _SIGNS_OF_LIFE):
                heard.at[name] = (
                    self.world.schedule.now_ms - machine.away_ms,
                    link.node,
                )  # what waits for another renews nothing yet

    def tell(self, machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if kind is RebalanceStarted:
            self._started(machine, fact)  # type: ignore[arg-type]
        elif kind is MemberExpired:
            self._expired(machine, fact)  # type: ignore[arg-type]
        elif kind is GroupLoaded:
            self._loaded.add(fact.group_id)

    def _of(self, member_id: str) -> list[_Heard]:
        """Whoever may be meant: ids begin with the client's name, or with the instance's (rule 3)."""
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
        """Under this id and generation: then every beat of it is granted."""
        for consumer in self.world.consumers.values():
            member = consumer.member
            if member.member_id == fact.member_id:
                group = self.world.group(fact.group_id)
                return group is not None and group.generation_id == member.generation_id and member.is_settled
        return False

    def _must(self, holds: bool, fact: RebalanceStarted, what: str) -> None:
        if not holds:
            self.fails(f"a rebalance of {fact.group_id} began ({fact.cause}, {fact.member_id or 'nobody'}), and {what}")
