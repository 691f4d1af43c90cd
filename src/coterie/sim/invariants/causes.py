"""Every round has a cause that the world really produced (section 12)."""

from __future__ import annotations

from coterie.apis import by_key
from coterie.facts import Cause, Fact, GroupLoaded, MemberExpired, RoundStarted
from coterie.sim.consumer import Consumer
from coterie.sim.machine import Link, Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["RoundsHaveCauses"]

_GROUP_KEYS = {row.key: row.name for row in by_key.values() if row.name in {"JoinGroup", "SyncGroup", "LeaveGroup", "Heartbeat", "OffsetCommit"}}


class _Heard:
    """Of one process: when the broker last received each of its requests, by the world's time."""

    __slots__ = ("at", "instance_id", "session_ms")

    def __init__(self, session_ms: int, instance_id: str | None) -> None:
        self.session_ms = session_ms
        self.instance_id = instance_id
        self.at: dict[str, int] = {}


class RoundsHaveCauses(Observer):
    name = "rounds have causes"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._heard: dict[str, _Heard] = {}
        self._loaded_ms: dict[str, int] = {}
        self._refused = 0

    def came(self, consumer: Consumer) -> None:
        self._heard[consumer.name] = _Heard(consumer.habits.session_timeout_ms, consumer.habits.instance_id)

    def request_arrived(self, _machine: Machine, link: Link, frame: bytes) -> None:
        heard = self._heard.get(link.wire.client.name)
        if heard is not None:
            name = _GROUP_KEYS.get(frame[1])
            if name is not None:
                heard.at[name] = self.world.schedule.now_ms

    def tell(self, machine: Machine, fact: Fact) -> None:
        kind = type(fact)
        if kind is RoundStarted:
            self._started(machine, fact)  # type: ignore[arg-type]
        elif kind is MemberExpired:
            self._expired(fact)  # type: ignore[arg-type]
        elif kind is GroupLoaded:
            self._loaded_ms[fact.group_id] = self.world.schedule.now_ms

    def _of(self, member_id: str) -> _Heard | None:
        """Ids begin with the client's name, or with the instance's (rule 3)."""
        if len(member_id) < 38:
            return None
        name = member_id[:-37]
        found = self._heard.get(name)
        if found is not None:
            return found
        owners = [heard for heard in self._heard.values() if heard.instance_id == name]
        return owners[-1] if owners else None

    def _started(self, machine: Machine, fact: RoundStarted) -> None:
        now_ms = self.world.schedule.now_ms
        cause = fact.cause
        heard = self._of(fact.member_id)
        if cause in {Cause.NEW_MEMBER, Cause.PROTOCOLS_CHANGED, Cause.LEADER_REJOINED, Cause.STATIC_MEMBER_REPLACED}:
            self._must(heard is not None and "JoinGroup" in heard.at, fact, "it never sent a join")
        elif cause is Cause.WRITE_FAILED:
            self._must(self._disk_refused(machine), fact, "its disk has refused nothing")
        elif cause in {Cause.COORDINATOR_MOVED, Cause.OVER_SIZE_AT_LOAD}:
            self._must(fact.group_id in self._loaded_ms, fact, "the group was never loaded")
        elif cause in {Cause.MEMBER_LEFT, Cause.PENDING_MEMBER_LEFT}:
            self._must(heard is not None and "LeaveGroup" in heard.at, fact, "it never sent a leave")
        elif cause is Cause.SYNC_TIMEOUT:
            self._must(heard is not None and now_ms - heard.at.get("JoinGroup", now_ms) > 0, fact, "it did not join")

    def _expired(self, fact: MemberExpired) -> None:
        heard = self._of(fact.member_id)
        if heard is None:
            return
        now_ms = self.world.schedule.now_ms
        last = max((heard.at.get(name, -1) for name in ("Heartbeat", "OffsetCommit")), default=-1)
        # Only a sign of life of this member counts, and only if it was granted: a rejected one moves nothing. So what
        # is certain is the other way round: a member whose session is renewed all the time is not to expire.
        if heard.instance_id is None and 0 <= now_ms - last < heard.session_ms // 4 and self._is_beating(fact):
            self.fails(f"{fact.member_id} expired {now_ms - last} ms after it was heard")

    def _is_beating(self, fact: MemberExpired) -> bool:
        """Under this id and generation: then every beat of it is granted."""
        for consumer in self.world.consumers.values():
            member = consumer.member
            if member.member_id == fact.member_id:
                group = self.world.group(fact.group_id)
                return group is not None and group.generation_id == member.generation_id and member.is_settled
        return False

    def _disk_refused(self, machine: Machine) -> bool:
        return machine.disk.refused > 0 or machine.slow_disk > 1 or machine.was_slow

    def _must(self, holds: bool, fact: RoundStarted, what: str) -> None:
        if not holds:
            self.fails(f"a round of {fact.group_id} began ({fact.cause}, {fact.member_id or 'nobody'}), and {what}")
