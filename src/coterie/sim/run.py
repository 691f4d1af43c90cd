"""A run has two halves: first everything may go wrong, and invariants must hold; then all is repaired, and everybody
must come to rest within a bound.

    outcome = simulate(Plan.draw(seed=7))
    print(outcome.report())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from traceback import format_exc

from coterie.sim.converged import Converged
from coterie.sim.exercised import Account, Exercised
from coterie.sim.invariants import INVARIANTS
from coterie.sim.observer import Broken, Observer
from coterie.sim.plan import Plan
from coterie.sim.steps import Fault, Step, Undo
from coterie.sim.story import Story
from coterie.sim.world import World
from coterie.stories import grid

__all__ = ["Outcome", "simulate"]

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
            [*INVARIANTS, Story, Exercised, *watch],
            plan.settings,
            delay_ms=plan.delay_ms,
            jitter_ms=plan.jitter_ms,
            skew_ms=plan.skew_ms,
            drift_ppm=plan.drift_ppm,
            disk_ms=plan.disk_ms,
            nodes=plan.nodes,
        )
        self.story = next(one for one in self.world.observers if isinstance(one, Story))
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
