"""A run has two halves: first everything may go wrong, and invariants must hold; then all is repaired, and everybody
must come to rest within a bound.

    outcome = simulate(Plan.draw(seed=7))
    print(outcome.report())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from traceback import format_exc

from coterie.client.member.states import MemberState
from coterie.client.types import TopicPartition
from coterie.coordinator.classic import State
from coterie.sim.consumer import ConsumerProcess
from coterie.sim.exercised import Account, Exercised
from coterie.sim.invariants import INVARIANTS
from coterie.sim.invariants.at_least_once import EveryRecordIsProcessed
from coterie.sim.observer import Broken, Observer
from coterie.sim.plan import Plan
from coterie.sim.steps import Fault, Step, Undo
from coterie.sim.story import StoryObserver
from coterie.sim.world import World
from coterie.stories import grid

__all__ = ["Converged", "Outcome", "simulate"]


BOUND_MS = 15 * 60_000
"""Twice the longest time a member may hold up others, and the longest for which a newcomer may wait in vain."""
STEP_MS = 1_000
NUDGE_MS = 5 * 60_000


class Converged:
    """Demands that within a bound, after all is repaired, groups are Stable and everything is owned and read."""

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
        groups: dict[str, list[ConsumerProcess]] = {}
        for consumer in world.consumers.values():
            groups.setdefault(consumer.group_id, []).append(consumer)
        for group_id, consumers in groups.items():
            missing = self._missing_in(group_id, consumers)
            if missing:
                return missing
        return ""

    def _missing_in(self, group_id: str, consumers: list[ConsumerProcess]) -> str:
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


SAMPLE_MS = 5_000
SAMPLES = 400
"""Of a long run, so that it is not longer for that."""
TOPICS_MS = 500
PRODUCE_MS = 3_000


@dataclass
class Outcome:
    plan: Plan
    account: Account
    fingerprint: str
    steps: Sequence[grid.StoryStep]
    """The last few thousand things that happened."""
    broken: str | None = None
    """Which invariant, if one did not hold."""
    what: str = ""
    at_ms: int = 0

    @property
    def story(self) -> str:
        return grid.show(self.steps)

    @property
    def held(self) -> bool:
        return self.broken is None

    @property
    def command(self) -> str:
        plan = self.plan
        drop = f" --drop {','.join(map(str, sorted(plan.dropped)))}" if plan.dropped else ""
        hours = f"{plan.length_ms / 3_600_000:.6g}"
        what = f"--workload {plan.workload} --hours {hours} --members {plan.members}{plan.asked}"
        return f"coterie sim --seed {plan.seed} {what}{drop}"

    def report(self, last: int = 60) -> str:
        lines = [*self.plan.lines()]
        if self.held:
            return "\n".join([*lines, f"held; fingerprint {self.fingerprint}"])
        story = self.story.splitlines()
        shown = [story[0], *story[1:][-last:]] if story else []
        return "\n".join(
            [
                *lines,
                *self.plan.script(),
                "",
                *shown,
                "",
                f"BROKEN at {self.at_ms} ms: {self.broken}: {self.what}",
                f"replay: {self.command}",
            ]
        )


class Run:
    def __init__(self, plan: Plan, watch: Sequence[Callable[[World], Observer]] = ()) -> None:
        self.plan = plan
        self.world = World(
            plan.seed,
            [*INVARIANTS, StoryObserver, Exercised, *watch],
            plan.settings,
            delay_ms=plan.delay_ms,
            jitter_ms=plan.jitter_ms,
            skew_ms=plan.skew_ms,
            drift_ppm=plan.drift_ppm,
            disk_ms=plan.disk_ms,
            nodes=plan.nodes,
        )
        self.story = next(one for one in self.world.observers if isinstance(one, StoryObserver))
        self.account = next(one for one in self.world.observers if isinstance(one, Exercised)).account
        self._undos: dict[int, Undo] = {}
        self._sample_ms = max(SAMPLE_MS, plan.length_ms // SAMPLES)

    def play(self) -> None:
        world, plan = self.world, self.plan
        world.machine.start()
        schedule = world.schedule
        for name, partitions in plan.topics.items():
            schedule.at(TOPICS_MS, lambda about: world.admin.create_topic(*about), (name, partitions))
        schedule.at(PRODUCE_MS, self._produce, None)
        for number, step in plan.kept:
            schedule.at(step.at_ms, self._begin, (number, step))
        self._until(plan.length_ms)
        self._heal()
        Converged(world, self._until).demand()
        world.ended()

    def _produce(self, _about: object) -> None:
        self.world.producer("p", list(self.plan.topics), self.plan.every_ms)

    def _until(self, until_ms: int) -> None:
        """OffsetReader at what is costly now and then."""
        schedule = self.world.schedule
        while schedule.now_ms < until_ms:
            next_ms = min(until_ms, (schedule.now_ms // self._sample_ms + 1) * self._sample_ms)
            schedule.run(next_ms)
            self.world.sample()

    def _begin(self, about: tuple[int, Step]) -> None:
        number, step = about
        self.world.happened("", step.described)
        if isinstance(step, Fault):
            self.account.faults[type(step).__name__] += 1
        undo = step.begin(self.world)
        if undo is not None and isinstance(step, Fault):
            self._undos[number] = undo
            self.world.schedule.after(step.for_ms, self._end, number)

    def _end(self, number: int) -> None:
        undo = self._undos.pop(number, None)
        if undo is not None:
            self.world.happened("", f"end of {number} {type(self.plan.steps[number]).__name__}")
            undo()

    def _heal(self) -> None:
        self.world.happened("", "everything is repaired")
        for number in list(self._undos):
            self._end(number)
        for consumer in list(self.world.displaced):
            self.world.crash(consumer)
        for consumer in self.world.consumers.values():
            consumer.behave()
        self.world.machine.disk.restore()
        self.world.machine.power_up()


def simulate(plan: Plan, watch: Sequence[Callable[[World], Observer]] = ()) -> Outcome:
    """`watch`: observers of your own, for what you want to know or to hold it to."""
    run = Run(plan, watch)
    broken = what = None
    try:
        run.play()
    except Broken as failure:
        broken, what = failure.name, failure.what
    except Exception:  # noqa: BLE001  of ours or of the shipped code: found by this seed either way
        broken, what = "no exceptions", format_exc()
    world = run.world
    account = run.account
    account.simulated_ms = world.schedule.now_ms
    account.events = world.schedule.steps
    account.counts["long work"] = world.machine.background_tasks
    account.counts["damage told"] = world.machine.damage_told
    account.counts["swaps interrupted"] = world.machine.swaps_cut
    for one in world.observers:
        if hasattr(one, "count"):
            account.counts[one.name] += one.count
    return Outcome(
        plan, account, run.story.fingerprint, tuple(run.story.steps), broken, what or "", world.schedule.now_ms
    )
