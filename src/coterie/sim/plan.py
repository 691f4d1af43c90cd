"""A plan: everything that is drawn from a seed before anything happens, as values that can be printed and left out."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Self

from coterie.errors import CoterieError
from coterie.sim.faults import aimed_faults, clock_faults, draw_fault
from coterie.sim.rng import Rng
from coterie.sim.steps import Fault, Step
from coterie.sim.workloads import FIRST_MS, WORKLOADS, Scene

__all__ = ["Plan"]

MINUTE_MS = 60_000
LENGTH_MS = 10 * MINUTE_MS
LEAST_FAULTS, MOST_FAULTS = 5, 12
SOON_COMPACTED = {"coterie.offsets.roll.bytes": 8_192, "log.cleaner.delete.retention.ms": 60_000}
"""As after days: groups' logs of several segments, compacted again and again, deletions gone."""


@dataclass(frozen=True)
class Plan:
    seed: int
    workload: str
    length_ms: int
    members: int
    steps: tuple[Step, ...]
    topics: dict[str, int]
    settings: dict[str, object]
    every_ms: int
    delay_ms: int = 0
    jitter_ms: int = 3
    skew_ms: int = 0
    drift_ppm: int = 0
    disk_ms: int = 2
    """What a sync takes, on average."""
    nodes: int = 1
    dropped: frozenset[int] = field(default_factory=frozenset)
    """Steps that are left out, by number."""
    asked: str = ""
    """What of the rest was not drawn but asked for, in the words of the command."""

    @classmethod
    def draw(
        cls,
        seed: int,
        workload: str | None = None,
        *,
        hours: float | None = None,
        members: int | None = None,
        faults: int | None = None,
        nodes: int | None = None,
        drop: Collection[int] = (),
    ) -> Self:
        """What is not given is drawn. `faults` 0: nothing goes wrong by itself."""
        rng = Rng(seed)
        throw = rng.of("plan")
        drawn, usual = throw.choice(list(WORKLOADS)), throw.randint(2, 6)  # also if given: what follows stays the same
        name = workload or drawn
        if name not in WORKLOADS:
            raise CoterieError(f"unknown workload {name!r}; the workloads are {', '.join(WORKLOADS)}")
        length_ms = LENGTH_MS if hours is None else max(round(hours * 60 * MINUTE_MS), MINUTE_MS)
        count = usual if members is None else members
        scene = Scene(rng.of(f"workload/{name}"), length_ms, count, every_ms=throw.choice((1_000, 3_000, 10_000)))
        scene.topics["t"] = throw.choice((3, 8, 12))
        scene.settings = {
            "offsets.topic.num.partitions": throw.choice((1, 4)),
            "group.initial.rebalance.delay.ms": throw.choice((0, 3_000)),
        }
        knobs = {
            "delay_ms": throw.choice((0, 1, 20)),
            "jitter_ms": throw.choice((1, 3, 40)),
            "skew_ms": throw.choice((0, 5_000, 600_000)),
            "drift_ppm": throw.choice((0, 0, 200, 5_000)),
            "disk_ms": throw.choice((2, 20, 200)),
        }
        drawn_nodes = throw.choice((1, 3))
        scene.nodes = drawn_nodes if nodes is None else nodes
        scene.settings |= throw.choice(({}, SOON_COMPACTED))
        WORKLOADS[name](scene)
        luck = rng.of("faults")
        many = luck.randint(LEAST_FAULTS, MOST_FAULTS) * max(1, length_ms // LENGTH_MS) if faults is None else faults
        slots = [*scene.slots, "p"]
        compacts = SOON_COMPACTED.items() <= scene.settings.items()
        wrong = [
            draw_fault(luck, luck.randint(FIRST_MS, length_ms), slots, scene.nodes, compacts=compacts)
            for _ in range(many)
        ]
        if faults is None:
            wrong += aimed_faults(rng.of("aimed faults"), scene.steps, length_ms, compacts=compacts)
            wrong += clock_faults(rng.of("clock faults"), length_ms)
        steps = sorted([*scene.steps, *wrong], key=lambda step: step.at_ms)
        return cls(
            seed,
            name,
            length_ms,
            count,
            tuple(steps),
            scene.topics,
            scene.settings,
            scene.every_ms,
            **knobs,
            nodes=scene.nodes,
            dropped=frozenset(drop),
            asked="".join(
                f" --{name} {value}" for name, value in (("faults", faults), ("nodes", nodes)) if value is not None
            ),
        )

    def without(self, numbers: Collection[int]) -> Self:
        return replace(self, dropped=self.dropped | frozenset(numbers))

    @property
    def kept(self) -> list[tuple[int, Step]]:
        return [(number, step) for number, step in enumerate(self.steps) if number not in self.dropped]

    @property
    def faults(self) -> int:
        return sum(isinstance(step, Fault) for _, step in self.kept)

    def lines(self) -> Iterator[str]:
        yield (
            f"seed {self.seed}: {self.workload}, {self.members} members, {self.nodes} nodes, "
            f"{self.length_ms / MINUTE_MS:g} minutes, {len(self.kept)} of {len(self.steps)} steps, {self.faults} faults"
        )
        topics = ", ".join(f"topic {name} with {count} partitions" for name, count in self.topics.items())
        yield (
            f"{topics}; a record every {self.every_ms / 1_000:g} s, network delay {self.delay_ms} to "
            f"{self.delay_ms + self.jitter_ms} ms, clocks up to {self.skew_ms / 1_000:g} s apart with a drift of "
            f"{self.drift_ppm} ppm, disk sync {self.disk_ms} ms"
        )
        if self.settings:
            yield "settings " + ", ".join(f"{name}={value}" for name, value in self.settings.items())

    def script(self) -> Iterator[str]:
        for number, step in self.kept:
            yield f"{number:>4} {step}"
