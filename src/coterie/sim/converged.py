"""After everything is repaired: all groups Stable, everything owned, everything read, within a bound."""

from __future__ import annotations

from collections.abc import Callable

from coterie.client.member.states import MemberState
from coterie.client.types import TopicPartition
from coterie.coordinator.classic import State
from coterie.sim.consumer import Consumer
from coterie.sim.invariants.at_least_once import EveryRecordIsProcessed
from coterie.sim.observer import Broken
from coterie.sim.world import World

__all__ = ["Converged"]

BOUND_MS = 15 * 60_000
"""Twice the longest time a member may hold up others, and the longest for which a newcomer may wait in vain."""
STEP_MS = 1_000
NUDGE_MS = 5 * 60_000


class Converged:
    def __init__(self, world: World, until: Callable[[int], None]) -> None:
        self._world = world
        self._until = until
        self._progress = next(one for one in world.observers if isinstance(one, EveryRecordIsProcessed))

    def demand(self) -> None:
        world = self._world
        began_ms = world.schedule.now_ms
        for producer in world.producers.values():
            producer.stop()
        nudge_at_ms = NUDGE_MS
        while True:
            missing = self._missing()
            if not missing:
                return
            waited_ms = world.schedule.now_ms - began_ms
            if waited_ms >= BOUND_MS:
                raise Broken("converges", f"{BOUND_MS} ms after everything was repaired: {missing}")
            if waited_ms >= nudge_at_ms and self._may_need_news():
                nudge_at_ms += NUDGE_MS  # whoever was away when it came needs another
                for name, partitions in list(world.admin.topics.items()):
                    world.admin.grow_topic(name, partitions + 1)
            self._until(world.schedule.now_ms + STEP_MS)

    def _may_need_news(self) -> bool:
        """A member waits for a rebalance that only news of its topics brings about, in Kafka as well.

        A static leader that is back does not know what was added meanwhile (KIP-814). A group that was loaded knows of
        each member the one assignor that was chosen, and turns away who does not have it, until a leader rejoins (C4).
        """
        habits = [consumer.habits for consumer in self._world.consumers.values()]
        lists = {tuple(assignor.name for assignor in one.assignors) for one in habits}
        return len(lists) > 1 or any(one.instance_id is not None for one in habits)

    def _missing(self) -> str:
        """What keeps the world from being at rest."""
        world = self._world
        if not world.admin.is_done:
            return f"the admin still {world.admin.requests[0][3]}"
        for producer in world.producers.values():
            if not producer.is_done:
                return f"{producer.name} has {producer.batching.unsettled} records on their way"
        groups: dict[str, list[Consumer]] = {}
        for consumer in world.consumers.values():
            groups.setdefault(consumer.group_id, []).append(consumer)
        for group_id, consumers in groups.items():
            missing = self._missing_in(group_id, consumers)
            if missing:
                return missing
        return ""

    def _missing_in(self, group_id: str, consumers: list[Consumer]) -> str:
        world = self._world
        limit = world.machine.settings.group_max_size
        well = [one for one in consumers if one.member.state is MemberState.STABLE and one.member.rejoin_reason is None]
        if len(well) < min(len(consumers), limit):
            others = [one for one in consumers if one not in well]
            return f"{len(others)} of {len(consumers)} are not stable: {others[0].member.explain(others[0].now_ms)}"
        group = world.group(group_id)
        if group is None or group.state is not State.STABLE:
            return f"group {group_id} is {group.state if group else 'not there'}"
        generations = {one.member.generation_id for one in well}
        if generations != {group.generation_id}:
            return f"group {group_id} is in generation {group.generation_id}, its members in {sorted(generations)}"
        wanted = {
            TopicPartition(topic, partition)
            for consumer in well
            for topic in consumer.habits.topics
            for partition in range(world.admin.topics.get(topic, 0))
        }
        owned = sorted(one for consumer in well for one in consumer.member.assigned)
        if owned != sorted(wanted):
            return f"group {group_id} owns {owned}, and should {sorted(wanted)}"
        for one in sorted(wanted):
            if not self._progress.is_done(group_id, one):
                return f"group {group_id} has not processed all of {one}"
        return ""
