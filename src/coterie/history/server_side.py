"""Design 2, the coordinator of one group (semantics 13.2): it alone watches, it alone decides, by its own strategy.

A rebalance: everybody who may be reading is told to stop and says how far it came; whoever does not answer is waited
for as long as its session lasts. Then the offsets are written, then the new generation, then everybody is told what to
read.

The node `assignment` has the generation and its owners, and every write of an offset names the version it saw there. So
a coordinator that was replaced and does not know it yet can tell members what it likes: it cannot write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from coterie.assignors import Assignor, Topic
from coterie.history.design_types import Arm, Effects, HangUp, Heard, Hung, Offsets, Partition, Rang, Say
from coterie.history.paths import Paths, read_assignment, read_offset, read_topics, write_assignment, write_offset
from coterie.history.registry import Ask, Changed, Children, Create, Delete, Get, Node, Operation, Puts
from coterie.history.server_messages import Commit, HasStopped, Hello, Refused, Start, Stop
from coterie.history.shares import shares

__all__ = ["Asked", "Coordinator", "State"]

AGAIN, AGAIN_MS = "claim again", 200


class State(Enum):
    CLAIMING = "makes the coordinator's node, which somebody else may still hold"
    LOADING = "reads what the coordinator before left"
    STOPPING = "waits until nobody reads"
    WRITING = "writes offsets and the new generation"
    STABLE = "has told everybody"
    REPLACED = "somebody else coordinates this group"


class Step(Enum):
    """What an answer is about."""

    CLAIM = auto()
    HOLDER = auto()
    FIRST = auto()
    LOAD = auto()
    OFFSET = auto()
    LOOK = auto()
    WISH = auto()
    LAST_OFFSETS = auto()
    COMMIT = auto()
    DECISION = auto()
    CHECK = auto()
    RESIGN = auto()


@dataclass(frozen=True, slots=True)
class Asked:
    """With every question, and back with its answer. `tenure`: of which coordinator, of those a broker has had."""

    group_id: str
    tenure: int
    step: Step
    what: Any = None


@dataclass(frozen=True, slots=True)
class Decision:
    members: frozenset[str]
    owners: Mapping[Partition, str]
    data: bytes


class Coordinator:
    def __init__(
        self,
        group_id: str,
        address: str,
        session: int,
        topics: Mapping[str, Topic],
        assignor: Assignor,
        tenure: int = 0,
    ) -> None:
        """For as long as that session lasts."""
        self.group_id = group_id
        self.state = State.CLAIMING
        self.generation = 0
        self.owners: dict[Partition, str] = {}
        self.rebalances = 0
        self.tenure = tenure
        self._address = address
        self._session = session
        self._topics = topics
        self._assignor = assignor
        self._paths = Paths(group_id)
        self._partitions = [(name, one) for name, known in sorted(topics.items()) for one in range(known.partitions)]
        self._version = 0
        self._subscriptions: dict[str, list[str]] = {}
        """Of everybody who is there."""
        self._assigned_to: set[str] | None = None
        """Who was there when it was last decided; None: we have not decided yet."""
        self._offsets: dict[Partition, int] = {}
        """As they are written."""
        self._positions: dict[Partition, int] = {}
        """What members said when they stopped, until it is written."""
        self._connected: set[str] = set()
        self._still_reads: set[str] = set()
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            Changed: lambda _event, _now_ms: self._look(),
            Rang: lambda _event, _now_ms: self.begin() if self.state is State.CLAIMING else [],
            Heard: self._heard,
            Hung: self._hung,
        }
        self._then: Mapping[Step, Callable[[Any, Any, int], Effects]] = {
            Step.CLAIM: self._claimed,
            Step.HOLDER: self._who_holds_it,
            Step.FIRST: self._there_is_one,
            Step.LOAD: self._loaded,
            Step.OFFSET: self._found_offset,
            Step.LOOK: self._looked,
            Step.WISH: self._wants,
            Step.LAST_OFFSETS: self._wrote_last_offsets,
            Step.COMMIT: self._wrote_commit,
            Step.DECISION: self._wrote_decision,
            Step.CHECK: self._is_it_ours,
            Step.RESIGN: lambda *_about: [],
        }
        self._said: Mapping[type, Callable[[str, Any], Effects]] = {
            Hello: self._hello,
            HasStopped: self._has_stopped,
            Commit: self._commit,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    def answered(self, asked: Asked, value: Any, now_ms: int) -> Effects:
        return [] if self.state is State.REPLACED else self._then[asked.step](asked.what, value, now_ms)

    def _ask(self, operation: Operation, step: Step, what: Any = None) -> Ask:
        return Ask(operation, self._session, Asked(self.group_id, self.tenure, step, what))

    # --- becoming it --------------------------------------------------------------------------------------------------

    def begin(self) -> Effects:
        return [self._ask(Create(self._paths.coordinator, self._address.encode()), Step.CLAIM)]

    def end(self) -> Effects:
        """The group belongs elsewhere: its members have to look for the one who has it."""
        held, self.state = self.state is not State.CLAIMING, State.REPLACED
        hang_up = [HangUp(one) for one in sorted(self._connected)]
        return [*hang_up, self._ask(Delete(self._paths.coordinator), Step.RESIGN)] if held else hang_up

    def _claimed(self, _what: None, is_ours: bool, _now_ms: int) -> Effects:
        if is_ours:
            return self._load()
        return [self._ask(Get(self._paths.coordinator), Step.HOLDER)]

    def _who_holds_it(self, _what: None, node: Node | None, now_ms: int) -> Effects:
        """Ourselves, if the answer was lost. Otherwise that one has to see first that it is not its group any more."""
        if node is not None and node.data == self._address.encode():
            return self._load()
        return [Arm(f"{AGAIN} {self.group_id}", now_ms + AGAIN_MS)]

    def _load(self) -> Effects:
        if self.state is not State.CLAIMING:
            return []
        self.state = State.LOADING
        return [self._ask(Create(self._paths.assignment, write_assignment(0, {}), is_ephemeral=False), Step.FIRST)]

    def _there_is_one(self, _what: None, _made: bool, _now_ms: int) -> Effects:
        return [self._ask(Get(self._paths.assignment), Step.LOAD)]

    def _loaded(self, _what: None, node: Node, _now_ms: int) -> Effects:
        self._version = node.version
        self.generation, self.owners = read_assignment(node.data)
        return [self._ask(Get(self._paths.offset(one)), Step.OFFSET, one) for one in self._partitions]

    def _found_offset(self, one: Partition, node: Node | None, _now_ms: int) -> Effects:
        self._offsets[one] = read_offset(node.data) if node is not None else 0
        return self._look() if len(self._offsets) == len(self._partitions) else []

    # --- who is there -------------------------------------------------------------------------------------------------

    def _look(self) -> Effects:
        return [self._ask(Children(self._paths.ids), Step.LOOK)]

    def _looked(self, _what: None, members: list[str], _now_ms: int) -> Effects:
        self._subscriptions = {one: self._subscriptions.get(one, []) for one in members}
        unknown = [one for one, topics in self._subscriptions.items() if not topics]
        asks = [self._ask(Get(self._paths.member(one)), Step.WISH, one) for one in unknown]
        return [*asks] or self._consider()

    def _wants(self, member_id: str, node: Node | None, _now_ms: int) -> Effects:
        if node is None:
            self._subscriptions.pop(member_id, None)  # it went meanwhile: a change is coming
        elif member_id in self._subscriptions:
            self._subscriptions[member_id] = read_topics(node.data)
        return [] if not all(self._subscriptions.values()) else self._consider()

    def _consider(self) -> Effects:
        """Somebody came or went, or this is the first look: is there anything to do?"""
        if self.state is State.STOPPING:
            self._still_reads &= self._subscriptions.keys()
            return self._all_have_stopped()
        if self.state is State.WRITING or self._assigned_to == set(self._subscriptions):
            return []
        self.state = State.STOPPING
        self.rebalances += 1
        self._still_reads = set(self.owners.values()) & self._subscriptions.keys()
        stop = [Say(Stop(self.generation), one) for one in sorted(self._connected & self._subscriptions.keys())]
        return [*stop, *self._all_have_stopped()]

    # --- a rebalance --------------------------------------------------------------------------------------------------

    def _all_have_stopped(self) -> Effects:
        if self._still_reads:
            return []
        self.state = State.WRITING
        return self._write(self._positions, Step.LAST_OFFSETS) if self._positions else self._decide()

    def _write(self, positions: Offsets, step: Step) -> Effects:
        values = {self._paths.offset(one): write_offset(at) for one, at in sorted(positions.items())}
        return [self._ask(Puts(values, self._fence), step, positions)]

    def _wrote_commit(self, positions: Offsets, is_done: bool, _now_ms: int) -> Effects:
        if not is_done:
            return self._is_replaced()
        self._offsets.update(positions)
        return []

    def _wrote_last_offsets(self, positions: Offsets, is_done: bool, now_ms: int) -> Effects:
        self._wrote_commit(positions, is_done, now_ms)
        return self._decide() if is_done else []

    def _decide(self) -> Effects:
        self._positions = {}
        given = shares(self._assignor, self._subscriptions, self._topics) if self._subscriptions else {}
        owners = {partition: member for member, mine in given.items() for partition in mine}
        data = write_assignment(self.generation + 1, owners)
        decision = Decision(frozenset(self._subscriptions), owners, data)
        return [self._ask(Puts({self._paths.assignment: data}, self._fence), Step.DECISION, decision)]

    def _wrote_decision(self, decision: Decision, _is_done: bool, _now_ms: int) -> Effects:
        """Also if the answer was lost it may have been done."""
        return [self._ask(Get(self._paths.assignment), Step.CHECK, decision)]

    def _is_it_ours(self, decision: Decision, node: Node, _now_ms: int) -> Effects:
        if node.data != decision.data:
            return self._is_replaced()
        self.generation, self.owners, self._version = self.generation + 1, dict(decision.owners), node.version
        self._assigned_to = set(decision.members)
        self.state = State.STABLE
        start = [self._start(one) for one in sorted(self._connected & decision.members)]
        return [*start, *self._consider()]

    @property
    def _fence(self) -> tuple[str, int]:
        return self._paths.assignment, self._version

    def _start(self, member_id: str) -> Say:
        mine = {one: self._offsets.get(one, 0) for one, owner in self.owners.items() if owner == member_id}
        return Say(Start(self.generation, mine), member_id)

    def _is_replaced(self) -> Effects:
        self.state = State.REPLACED
        return []

    # --- members ------------------------------------------------------------------------------------------------------

    def _heard(self, event: Heard, _now_ms: int) -> Effects:
        if self.state is State.REPLACED:
            return []
        return self._said[type(event.message)](event.peer, event.message)

    def _hung(self, event: Hung, _now_ms: int) -> Effects:
        """It may read on. Whether it is still there, its session says."""
        self._connected.discard(event.peer)
        return []

    def _hello(self, peer: str, message: Hello) -> Effects:
        self._connected.add(peer)
        if self.state is State.STOPPING:
            return [Say(Stop(self.generation), peer)]
        if self.state is State.STABLE and peer in (self._assigned_to or ()) and message.generation != self.generation:
            return [self._start(peer)]
        return []

    def owns(self, member_id: str, generation: int, positions: Offsets) -> bool:
        """The fence: this generation, and its own."""
        return generation == self.generation and all(self.owners.get(one) == member_id for one in positions)

    def _has_stopped(self, peer: str, message: HasStopped) -> Effects:
        if self.state is not State.STOPPING:
            return []
        if self.owns(peer, message.generation, message.positions):
            self._positions.update(message.positions)
        self._still_reads.discard(peer)
        return self._all_have_stopped()

    def _commit(self, peer: str, message: Commit) -> Effects:
        if not self.owns(peer, message.generation, message.positions):
            return [Say(Refused(message.generation), peer)] if self.state is State.STABLE else []
        return self._write(message.positions, Step.COMMIT) if self.state in {State.STABLE, State.STOPPING} else []
