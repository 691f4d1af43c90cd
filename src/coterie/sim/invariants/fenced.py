"""A fenced member stays fenced (rule 18): what it asks for after it was replaced is never granted."""

from __future__ import annotations

from typing import Any

from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupLoaded, MemberReplaced
from coterie.protocol.apis import heartbeat, join_group, offset_commit, sync_group
from coterie.sim.client import Asked, Client
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["FencedStaysFenced"]


class FencedStaysFenced(Observer):
    name = "a fenced member stays fenced"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since: dict[str, int] = {}

    def tell(self, _machine: Machine, fact: Fact) -> None:
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
        elif asked.module in {join_group, sync_group}:
            granted = answer.error is ErrorCode.NONE
        else:
            return
        if granted:
            self.fails(f"{client.name} was fenced at {since_ms} and its {asked.module.API.name} was granted")
