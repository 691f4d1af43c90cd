"""What is done to a world: small values with a time, each of which can be left out. Faults end; what ends is undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from coterie.sim.consumer import Habits

if TYPE_CHECKING:
    from coterie.sim.world import World

__all__ = [
    "Come",
    "Commit",
    "CreateTopic",
    "DeleteGroup",
    "Fault",
    "GrowTopic",
    "Leave",
    "MoveCoordinator",
    "Replace",
    "Step",
    "Subscribe",
]

Undo = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class Step(ABC):
    at_ms: int

    @abstractmethod
    def begin(self, world: World) -> Undo | None:
        """What ends it, if it has an end."""

    def __str__(self) -> str:
        said = " ".join(f"{name}={value}" for name, value in vars(self).items() if name not in {"at_ms", "habits"})
        return f"{self.at_ms:>8} {type(self).__name__} {said}".rstrip()


@dataclass(frozen=True, kw_only=True)
class Fault(Step):
    for_ms: int = 0


# --- what users do ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Come(Step):
    slot: str
    habits: Habits

    def begin(self, world: World) -> None:
        world.consumer(self.slot, replace(self.habits))


@dataclass(frozen=True, kw_only=True)
class Leave(Step):
    slot: str
    leave: bool | None = None

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            consumer.close(leave=self.leave)


@dataclass(frozen=True, kw_only=True)
class Replace(Step):
    """A second process with the same instance id comes while the first is still there (KIP-345): that one is fenced."""

    slot: str
    habits: Habits

    def begin(self, world: World) -> None:
        world.displace(self.slot, replace(self.habits))


@dataclass(frozen=True, kw_only=True)
class Subscribe(Step):
    slot: str
    topics: Sequence[str]

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            consumer.subscribe(self.topics)


@dataclass(frozen=True, kw_only=True)
class CreateTopic(Step):
    topic: str
    partitions: int

    def begin(self, world: World) -> None:
        world.admin.create_topic(self.topic, self.partitions)


@dataclass(frozen=True, kw_only=True)
class GrowTopic(Step):
    topic: str
    by: int

    def begin(self, world: World) -> None:
        if self.topic in world.admin.topics:
            world.admin.grow_topic(self.topic, world.admin.topics[self.topic] + self.by)


@dataclass(frozen=True, kw_only=True)
class DeleteGroup(Step):
    group_id: str

    def begin(self, world: World) -> None:
        world.admin.delete_group(self.group_id)


@dataclass(frozen=True, kw_only=True)
class MoveCoordinator(Step):
    group_id: str
    node: int
    in_a_rebalance: bool = False
    """It waits for the moment at which everybody has joined and nobody has an assignment yet."""

    def begin(self, world: World) -> None:
        def move(_about: object = None) -> None:
            world.machine.nodes.move_coordinator(self.group_id, self.node)

        if self.in_a_rebalance:
            world.when_joined(self.group_id, move)
        else:
            move()


@dataclass(frozen=True, kw_only=True)
class Commit(Step):
    """A simple consumer begins to commit, without being a member."""

    group_id: str
    topic: str
    partitions: int
    every_ms: int

    def begin(self, world: World) -> None:
        world.committer(self.group_id, self.topic, self.partitions, self.every_ms)
