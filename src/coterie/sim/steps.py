"""The steps of a run: small values with a time, each of which can be left out. A fault ends, and is then undone."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coterie.sim.consumer import Habits
from coterie.structs import replace

if TYPE_CHECKING:
    from coterie.sim.world import World

Undo = Callable[[], None]


@dataclass(frozen=True, kw_only=True)
class PlanStep(ABC):
    """Something that happens in a simulated run, at a time."""

    at_ms: int

    @abstractmethod
    def begin(self, world: World) -> Undo | None:
        """The function that ends it, if it has an end."""

    def __str__(self) -> str:
        return f"{self.at_ms / 1_000:>8.3f} s  {self.described}"

    @property
    def described(self) -> str:
        """Describe it: the name of the step, and its fields except those that are off."""
        who = getattr(self, "slot", "")
        what = re.sub(r"(?<!^)(?=[A-Z])", " ", type(self).__name__).lower()
        more = [_field(name, value) for name, value in vars(self).items() if name not in {"at_ms", "habits", "slot"}]
        return " ".join(word for word in (f"{who}:" if who else "", what, *more) if word)


def _field(name: str, value: object) -> str:
    """Return a field as text: times in seconds, a flag as its name."""
    if isinstance(value, bool) or value is None:
        return f"({name.replace('_', ' ')})" if value else ""
    if name == "for_ms" and isinstance(value, int):
        return f"for {value / 1_000:g} s"
    if name.endswith("_ms") and isinstance(value, int):
        return f"{name.removesuffix('_ms')}={value / 1_000:g} s"
    return f"{name}={value}"


@dataclass(frozen=True, kw_only=True)
class FaultStep(PlanStep):
    """A fault, which is in force for some time."""

    for_ms: int = 0


# --- what users do ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Come(PlanStep):
    slot: str
    habits: Habits

    @property
    def described(self) -> str:
        return f"{self.slot} joins"

    def begin(self, world: World) -> None:
        world.consumer(self.slot, replace(self.habits))


@dataclass(frozen=True, kw_only=True)
class Leave(PlanStep):
    slot: str
    leave: bool | None = None

    @property
    def described(self) -> str:
        return f"{self.slot} stops without leaving" if self.leave is False else f"{self.slot} leaves"

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            consumer.close(leave=self.leave)


@dataclass(frozen=True, kw_only=True)
class Crash(PlanStep):
    slot: str

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            world.crash(consumer)


RETRY_MS = 100


@dataclass(frozen=True, kw_only=True)
class Restart(PlanStep):
    """A process starts in the place of another, as soon as that has ended."""

    slot: str
    habits: Habits

    def begin(self, world: World) -> None:
        if world.consumer(self.slot, replace(self.habits)) is None:
            world.schedule.after(RETRY_MS, lambda _about: self.begin(world), None)


@dataclass(frozen=True, kw_only=True)
class Replace(PlanStep):
    """A second process with the same instance id starts while the first still runs (KIP-345), which is fenced."""

    slot: str
    habits: Habits

    @property
    def described(self) -> str:
        return f"{self.slot} is replaced by a second process with its instance id"

    def begin(self, world: World) -> None:
        world.displace(self.slot, replace(self.habits))


@dataclass(frozen=True, kw_only=True)
class Subscribe(PlanStep):
    slot: str
    topics: Sequence[str] = ()
    pattern: str | None = None

    @property
    def described(self) -> str:
        return f"{self.slot} subscribes to {self.pattern or ', '.join(self.topics)}"

    def begin(self, world: World) -> None:
        consumer = world.consumers.get(self.slot)
        if consumer is not None:
            consumer.subscribe(self.topics, self.pattern)


@dataclass(frozen=True, kw_only=True)
class CreateTopic(PlanStep):
    topic: str
    partitions: int

    @property
    def described(self) -> str:
        return f"topic {self.topic} is created with {self.partitions} partitions"

    def begin(self, world: World) -> None:
        world.admin.create_topic(self.topic, self.partitions)


@dataclass(frozen=True, kw_only=True)
class GrowTopic(PlanStep):
    topic: str
    by: int

    @property
    def described(self) -> str:
        return f"topic {self.topic} grows by {self.by} partitions"

    def begin(self, world: World) -> None:
        if self.topic in world.admin.topics:
            world.admin.grow_topic(self.topic, world.admin.topics[self.topic] + self.by)


@dataclass(frozen=True, kw_only=True)
class DeleteTopic(PlanStep):
    topic: str

    @property
    def described(self) -> str:
        return f"topic {self.topic} is deleted"

    def begin(self, world: World) -> None:
        world.admin.delete_topic(self.topic)


@dataclass(frozen=True, kw_only=True)
class GroupConfig(PlanStep):
    group_id: str
    name: str
    value: int

    @property
    def described(self) -> str:
        return f"group {self.group_id} gets {self.name}={self.value}"

    def begin(self, world: World) -> None:
        world.admin.set_group_config(self.group_id, self.name, self.value)


@dataclass(frozen=True, kw_only=True)
class GroupDeletion(PlanStep):
    group_id: str

    @property
    def described(self) -> str:
        return f"group {self.group_id} is deleted"

    def begin(self, world: World) -> None:
        world.admin.delete_group(self.group_id)


@dataclass(frozen=True, kw_only=True)
class MoveCoordinator(PlanStep):
    group_id: str
    node: int
    in_a_rebalance: bool = False
    """Wait until all members have joined and none has an assignment yet."""

    @property
    def described(self) -> str:
        when = ", during its next rebalance" if self.in_a_rebalance else ""
        return f"coordinator of {self.group_id} moves to node {self.node}{when}"

    def begin(self, world: World) -> None:
        def move(_about: object = None) -> None:
            world.machine.nodes.move_coordinator(self.group_id, self.node)

        if self.in_a_rebalance:
            world.when_joined(self.group_id, move)
        else:
            move()


@dataclass(frozen=True, kw_only=True)
class MoveTransactions(PlanStep):
    transactional_id: str
    node: int

    @property
    def described(self) -> str:
        return f"coordinator of the transactions of {self.transactional_id} moves to node {self.node}"

    def begin(self, world: World) -> None:
        world.machine.nodes.move_transactions(self.transactional_id, self.node)


@dataclass(frozen=True, kw_only=True)
class ReadCommitted(PlanStep):
    """A reader with isolation.level=read_committed starts."""

    slot: str
    topics: Sequence[tuple[str, int]]

    @property
    def described(self) -> str:
        return f"{self.slot} reads what is committed to {', '.join(topic for topic, _ in self.topics)}"

    def begin(self, world: World) -> None:
        world.reader(self.slot, self.topics)


@dataclass(frozen=True, kw_only=True)
class Commit(PlanStep):
    """A simple consumer begins to commit, without being a member."""

    group_id: str
    topic: str
    partitions: int
    every_ms: int

    @property
    def described(self) -> str:
        return f"{self.group_id} commits {self.partitions} partitions of {self.topic} every {self.every_ms / 1_000:g} s"

    def begin(self, world: World) -> None:
        world.committer(self.group_id, self.topic, self.partitions, self.every_ms)
