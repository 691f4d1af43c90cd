"""Design 2, the broker (semantics 13.2): the coordinator watches ZooKeeper alone and assigns with its own assignor.

In a rebalance the coordinator tells all members that may be reading to stop, and each answers with its positions. It
waits for a member that does not answer as long as the member's session lasts. Then it writes the offsets, then the new
generation, and sends each member its partitions.

The node `assignment` has the generation and its owners, and every write of an offset names the version of that node.
So a coordinator that was replaced and does not know it yet may still send messages, but cannot write.

A group is coordinated by the broker whose number, hashed with the group's name, gives the lowest checksum. When a
broker stops, its groups are spread over the others and no other group moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any
from zlib import crc32

from coterie.assignors import Assignor, Topic
from coterie.history.design_types import (
    ANY_SESSION,
    BROKERS,
    Children,
    ChildrenChanged,
    Create,
    Delete,
    Disconnected,
    DisconnectMember,
    Effects,
    Get,
    MessageReceived,
    Offsets,
    Operation,
    Partition,
    Paths,
    SendMessage,
    SessionBegan,
    SessionEnded,
    SetData,
    SetTimer,
    TimerFired,
    ZkRequest,
    ZkResponse,
    ZNode,
    assigned_partitions,
    read_assignment,
    read_offset,
    read_topics,
    write_assignment,
    write_offset,
)
from coterie.history.server_side_member import (
    CommitRefused,
    CommitRequest,
    MemberHello,
    ReadingStopped,
    StartReadingRequest,
    StopReadingRequest,
)

AGAIN, AGAIN_MS = "claim again", 200


class CoordinatorState(Enum):
    CLAIMING = "creates the coordinator's node, which another broker may still hold"
    LOADING = "reads what the previous coordinator stored"
    STOPPING = "waits until all members have stopped reading"
    WRITING = "writes offsets and the new generation"
    STABLE = "all members have their assignment"
    REPLACED = "another broker coordinates this group"


class CoordinatorStep(Enum):
    """The step that a response from ZooKeeper belongs to."""

    CLAIM = auto()
    HOLDER = auto()
    FIRST = auto()
    LOAD = auto()
    OFFSET = auto()
    LOOK = auto()
    SUBSCRIPTION = auto()
    LAST_OFFSETS = auto()
    COMMIT = auto()
    DECISION = auto()
    CHECK = auto()
    RESIGN = auto()


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Goes with every request and comes back with its response. A broker numbers its coordinators by `tenure`."""

    group_id: str
    tenure: int
    step: CoordinatorStep
    what: Any = None


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    members: frozenset[str]
    owners: Mapping[Partition, str]
    data: bytes


