"""A member that says nothing is removed when its session ends (rule 14): its alarm is set, whatever became of it."""

from __future__ import annotations

from coterie.coordinator.classic import Group, Member
from coterie.coordinator.classic.group import NEVER
from coterie.sim.observer import Observer

__all__ = ["SilentMembersGo"]

LATE_MS = 1_000


class SilentMembersGo(Observer):
    name = "silent members go"

    def sample(self) -> None:
        machine = self.world.machine
        if machine.is_paused:
            return
        by_ms = machine.now_ms - LATE_MS
        for _, _, shard in machine.shards():
            for group in shard.groups.values():
                for member in group.members.values():
                    if not _waits_for_us(member):
                        self._look_at(group, member, by_ms)

    def _look_at(self, group: Group, member: Member, by_ms: int) -> None:
        if member.deadline_ms < by_ms:
            self.fails(
                f"{member.member_id} of {group.group_id} is silent since {by_ms - member.deadline_ms} ms too long"
            )
        if member.alarm_ms > member.deadline_ms or member.alarm_ms == NEVER:
            self.fails(f"{member.member_id} of {group.group_id} may be silent as long as it likes")


def _waits_for_us(member: Member) -> bool:
    """Rule 9: then it cannot expire, unless it is new."""
    return (member.parked_join is not None or member.parked_sync is not None) and not member.is_new
