"""What a run has exercised, so that a quiet corner is seen: states by requests, faults, rebalances by cause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from coterie.broker.broker_facts import LeadersChanged
from coterie.coordinator.classic import State
from coterie.facts import Cause, Fact, RebalanceStarted
from coterie.protocol.apis import by_key
from coterie.sim.machine import BrokerLink, Machine
from coterie.sim.observer import Observer
from coterie.sim.world import World

__all__ = ["Account", "Exercised"]

_REQUESTS = ("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "OffsetCommit", "OffsetFetch", "DeleteGroups")
_NAMES = {row.key: row.name for row in by_key.values() if row.name in _REQUESTS}


@dataclass(slots=True)
class Account:
    """Of one run, or of many together."""

    runs: int = 0
    simulated_ms: int = 0
    events: int = 0
    cells: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests by name and the state that the group was in when they arrived."""
    faults: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Account) -> None:
        self.runs += other.runs
        self.simulated_ms += other.simulated_ms
        self.events += other.events
        self.cells.update(other.cells)
        self.faults.update(other.faults)
        self.causes.update(other.causes)
        self.counts.update(other.counts)

    def lines(self) -> Iterable[str]:
        states = [str(state) for state in State]
        yield f"{self.runs} runs, {self.simulated_ms / 3_600_000:.1f} simulated hours, {self.events} events"
        yield "requests by group state:"
        yield "  " + " ".join(["request".ljust(13), *(state.rjust(20) for state in states)])
        for request in _REQUESTS:
            found = [str(self.cells[request, state] or "-").rjust(20) for state in states]
            yield "  " + " ".join([request.ljust(13), *found])
        yield "faults: " + (", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())) or "none")
        yield "rebalances: " + ", ".join(f"{cause} {self.causes[str(cause)]}" for cause in Cause)
        yield "seen: " + ", ".join(f"{name} {count}" for name, count in sorted(self.counts.items()))


class Exercised(Observer):
    name = "exercised"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.account = Account(runs=1)
        self._cells = self.account.cells

    def request_arrived(self, _machine: Machine, link: BrokerLink, frame: bytes) -> None:
        name = _NAMES.get(frame[1])
        if name is not None:
            group_id, coordinator = link.wire.client.group_id, link.node.coordinator
            shard = coordinator.shards.get(coordinator.partition_of(group_id))
            group = shard.groups.get(group_id) if shard is not None else None
            self._cells[name, group.state if group is not None else State.DEAD] += 1

    def tell(self, _machine: Machine, fact: Fact) -> None:
        if type(fact) is RebalanceStarted:
            self.account.causes[str(fact.cause)] += 1
        elif type(fact) is LeadersChanged:
            self.account.counts["leaders change"] += 1