class ServerSideCoordinator:
    def __init__(
        self,
        group_id: str,
        address: str,
        session: int,
        topics: Mapping[str, Topic],
        assignor: Assignor,
        tenure: int = 0,
    ) -> None:
        """Coordinate a group for as long as `session` lasts."""
        self.group_id = group_id
        self.state = CoordinatorState.CLAIMING
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
        """The subscribed topics of all current members; empty until they are read."""
        self._assigned_to: set[str] | None = None
        """The members of the last assignment; None before the first one."""
        self._offsets: dict[Partition, int] = {}
        """The committed offsets."""
        self._positions: dict[Partition, int] = {}
        """The positions that members sent when they stopped, until they are written."""
        self._connected: set[str] = set()
        self._still_reads: set[str] = set()
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            ChildrenChanged: lambda _event, _now_ms: self._look(),
            TimerFired: lambda _event, _now_ms: self.begin() if self.state is CoordinatorState.CLAIMING else [],
            MessageReceived: self._received,
            Disconnected: self._disconnected,
        }
        self._then: Mapping[CoordinatorStep, Callable[[Any, Any, int], Effects]] = {
            CoordinatorStep.CLAIM: self._claimed,
            CoordinatorStep.HOLDER: self._holder_read,
            CoordinatorStep.FIRST: self._node_exists,
            CoordinatorStep.LOAD: self._loaded,
            CoordinatorStep.OFFSET: self._found_offset,
            CoordinatorStep.LOOK: self._looked,
            CoordinatorStep.SUBSCRIPTION: self._subscription_read,
            CoordinatorStep.LAST_OFFSETS: self._wrote_last_offsets,
            CoordinatorStep.COMMIT: self._wrote_commit,
            CoordinatorStep.DECISION: self._wrote_decision,
            CoordinatorStep.CHECK: self._checked,
            CoordinatorStep.RESIGN: lambda *_about: [],
        }
        self._on_message: Mapping[type, Callable[[str, Any], Effects]] = {
            MemberHello: self._hello,
            ReadingStopped: self._has_stopped,
            CommitRequest: self._commit,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    def answered(self, context: RequestContext, value: Any, now_ms: int) -> Effects:
        return [] if self.state is CoordinatorState.REPLACED else self._then[context.step](context.what, value, now_ms)

    def _request(self, operation: Operation, step: CoordinatorStep, what: Any = None) -> ZkRequest:
        return ZkRequest(operation, self._session, RequestContext(self.group_id, self.tenure, step, what))

    # --- becoming the coordinator -------------------------------------------------------------------------------------

    def begin(self) -> Effects:
        return [self._request(Create(self._paths.coordinator, self._address.encode()), CoordinatorStep.CLAIM)]

    def end(self) -> Effects:
        """Give the group up: disconnect its members, so that they look for the new coordinator."""
        held, self.state = self.state is not CoordinatorState.CLAIMING, CoordinatorState.REPLACED
        disconnect = [DisconnectMember(one) for one in sorted(self._connected)]
        return (
            [*disconnect, self._request(Delete(self._paths.coordinator), CoordinatorStep.RESIGN)]
            if held
            else disconnect
        )

    def _claimed(self, _what: None, is_ours: bool, _now_ms: int) -> Effects:
        if is_ours:
            return self._load()
        return [self._request(Get(self._paths.coordinator), CoordinatorStep.HOLDER)]

    def _holder_read(self, _what: None, node: ZNode | None, now_ms: int) -> Effects:
        """Go on if this broker holds the node, since the first response was lost; otherwise try again later."""
        if node is not None and node.data == self._address.encode():
            return self._load()
        return [SetTimer(f"{AGAIN} {self.group_id}", now_ms + AGAIN_MS)]

    def _load(self) -> Effects:
        if self.state is not CoordinatorState.CLAIMING:
            return []
        self.state = CoordinatorState.LOADING
        return [
            self._request(
                Create(self._paths.assignment, write_assignment(0, {}), is_ephemeral=False), CoordinatorStep.FIRST
            )
        ]

    def _node_exists(self, _what: None, _made: bool, _now_ms: int) -> Effects:
        return [self._request(Get(self._paths.assignment), CoordinatorStep.LOAD)]

    def _loaded(self, _what: None, node: ZNode, _now_ms: int) -> Effects:
        self._version = node.version
        self.generation, self.owners = read_assignment(node.data)
        return [self._request(Get(self._paths.offset(one)), CoordinatorStep.OFFSET, one) for one in self._partitions]

    def _found_offset(self, one: Partition, node: ZNode | None, _now_ms: int) -> Effects:
        self._offsets[one] = read_offset(node.data) if node is not None else 0
        return self._look() if len(self._offsets) == len(self._partitions) else []

    # --- membership ---------------------------------------------------------------------------------------------------

    def _look(self) -> Effects:
        return [self._request(Children(self._paths.ids), CoordinatorStep.LOOK)]

    def _looked(self, _what: None, members: list[str], _now_ms: int) -> Effects:
        self._subscriptions = {one: self._subscriptions.get(one, []) for one in members}
        unknown = [one for one, topics in self._subscriptions.items() if not topics]
        requests = [self._request(Get(self._paths.member(one)), CoordinatorStep.SUBSCRIPTION, one) for one in unknown]
        return [*requests] or self._consider()

    def _subscription_read(self, member_id: str, node: ZNode | None, _now_ms: int) -> Effects:
        if node is None:
            self._subscriptions.pop(member_id, None)  # it has left: a change follows
        elif member_id in self._subscriptions:
            self._subscriptions[member_id] = read_topics(node.data)
        return [] if not all(self._subscriptions.values()) else self._consider()

    def _consider(self) -> Effects:
        """Begin a rebalance if the members have changed, or if this is the first look."""
        if self.state is CoordinatorState.STOPPING:
            self._still_reads &= self._subscriptions.keys()
            return self._all_have_stopped()
        if self.state is CoordinatorState.WRITING or self._assigned_to == set(self._subscriptions):
            return []
        self.state = CoordinatorState.STOPPING
        self.rebalances += 1
        self._still_reads = set(self.owners.values()) & self._subscriptions.keys()
        stop = [
            SendMessage(StopReadingRequest(self.generation), one)
            for one in sorted(self._connected & self._subscriptions.keys())
        ]
        return [*stop, *self._all_have_stopped()]

    # --- a rebalance --------------------------------------------------------------------------------------------------

    def _all_have_stopped(self) -> Effects:
        if self._still_reads:
            return []
        self.state = CoordinatorState.WRITING
        return self._write(self._positions, CoordinatorStep.LAST_OFFSETS) if self._positions else self._decide()

    def _write(self, positions: Offsets, step: CoordinatorStep) -> Effects:
        values = {self._paths.offset(one): write_offset(at) for one, at in sorted(positions.items())}
        return [self._request(SetData(values, self._fence), step, positions)]

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
        given = assigned_partitions(self._assignor, self._subscriptions, self._topics) if self._subscriptions else {}
        owners = {partition: member for member, mine in given.items() for partition in mine}
        data = write_assignment(self.generation + 1, owners)
        decision = AssignmentWrite(frozenset(self._subscriptions), owners, data)
        return [self._request(SetData({self._paths.assignment: data}, self._fence), CoordinatorStep.DECISION, decision)]

    def _wrote_decision(self, decision: AssignmentWrite, _is_done: bool, _now_ms: int) -> Effects:
        """Read the node back: the write may have been done even if its response was lost."""
        return [self._request(Get(self._paths.assignment), CoordinatorStep.CHECK, decision)]

    def _checked(self, decision: AssignmentWrite, node: ZNode, _now_ms: int) -> Effects:
        if node.data != decision.data:
            return self._is_replaced()
        self.generation, self.owners, self._version = self.generation + 1, dict(decision.owners), node.version
        self._assigned_to = set(decision.members)
        self.state = CoordinatorState.STABLE
        start = [self._start(one) for one in sorted(self._connected & decision.members)]
        return [*start, *self._consider()]

    @property
    def _fence(self) -> tuple[str, int]:
        return self._paths.assignment, self._version

    def _start(self, member_id: str) -> SendMessage:
        mine = {one: self._offsets.get(one, 0) for one, owner in self.owners.items() if owner == member_id}
        return SendMessage(StartReadingRequest(self.generation, mine), member_id)

    def _is_replaced(self) -> Effects:
        self.state = CoordinatorState.REPLACED
        return []

    # --- members ------------------------------------------------------------------------------------------------------

    def _received(self, event: MessageReceived, _now_ms: int) -> Effects:
        if self.state is CoordinatorState.REPLACED:
            return []
        return self._on_message[type(event.message)](event.peer, event.message)

    def _disconnected(self, event: Disconnected, _now_ms: int) -> Effects:
        """Forget the connection. The member may read on; its session says whether it is alive."""
        self._connected.discard(event.peer)
        return []

    def _hello(self, peer: str, message: MemberHello) -> Effects:
        self._connected.add(peer)
        if self.state is CoordinatorState.STOPPING:
            return [SendMessage(StopReadingRequest(self.generation), peer)]
        if (
            self.state is CoordinatorState.STABLE
            and peer in (self._assigned_to or ())
            and message.generation != self.generation
        ):
            return [self._start(peer)]
        return []

    def owns(self, member_id: str, generation: int, positions: Offsets) -> bool:
        """Return whether the member owns these partitions in the current generation (the fence)."""
        return generation == self.generation and all(self.owners.get(one) == member_id for one in positions)

    def _has_stopped(self, peer: str, message: ReadingStopped) -> Effects:
        if self.state is not CoordinatorState.STOPPING:
            return []
        if self.owns(peer, message.generation, message.positions):
            self._positions.update(message.positions)
        self._still_reads.discard(peer)
        return self._all_have_stopped()

    def _commit(self, peer: str, message: CommitRequest) -> Effects:
        if not self.owns(peer, message.generation, message.positions):
            return (
                [SendMessage(CommitRefused(message.generation), peer)] if self.state is CoordinatorState.STABLE else []
            )
        return (
            self._write(message.positions, CoordinatorStep.COMMIT)
            if self.state in {CoordinatorState.STABLE, CoordinatorState.STOPPING}
            else []
        )


def coordinator_of(group_id: str, brokers: Iterable[str]) -> str:
    return min(brokers, key=lambda broker: (crc32(f"{group_id}/{broker}".encode()), broker))


class RegisteredBroker:
    """A broker registered in ZooKeeper. Under design 1 `groups` is empty, and it only registers."""

    def __init__(
        self,
        broker_id: str,
        address: str,
        groups: Sequence[str] = (),
        topics: Mapping[str, Topic] | None = None,
        assignor: Assignor | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.coordinators: dict[str, ServerSideCoordinator] = {}
        self._groups_of: dict[str, str] = {}
        """The group of each connected member."""
        self._address = address
        self._groups = groups
        self._topics = topics or {}
        self._assignor = assignor
        self._session = ANY_SESSION
        self._tenures = 0
        """The number of coordinators this broker has created."""
        self._on: Mapping[type, Callable[[Any, int], Effects]] = {
            SessionBegan: self._session_began,
            SessionEnded: self._session_ended,
            ZkResponse: self._answered,
            ChildrenChanged: self._changed,
            MessageReceived: self._received,
            Disconnected: self._to_all,
            TimerFired: self._to_all,
        }

    def handle(self, event: Any, now_ms: int) -> Effects:
        return self._on[type(event)](event, now_ms)

    def _session_began(self, event: SessionBegan, _now_ms: int) -> Effects:
        self._session = event.number
        return [ZkRequest(Create(f"{BROKERS}/{self.broker_id}", self._address.encode()), self._session)]

    def _session_ended(self, _event: SessionEnded, _now_ms: int) -> Effects:
        """Drop all coordinators: other brokers coordinate the groups now."""
        effects = [
            effect for one in self.coordinators.values() for effect in one.end() if isinstance(effect, DisconnectMember)
        ]
        self._session = ANY_SESSION
        self.coordinators.clear()
        return effects

    def _answered(self, event: ZkResponse, now_ms: int) -> Effects:
        if event.request.session != self._session:
            return []
        if event.error is not None:
            return [event.request]  # within a session every request can be repeated
        about = event.request.about
        if isinstance(about, RequestContext):
            one = self.coordinators.get(about.group_id)
            if one is None or one.tenure != about.tenure:
                return []
            return one.answered(about, event.value, now_ms)
        if isinstance(event.request.operation, Create):
            return self._look() if self._groups else []
        return self._looked(event.value)

    def _look(self) -> Effects:
        return [ZkRequest(Children(BROKERS), self._session)]

    def _looked(self, brokers: list[str]) -> Effects:
        effects: Effects = []
        for group_id in self._groups:
            is_ours = bool(brokers) and coordinator_of(group_id, brokers) == self.broker_id
            one = self.coordinators.get(group_id)
            if is_ours and one is None:
                assert self._assignor is not None
                self._tenures += 1
                one = ServerSideCoordinator(
                    group_id, self._address, self._session, self._topics, self._assignor, self._tenures
                )
                self.coordinators[group_id] = one
                effects += one.begin()
            elif not is_ours and one is not None:
                del self.coordinators[group_id]
                effects += one.end()
        return effects

    def _changed(self, event: ChildrenChanged, now_ms: int) -> Effects:
        return self._look() if event.path == BROKERS else self._to_all(event, now_ms)

    def _received(self, event: MessageReceived, now_ms: int) -> Effects:
        if isinstance(event.message, MemberHello):
            self._groups_of[event.peer] = event.message.group_id
        one = self.coordinators.get(self._groups_of.get(event.peer, ""))
        return one.handle(event, now_ms) if one is not None else [DisconnectMember(event.peer)]

    def _to_all(self, event: Any, now_ms: int) -> Effects:
        return [effect for one in list(self.coordinators.values()) for effect in one.handle(event, now_ms)]
