"""Whoever speaks for an older generation is refused (rules 2, 11, 15, 21; KAFKA-2557)."""

from __future__ import annotations

from typing import Any

from coterie.errors import ErrorCode
from coterie.facts import Fact, GroupCreated, GroupLoaded, JoinPhaseCompleted
from coterie.protocol.apis import heartbeat, offset_commit, sync_group
from coterie.sim.client import Asked, Client
from coterie.sim.machine import Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["OldGenerationsAreRefused"]

_NO_GENERATION = -1


class OldGenerationsAreRefused(Observer):
    name = "old generations are refused"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._since: dict[str, dict[int, int]] = {}
        """For each group, when each of its generations began; one that was not written may come back."""

    def tell(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is JoinPhaseCompleted:
            self._since.setdefault(fact.group_id, {})[fact.generation_id] = self.world.schedule.now_ms
        elif type(fact) is GroupLoaded:
            began = self._since.get(fact.group_id, {})
            for later in [generation for generation in began if generation > fact.generation_id]:
                del began[later]
        elif type(fact) is GroupCreated:
            self._since.pop(fact.group_id, None)

    def answered(self, client: Client, asked: Asked, answer: Any) -> None:
        if asked.module is heartbeat:
            granted = answer is ErrorCode.NONE
        elif asked.module is offset_commit:
            granted = ErrorCode.NONE in answer.errors
        elif asked.module is sync_group:
            granted = answer.error is ErrorCode.NONE
        else:
            return
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
