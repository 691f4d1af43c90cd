"""What a design made of the scenario: counted by chapter, and who owned what when."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from coterie.history.design_types import Partition
from coterie.history.owning import Owning, Shared, Sum
from coterie.history.scenario import Chapter, Scenario

__all__ = ["Account", "Cost", "Design"]


class Design(StrEnum):
    WATCHERS = "1 watchers"
    SERVER = "2 server-side"
    EAGER = "3 eager"
    COOPERATIVE = "3 cooperative"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one chapter."""

    notified: int
    """Watches of ZooKeeper that rang."""
    reads: int
    """Of ZooKeeper."""
    looks: int
    """Of the reads: who is there, and what do they want."""
    attempts: int
    """Design 1: how often a member began to assign partitions again."""
    messages: int
    """Between members and coordinator, because of the change: no heartbeats, no commits."""
    restarts: int
    """Processes that were stopped and started again."""
    rest_ms: int | None
    """Until everybody reads again; None: not in this chapter."""
    several: Sum
    nobody: Sum


@dataclass(slots=True)
class Account:
    design: Design
    scenario: Scenario
    owns: Owning
    """Design 1: what a process reads. Designs 2 and 3: what its commits are taken for."""
    believes: Owning
    """What a process would read, also while it sleeps, or after it was replaced."""
    marks: list[Counter[str]] = field(default_factory=list)
    """What was counted when each chapter began, and at the end."""
    went_back: int = 0
    """Commits that were taken and put an offset back: somebody else had come further."""
    _committed: dict[Partition, int] = field(default_factory=dict)

    def committed(self, where: Partition, offset: int) -> None:
        self.went_back += offset < self._committed.get(where, 0)
        self._committed[where] = offset

    def cost(self, chapter: Chapter) -> Cost:
        at = self.scenario.chapters.index(chapter)
        counts = self.marks[at + 1] - self.marks[at]
        began_ms, ended_ms = chapter.began_ms, chapter.ended_ms
        rest = self.owns.at_rest_after(began_ms, ended_ms)
        return Cost(
            counts["notifications"],
            counts["reads"],
            counts["looks"],
            counts["attempts"],
            counts["messages"],
            counts["restarts"],
            None if rest is None else rest - began_ms,
            Sum.of(self.owns.several(began_ms, ended_ms)),
            Sum.of(self.owns.nobody(began_ms, ended_ms)),
        )

    @property
    def _whole(self) -> tuple[int, int]:
        return self.scenario.chapters[0].began_ms, self.scenario.length_ms

    @property
    def several(self) -> list[Shared]:
        return self.owns.several(*self._whole)

    @property
    def nobody(self) -> Sum:
        return Sum.of(self.owns.nobody(*self._whole))

    @property
    def believed(self) -> Sum:
        """Two believed to own the same."""
        return Sum.of(self.believes.several(*self._whole))

    @property
    def came_to_rest(self) -> bool:
        return self.owns.is_at_rest
