"""Whoever watches a world: invariants, the story, the account of what was exercised. Each takes what it cares for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coterie.client.member import effects
    from coterie.client.types import TopicPartition
    from coterie.facts import Fact
    from coterie.protocol.messages import OffsetCommit
    from coterie.sim.client import Asked, Client
    from coterie.sim.consumer import ConsumerProcess
    from coterie.sim.machine import BrokerLink, Machine
    from coterie.sim.world import World

__all__ = ["HOOKS", "Broken", "Observer"]


class Broken(BaseException):
    """An invariant does not hold. Not an Exception: what catches those in the shipped code is not to catch this."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{name}: {what}")
        self.name = name
        self.what = what


class Observer:
    """Whatever of these a class defines is called; what it does not define costs nothing."""

    name = "observer"

    def __init__(self, world: World) -> None:
        self.world = world

    def fails(self, what: str) -> None:
        self.world.fails(self.name, what)

    # the wire
    def request_arrived(self, machine: Machine, link: BrokerLink, frame: bytes) -> None: ...
    def bytes_arrived(self, client: Client, data: bytes) -> None: ...
    def answered(self, client: Client, asked: Asked, answer: Any) -> None: ...
    def timed_out(self, client: Client, api: str) -> None: ...
    # the broker
    def tell(self, machine: Machine, fact: Fact) -> None: ...
    def broker_began(self, machine: Machine) -> None: ...
    def broker_ended(self, machine: Machine) -> None: ...
    # consumers and producers
    def came(self, consumer: ConsumerProcess) -> None: ...
    def went(self, consumer: ConsumerProcess, how: str) -> None: ...
    def ownership_changed(self, consumer: ConsumerProcess) -> None: ...
    def listened(
        self, consumer: ConsumerProcess, kind: effects.Listened, partitions: Collection[TopicPartition]
    ) -> None: ...
    def held(self, consumer: ConsumerProcess, partitions: Collection[TopicPartition]) -> None: ...
    def assigned(self, consumer: ConsumerProcess, effect: effects.SetAssignment) -> None: ...
    def commit_sent(self, client: Client, request: OffsetCommit) -> None: ...
    def took(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None: ...
    def processed(self, consumer: ConsumerProcess, records: Sequence[Any]) -> None: ...
    def acknowledged(self, where: TopicPartition, offset: int, value: bytes) -> None: ...
    # the run
    def happened(self, who: str, what: str) -> None: ...
    def sample(self) -> None: ...
    def ended(self) -> None: ...


HOOKS = tuple(
    name for name, value in vars(Observer).items() if callable(value) and not name.startswith("_") and name != "fails"
)
